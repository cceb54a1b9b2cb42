"""Whether this process may go so that another one takes over for the notebook, and what is to be done before.

Owns the order: what captures left is finished whole, then its commit is awaited, then what cannot travel is
looked for. Law: a process goes only when all that its cells changed is durable and nothing lives here alone.
"""

from __future__ import annotations

from replkernel.kernel.audits import readable
from replkernel.kernel.bindings import Bindings
from replkernel.kernel.captures import Captures
from replkernel.kernel.execution import State
from replkernel.kernel.interrupts import PutOffInterrupts
from replkernel.kernel.news import DURABLE_TIMEOUT_S, News
from replkernel.kernel.reporter import Reporter
from replkernel.records import Pin, Seq

NAMED_MAX = 5
"""So many variables are named that keep a process."""


class Departure:
    """One process's way to its end, between a cell's arrival and its beginning. Main thread only."""

    def __init__(
        self,
        state: State,
        captures: Captures,
        bindings: Bindings,
        news: News,
        reporter: Reporter,
        interrupts: PutOffInterrupts,
    ) -> None:
        self._state = state
        self._captures = captures
        self._bindings = bindings
        self._news = news
        self._reporter = reporter
        self._interrupts = interrupts

    def what_keeps(self, ran: Seq, *, holds: bool) -> str:
        """Make ready to go; say what keeps the process, in one sentence, or nothing when it may go.

        `ran` is the last execution here; `holds`: it is the notebook's last, so that what it changed may not
        be anywhere else yet. Only an interrupt ends the waiting early: it is raised.
        """
        if self._reporter.link is None:
            return "this process has no host agent, which starts others"
        return self._pinned() or (self._finish(ran) if holds else "") or self._pinned() or self._held()

    def _pinned(self) -> str:
        """Name what lives in this process alone."""
        pins = [pin for pin in self._bindings.pins() if pin.replica == self._state.replica]
        more = len(pins) - NAMED_MAX
        said = [_said_of(pin) for pin in pins[:NAMED_MAX]]
        return "; ".join([*said, f"and {more} more"] if more > 0 else said)

    def _held(self) -> str:
        """Name what the object store has no room for."""
        held = list(self._state.unstored.variables().items())[:NAMED_MAX]
        return "; ".join(f"`{name}` is not durable: {why.rstrip('.')}" for name, why in held)

    def _finish(self, ran: Seq) -> str:
        """Have all that was run here be durable; return why it is not."""
        captures, news, interrupts = self._captures, self._news, self._interrupts
        before = interrupts.count
        if self._reporter.congested:
            news.await_here(lambda: not self._reporter.congested, DURABLE_TIMEOUT_S)
        captures.finish()
        if interrupts.count != before:
            raise KeyboardInterrupt
        if captures.kept_since:
            since, why = captures.kept_since, captures.kept_why
            return f"what cell [{since}] and those after it changed is here alone: {why}"
        left = [item.name for item in captures.audits.left if not item.held]
        if left:
            return f"{_listed([readable(name) for name in left])} could not be checked for changes"
        news.await_commit(ran, lambda: True, interrupts.take, DURABLE_TIMEOUT_S)
        if news.committed >= ran:
            return ""
        trouble = getattr(self._reporter.link, "trouble", "") or f"no commit within {DURABLE_TIMEOUT_S:g} s"
        return f"what the last cell changed is not durable yet ({trouble.rstrip('.')})"


def _said_of(pin: Pin) -> str:
    """Say of one pin what lives in this process alone, and why."""
    what = f"{pin.path or pin.name} ({pin.type_name})"
    return f"{what} lives in this process alone{f': {pin.reason}' if pin.reason else ''}".rstrip(".")


def _listed(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
