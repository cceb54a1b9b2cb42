"""Somebody may write to the store: what they put there is never run, and stops no live kernel."""

from __future__ import annotations

import os
import pickle
import secrets
import struct
from pathlib import Path

import msgspec
import pytest
from blake3 import blake3

from replkernel.agent.io.checkpoint_store import (
    GroupFollowed,
    Shelf,
    Written,
    find_checkpoint,
    read_checkpoint,
    said_by,
    write_checkpoint,
)
from replkernel.launch.kernel_record import KernelRecord, read_record
from replkernel.objects.store import ObjectStore, open_store
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.records import Fence, ReplicaId, Seq
from replkernel.replication.checkpoint import CHECKPOINT, CHECKPOINTS_KEPT, Place, document_name
from replkernel.replication.entries import execution_started, split_delta
from replkernel.replication.machine import KernelMachine
from replkernel.router.io.own_record import OwnRecord
from replkernel.settings import data_dir, reads_unsealed
from tests.e2e.test_hibernation import checkpoints, hibernate
from tests.support.agent_router import make_spec, snapshot_after
from tests.support.breadth import first_of
from tests.support.live import kernel
from tests.unit.agent.transcript import delta

UNSEALED = b"replkernel-checkpoint\n"
SEALED = b"replkernel-checkpoint-2\n"


@pytest.fixture
def spec(tmp_path: Path) -> KernelSpec:
    return make_spec({}, tmp_path)


@pytest.fixture
def store(spec: KernelSpec) -> ObjectStore:
    return open_store(spec.store_url, {})


def write(store: ObjectStore, spec: KernelSpec, generation: int, cells: int) -> Written:
    snapshot = snapshot_after(cells)
    return write_checkpoint(store, Shelf(spec), generation, snapshot, [], said_by(snapshot))


def rest_of(document: bytes) -> bytes:
    """Return what follows the digests: the header's length, the header, the body."""
    return document[len(SEALED) + 64 :] if document.startswith(SEALED) else document[len(UNSEALED) + 32 :]


def forged(rest: bytes, how: str) -> bytes:
    """Return a document as somebody makes it who knows everything but the kernel's key."""
    digest = blake3(rest).digest()
    if how == "unsealed":
        return UNSEALED + digest + rest
    seal = {
        "random": secrets.token_bytes(32),
        "zero": bytes(32),
        "own": blake3(digest, key=bytes(32)).digest(),
    }
    return SEALED + digest + seal[how] + rest


def moved(document: bytes, place: Place) -> bytes:
    """Return header and body of a document as if they were of another place."""
    rest = rest_of(document)
    (length,) = struct.unpack(">I", rest[:4])
    header = msgspec.msgpack.decode(rest[4 : 4 + length])
    changed = msgspec.msgpack.encode(header | {"generation": place.generation, "index": place.entry})
    return struct.pack(">I", len(changed)) + changed + rest[4 + length :]


def forge(store: ObjectStore, spec: KernelSpec, place: Place, how: str) -> str:
    """Put a forged checkpoint at a place; `copy` is a real one under another name."""
    document = store.get_document(write(store, spec, 1, 1).name) or b""
    name = document_name(CHECKPOINT, spec.kernel_id, spec.incarnation, place)
    store.put_document(name, document if how == "copy" else forged(moved(document, place), how))
    return name


HOWS = ["unsealed", "random", "zero", "own", "copy"]


@pytest.mark.parametrize("how", HOWS)
def test_a_forged_checkpoint_is_named_and_ignored(store: ObjectStore, spec: KernelSpec, how: str) -> None:
    name = forge(store, spec, Place(7, 99), how)
    real = write(store, spec, 1, 3)
    found = find_checkpoint(store, spec)
    assert (found.name, found.generation) == (real.name, 1)
    assert name in found.notices[0]
    assert "somebody else" in found.notices[0] or "earlier release" in found.notices[0]


@pytest.mark.parametrize("how", HOWS)
def test_a_forged_name_stops_no_live_kernel(store: ObjectStore, spec: KernelSpec, how: str) -> None:
    forge(store, spec, Place(7, 99), how)
    assert write(store, spec, 1, 4).header.seq == 4


def test_a_real_newer_group_still_does(store: ObjectStore, spec: KernelSpec) -> None:
    write(store, spec, 2, 1)
    with pytest.raises(GroupFollowed):
        write(store, spec, 1, 4)


def test_forged_newer_ones_do_not_have_ours_deleted(store: ObjectStore, spec: KernelSpec) -> None:
    for entry in range(100, 104):
        forge(store, spec, Place(1, entry), "random")
    real = [write(store, spec, 1, cells).name for cells in (2, 3, 4)]
    assert all(store.get_document(name) is not None for name in real[-CHECKPOINTS_KEPT:])


