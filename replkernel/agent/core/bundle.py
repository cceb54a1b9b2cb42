"""Several entries in one entry of the Raft log: a round of Raft costs much more than what it carries. Pure.

Law: what is put into bundles comes out in the same order, and a lone entry is its own bundle.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from replkernel.errors import UNREADABLE
from replkernel.replication.entries import ENTRY_BYTES_MAX, EntryUnreadable

BUNDLE_MARK = b"\xc1"
"""The first byte of a bundle: the one byte with which no msgpack value begins."""

BUNDLE_ENTRIES_MAX = 1 << 16
BUNDLE_BYTES_MAX = ENTRY_BYTES_MAX - 16 * 1024
ENTRY_OVERHEAD_BYTES = 5

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[bytes])


def bundle(entries: Sequence[bytes]) -> list[bytes]:
    """Return `entries`, in order, in as few entries of the log as they fit into."""
    groups: list[list[bytes]] = []
    size = 0
    for entry in entries:
        size += len(entry) + ENTRY_OVERHEAD_BYTES
        if not groups or size > BUNDLE_BYTES_MAX or len(groups[-1]) >= BUNDLE_ENTRIES_MAX:
            groups.append([])
            size = len(entry) + ENTRY_OVERHEAD_BYTES
        groups[-1].append(entry)
    return [group[0] if len(group) == 1 else BUNDLE_MARK + _encoder.encode(group) for group in groups]


def unbundle(data: bytes) -> list[bytes]:
    """Return the entries in an entry of the log; raise EntryUnreadable when it is a damaged bundle."""
    if not data.startswith(BUNDLE_MARK):
        return [data]
    try:
        return _decoder.decode(memoryview(data)[1:])[:BUNDLE_ENTRIES_MAX]
    except UNREADABLE as error:
        raise EntryUnreadable(f"A bundle of entries cannot be read: {error}.") from error


def place(index: int, number: int) -> int:
    """Return where the state machine is after entry `number` of the bundle at `index` of the log."""
    return index * BUNDLE_ENTRIES_MAX + number
