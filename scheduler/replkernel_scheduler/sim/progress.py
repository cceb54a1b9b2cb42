"""How far a run is: in a line on the terminal, in a bar under a notebook's cell, or told to a function.

Law: it shows at most each EVERY_S seconds, and nothing but a last line for each run where nobody watches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from html import escape
from typing import Any, Protocol, TextIO, TypeAlias

from replkernel_scheduler.sim.driver import Watcher
from replkernel_scheduler.sim.records import Record

EVERY_S = 0.2
LOOK_EVERY = 4096
Told: TypeAlias = Callable[[float | None, str], object]
"""Told which share is done (None while nobody knows of how much), and a line for people."""


class Screen(Protocol):
    """Where it is shown; `live`: somebody watches."""

    live: bool

    def show(self, share: float | None, text: str) -> None:
        """Show how far it is, in the place of what was shown before."""

    def over(self, text: str) -> None:
        """Leave a line that a run is over."""

    def clear(self) -> None:
        """Take away what was shown."""


class Terminal:
    """One line of a terminal; a file gets only what is over."""

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        """Write to `stream`, unless `quiet`."""
        self._stream, self._quiet = stream, quiet
        self.live = stream.isatty() and not quiet

    def show(self, share: float | None, text: str) -> None:
        """Show it."""
        self._stream.write(f"\r\x1b[K{text}")
        self._stream.flush()

    def over(self, text: str) -> None:
        """Leave a line."""
        if not self._quiet:
            print(text, file=self._stream)

    def clear(self) -> None:
        """Take the line away."""
        if self.live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


class NotebookBar:
    """A bar under the cell that plays, which goes when that is over."""

    live = True

    def __init__(self, display: Callable[..., Any]) -> None:
        """Show nothing yet; `display` is IPython's."""
        self._display = display
        self._handle: Any = None

    def show(self, share: float | None, text: str) -> None:
        """Show it."""
        value = "" if share is None else f' value="{share:.3f}"'
        self._put(f"<progress{value}></progress> <code>{escape(text)}</code>", text)

    def over(self, text: str) -> None:
        """Say nothing: what a cell returns says it."""

    def clear(self) -> None:
        """Take the bar away."""
        if self._handle is not None:
            self._put("", "")

    def _put(self, html: str, text: str) -> None:
        shown = {"text/html": html, "text/plain": text}
        if self._handle is None:
            self._handle = self._display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)


class Function:
    """A function of somebody's own."""

    live = True

    def __init__(self, told: Told) -> None:
        """Tell `told`."""
        self._told = told

    def show(self, share: float | None, text: str) -> None:
        """Tell it."""
        self._told(share, text)

    def over(self, text: str) -> None:
        """Tell that a run is over."""
        self._told(1.0, text)

    def clear(self) -> None:
        """Do nothing."""


def screen_for(progress: bool | Told | None) -> Screen:
    """Return where to show it: what was asked for, or a notebook's cell, or the terminal if there is one."""
    if callable(progress):
        return Function(progress)
    if progress is not False and (display := _notebooks_display()) is not None:
        return NotebookBar(display)
    return Terminal(sys.stderr, quiet=progress is False or (progress is None and not sys.stderr.isatty()))


def _notebooks_display() -> Callable[..., Any] | None:
    """Return IPython's `display` where this process is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display

    return display


class Progress:
    """What is told of reading and playing; `clock` is the driver's."""

    def __init__(self, screen: Screen, clock: Callable[[], float]) -> None:
        """Show it on `screen`."""
        self._screen, self._clock = screen, clock
        self._began = self._written = clock()

    def reading(self, records: Iterable[Record], doing: str = "reading") -> Iterator[Record]:
        """Yield `records`, and tell how many were read, or what else is being done with them."""
        for number, record in enumerate(records, 1):
            if not number % LOOK_EVERY:
                self._show(None, f"{doing}: {number:,} records")
            yield record

    def playing(self, name: str, total: int) -> Watcher:
        """Return who is to be told how far a run over `total` records is."""
        self._began = self._clock()

        def watch(events: int, played: int) -> None:
            ran_s = max(1e-9, self._clock() - self._began)
            left_s = ran_s * (total - played) / max(1, played)
            self._show_share(name, played / total, events / ran_s, left_s)

        return watch

    def played(self, name: str, events: int) -> None:
        """Tell that a run is over."""
        self.clear()
        ran_s = max(1e-9, self._clock() - self._began)
        self._screen.over(f"{name}: {events:,} events in {ran_s:.1f} s, {events / ran_s:,.0f}/s")

    def playing_all(self, total: int) -> Callable[[float, float], None]:
        """Return who is to be told how far `total` runs are that go side by side, all together."""
        self._began = self._clock()

        def watch(events: float, runs: float) -> None:
            ran_s = max(1e-9, self._clock() - self._began)
            if runs:
                self._show_share(f"{total} runs", runs / total, events / ran_s, ran_s * (total / runs - 1))

        return watch

    def one_of(self, name: str, events: int, done: int, total: int) -> None:
        """Tell that one of the runs that go side by side is over."""
        self.clear()
        self._screen.over(f"{done} of {total}: {name}: {events:,} events")

    def stopped(self, over: int, total: int, where: str) -> None:
        """Tell what stays of runs that do not all come to their end."""
        self.clear()
        runs = "1 run is" if over == 1 else f"{over} runs are"
        self._screen.over(f"{runs} over, of {total}, and kept in {where}: --resume plays the others.")

    def clear(self) -> None:
        """Take away what is shown."""
        self._screen.clear()

    def _show_share(self, name: str, share: float, events_a_s: float, left_s: float) -> None:
        bar = ("#" * int(20 * share)).ljust(20, ".")
        self._show(share, f"{name}: [{bar}] {share:4.0%}  {events_a_s:,.0f} events/s  {_span(left_s)} left")

    def _show(self, share: float | None, text: str) -> None:
        now = self._clock()
        if self._screen.live and now - self._written >= EVERY_S:
            self._written = now
            self._screen.show(share, text)


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"