def test_another_kernels_checkpoint_is_not_this_ones(store: ObjectStore, spec: KernelSpec) -> None:
    """The same user's other kernel, with a key of its own, under the name of this one."""
    other = msgspec.structs.replace(spec, key=secrets.token_hex(16))
    write(store, other, 3, 5)
    assert find_checkpoint(store, spec).name == ""


def only_unsealed(store: ObjectStore, spec: KernelSpec, place: Place) -> str:
    """Leave a checkpoint as the first release wrote them, and no other."""
    name = forge(store, spec, place, "unsealed")
    for other in store.list_documents(spec.kernel_id):
        if other != name:
            store.delete_document(other)
    rest = moved(store.get_document(name) or b"", place).replace(b"\xa7version\x02", b"\xa7version\x01", 1)
    store.put_document(name, forged(rest, "unsealed"))
    return name


def test_one_of_the_release_before_is_read_while_there_is_no_other(
    store: ObjectStore, spec: KernelSpec
) -> None:
    name = only_unsealed(store, spec, Place(3, 2))
    assert find_checkpoint(store, spec).name == "", "a kernel of this release has none without a seal"
    resting = msgspec.structs.replace(spec, unsealed=True)
    found = find_checkpoint(store, resting)
    assert (found.name, found.generation, found.seq) == (name, 3, 1)
    assert "bears no seal" in found.notices[0]
    assert read_checkpoint(store, resting, found.name, found.digest) == snapshot_after(1)
    sealed = write(store, resting, 4, 2)
    assert find_checkpoint(store, resting).name == sealed.name
    assert find_checkpoint(store, resting).notices == ()


def unreadable(how: str) -> bytes:
    """Return what passes for a state until it is looked into."""
    if how == "no state":
        return b"nonsense"
    machine = KernelMachine()
    started = execution_started(Seq(1), ReplicaId("r1"), Fence(1))
    for index, entry in enumerate((started, *split_delta(delta(1, blobs=1))), 1):
        machine.apply(index, entry)
    return machine.snapshot().replace(b"\xd9\x4001" + b"0" * 62, b"\xd9\x40no" + b"0" * 62)


@pytest.mark.parametrize("how", ["no state", "no digests"])
def test_a_forged_state_that_is_none_does_not_keep_the_kernel_from_waking(
    store: ObjectStore, spec: KernelSpec, how: str
) -> None:
    real = only_unsealed(store, spec, Place(3, 2))
    rest = moved(store.get_document(real) or b"", Place(7, 99))
    (length,) = struct.unpack(">I", rest[:4])
    name = document_name(CHECKPOINT, spec.kernel_id, spec.incarnation, Place(7, 99))
    store.put_document(name, forged(rest[: 4 + length] + unreadable(how), "unsealed"))
    found = find_checkpoint(store, msgspec.structs.replace(spec, unsealed=True))
    assert found.name == real


def test_one_without_a_seal_stops_nobody_whatever_may_be_read(store: ObjectStore, spec: KernelSpec) -> None:
    only_unsealed(store, spec, Place(9, 2))
    assert write(store, msgspec.structs.replace(spec, unsealed=True), 4, 2).header.generation == 4


@pytest.mark.parametrize(
    ("setting", "sealed", "reads"),
    [("", False, True), ("", True, False), ("accept", True, True), ("refuse", False, False)],
)
def test_who_may_have_none_without_a_seal_reads_none(setting: str, sealed: bool, reads: bool) -> None:
    assert reads_unsealed({"REPLKERNEL_UNSIGNED_CHECKPOINTS": setting}, sealed=sealed) == reads


def test_a_kernel_that_has_rested_under_this_release_has_seals(tmp_path: Path) -> None:
    record = KernelRecord("k", "", "one", {"key": "secret"}, "", "", "", state="live")
    own = OwnRecord(tmp_path, record, pytest.fail)
    own.note("live")
    assert (found := read_record(tmp_path, "k")) is not None and not found.sealed
    own.note("hibernated")
    assert (found := read_record(tmp_path, "k")) is not None and found.sealed


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("how", first_of("random", "unsealed"))
def test_a_pickle_put_into_the_store_by_a_stranger_is_not_run_at_the_next_wake(
    tmp_path: Path, how: str
) -> None:
    evil = tmp_path / "evil"
    with kernel(tmp_path) as live:
        live.value(f"x = ['A' * 3000, {secrets.token_hex(8)!r}]")
        hibernate(live)
        for path in checkpoints():
            document = path.read_bytes()
            rest = rest_of(document)
            start = rest.rindex(b"\x80\x05", 0, rest.index(b"A" * 500))
            instead = pickle.dumps(Evil(evil), protocol=5)
            path.write_bytes(forged(rest[:start] + instead + rest[start + len(instead) :], how))
        ran = live.run("print(len(x))")
        assert not evil.exists()
        assert "somebody else" in ran.err + str(ran.error)
    assert (data_dir(os.environ) / "store").exists()
