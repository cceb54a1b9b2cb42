"""What a group's log, snapshots and files on disk hold, down to the state machine that applies them."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

import msgspec

from replkernel.agent.core.bundle import bundle, unbundle
from replkernel.agent.io.folder import ReplicaFolder, ReplicaRecord, saved_replicas
from replkernel.errors import ReplkernelError
from replkernel.launch.kernel_record import KernelRecord, read_record
from replkernel.records import Delta
from replkernel.replication.entries import Entry, assemble_delta, encode_entry, split_delta
from replkernel.replication.machine import KernelMachine
from replkernel.replication.raft_files import MetaFile, TidyJournal
from replkernel.replication.raft_fit import fit_pysyncobj
from replkernel.replication.raft_node import JournalDamaged, SnapshotFile, read_snapshot
from replkernel.replication.snapshot import decode_state
from tests.fuzz.examples import packed, written
from tests.fuzz.pieces import cut, filled, joined
from tests.fuzz.targets.checkpoint import snapshot
from tests.unit.agent.transcript import delta

ENTRIES, STATE, DELTA, FILE, JOURNAL, META, RECORDS = range(7)
PLACE = Path(tempfile.gettempdir()) / f"replkernel-fuzz-{os.getpid()}"


def seeds() -> list[bytes]:
    """Return every entry, a story of them, a state, and files."""
    fit_pysyncobj()
    parts = [encode_entry(part) for part in split_delta(delta(1, blobs=2))]
    entries = packed(Entry)
    snapshot_file = msgspec.msgpack.encode(SnapshotFile(snapshot(), (b"", 2, 1), (b"", 1, 1), ["a:1"]))
    told = [joined(ENTRIES, entry, *parts) for entry in entries]
    told += [joined(ENTRIES, *bundle([*entries, *parts])), joined(STATE, snapshot()), *_deltas()]
    told += [joined(FILE, snapshot_file), joined(JOURNAL, _journal())]
    told.append(joined(META, msgspec.msgpack.encode({"currentTerm": 1, "votedForNodeId": "a:1"})))
    return [*told, *(joined(RECORDS, *written(kind)) for kind in (ReplicaRecord, KernelRecord))]


def _deltas() -> list[bytes]:
    return [joined(DELTA, piece) for piece in packed(Delta)]


def _journal() -> bytes:
    path = _path("journal")
    journal = TidyJournal(str(path))
    for number in (1, 2):
        journal.add(b"\x00entry", number, 1)
    journal._destroy()
    return path.read_bytes()[:512]


def fuzz(data: bytes) -> None:
    """Have a replica read the pieces."""
    logging.disable(logging.CRITICAL)
    fit_pysyncobj()
    number, pieces = cut(data)
    if number % 7 == ENTRIES:
        _apply(pieces)
        return
    (piece,) = filled(pieces, 1)
    try:
        (decode_and_restore, _as_delta, _file, _open_journal, _meta, _records)[number % 7 - 1](piece)
    except ReplkernelError:
        return


def _apply(pieces: list[bytes]) -> None:
    """Apply the pieces as a log; what the machine takes, its snapshot gives back."""
    machine, index = KernelMachine(), 0
    for piece in pieces[:32]:
        try:
            entries = unbundle(piece)
        except ReplkernelError:
            continue
        for entry in entries[:32]:
            index += 1
            try:
                machine.apply_bytes(index, entry)
            except ReplkernelError:
                continue
    machine.check_invariants()
    again = KernelMachine()
    again.restore(machine.snapshot())
    assert again.snapshot() == machine.snapshot()


def decode_and_restore(piece: bytes) -> None:
    """Restore a state, and look at it as an agent does."""
    decode_state(piece)
    machine = KernelMachine()
    machine.restore(piece)
    machine.full_delta().blobs()
    machine.apply_bytes(machine.index + 1, encode_entry(split_delta(delta(9))[0]))


def _as_delta(piece: bytes) -> None:
    found = assemble_delta([piece])
    split_delta(found)
    found.digests()


def _file(piece: bytes) -> None:
    path = _path("snapshot")
    path.write_bytes(piece)
    read_snapshot(path)


def _open_journal(piece: bytes) -> None:
    """Open a journal as `raft` does: whatever is wrong with the file is one error for it."""
    path = _path("journal")
    path.write_bytes(piece)
    try:
        journal = TidyJournal(str(path))
    except Exception as error:  # As in RaftMember: it is named as damaged.
        raise JournalDamaged(str(path), str(error)) from error
    journal._destroy()


def _meta(piece: bytes) -> None:
    path = _path("meta")
    path.write_bytes(piece)
    try:
        MetaFile(str(path)).getMeta()
    except Exception as error:  # Likewise.
        raise JournalDamaged(str(path), str(error)) from error


def _records(piece: bytes) -> None:
    """Have an agent and a server look at records that are damaged."""
    folder = _path("kernels") / "k" / "one" / "r1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "replica.json").write_bytes(piece)
    (folder / "base.msgpack").write_bytes(piece)
    for record in saved_replicas(_path("kernels")):
        if isinstance(record, ReplicaRecord):
            ReplicaFolder(_path("kernels"), record.spec, record.replica).read_base("digest")
    file = PLACE / "data" / "kernels" / "k" / "kernel.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(piece)
    read_record(PLACE / "data", "k")


def _path(name: str) -> Path:
    PLACE.mkdir(exist_ok=True)
    path = PLACE / name
    if path.is_file():
        path.unlink()
    return path
