"""A quantity over the whole of a run in a few hundred steps of equal length, however long the run is.

Law: sums are kept exactly. When the run outgrows its steps, two become one; so memory is bounded, and two
histories that end at one time have the same steps.
"""

from __future__ import annotations

STEPS_MAX = 512
FIRST_STEP_S = 1.0


class History:
    """Sums by step, from time 0 on."""

    __slots__ = ("step_s", "sums")

    def __init__(self) -> None:
        """Start with steps of a second."""
        self.step_s = FIRST_STEP_S
        self.sums = [0.0] * STEPS_MAX

    def hold(self, value: float, since: float, until: float) -> None:
        """Add the area of a value that was held for a while."""
        if until <= since:
            return
        step_s = self.step_s
        if until > step_s * STEPS_MAX:
            self.reach(until)
            step_s = self.step_s
        sums, first, last = self.sums, int(since / step_s), int(until / step_s)
        if last == STEPS_MAX:
            last -= 1
        if first == last:
            sums[first] += value * (until - since)
            return
        sums[first] += value * ((first + 1) * step_s - since)
        for step in range(first + 1, last):
            sums[step] += value * step_s
        sums[last] += value * (until - last * step_s)

    def count(self, at: float) -> None:
        """Add one to the step of a time."""
        self.reach(at)
        self.sums[min(int(at / self.step_s), STEPS_MAX - 1)] += 1

    def reach(self, at: float) -> None:
        """Have steps long enough for a time."""
        while at > self.step_s * STEPS_MAX:
            merged = [a + b for a, b in zip(self.sums[::2], self.sums[1::2], strict=True)]
            self.sums = merged + [0.0] * (STEPS_MAX - len(merged))
            self.step_s *= 2
