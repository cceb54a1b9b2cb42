"""Checkpoints in a store: kept, ordered, fenced, verified; and agents that write them and start from them."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replkernel.agent.io import checkpoint_store
from replkernel.agent.io.checkpoint_store import (
    GroupFollowed,
    Shelf,
    Written,
    find_checkpoint,
    read_checkpoint,
    said_by,
    write_checkpoint,
)
from replkernel.agent.io.lookup import AgentAddress, agent_dir, find_or_start, stop_agent
from replkernel.errors import StoreError
from replkernel.objects.collect import read_marks
from replkernel.objects.store import ObjectStore, open_store
from replkernel.protocol.agent_to_router import (
    CheckpointFound,
    CheckpointWritten,
    KernelEnded,
    KernelHibernated,
    ReplicaPrepared,
)
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.protocol.router_to_agent import (
    EndKernel,
    FindCheckpoint,
    HibernateKernel,
    PrepareReplica,
    StartReplica,
)
from replkernel.records import Digest, ReplicaId, Seq
from replkernel.replication.checkpoint import CHECKPOINTS_KEPT, CHUNKS_KEPT, CheckpointDamaged
from tests.support.agent_router import RouterClient, make_spec, run_cell, snapshot_after, standin_env
from tests.support.ending import end_process

HOST = "checkpoints"


@pytest.fixture
def spec(tmp_path: Path) -> Iterator[KernelSpec]:
    yield make_spec(standin_env(os.environ), tmp_path)
    stop_agent(HOST, os.environ)


@pytest.fixture
def store(spec: KernelSpec) -> ObjectStore:
    return open_store(spec.store_url, {})


def write(
    store: ObjectStore, spec: KernelSpec, generation: int, snapshot: bytes, digests: list[Digest]
) -> Written:
    return write_checkpoint(store, Shelf(spec), generation, snapshot, digests, said_by(snapshot))


def names(store: ObjectStore, spec: KernelSpec, what: str) -> list[str]:
    return sorted(name for name in store.list_documents(spec.kernel_id) if f"/{what}-" in name)


def fails_for(what: str, store: ObjectStore) -> Callable[[str, bytes], None]:
    """Return what puts documents into a store, but none of this kind."""
    put = store.put_document

    def write_or_fail(name: str, data: bytes) -> None:
        if f"/{what}-" in name:
            raise StoreError(store.url, "is full", "make room")
        put(name, data)

    return write_or_fail


def test_the_newest_few_are_kept_each_with_its_mark(store: ObjectStore, spec: KernelSpec) -> None:
    for cells in range(1, 6):
        write(store, spec, 1, snapshot_after(cells), [Digest(f"{cells:064}")])
    assert len(names(store, spec, "checkpoint")) == len(names(store, spec, "mark")) == CHECKPOINTS_KEPT
    assert read_marks(store) == {f"{cells:064}" for cells in (3, 4, 5)}
    found = find_checkpoint(store, spec)
    assert (found.seq, found.generation, found.notices) == (5, 1, ())
    assert read_checkpoint(store, spec, found.name, found.digest) == snapshot_after(5)


def test_each_damaged_one_is_told_and_the_one_before_it_is_used(store: ObjectStore, spec: KernelSpec) -> None:
    written = [write(store, spec, 1, snapshot_after(cells), []).name for cells in (1, 2, 3)]
    store.put_document(written[2], (store.get_document(written[2]) or b"")[:-5])
    store.put_document(written[1], b"")
    found = find_checkpoint(store, spec)
    assert found.name == written[0]
    assert len(found.notices) == 3
    assert written[2] in found.notices[0]
    assert "as of cell [1]" in found.notices[-1]
    store.put_document(written[0], b"nonsense")
    nothing = find_checkpoint(store, spec)
    assert (nothing.name, nothing.generation) == ("", 1)
    assert "none that can be read" in nothing.notices[-1]


def test_one_that_alone_keeps_much_goes_with_its_mark_at_once(store: ObjectStore, spec: KernelSpec) -> None:
    much = [Digest(f"{number:064}") for number in range(1000, 1001 + CHUNKS_KEPT)]
    write(store, spec, 1, snapshot_after(1), much)
    newest = write(store, spec, 1, snapshot_after(2), [Digest(f"{2:064}")])
    assert names(store, spec, "checkpoint") == [newest.name]
    assert read_marks(store) == {f"{2:064}"}
    late = write(store, spec, 1, snapshot_after(1), much)
    assert names(store, spec, "checkpoint") == [late.name, newest.name], "one of before takes nothing away"


def test_the_mark_of_one_that_failed_goes_with_the_next_that_does_not(
    store: ObjectStore, spec: KernelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, said = Shelf(spec), said_by(snapshot_after(1))
    with monkeypatch.context() as patched:
        patched.setattr(store, "put_document", fails_for("checkpoint", store))
        with pytest.raises(StoreError):
            write_checkpoint(store, shelf, 1, snapshot_after(1), [Digest(f"{1:064}")], said)
    assert len(names(store, spec, "mark")) == 1, "what may have been written after all is kept"
    write_checkpoint(store, shelf, 1, snapshot_after(2), [Digest(f"{2:064}")], said_by(snapshot_after(2)))
    assert read_marks(store) == {f"{2:064}"}


def test_the_mark_of_an_agent_that_was_killed_before_its_checkpoint_goes_once_it_is_old(
    store: ObjectStore, spec: KernelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = write(store, spec, 1, snapshot_after(1), [Digest(f"{1:064}")])
    store.delete_document(left.name)
    write(store, spec, 1, snapshot_after(2), [Digest(f"{2:064}")])
    assert len(names(store, spec, "mark")) == 2, "another host may be about to write its checkpoint"
    monkeypatch.setattr(checkpoint_store, "FOUNDING_MAX_S", -1.0)
    write(store, spec, 1, snapshot_after(3), [Digest(f"{3:064}")])
    assert read_marks(store) == {f"{2:064}", f"{3:064}"}


def test_a_checkpoint_that_founds_another_group_stays_until_that_group_has_one(
    store: ObjectStore, spec: KernelSpec
) -> None:
    snapshot = snapshot_after(1)
    needed = [Digest(f"{number:064}") for number in range(1000, 1001 + CHUNKS_KEPT)]
    first = write(store, spec, 1, snapshot, needed)
    found = find_checkpoint(store, spec)
    assert found.name == first.name
    for cells in range(2, 7):
        write(store, spec, 1, snapshot_after(cells), [])
    assert read_checkpoint(store, spec, found.name, found.digest) == snapshot
    assert set(needed) <= read_marks(store)
    write(store, spec, 2, snapshot_after(7), [])
    assert not [name for name in store.list_documents(spec.kernel_id) if "founding" in name]
    write(store, spec, 2, snapshot_after(8), [])
    assert store.get_document(found.name) is None


def test_a_late_leader_of_an_older_group_writes_nothing(store: ObjectStore, spec: KernelSpec) -> None:
    write(store, spec, 2, snapshot_after(2), [])
    with pytest.raises(GroupFollowed):
        write(store, spec, 1, snapshot_after(5), [])
    assert find_checkpoint(store, spec).seq == 2


def test_a_store_that_has_lost_the_one_before_is_noticed(store: ObjectStore, spec: KernelSpec) -> None:
    first = write(store, spec, 1, snapshot_after(1), [])
    assert not first.lost
    second = write_checkpoint(
        store, Shelf(spec), 1, snapshot_after(2), [], said_by(snapshot_after(2)), first.name
    )
    assert not second.lost
    for name in store.list_documents():
        store.delete_document(name)
    assert write_checkpoint(
        store, Shelf(spec), 1, snapshot_after(3), [], said_by(snapshot_after(3)), second.name
    ).lost


def test_one_that_was_replaced_since_it_was_found_is_refused(store: ObjectStore, spec: KernelSpec) -> None:
    name = write(store, spec, 1, snapshot_after(1), []).name
    with pytest.raises(CheckpointDamaged, match="not the one that was found"):
        read_checkpoint(store, spec, name, "0" * 64)
    with pytest.raises(CheckpointDamaged, match="not in the store"):
        read_checkpoint(store, spec, name + "1", "0" * 64)


# -- agents -------------------------------------------------------------------------------------------


def start() -> AgentAddress:
    return find_or_start(HOST, standin_env(os.environ))


def lose(agent: AgentAddress) -> None:
    """Kill an agent outright and delete all that it keeps on disk."""
    end_process(agent.pid)
    shutil.rmtree(agent_dir(HOST, os.environ))


def found_group(router: RouterClient, found: CheckpointFound) -> None:
    """Have three replicas started from a checkpoint."""
    assert router.spec is not None
    peers: dict[ReplicaId, str] = {}
    for name in ("r1", "r2", "r3"):
        router.send(PrepareReplica(router.spec, ReplicaId(name)))
    while len(peers) < 3:
        message = router.wait(ReplicaPrepared)
        peers[message.replica] = message.raft_address
    secret = secrets.token_hex(16)
    for name in peers:
        router.send(
            StartReplica(
                router.spec.kernel_id, name, peers, secret, found.name, found.digest, found.generation + 1
            )
        )
    router.await_ready("r1", "r2", "r3")


def await_checkpoint(store: ObjectStore, spec: KernelSpec, seq: int) -> CheckpointFound:
    deadline = time.monotonic() + 60
    while True:
        found = find_checkpoint(store, spec)
        if found.seq >= seq:
            return found
        assert time.monotonic() < deadline, "no checkpoint was written"
        time.sleep(0.05)


def test_a_group_goes_on_from_the_checkpoint_of_one_that_is_gone(
    spec: KernelSpec, store: ObjectStore
) -> None:
    first = start()
    with RouterClient(first, spec) as router:
        ready = router.make_replicas("r1", "r2", "r3")
        run_cell(router, 1, "x")
        run_cell(router, 2, "y")
        written = await_checkpoint(store, spec, 2)
        deadline = time.monotonic() + 60
        while (told := router.status().kernels[0].last_checkpoint) is None or told.name != written.name:
            assert time.monotonic() < deadline, f"the status shows {told}"
            time.sleep(0.05)
        assert (told.execution_count, told.why) == (2, "")
    lose(first)
    for replica in ready.values():
        os.kill(replica.pid, signal.SIGKILL)
    for document in names(store, spec, "checkpoint"):
        data = store.get_document(document) or b""
        assert spec.key.encode() not in data
    second = start()
    with RouterClient(second, spec) as router:
        router.send(FindCheckpoint(spec))
        found = router.wait(CheckpointFound)
        assert (found.seq, found.execution_count, found.generation) == (2, 2, 1)
        found_group(router, found)
        for name in ("r1", "r2", "r3"):
            seen = router.standin(name).await_seen(lambda seen: len(seen["names"]) == 2)
            assert seen["names"] == {"x": 1, "y": 2}
        run_cell(router, 3, "z", replica="r2")
    end_process(second.pid)
    with RouterClient(start(), spec) as router:
        router.await_ready("r1", "r2", "r3")
        assert router.welcome is not None
        assert router.welcome.generation == 2
        run_cell(router, 4, "w")
        seen = router.standin("r3").await_seen(lambda seen: "w" in seen["names"])
        assert seen["names"] == {"x": 1, "y": 2, "z": 3, "w": 4}
        assert await_checkpoint(store, spec, 4).generation == 2
        router.end()


def test_a_hibernated_kernel_leaves_its_checkpoint_and_nothing_else(
    spec: KernelSpec, store: ObjectStore
) -> None:
    with RouterClient(start(), spec) as router:
        ready = router.make_replicas("r1", "r2", "r3")
        run_cell(router, 1, "x")
        router.send(HibernateKernel(spec.kernel_id, "checkpoint", Seq(1)))
        written = router.wait(CheckpointWritten)
        assert (written.seq, written.why) == (1, "")
        router.send(HibernateKernel(spec.kernel_id, "stop"))
        router.wait(KernelHibernated)
        for replica in ready.values():
            assert not Path(f"/proc/{replica.pid}").exists()
        assert list((agent_dir(HOST, os.environ) / "kernels").iterdir()) == []
        assert names(store, spec, "checkpoint") == [written.name]
        router.ready.clear()
        router.send(FindCheckpoint(spec))
        found_group(router, router.wait(CheckpointFound))
        assert router.standin("r3").await_seen(lambda seen: bool(seen["names"]))["names"] == {"x": 1}
        router.end()
    deadline = time.monotonic() + 60
    while store.list_documents(spec.kernel_id):
        assert time.monotonic() < deadline, "documents of an ended kernel stay"
        time.sleep(0.05)


def test_the_end_of_a_kernel_at_rest_takes_its_documents(spec: KernelSpec, store: ObjectStore) -> None:
    write(store, spec, 1, snapshot_after(1), [])
    with RouterClient(start(), spec) as router:
        router.send(EndKernel(spec.kernel_id, "it is not needed", spec))
        router.wait(KernelEnded)
        assert store.list_documents(spec.kernel_id) == {}


def test_a_store_that_fails_says_so_and_the_kernel_stays(spec: KernelSpec, tmp_path: Path) -> None:
    kernels = tmp_path / "store" / "kernels"
    kernels.parent.mkdir()
    kernels.write_text("in the way")
    with RouterClient(start(), spec) as router:
        router.make_replicas("r1", "r2", "r3")
        run_cell(router, 1, "x")
        router.send(HibernateKernel(spec.kernel_id, "checkpoint", Seq(1)))
        written = router.wait(CheckpointWritten)
        assert written.name == ""
        assert "object store" in written.why
        run_cell(router, 2, "y")
        kernels.unlink()
        router.end()
