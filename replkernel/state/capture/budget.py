"""How a capture gives way to the session: its terms, and the gate that it passes at many points.

Law: what is raised here is no Exception, so that nothing which guards against user code takes it for a fault;
a capture that gave way names what it left out, and shipped nothing of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

ASK_EVERY_S = 0.002
"""Whether somebody waits is asked no more often than this: the rest costs a look at the clock."""


class GiveWay(BaseException):
    """The capture is to stop here, for somebody waits for the main thread."""


class Terms(NamedTuple):
    """How far a capture may go.

    `first` are the names that the cell mentions (empty: unknown). `stop` is asked from `grace_s` on, at each
    gate. With a `budget_s`, heavy components that the cell does not mention are left to an audit, as far as
    they would take longer altogether; with `sparing`, known ones that it mentions as well, and of those that
    are light what would be much to write. `audit` is 0 right after a cell, and numbers what follows it.

    Costly are heavy components and those with large buffers. With a `costly_s` they are left, mentioned or
    not, as far as they would take longer.

    What has changed in components with a name of `kept` is left to a later audit: the user wants it seldom.

    `settled` says that all has just been looked at here, and that nothing but plain values was put in since:
    costly variables that are known are as they were, unless something else is found to be otherwise.
    """

    first: frozenset[str] = frozenset()
    stop: Callable[[], bool] | None = None
    grace_s: float = 0.0
    budget_s: float | None = None
    audit: int = 0
    every_s: float = ASK_EVERY_S
    costly_s: float | None = None
    sparing: bool = False
    kept: frozenset[str] = frozenset()
    settled: bool = False


EVERYTHING = Terms()
"""To the end, whatever waits."""


class Gate:
    """What a capture passes between units, pieces of stream and chunks of buffers."""

    def __init__(self, terms: Terms = EVERYTHING) -> None:
        self._stop = terms.stop
        self._every_s = terms.every_s
        self._next = self._kept = float("inf") if terms.stop is None else time.monotonic() + terms.grace_s

    def check(self) -> None:
        """Raise GiveWay when somebody waits."""
        now = time.monotonic()
        if now < self._next:
            return
        assert self._stop is not None
        if self._stop():
            raise GiveWay
        self._next = self._kept = time.monotonic() + self._every_s

    def open(self) -> None:
        """Let everything pass, until it is guarded again."""
        self._next, self._kept = float("inf"), min(self._next, self._kept)

    def guard(self) -> None:
        """Ask again, from when it would have asked had it not been opened."""
        self._next = min(self._next, self._kept)


OPEN_GATE = Gate()
"""A gate that nobody closes."""
