"""The deltas that a process proposed and has not seen committed, oldest first, up to a limit.

Law: thread-safe; a delta leaves only by its commit or its refusal.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from replkernel.protocol.message import MESSAGE_BYTES_MAX
from replkernel.records import Delta, Mark, Payload, Seq

DELTAS_MAX = 512
BYTES_MAX = MESSAGE_BYTES_MAX // 2
"""Beyond either, executions are not captured until the agent answers; the next capture covers them all."""


class Unacknowledged:
    """The deltas that are on their way."""

    def __init__(self) -> None:
        self._held: dict[Mark, tuple[Delta, int]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, delta: Delta) -> None:
        """Keep a delta that is being proposed."""
        with self._lock:
            self._held[delta.mark] = (delta, delta_bytes(delta))

    def deltas(self) -> tuple[Delta, ...]:
        """Return all, oldest first."""
        with self._lock:
            return tuple(delta for delta, _ in self._held.values())

    def full(self) -> bool:
        """Tell whether no more can be taken."""
        with self._lock:
            sizes = [size for _, size in self._held.values()]
        return len(sizes) >= DELTAS_MAX or sum(sizes) >= BYTES_MAX

    def committed(self, mark: Mark) -> None:
        """Let go of everything up to `mark`."""
        self._forget(lambda held: held <= mark)

    def refused(self, seq: Seq) -> None:
        """Let go of one execution's."""
        self._forget(lambda held: held.seq == seq)

    def _forget(self, done: Callable[[Mark], bool]) -> None:
        with self._lock:
            for mark in [mark for mark in self._held if done(mark)]:
                del self._held[mark]


def delta_bytes(delta: Delta) -> int:
    """Return about how many bytes of the log `delta` takes."""
    return 256 + sum(_payload_bytes(component.payload) + 256 for component in delta.components)


def _payload_bytes(payload: Payload) -> int:
    inline = sum(len(buffer) for buffer in payload.buffers if isinstance(buffer, bytes))
    return inline + len(payload.head or b"")
