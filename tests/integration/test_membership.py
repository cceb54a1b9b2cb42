"""Members that come and go: real agents take a replica in, in place of one that will not return."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.agent.io.lookup import agent_dir, find_or_start, stop_agent
from replkernel.objects.store import ObjectStore, open_store
from replkernel.protocol.agent_to_router import (
    CheckpointFound,
    CheckpointWritten,
    KernelHibernated,
    MembersChanged,
    ReplicaPrepared,
)
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.protocol.router_to_agent import (
    ChangeMembers,
    FindCheckpoint,
    HibernateKernel,
    PrepareReplica,
    StartReplica,
    StopReplica,
)
from replkernel.records import ReplicaId, Seq
from replkernel.replication.raft_fit import fit_pysyncobj
from replkernel.replication.raft_node import FALLBACK_S
from tests.support.agent_router import RouterClient, make_spec, run_cell, standin_env
from tests.support.ending import end_process
from tests.support.live import eventually

fit_pysyncobj()

HOST = "members"
R1, R2, R3, R4 = (ReplicaId(f"r{number}") for number in range(1, 5))


@pytest.fixture
def spec(tmp_path: Path) -> Iterator[KernelSpec]:
    yield make_spec(standin_env(os.environ), tmp_path)
    stop_agent(HOST, os.environ)


@pytest.fixture
def router(spec: KernelSpec) -> Iterator[RouterClient]:
    with RouterClient(find_or_start(HOST, standin_env(os.environ)), spec) as client:
        yield client


def prepare(router: RouterClient, name: ReplicaId, *, joining: bool = False) -> str:
    assert router.spec is not None
    router.send(PrepareReplica(router.spec, name, joining=joining))
    return router.wait(ReplicaPrepared, lambda message: message.replica == name).raft_address


def replace(router: RouterClient, leaves: ReplicaId, new: ReplicaId) -> MembersChanged:
    """Have `new` take the place of `leaves`; return what it was started with."""
    assert router.spec is not None
    kernel_id, address = router.spec.kernel_id, prepare(router, new, joining=True)
    changed = None
    for _ in range(40):
        router.send(ChangeMembers(kernel_id, new, address, leaves))
        with contextlib.suppress(AssertionError):  # Nobody answers while nobody leads.
            changed = router.wait(MembersChanged, lambda message: message.replica == new, timeout_s=0.5)
        if changed is not None and not changed.why:
            break
    assert changed is not None
    assert changed.why == ""
    assert new not in router.ready, "it has not caught up yet"
    router.send(StopReplica(kernel_id, leaves, "it was replaced"))
    router.send(
        StartReplica(
            kernel_id, new, changed.peers, changed.secret, changed.checkpoint,
            changed.checkpoint_digest, changed.generation, joining=True,
        )
    )  # fmt: skip
    router.await_ready(new)
    return changed


def test_a_new_member_has_all_state_and_the_old_one_leaves_nothing(router: RouterClient) -> None:
    assert router.spec is not None
    router.make_replicas(R1, R2, R3)
    run_cell(router, 1, "x")
    for leaves, new in ((R2, R4), (R1, ReplicaId("r5")), (R3, ReplicaId("r6"))):
        changed = replace(router, leaves, new)
        assert leaves not in changed.peers
        assert len(changed.peers) == 3
    seen = router.standin("r4").await_seen(lambda seen: bool(seen["names"]))
    assert seen["names"] == {"x": 1}
    run_cell(router, 2, "y", replica="r5")
    seen = router.standin("r6").await_seen(lambda seen: "y" in seen["names"])
    assert seen["names"] == {"x": 1, "y": 2}
    kept = agent_dir(HOST, os.environ) / "kernels" / router.spec.kernel_id / router.spec.incarnation
    stay = ["r4", "r5", "r6"]
    eventually(lambda: sorted(path.name for path in kept.iterdir()) == stay, "the end of the others' files")
    router.end()


@pytest.mark.parametrize("silent_s", [0.0, FALLBACK_S + 2.0], ids=["at once", "after nobody leads any more"])
def test_a_member_that_is_alone_takes_another_in(router: RouterClient, silent_s: float) -> None:
    """Two are a majority only together, so the other one runs before it is committed that it is a member."""
    assert router.spec is not None
    kernel_id = router.spec.kernel_id
    router.make_replicas(R1)
    run_cell(router, 1, "x")
    address = prepare(router, R2, joining=True)
    router.send(ChangeMembers(kernel_id, R2, address, ReplicaId("")))
    changed = router.wait(MembersChanged)
    assert (changed.why, set(changed.peers)) == ("", {R1, R2})
    if silent_s:  # The answer was lost: whoever asks again gets it once more.
        time.sleep(silent_s)
        router.send(ChangeMembers(kernel_id, R2, address, ReplicaId("")))
        assert router.wait(MembersChanged) == changed
    router.send(StartReplica(kernel_id, R2, changed.peers, changed.secret, joining=True))
    router.await_ready(R2)
    router.standin("r2").await_seen(lambda seen: seen["names"] == {"x": 1})
    run_cell(router, 2, "y", replica="r2")
    router.standin("r1").await_seen(lambda seen: seen["names"] == {"y": 2})
    router.end()


def test_a_restarted_agent_goes_on_with_the_members_of_now(router: RouterClient, spec: KernelSpec) -> None:
    router.make_replicas(R1, R2, R3)
    run_cell(router, 1, "x")
    replace(router, R2, R4)
    run_cell(router, 2, "y")
    end_process(router.address.pid)
    with RouterClient(find_or_start(HOST, standin_env(os.environ)), spec) as second:
        second.await_ready(R1, R3, R4)
        assert second.welcome is not None
        assert set(second.welcome.members) == {R1, R3, R4}
        assert second.welcome.departed == (R2,)
        run_cell(second, 3, "z", replica="r4")
        seen = second.standin("r3").await_seen(lambda seen: "z" in seen["names"])
        assert seen["names"] == {"x": 1, "y": 2, "z": 3}
        second.end()


def test_a_new_member_of_a_group_that_started_from_a_checkpoint_has_that_state_too(
    router: RouterClient, spec: KernelSpec
) -> None:
    store: ObjectStore = open_store(spec.store_url, {})
    router.make_replicas(R1, R2, R3)
    run_cell(router, 1, "x")
    router.send(HibernateKernel(spec.kernel_id, "checkpoint", Seq(1)))
    assert router.wait(CheckpointWritten).name
    router.send(HibernateKernel(spec.kernel_id, "stop"))
    router.wait(KernelHibernated)
    router.ready.clear()
    router.send(FindCheckpoint(spec))
    found = router.wait(CheckpointFound)
    peers = {name: prepare(router, name) for name in (R1, R2, R3)}
    secret = secrets.token_hex(16)
    for name in peers:
        router.send(StartReplica(spec.kernel_id, name, peers, secret, found.name, found.digest, 2))
    router.await_ready(R1, R2, R3)
    run_cell(router, 2, "y")
    store.delete_document(found.name)
    changed = replace(router, R2, R4)
    assert (changed.checkpoint, changed.generation) == (found.name, 2)
    seen = router.standin("r4").await_seen(lambda seen: len(seen["names"]) == 2)
    assert seen["names"] == {"x": 1, "y": 2}
    router.end()
