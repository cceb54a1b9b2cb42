"""What brings a process up to date: the deltas it missed, or all committed state in messages that fit. Pure.

Law: applied in order, what is sent gives the whole state; only the last delta has the state's own number,
so a process that has not taken all of them does not pass for up to date.
"""

from __future__ import annotations

from collections import deque
from itertools import groupby

import msgspec

from replkernel.records import ComponentRecord, Delta, Mark, Payload, Seq

STATE_MESSAGE_BYTES = 24 * 1024 * 1024
"""A delta is closed when it has grown to this; one execution's components stay together (48 MiB at most)."""

COMPONENT_OVERHEAD_BYTES = 512


RECENT_MAX = 256
RECENT_BYTES_MAX = 4 * 1024 * 1024
"""So many of the latest deltas, of so many bytes, are kept for processes that missed only those."""


class RecentDeltas:
    """The latest deltas of the log: exact, where all state at once cannot say what was dropped meanwhile."""

    def __init__(self) -> None:
        self._deltas: deque[tuple[Delta, int]] = deque()
        self._bytes = 0
        self._floor = Mark(Seq(0))

    def add(self, delta: Delta) -> None:
        """Take the delta that was applied last."""
        size = delta_bytes(delta)
        self._deltas.append((delta, size))
        self._bytes += size
        while self._deltas and (len(self._deltas) > RECENT_MAX or self._bytes > RECENT_BYTES_MAX):
            gone, size = self._deltas.popleft()
            self._bytes -= size
            self._floor = gone.mark

    def restart(self, floor: Mark) -> None:
        """Forget all deltas: the state was replaced as of `floor`."""
        self._deltas.clear()
        self._bytes, self._floor = 0, floor

    def after(self, mark: Mark) -> list[Delta] | None:
        """Return every delta after `mark` in order, or None when some of them are forgotten."""
        if mark < self._floor:
            return None
        return [delta for delta, _ in self._deltas if delta.mark > mark]


def split_state(whole: Delta, bytes_max: int) -> list[Delta]:
    """Return `whole` as deltas of about `bytes_max` bytes at most, in the order of their executions."""
    sizes = {component.cid: _size(component) for component in whole.components}
    if sum(sizes.values()) <= bytes_max:
        return [whole]
    ordered = sorted(whole.components, key=lambda component: component.seq)
    parts: list[list[ComponentRecord]] = [[]]
    filled = 0
    for _, group in groupby(ordered, key=lambda component: component.seq):
        together = list(group)
        size = sum(sizes[component.cid] for component in together)
        if parts[-1] and filled + size > bytes_max:
            parts.append([])
            filled = 0
        parts[-1] += together
        filled += size
    early = [
        msgspec.structs.replace(
            whole,
            seq=_last_seq(part),
            components=tuple(part),
            pins=(),
            order=None,
            audit=0,
            unaudited=(),
            only=None,
        )
        for part in parts[:-1]
    ]
    return [*early, msgspec.structs.replace(whole, components=tuple(parts[-1]))]


def delta_bytes(delta: Delta) -> int:
    """Return about how many bytes a delta takes in a message."""
    return sum(_size(component) for component in delta.components)


def _last_seq(part: list[ComponentRecord]) -> Seq:
    return part[-1].seq


def _size(component: ComponentRecord) -> int:
    return COMPONENT_OVERHEAD_BYTES + _inline(component.payload)


def _inline(payload: Payload) -> int:
    inline = sum(len(buffer) for buffer in payload.buffers if isinstance(buffer, bytes))
    chunks = sum(len(buffer.chunks) for buffer in payload.buffers if not isinstance(buffer, bytes))
    return inline + 80 * chunks + len(payload.head or b"")
