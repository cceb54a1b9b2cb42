"""How many GPUs of a node Ray's other jobs use, told only when two looks agree.

What Ray says of a node is a moment old, and what we take and leave shows in it a moment later. Law: a look
that was begun, or followed, while something was taken or left there says nothing.
"""

from __future__ import annotations

import threading

AGREE = 2


class Counts:
    """Counts of all nodes."""

    def __init__(self) -> None:
        """Start with nothing told."""
        self._lock = threading.Lock()
        self._number = 0
        self._busy: dict[str, int] = {}
        self._stirred: dict[str, int] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        self._told: dict[str, int] = {}

    def begins(self) -> int:
        """Begin a look; return its number."""
        with self._lock:
            self._number += 1
            return self._number

    def stirred(self, host: str) -> None:
        """Note that something is being taken or left on a node."""
        with self._lock:
            self._busy[host] = self._busy.get(host, 0) + 1

    def calmed(self, host: str) -> None:
        """Note that it is done."""
        with self._lock:
            self._busy[host] -= 1
            self._stirred[host] = self._number

    def doubt(self, host: str) -> None:
        """Have the next certain count told, whatever it is."""
        with self._lock:
            self._told.pop(host, None)

    def forget(self, host: str) -> None:
        """Forget a node."""
        with self._lock:
            self._told.pop(host, None)
            self._seen.pop(host, None)

    def read(self, host: str, count: int, look: int) -> int | None:
        """Take what a look saw; return the count if it is certain, and news."""
        with self._lock:
            if self._busy.get(host) or self._stirred.get(host, -1) >= look - 1:
                self._seen.pop(host, None)
                return None
            before, times = self._seen.get(host, (count, 0))
            times = times + 1 if before == count else 1
            self._seen[host] = (count, min(times, AGREE))
            if times < AGREE or self._told.get(host) == count:
                return None
            self._told[host] = count
            return count
