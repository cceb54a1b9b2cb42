"""How long leases were held, and how much longer one that runs is likely to be held.

Law: only what is over counts, and of each notebook, user and size no more than a few of the newest. Dice are
handed in: one draw is one of the durations seen that are longer than what has passed already.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict, deque
from typing import TypeAlias

from replkernel_scheduler.policies.protocol import Dice
from replkernel_scheduler.types import CellUsage

OF_ONE_MAX = 32
OF_ALL_MAX = 2048
KEYS_MAX = 20_000
WEIGHT = 1.0
"""So many durations of a wider kind count as much as all of the narrower one's."""
ENOUGH = 5
"""From so many durations on it can be said how long leases are held."""

Kind: TypeAlias = tuple[str, str | int | float]
"""A notebook, a user, or a number of GPUs."""


class _Seen:
    """The newest durations of one kind, in the order in which they came, and sorted."""

    __slots__ = ("newest", "ordered")

    def __init__(self, size: int) -> None:
        self.newest: deque[float] = deque(maxlen=size)
        self.ordered: list[float] = []

    def add(self, lasted_s: float) -> None:
        if len(self.newest) == self.newest.maxlen:
            del self.ordered[bisect_right(self.ordered, self.newest[0]) - 1]
        self.newest.append(lasted_s)
        insort(self.ordered, lasted_s)


class Durations:
    """What was seen, by notebook, user and size."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self._kinds: OrderedDict[Kind, _Seen] = OrderedDict()
        self._all = _Seen(OF_ALL_MAX)

    @property
    def enough(self) -> bool:
        """Say whether anything can be said."""
        return len(self._all.newest) >= ENOUGH

    def observe(self, row: CellUsage) -> None:
        """Take note of a lease that is over."""
        for kind in kinds_of(row.kernel_id, row.user, row.gpus):
            seen = self._kinds.get(kind)
            if seen is None:
                if len(self._kinds) >= KEYS_MAX:
                    self._kinds.popitem(last=False)
                seen = self._kinds[kind] = _Seen(OF_ONE_MAX)
            else:
                self._kinds.move_to_end(kind)
            seen.add(row.leased_s)
        self._all.add(row.leased_s)

    def draws_for(self, kinds: tuple[Kind, ...], expected_s: float, passed_s: float = 0.0) -> Draws:
        """Return what can be drawn for a lease of these kinds that has lasted for `passed_s`.

        Whose holder has said how long it takes (`expected_s`) is believed, until that is over.
        """
        found: list[tuple[float, list[float], int]] = []
        if expected_s > passed_s:
            return Draws([(1.0, [expected_s], 0)], passed_s)
        rest = 1.0
        for ordered in self._ordered(kinds):
            begin = bisect_right(ordered, passed_s) if passed_s else 0
            count = len(ordered) - begin
            if count:
                share = rest * count / (count + WEIGHT)
                found.append((share, ordered, begin))
                rest -= share
        return Draws(found, passed_s)

    def _ordered(self, kinds: tuple[Kind, ...]) -> list[list[float]]:
        seen = [self._kinds[kind].ordered for kind in kinds if kind in self._kinds]
        return [*seen, self._all.ordered]


class Draws:
    """Durations to draw from, narrower kinds first, each with its share of the draws."""

    __slots__ = ("_found", "_passed_s")

    def __init__(self, found: list[tuple[float, list[float], int]], passed_s: float) -> None:
        """Keep what `Durations` has found."""
        self._found, self._passed_s = found, passed_s

    def left_s(self, dice: Dice) -> float:
        """Draw how much longer it lasts; one that has outlasted all may last as long again, or longer."""
        found = self._found
        if not found:
            return self._passed_s * (1.0 / max(dice.random(), 0.01) - 1.0)
        at = dice.random() if len(found) > 1 else 0.0
        number = 0
        while number < len(found) - 1 and at >= found[number][0]:
            at -= found[number][0]
            number += 1
        _, ordered, begin = found[number]
        return ordered[begin + int(dice.random() * (len(ordered) - begin))] - self._passed_s


def kinds_of(kernel_id: str, user: str, gpus: float) -> tuple[Kind, ...]:
    """Return the kinds of a lease, the narrowest first."""
    sizes: Kind = ("gpus", gpus)
    return (("kernel", kernel_id), ("user", user), sizes) if user else (("kernel", kernel_id), sizes)
