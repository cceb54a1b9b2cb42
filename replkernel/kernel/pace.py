"""When large state that cells keep changing is captured, so that it costs a small share of the time.

Pure, with time as an argument. Laws: what is large is captured, written and stored for no more than a share
of the time while cells follow each other; the last whole point still moves, by that share of the time, even
where no cell leaves a pause; and when cells pause, it moves at once. What the user wants captured seldom
(`replkernel.keep`) holds the point back until it is due, and nothing large is captured in vain meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

SHARE = 0.1
"""So much of the time it takes by default."""

POINT_AGE_S = 5.0
"""A whole point that is older is moved right after a cell, though somebody waits."""

PAUSE_MIN_S = 0.3
PAUSE_MAX_S = 2.0
"""Cells that come within this time of each other are taken for one go, by how they came before."""

PAUSE_FACTOR = 3.0
"""A gap so many times as long as usual is a pause."""

COMMIT_S = 0.25
"""A commit takes so long at most where there is nothing to store; what is more is the store's."""

SMALL_S = 0.05
"""A capture that takes no longer had nothing large to capture."""

STORED_MAX_S = 30.0
"""What has not been stored within this time is not waited for: it may be in trouble."""


OUTAGE_S = 120.0
"""No more than this is taken for the time that storing took: a store or an agent was away."""


class Pace:
    """What whole captures have cost, how cells follow each other, and what may be done when."""

    def __init__(self) -> None:
        self._share = SHARE
        self._whole_at = float("-inf")
        """When the last whole capture with something large ended."""
        self._capture_s = 0.0
        self._store_s = 0.0
        self._storing = False
        self._owed_since: float | None = None
        """When what is large was first left out since the last whole capture."""
        self._partly_s = 0.0
        """What has been spent since on captures that left something out."""
        self._idle_since: float | None = None
        self._gap_s = 0.0
        """How long the pauses between cells are usually."""
        self._kept_at: dict[str, float] = {}
        """When variables that are kept were captured last."""
        self._kept_until = float("-inf")
        """Before that there is no whole point: something kept has changed, and is not due."""

    def share_is(self, share: float) -> None:
        """Have capturing and storing what is large take this part of the time, up to 1."""
        self._share = share

    # -- what happens -------------------------------------------------------------------------------

    def cell_begins(self, now: float) -> None:
        """Note that a cell begins."""
        if self._idle_since is not None:
            gap_s = min(now - self._idle_since, PAUSE_MAX_S)
            self._gap_s = (self._gap_s + gap_s) / 2
        self._idle_since = None

    def cell_ended(self, now: float) -> None:
        """Note that a cell is over, and what it changed has been captured as far as it is to be."""
        self._idle_since = now

    def captured(self, seconds: float, now: float, *, whole: bool) -> None:
        """Note that a capture or an audit took so long, and whether nothing is left after it."""
        if not whole:
            self._partly_s += max(0.0, seconds - SMALL_S)
            self._owed_since = now if self._owed_since is None else self._owed_since
            return
        took_s, self._partly_s, self._owed_since = seconds + self._partly_s, 0.0, None
        if took_s > SMALL_S:
            self._capture_s, self._whole_at, self._storing = took_s, now, True

    def stored(self, now: float) -> None:
        """Note that what was captured last is durable."""
        if self._storing:
            store_s = min(OUTAGE_S, now - self._whole_at - COMMIT_S)
            self._store_s, self._storing = max(0.0, store_s), False

    def kept(
        self, every: Mapping[str, float], told: Iterable[str], back: Collection[str], now: float
    ) -> None:
        """Note what a capture has `told` and what it held `back`; `every` has the times of what is kept."""
        self._kept_at = {name: self._kept_at[name] for name in self._kept_at if name in every}
        self._kept_at.update((name, now) for name in told if name in every)
        due = (self._due(name, every) for name in every if name in back)
        self._kept_until = max(due, default=float("-inf"))

    # -- what may be done ---------------------------------------------------------------------------

    def _due(self, name: str, every: Mapping[str, float]) -> float:
        return self._kept_at.get(name, float("-inf")) + every[name]

    def early(self, every: Mapping[str, float], now: float) -> frozenset[str]:
        """Return the variables whose changes are not captured now: all while one of them is waited for."""
        return frozenset(name for name in every if now < self._kept_until or now < self._due(name, every))

    def kept_for_s(self, now: float) -> float:
        """Return for how many seconds the whole point is held back for what is kept."""
        return max(0.0, self._kept_until - now)

    def _free_at(self) -> float:
        """Return when the last whole capture has taken no more than its share of the time."""
        store_s = STORED_MAX_S if self._storing else self._store_s
        return self._whole_at + (self._capture_s + store_s) / self._share

    def allows(self, now: float) -> bool:
        """Tell whether what is large may be captured right after a cell."""
        return now >= max(self._free_at(), self._kept_until)

    def presses(self, now: float) -> bool:
        """Tell whether it must be, whoever waits: the point is old, and cells leave no pause to move it."""
        owed = self._owed_since is not None and now - self._owed_since >= POINT_AGE_S
        return owed and self.allows(now)

    def pause_s(self, now: float) -> float:
        """Return in how many seconds an audit of what is large may begin, as far as the pace goes."""
        if self._idle_since is None:
            return self.kept_for_s(now)
        usual_s = min(PAUSE_MAX_S, max(PAUSE_MIN_S, PAUSE_FACTOR * self._gap_s))
        return max(self.kept_for_s(now), min(self._free_at(), self._idle_since + usual_s) - now)
