"""Keeps the order in which a frozenset is iterated: it depends on how it came to be, which no pickle tells.

A frozenset cannot be filled anew, as a set can: a few ways to make one are tried until one gives that order.
Law: only members of plain types are hashed; a way is told only if whoever follows it would tell the same.
"""

from __future__ import annotations

import datetime
import decimal
import random
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from replkernel.loaders import loader
from replkernel.state.format import set_order
from replkernel.state.python.kinds import key_of

MEMBERS_MAX = 2_000
"""Larger ones keep no order: each way costs as much as making it."""

SHUFFLED_MAX = 8
SHUFFLES = 24
"""Of small ones the members are put into so many more orders."""

KNOWN_MAX = 20_000
"""Of so many frozensets it is remembered what was found."""

_ROUNDS = 3
_PLAIN = frozenset({
    str, bytes, int, float, complex, bool, decimal.Decimal, datetime.date, datetime.datetime, datetime.time,
    datetime.timedelta, *([type(None)] if sys.version_info >= (3, 12) else []),
})  # fmt: skip
"""What has the same hash in all processes with one hash seed: None has only since Python 3.12."""


class Way(NamedTuple):
    """How to make a frozenset: by which of `_WAYS`, of the members in which order."""

    how: int
    members: tuple[Any, ...]


def _at_once(members: Sequence[Any]) -> frozenset[Any]:
    return frozenset(dict.fromkeys(members))


def _twice(members: Sequence[Any]) -> frozenset[Any]:
    return _at_once(members).union(dict.fromkeys(members))


_WAYS: tuple[Callable[[Sequence[Any]], frozenset[Any]], ...] = (frozenset, _at_once, _twice)
"""One member after the other, as unpickling does; with room for all from the start, as a copy of a set is
made; and with room for twice as many. The payload has their numbers."""


@loader("frozensets:made")
def made(how: int, members: tuple[Any, ...]) -> frozenset[Any]:
    """Make a frozenset in a way (called by payloads)."""
    return _WAYS[how](members)


def way_of(value: frozenset[Any]) -> Way | None:
    """Return how to make a frozenset that is iterated as this one; None if any way does, or none is known."""
    if len(value) < 2:
        return None
    known = _known.get(id(value))
    if known is None or known.frozenset() is not value:
        known = _Known(_mark(value), _sought(value))
        if len(_known) < KNOWN_MAX:
            _known[id(value)] = known
    if known.order is None:
        return None
    how, order = known.order
    present = tuple(value)
    return Way(how, tuple([present[number] for number in order]))


class _Known(NamedTuple):
    frozenset: weakref.ref[frozenset[Any]]
    order: tuple[int, tuple[int, ...]] | None
    """The way; of the members, where in the iteration each stands."""


_known: dict[int, _Known] = {}
"""What was found, by ids: frozensets never change, and are asked for with each capture."""


def _mark(value: frozenset[Any]) -> weakref.ref[frozenset[Any]]:
    key = id(value)
    return weakref.ref(value, lambda _: _known.pop(key, None))


def _sought(value: frozenset[Any]) -> tuple[int, tuple[int, ...]] | None:
    present = tuple(value)
    if len(present) > MEMBERS_MAX or not all(map(_is_plain, present)):
        return None
    if _iterates(frozenset(present), present) or not set_order.readable():
        return None
    like = value
    found: Way | None = None
    for _ in range(_ROUNDS):
        way = _found(like, present)
        if way is None:
            return None
        if way == found:
            places = {id(member): number for number, member in enumerate(present)}
            return way.how, tuple([places[id(member)] for member in way.members])
        found, like = way, made(*way)
    return None


def _found(value: frozenset[Any], present: tuple[Any, ...]) -> Way | None:
    for members in _orders(value, present):
        for how, make in enumerate(_WAYS):
            if _iterates(make(members), present):
                return Way(how, members)
    return None


def _orders(value: frozenset[Any], present: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield orders in which the members may have been put in."""
    yield present
    _, _, order = set_order.filling(value)
    yield tuple(present[number] for number in order)
    if len(present) <= SHUFFLED_MAX:
        chance = random.Random(len(present))  # noqa: S311 - the same orders are tried everywhere
        for _ in range(SHUFFLES):
            yield tuple(chance.sample(present, len(present)))


def _iterates(value: frozenset[Any], present: tuple[Any, ...]) -> bool:
    return all(one is other for one, other in zip(value, present, strict=True))


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is tuple or kind is frozenset:
        return all(map(_is_plain, value))
    return key_of(kind) in _PLAIN
