"""A distribution given by a few of its quantiles and, if known, its mean.

Law: between two quantiles it is log-linear; above the last one a Pareto, cut at the longest, whose index is
solved so that the mean is met. Where that cannot be, it says so.
"""

from __future__ import annotations

from bisect import bisect_right
from math import log

from replkernel_scheduler.sim.errors import SimulationError

INDEX_LEAST, INDEX_MOST = 1e-3, 50.0
HALVINGS = 80


class Quantiles:
    """The inverse of a distribution function."""

    def __init__(
        self, knots: tuple[tuple[float, float], ...], longest: float, mean: float | None = None
    ) -> None:
        """Start with (share, value) pairs that rise from share 0 on; raise SimulationError if they do not."""
        shares, values = zip(*knots, strict=True)
        shown = ",".join(f"{share:g}={value:g}" for share, value in knots)
        if shares[0] != 0 or shares[-1] >= 1 or list(shares) != sorted(set(shares)):
            raise SimulationError(f"Quantiles {shown} must rise from share 0 to one below 1.")
        if values[0] <= 0 or list(values) != sorted(values) or longest <= values[-1]:
            raise SimulationError(f"Quantiles {shown} must rise from above 0 to less than {longest:g}.")
        self._shares, self._values, self._longest = shares, values, longest
        self._index = INDEX_LEAST if mean is None else self._solved(mean)

    def at(self, share: float) -> float:
        """Return the value that a share (below 1) of all do not exceed."""
        place = bisect_right(self._shares, share) - 1
        low, least = self._shares[place], self._values[place]
        if place == len(self._shares) - 1:
            part = (share - low) / (1 - low)
            end = (least / self._longest) ** self._index
            reached: float = least * (1 - part * (1 - end)) ** (-1 / self._index)
            return min(self._longest, reached)
        part = (share - low) / (self._shares[place + 1] - low)
        between: float = least * (self._values[place + 1] / least) ** part
        return between

    def _solved(self, mean: float) -> float:
        """Return the index with which the whole has this mean."""
        below = sum(
            (high - low) * (most if most == least else (most - least) / log(most / least))
            for low, high, least, most in zip(
                self._shares, self._shares[1:], self._values, self._values[1:], strict=False
            )
        )
        wanted = (mean - below) / (1 - self._shares[-1])
        low, high = INDEX_LEAST, INDEX_MOST
        if not self._tail_mean(high) <= wanted <= self._tail_mean(low):
            least, most = (
                below + (1 - self._shares[-1]) * self._tail_mean(index) for index in (INDEX_MOST, INDEX_LEAST)
            )
            raise SimulationError(
                f"A mean of {mean:g} cannot be with these quantiles: it is between {least:,.0f} and "
                f"{most:,.0f}; give another mean, or other quantiles."
            )
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._tail_mean(middle) > wanted else (low, middle)
        return (low + high) / 2

    def _tail_mean(self, index: float) -> float:
        """Return the mean above the last quantile."""
        least, most = self._values[-1], self._longest
        if abs(index - 1) < 1e-9:
            index += 1e-8
        mass = 1 - (least / most) ** index
        mean: float = index * least / (1 - index) * ((most / least) ** (1 - index) - 1) / mass
        return mean
