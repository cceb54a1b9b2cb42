"""Finds the text, bytes, tuples and other plain values that several units hold, and gives them a name.

They are told where a variable or a class has them, as it has a mark that entries are compared with by
identity. Text that containers alone have in common is not: words are in a list, a table of counts and an
index, and naming each would cost more than the rest of a capture. Tuples, dates and such are told, if they
are few.
Law: touches nothing but variables and class attributes.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from replkernel.state.capture.dump import Dump
from replkernel.state.format.shared_values import KINDS, Value, tells
from replkernel.state.python.kinds import kind_of
from replkernel.state.world import World

UNNAMED_MAX = 500
"""So many values that only containers have get a name in one capture, or none of them does."""
MET_MAX = 5_000
"""Where units have more values in common than this, only those of variables are looked for."""

_NEVER_UNNAMED = frozenset({str, bytes, types.CodeType})
"""Closures that one function makes have its code in common, and nobody asks whose it is."""

_DICT = type.__dict__["__dict__"]


class Found(NamedTuple):
    """Whether values got a name, and the names that were not dumped because they are as they were."""

    new: bool
    untold: list[str]


def find(
    world: World,
    values: Mapping[str, Any],
    units: Sequence[Dump],
    changed: Iterable[Dump],
    untouched: Iterable[str],
    met: Mapping[int, Any],
) -> Found:
    """Name what units share that was not told so far.

    `met` are the immutable values that several units have dumped, by id; `untouched` are variables that
    were not dumped, since they hold the same small value as before.
    """
    shared = world.shared
    named = _values_with_names(world, values, units, untouched)
    found = _held_by_several(_fresh(world, named, met), units)
    alone: dict[int, list[str]] = {}
    for name in untouched:
        if id(values[name]) in named:
            alone.setdefault(id(values[name]), []).append(name)
    hit = {key for unit in changed if unit.table is None for key in alone.keys() & unit.memo.keys()}
    hit = {key for key in hit if tells(named[key])}
    found.update((key, named[key]) for key in hit if key not in shared)
    entered = [shared.enter(value) for value in found.values()]
    untold = [name for key in hit for name in alone[key] if key in shared and not shared.held_by((name,))]
    return Found(any(entered), untold)


def fresh(
    world: World,
    values: Mapping[str, Any],
    units: Iterable[Dump],
    untouched: Iterable[str],
    met: Mapping[int, Any],
) -> dict[int, Value]:
    """Return those of `met` that `find` would name."""
    return _fresh(world, _values_with_names(world, values, units, untouched), met)


def _fresh(world: World, named: Mapping[int, Value], met: Mapping[int, Any]) -> dict[int, Value]:
    values = {key: met[key] for key in met.keys() & named.keys() if key not in world.shared}
    values.update(_unnamed(world, met))
    return {key: value for key, value in values.items() if tells(value)}


def _values_with_names(
    world: World, values: Mapping[str, Any], units: Iterable[Dump], untouched: Iterable[str]
) -> dict[int, Value]:
    """Return what variables and the notebook's classes are bound to, by id, as far as it may be told."""
    held = [values[name] for name in untouched]
    for unit in units:
        held += [values[root] for root in unit.roots if root in values]
        for class_id in unit.own_classes:
            cls = world.classes.find(class_id)
            if cls is not None:
                held += [value for name, value in _DICT.__get__(cls).items() if name[:2] != "__"]
    return {id(value): value for value in held if kind_of(value) in KINDS}


def _unnamed(world: World, met: Mapping[int, Any]) -> dict[int, Value]:
    """Return what several units hold though no variable has it: rows in a list and in a sorted copy of it."""
    if len(met) > MET_MAX:
        return {}
    rows = {
        key: value
        for key, value in met.items()
        if kind_of(value) not in _NEVER_UNNAMED and key not in world.shared
    }
    return rows if len(rows) <= UNNAMED_MAX else {}


def _held_by_several(found: dict[int, Value], units: Iterable[Dump]) -> dict[int, Value]:
    """Return those of `found` that more than one unit has, now that units were joined."""
    if not found:
        return found
    once: set[int] = set()
    several: set[int] = set()
    for unit in units:
        if unit.table is None:
            mine = found.keys() & unit.memo.keys()
            several |= once & mine
            once |= mine
    return {key: found[key] for key in several}
