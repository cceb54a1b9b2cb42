"""A quantity that changes in steps, its exact integral over time, and its course where that is wanted."""

from __future__ import annotations

from replkernel_scheduler.sim.history import History


class Level:
    """The present value, the most there was, and value-seconds so far."""

    __slots__ = ("_since", "area", "history", "peak", "value")

    def __init__(self, history: History | None = None) -> None:
        """Start at 0, at time 0."""
        self.value: int | float = 0
        self.peak: int | float = 0
        self.area = self._since = 0.0
        self.history = history

    def add(self, delta: float, now: float) -> None:
        """Change the value."""
        value, since = self.value, self._since
        if now != since:
            self.area += value * (now - since)
            if self.history is not None:
                self.history.hold(value, since, now)
            self._since = now
        self.value = value = value + delta if isinstance(delta, int) else round(value + delta, 3)
        if value > self.peak:
            self.peak = value

    def until(self, now: float) -> float:
        """Return the value-seconds until `now`."""
        return self.area + self.value * (now - self._since)

    def course(self, now: float) -> list[float]:
        """Return the mean value of each step until `now`, of whoever has a history."""
        self.add(0, now)
        assert self.history is not None, "This level keeps no history."
        self.history.reach(now)
        step_s = self.history.step_s
        full = int(now / step_s)
        rest_s = now - full * step_s
        means = [area / step_s for area in self.history.sums[:full]]
        return [*means, self.history.sums[full] / rest_s] if rest_s > step_s / 1000 else means


class CountedFrom(Level):
    """A level whose value-seconds and peak are those from a time on; its course is of the whole run."""

    __slots__ = ("_begins",)

    def __init__(self, begins: float, history: History | None = None) -> None:
        """Start at 0, at time 0, and count from `begins`."""
        super().__init__(history)
        self._begins: float | None = begins

    def add(self, delta: float, now: float) -> None:
        """Change the value."""
        if self._begins is not None and now >= self._begins:
            begins, self._begins = self._begins, None
            super().add(0, begins)
            self.area, self.peak = 0.0, self.value
        super().add(delta, now)

    def until(self, now: float) -> float:
        """Return the value-seconds from the beginning until `now`."""
        self.add(0, now)
        return self.area if self._begins is None else 0.0
