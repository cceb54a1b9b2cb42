"""How far a command is, in one line on the terminal: events a second and the time that is left.

Law: it writes at most each EVERY_S seconds, and nothing but a last line for each run where nobody watches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TextIO

from replkernel_scheduler.sim.driver import Watcher
from replkernel_scheduler.sim.records import Record

EVERY_S = 0.2
LOOK_EVERY = 4096


class Progress:
    """The line; `clock` is the driver's."""

    def __init__(self, stream: TextIO, clock: Callable[[], float], *, quiet: bool) -> None:
        """Write to `stream`, unless `quiet`."""
        self._stream, self._clock, self._quiet = stream, clock, quiet
        self._live = stream.isatty() and not quiet
        self._began = self._written = clock()

    def reading(self, records: Iterable[Record], doing: str = "reading") -> Iterator[Record]:
        """Yield `records`, and tell how many were read, or what else is being done with them."""
        for number, record in enumerate(records, 1):
            if not number % LOOK_EVERY:
                self._show(f"{doing}: {number:,} records")
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
        if not self._quiet:
            ran_s = max(1e-9, self._clock() - self._began)
            print(f"{name}: {events:,} events in {ran_s:.1f} s, {events / ran_s:,.0f}/s", file=self._stream)

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
        if not self._quiet:
            print(f"{done} of {total}: {name}: {events:,} events", file=self._stream)

    def clear(self) -> None:
        """Take the line away."""
        if self._live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _show_share(self, name: str, share: float, events_a_s: float, left_s: float) -> None:
        bar = ("#" * int(20 * share)).ljust(20, ".")
        self._show(f"{name}: [{bar}] {share:4.0%}  {events_a_s:,.0f} events/s  {_span(left_s)} left")

    def _show(self, text: str) -> None:
        now = self._clock()
        if self._live and now - self._written >= EVERY_S:
            self._written = now
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"
