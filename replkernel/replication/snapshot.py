"""What a snapshot of a kernel's replicated state holds, and its bytes.

Pure. Law: snapshots of earlier releases are read for ever; one of a later release is refused by name.
"""

from __future__ import annotations

import msgspec

from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.records import HostName, ReplicaId, Seq
from replkernel.replication.components import TableState
from replkernel.replication.election import ElectionRecord
from replkernel.replication.executions import LedgerState

SNAPSHOT_VERSION = 3
"""Since 2 a table may carry the way back to its last whole point, since 3 its history; without them it is
what it was before."""


class SnapshotUnreadable(ReplkernelError):
    """A snapshot of a kernel's state cannot be read by this release."""


class Member(msgspec.Struct, frozen=True):
    """One replica of the kernel: its host and the Raft address of its keeper."""

    replica: ReplicaId
    host: HostName
    address: str


class HeldDelta(msgspec.Struct):
    """The parts of a delta that have arrived so far."""

    parts: int
    pieces: dict[int, bytes]


class MachineState(msgspec.Struct):
    """Everything that a snapshot holds."""

    version: int = SNAPSHOT_VERSION
    index: int = 0
    table: TableState = msgspec.field(default_factory=TableState)
    ledger: LedgerState = msgspec.field(default_factory=LedgerState)
    members: dict[ReplicaId, Member] = {}
    elections: dict[Seq, ElectionRecord] = {}
    held: dict[str, HeldDelta] = {}
    keys: dict[str, int] = {}
    departed: list[ReplicaId] = []


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(MachineState)


def encode_state(state: MachineState) -> bytes:
    """Return a state as msgpack bytes."""
    return _encoder.encode(state)


def decode_state(data: bytes) -> MachineState:
    """Return the state of a snapshot; raise SnapshotUnreadable."""
    try:
        state = _decoder.decode(data)
    except UNREADABLE as error:
        raise SnapshotUnreadable(f"The snapshot of a kernel's state cannot be read: {error}.") from error
    if not 1 <= state.version <= SNAPSHOT_VERSION:
        raise SnapshotUnreadable(
            f"The snapshot of a kernel's state has version {state.version}, this release reads "
            f"up to {SNAPSHOT_VERSION}: install the same release of replkernel on every host."
        )
    state.version = SNAPSHOT_VERSION
    return state
