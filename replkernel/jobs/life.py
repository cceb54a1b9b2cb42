"""The life of a job's processes on one host: started, asked to leave, ended, started again. Pure.

Law: no process of an attempt is started before all of the one before are over. Who leaves is asked to save
first, then told to end, then ended, each within its share of the time; what ends while it leaves has stopped,
whatever its exit code. A program that fails is started again after growing pauses, so often and no more; one
that takes more memory than it may is ended at once, and not started again.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple, TypeAlias

import msgspec

from replkernel.jobs.words import Order, State

TRIES_MAX = 5
PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 60.0
HEALTHY_S = 600.0
"""A program that has run so long may fail as often again."""
RESHAPE_S = 60.0
ASK_SHARE, END_SHARE = 0.6, 0.85
"""Of the time that there is: until then it may save; until then it may end by itself."""


class Nowhere(NamedTuple):
    """Why it could not begin: for a `host`, without which it may go on, or at all."""

    host: str = ""


class Start(msgspec.Struct, frozen=True):
    """Start the program."""

    order: Order


class Ask(msgspec.Struct, frozen=True):
    """Ask it to save; answered by `heard`."""


class End(msgspec.Struct, frozen=True):
    """Tell its processes to end (SIGTERM)."""


class Kill(msgspec.Struct, frozen=True):
    """End them (SIGKILL)."""


class Say(msgspec.Struct, frozen=True):
    """Write down how it stands."""

    state: State
    said: str = ""
    without: str = ""
    """The host where it could not start: it may go on without that one."""
    elsewhere: bool = False
    """It has failed too often here; on other hosts it may not."""


Act: TypeAlias = Start | Ask | End | Kill | Say


class Life:
    """One job's, from what its agent orders."""

    def __init__(self, leaves: Order | None = None, now: float = 0.0) -> None:
        """Begin without processes, or with those of an earlier supervisor that are to leave."""
        self.order: Order | None = leaves
        self.lives = leaves is not None
        self.tries = 0
        self._leaving = False
        self._too_much = ""
        self._next: Order | None = None
        self._since = now
        self._start_at = self._end_at = self._kill_at = inf

    def ordered(self, order: Order, now: float) -> list[Act]:
        """Take an order that is newer than the one before."""
        fresh = self.order is None or order.attempt != self.order.attempt
        self._start_at = inf
        if order.runs and not self.lives:
            self.tries = 0 if fresh else self.tries
            return self._start(order, now)
        if order.runs:
            self._next = order
            return [] if self._leaving else self._leave(RESHAPE_S, now)
        self._next, self.order = None, order
        if not self.lives:
            return [Say("stopped")]
        if not order.saves:
            self._leaving, self._end_at, self._kill_at = True, inf, inf
            return [Say("stopping"), Kill()]
        return self._leave(order.within_s, now)

    def hastens(self, within_s: float, now: float) -> list[Act]:
        """It is saved and leaves within this, for one of its hosts goes; what is to follow does so still."""
        return self._leave(within_s, now) if self.lives else []

    def heard(self, hears: bool, now: float) -> list[Act]:
        """Take note of whether anything in it hears that it is to save; what does not is told to end."""
        return [] if hears else self.saved(now)

    def saved(self, now: float) -> list[Act]:
        """It has saved: tell it to end."""
        if not self._leaving or self._end_at == inf:
            return []
        self._end_at = inf
        return [End()]

    def takes_too_much(self, said: str) -> list[Act]:
        """Have a program ended that has more memory than it may; `said` is how much, in a clause."""
        if not self.lives:
            return []
        self._too_much = said
        return [Kill()]

    def ended(self, code: int | None, how: str, now: float, nowhere: Nowhere | None = None) -> list[Act]:
        """Take note that no process is left; `code` None: nobody knows how the first one ended.

        `nowhere`: it had not begun, and is not tried again here.
        """
        self.lives, leaving = False, self._leaving
        too_much, self._too_much = self._too_much, ""
        self._leaving, self._end_at, self._kill_at = False, inf, inf
        if leaving and self._next is not None:
            order, self._next = self._next, None
            return self._start(order, now)
        if leaving:
            return [Say("stopped")]
        if too_much:
            return [Say("failed", too_much)]
        if code == 0:
            return [Say("done")]
        if nowhere is not None:
            return [Say("stopped" if nowhere.host else "failed", how, nowhere.host)]
        if now - self._since >= HEALTHY_S:
            self.tries = 0
        self.tries += 1
        if self.tries > TRIES_MAX:
            return [Say("failed", f"{how}, {self.tries} times in a row", elsewhere=True)]
        pause_s = min(PAUSE_S_MAX, PAUSE_S_MIN * 2 ** (self.tries - 1))
        self._start_at = now + pause_s
        return [Say("starting", f"{how}; it is started again in {pause_s:g} s")]

    def time(self, now: float) -> list[Act]:
        """Do what is due."""
        acts: list[Act] = []
        if self._start_at <= now and self.order is not None:
            acts += self._start(self.order, now)
        if self._end_at <= now:
            self._end_at = inf
            acts.append(End())
        if self._kill_at <= now:
            self._kill_at = inf
            acts.append(Kill())
        return acts

    def deadline(self) -> float:
        """Return when `time` is due; infinity: nothing is."""
        return min(self._start_at, self._end_at, self._kill_at)

    def _start(self, order: Order, now: float) -> list[Act]:
        self.order, self.lives, self._since, self._start_at = order, True, now, inf
        return [Start(order)]

    def _leave(self, within_s: float, now: float) -> list[Act]:
        end_at, kill_at = now + within_s * ASK_SHARE, now + within_s * END_SHARE
        if self._leaving:  # It may have less time by now than it was given, never more.
            self._end_at = min(self._end_at, end_at) if self._end_at < inf else inf
            self._kill_at = min(self._kill_at, kill_at)
            return []
        self._leaving, self._end_at, self._kill_at = True, end_at, kill_at
        return [Say("stopping"), Ask()]
