"""Which part of a trace is played, and how much closer together what is in it comes.

Law: times are from the trace's first record. What a task takes is as recorded; only when it comes is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from replkernel_scheduler.sim.records import Record, Session


class Window(msgspec.Struct, frozen=True):
    """From `from_s` up to, but not including, `until_s` (None: to the end); it comes `load` times as fast.

    A session is there as far as it reaches into the window, with those of its cells that are submitted in it.
    """

    from_s: float = 0.0
    until_s: float | None = None
    load: float = 1.0

    def of(self, records: Iterable[Record], first: float) -> Iterator[Record]:
        """Yield what is in the window of `records`, which come in order of time from `first` on."""
        begin = first + self.from_s
        end = float("inf") if self.until_s is None else first + self.until_s
        for record in records:
            if record.at >= end:
                return
            if isinstance(record, Session):
                if record.ends > begin:
                    at, ends = max(record.at, begin), min(record.ends, end)
                    yield msgspec.structs.replace(record, at=self._at(at, begin), ends=self._at(ends, begin))
            elif record.at >= begin:
                yield msgspec.structs.replace(record, at=self._at(record.at, begin))

    def _at(self, at: float, begin: float) -> float:
        return begin + (at - begin) / self.load
