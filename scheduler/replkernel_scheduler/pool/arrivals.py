"""What arrivals tell: the mean time between them, and whether a deferral was long enough.

Law: how long a decision should have waited is measured, not imagined: by the arrivals that would have stopped
the newcomer while it loaded (spec 3.4).
"""

from __future__ import annotations

from collections import deque

from replkernel_scheduler.pool.types import Context, Deferral, PoolWanted

HOUR_S = 3600.0
ARRIVALS_MAX = 10_000
DEFERRAL_MAX_S = 100.0


class Watch:
    """A decision of which it is not known yet how long it should have waited."""

    __slots__ = ("chosen_s", "context", "gpus", "needed_s", "taken_at", "until")

    def __init__(self, context: Context, gpus: int, chosen_s: float, now: float) -> None:
        """Watch from `now` until the newcomer would have been loaded."""
        self.context, self.gpus, self.chosen_s, self.taken_at = context, gpus, chosen_s, now
        self.needed_s = 0.0
        self.until = now + chosen_s + context.pause_s + context.load_s

    def saw(self, wanted: PoolWanted, free: int, now: float) -> None:
        """Take note of an arrival; it counts if it would have stopped the newcomer while that loaded."""
        context, after = self.context, now - self.taken_at
        if wanted.run_s >= context.remaining_s or wanted.gpus > self.gpus + free:
            return
        for begins in (context.pause_s, self.chosen_s + context.pause_s):
            if begins < after <= begins + context.load_s:
                self.needed_s = min(after, DEFERRAL_MAX_S)

    def result(self) -> Deferral:
        """Return what came of it."""
        return Deferral(self.context, self.chosen_s, self.needed_s)


class Arrivals:
    """Those of the last hour, and the decisions that are being watched."""

    def __init__(self) -> None:
        """Start with none."""
        self.times: deque[float] = deque(maxlen=ARRIVALS_MAX)
        self.watched: list[Watch] = []

    def saw(self, wanted: PoolWanted, free: int, now: float) -> None:
        """Take note of one."""
        self.times.append(now)
        self._forget_before(now - HOUR_S)
        for watch in self.watched:
            watch.saw(wanted, free, now)

    def between_s(self, now: float) -> float:
        """Return the mean time between arrivals over the last hour."""
        self._forget_before(now - HOUR_S)
        return HOUR_S / max(1, len(self.times))

    def _forget_before(self, then: float) -> None:
        while self.times and self.times[0] < then:
            self.times.popleft()

    def next_result(self) -> float | None:
        """Return when the next decision can be judged."""
        return min([watch.until for watch in self.watched], default=None)

    def results(self, now: float) -> list[Deferral]:
        """Return and forget the decisions that can be judged."""
        over = [watch for watch in self.watched if watch.until <= now]
        if over:
            self.watched = [watch for watch in self.watched if watch.until > now]
        return [watch.result() for watch in over]
