"""What hangs together in samples: normal scores, their correlations, and draws that hang together as much.

Law: a sample is seen by its rank alone, so no value is taken for anything but its place among the others;
whoever has the same ranks gives the same figures.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from math import sqrt
from random import Random
from statistics import NormalDist, fmean
from typing import TypeAlias

Knots: TypeAlias = tuple[tuple[float, float], ...]
"""Quantiles: (share, value) from share 0, the least, to share 1, the most."""
Matrix: TypeAlias = tuple[tuple[float, ...], ...]
BODY = (0.0, 0.01, 0.02, 0.05, *(place / 20 for place in range(2, 20)), 0.98, 0.99, 1.0)
WEAKER = 0.95
_NORMAL = NormalDist()


def knots_of(samples: Iterable[float]) -> Knots:
    """Return the quantiles of samples, to the digits that seconds need; raise ValueError without any."""
    ordered = sorted(samples)
    last = len(ordered) - 1
    rare, tail = 1.0, []
    while rare < last / 50:  # The longest few have most of the work: they are told nearly one by one.
        tail.append(round(1 - rare / last, 7))
        rare *= 2
    found: dict[float, float] = {}
    for share in sorted({*BODY, *tail}):
        place = int(last * share)
        above = ordered[min(place + 1, last)]
        value = ordered[place] + (above - ordered[place]) * (last * share - place)
        found[share] = round(value, 4)
    return tuple(found.items())


def value_at(knots: Knots, share: float) -> float:
    """Return the value that a share of all do not exceed; between two knots it is log-linear."""
    place = min(bisect_right([one for one, _ in knots], share), len(knots) - 1) - 1
    (low, least), (high, most) = knots[place], knots[place + 1]
    part = (share - low) / (high - low)
    if least <= 0:
        return least + (most - least) * part
    between: float = least * (most / least) ** part
    return between


def values_of(knots: Knots, scores: Sequence[float]) -> list[float]:
    """Return a value for each score: the ranks are those of the scores, the values those of the knots."""
    count, made = len(scores), [0.0] * len(scores)
    for rank, place in enumerate(sorted(range(count), key=scores.__getitem__)):
        made[place] = value_at(knots, (rank + 0.5) / count)
    return made


def normal_scores(samples: Sequence[float]) -> list[float]:
    """Return for each sample the normal quantile of its rank; equal ones share the mean of their ranks."""
    count = len(samples)
    order = sorted(range(count), key=samples.__getitem__)
    scores, begin = [0.0] * count, 0
    while begin < count:
        end = begin
        while end < count and samples[order[end]] == samples[order[begin]]:
            end += 1
        score = _NORMAL.inv_cdf((begin + end) / 2 / count)
        for place in range(begin, end):
            scores[order[place]] = score
        begin = end
    return scores


def correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Return Pearson's; 0 where one of the two never changes."""
    if len(pairs) < 2:
        return 0.0
    means = (fmean(one for one, _ in pairs), fmean(other for _, other in pairs))
    both = sum((one - means[0]) * (other - means[1]) for one, other in pairs)
    first = sum((one - means[0]) ** 2 for one, _ in pairs)
    second = sum((other - means[1]) ** 2 for _, other in pairs)
    return round(both / sqrt(first * second), 4) if first > 0 and second > 0 else 0.0


def alike(groups: Sequence[Sequence[float]]) -> float:
    """Return which share of the variance is between groups (one-way analysis of variance), 0 to 1."""
    count, several = sum(map(len, groups)), len(groups)
    if several < 2 or count == several:
        return 0.0
    mean = sum(map(sum, groups)) / count
    means = [fmean(group) for group in groups]
    between = sum(len(group) * (own - mean) ** 2 for group, own in zip(groups, means, strict=True)) / (
        several - 1
    )
    within = sum((one - own) ** 2 for group, own in zip(groups, means, strict=True) for one in group) / (
        count - several
    )
    typical = (count - sum(len(group) ** 2 for group in groups) / count) / (several - 1)
    part = max(0.0, (between - within) / typical)
    return round(part / (part + within), 4) if part + within > 0 else 0.0


class Together:
    """Draws of normal numbers that hang together as a matrix of correlations says."""

    def __init__(self, correlations: Matrix) -> None:
        """Start; correlations that cannot all be at once are made weaker until they can."""
        by = 1.0
        while (factor := _factor(correlations, by)) is None:
            by *= WEAKER
        self._factor = factor

    def drawn(self, dice: Random) -> list[float]:
        """Return one number for each row."""
        drawn = [dice.gauss(0.0, 1.0) for _ in self._factor]
        return [sum(part * one for part, one in zip(row, drawn, strict=False)) for row in self._factor]


def _factor(correlations: Matrix, by: float) -> list[list[float]] | None:
    """Return Cholesky's factor of the matrix, all but its diagonal times `by`; None if there is none."""
    rows: list[list[float]] = []
    for place, wanted in enumerate(correlations):
        row: list[float] = []
        for other, before in enumerate(rows):
            rest = wanted[other] * by - sum(a * b for a, b in zip(row, before, strict=False))
            row.append(rest / before[other])
        own = 1.0 - sum(part * part for part in row)
        if own < 1e-9:
            return None
        rows.append([*row, sqrt(own)])
        assert len(rows) == place + 1
    return rows
