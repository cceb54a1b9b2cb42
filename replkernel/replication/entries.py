"""The entries of a kernel's log, their idempotency keys, and a delta's way into parts and back.

Pure: bytes in, records out. Law: an entry never exceeds ENTRY_BYTES_MAX, and two entries with the same
key say the same thing, so that proposing one twice is harmless.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.records import Delta, Fence, HostName, ReplicaId, Seq

ENTRY_BYTES_MAX = 256 * 1024
"""No entry is larger than this, encoded."""

PART_BYTES_MAX = 192 * 1024
"""A delta travels in parts of at most this many bytes."""

PARTS_MAX = 256
"""No delta has more parts than this (48 MiB in all): larger payloads belong into the store."""


class EntryTooLarge(ReplkernelError):
    """A delta or entry is larger than the log takes."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(
            f"{what} has {size:,} bytes, but the log takes {limit:,} at most: "
            "lower REPLKERNEL_INLINE_BYTES_MAX so that more of the state goes to the store."
        )
        self.size = size
        self.limit = limit


class EntryUnreadable(ReplkernelError):
    """The bytes of an entry, or of a delta put together from its parts, are not what they should be."""


class KeyedEntry(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The base of all entries; the tag is the class name."""

    key: str


class ExecutionStarted(KeyedEntry, frozen=True):
    """A replica claims execution `seq` under `fence`.

    `afresh`: it goes on for a process that is lost, from the last whole point, and nothing newer counts.
    """

    seq: Seq
    replica: ReplicaId
    fence: Fence
    afresh: bool = False


class StateDelta(KeyedEntry, frozen=True):
    """Part `part` of `parts` (counted from 0) of an execution's delta, or of what its audit `audit` adds.

    `key` names the whole delta and is the same in all its parts.
    """

    seq: Seq
    replica: ReplicaId
    fence: Fence
    part: int
    parts: int
    piece: bytes
    audit: int = 0


class ExecutionFailed(KeyedEntry, frozen=True):
    """Execution `seq` of `replica` ended without a delta, and none may come any more."""

    seq: Seq
    replica: ReplicaId
    why: str


class Lead(KeyedEntry, frozen=True):
    """A replica offers to run execution `seq`."""

    seq: Seq
    replica: ReplicaId
    fence: Fence


class Yield(KeyedEntry, frozen=True):
    """A replica declines to run execution `seq`."""

    seq: Seq
    replica: ReplicaId
    fence: Fence


class Vote(KeyedEntry, frozen=True):
    """A replica confirms that it saw `choice` win the election of execution `seq`."""

    seq: Seq
    replica: ReplicaId
    fence: Fence
    choice: ReplicaId


class ReplicaJoined(KeyedEntry, frozen=True):
    """A replica belongs to the kernel from here on."""

    replica: ReplicaId
    host: HostName
    address: str


class ReplicaLeft(KeyedEntry, frozen=True):
    """A replica belongs to the kernel no longer; its name is not used again."""

    replica: ReplicaId


class RouterAttached(KeyedEntry, frozen=True):
    """A router speaks for the kernel under `fence`; older routers are refused."""

    fence: Fence


Entry: TypeAlias = (
    ExecutionStarted
    | StateDelta
    | ExecutionFailed
    | Lead
    | Yield
    | Vote
    | ReplicaJoined
    | ReplicaLeft
    | RouterAttached
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Entry] = msgspec.msgpack.Decoder(Entry)
_delta_decoder = msgspec.msgpack.Decoder(Delta)


def encode_entry(entry: Entry) -> bytes:
    """Return the bytes of `entry`; raise EntryTooLarge above ENTRY_BYTES_MAX."""
    data = _encoder.encode(entry)
    if len(data) > ENTRY_BYTES_MAX:
        raise EntryTooLarge(f"Entry {entry.key!r}", len(data), ENTRY_BYTES_MAX)
    return data


def decode_entry(data: bytes) -> Entry:
    """Return the entry in `data`; raise EntryUnreadable when there is none."""
    if len(data) > ENTRY_BYTES_MAX:
        raise EntryUnreadable(f"An entry of {len(data):,} bytes is above the limit of {ENTRY_BYTES_MAX:,}.")
    try:
        return _decoder.decode(data)
    except UNREADABLE as error:
        raise EntryUnreadable(f"An entry of the log cannot be read: {error}.") from error


# -- entries with their keys ------------------------------------------------------------------------


def execution_started(
    seq: Seq, replica: ReplicaId, fence: Fence, *, afresh: bool = False
) -> ExecutionStarted:
    """Return the claim of an execution; `afresh`: from the last whole point."""
    word = "afresh" if afresh else "started"
    return ExecutionStarted(f"{word}:{seq}:{fence}:{replica}", seq, replica, fence, afresh)


def execution_failed(seq: Seq, replica: ReplicaId, why: str) -> ExecutionFailed:
    """Return the end of an execution that has no delta; `why` is one clause for the user."""
    return ExecutionFailed(f"failed:{seq}:{replica}", seq, replica, why)


def lead(seq: Seq, replica: ReplicaId, fence: Fence) -> Lead:
    """Return a replica's offer to run an execution."""
    return Lead(f"lead:{seq}:{fence}:{replica}", seq, replica, fence)


def yield_(seq: Seq, replica: ReplicaId, fence: Fence) -> Yield:
    """Return a replica's refusal to run an execution."""
    return Yield(f"yield:{seq}:{fence}:{replica}", seq, replica, fence)


def vote(seq: Seq, replica: ReplicaId, fence: Fence, choice: ReplicaId) -> Vote:
    """Return a replica's confirmation of an election's winner."""
    return Vote(f"vote:{seq}:{fence}:{replica}", seq, replica, fence, choice)


def replica_joined(replica: ReplicaId, host: HostName, address: str) -> ReplicaJoined:
    """Return the entry that makes a replica a member."""
    return ReplicaJoined(f"joined:{replica}", replica, host, address)


def replica_left(replica: ReplicaId) -> ReplicaLeft:
    """Return the entry that ends a replica's membership."""
    return ReplicaLeft(f"left:{replica}", replica)


def router_attached(fence: Fence) -> RouterAttached:
    """Return the entry by which a router takes the kernel over."""
    return RouterAttached(f"router:{fence}", fence)


# -- deltas in parts --------------------------------------------------------------------------------


def split_delta(delta: Delta, part_bytes: int = PART_BYTES_MAX) -> list[StateDelta]:
    """Return the entries that carry `delta`, in order; raise EntryTooLarge when it is too large.

    Encoding is deterministic: the same delta gives the same entries, hence the same key.
    """
    data = _encoder.encode(delta)
    pieces = [data[start : start + part_bytes] for start in range(0, len(data), part_bytes)]
    if len(pieces) > PARTS_MAX:
        raise EntryTooLarge(f"The delta of execution {delta.seq}", len(data), PARTS_MAX * part_bytes)
    mark = hashlib.blake2b(data, digest_size=8).hexdigest()
    key = f"delta:{delta.seq}:{delta.fence}:{delta.replica}:{mark}"
    return [
        StateDelta(key, delta.seq, delta.replica, delta.fence, number, len(pieces), piece, delta.audit)
        for number, piece in enumerate(pieces)
    ]


def assemble_delta(pieces: Sequence[bytes]) -> Delta:
    """Return the delta whose pieces these are, in order; raise EntryUnreadable when they do not fit."""
    try:
        return _delta_decoder.decode(b"".join(pieces))
    except UNREADABLE as error:
        raise EntryUnreadable(f"A delta of {len(pieces)} parts cannot be read: {error}.") from error
