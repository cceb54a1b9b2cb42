"""Whose turn it is while a kernel starts: its first process here goes ahead, the rest waits for it.

A first cell runs in that process, so the others' forks and the Raft members must not take its processor.
Law: nobody waits longer than LIMIT_S after the first process exists, and nobody once the start is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

SETTLE_S = 0.05
"""So long after the first process's greeting it is left alone: a cell that waited for it runs now."""

LIMIT_S = 0.25
"""So long after its birth the first process may take until it greets."""


class Turns:
    """The order in which what belongs to one kernel on this host starts."""

    def __init__(self) -> None:
        self._begun = False
        self._waiting: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._over = asyncio.Event()

    def ask(self, start: Callable[[], None], refuse: Callable[[], None]) -> None:
        """Have a process started, at once or after the first; `refuse` is for when the kernel ends before."""
        if self._begun and not self._over.is_set():
            self._waiting.append((start, refuse))
            return
        self._begun = True
        start()

    def born(self) -> None:
        """Note that the first process exists."""
        if self._timer is None:
            self._release_in(LIMIT_S)

    def greeted(self) -> None:
        """Note that the first process has greeted."""
        self._release_in(SETTLE_S)

    def failed(self) -> None:
        """Note that the first process has ended or could not be made."""
        self._release_in(0.0)

    async def others(self) -> None:
        """Return when what is not the first process may take its turn."""
        if self._begun:
            await self._over.wait()

    def refuse(self) -> None:
        """Refuse whoever waits yet: the kernel ends."""
        waiting = self._waiting
        self.close()
        for _, refuse in waiting:
            refuse()

    def close(self) -> None:
        """Start nobody any more of those who wait: the agent goes."""
        self._stop_timer()
        self._over.set()
        self._waiting = []

    def _release_in(self, delay_s: float) -> None:
        if self._over.is_set():
            return
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._release)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _release(self) -> None:
        self._over.set()
        waiting, self._waiting = self._waiting, []
        for start, _ in waiting:
            start()
