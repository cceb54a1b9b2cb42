"""Keeps the order in which a set is iterated: it depends on how the set came to be, which no pickle tells.

A recipe says in which order to fill an empty set so that its members come to lie where they lay. The layout
is that of CPython's `setobject.c`; it is checked once before it is relied on, and every recipe is tried out.
Law: only members of plain types are hashed; sets of other types keep no order.
"""

from __future__ import annotations

import ctypes
import datetime
import decimal
import functools
import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

MEMBERS_MAX = 20_000
"""Sets with more members keep no order: working it out would be felt."""

OBJECTS_MAX = 50_000
"""In a unit with more objects, no sets are looked for."""

_LINEAR_PROBES = 9
_PERTURB_SHIFT = 5
_SMALL_BITS = 3
_AT_ONCE = 5
_WORD = 8
_DUMMY_HASH = (1 << 64) - 1
_FINGER = 5
_FILLER = 1 << 50
"""Fillers are integers from here on: their place in a table is their last bits."""

_PLAIN = frozenset({
    str, bytes, int, float, complex, bool, type(None), decimal.Decimal, datetime.date, datetime.datetime,
    datetime.time, datetime.timedelta,
})  # fmt: skip
_PLAIN_MODULES = frozenset({"numpy", "pandas._libs.tslibs.timestamps", "pandas._libs.tslibs.timedeltas"})
_module_of = vars(type)["__module__"].__get__


class Recipe(msgspec.Struct, frozen=True, array_like=True):
    """How to fill one set, by its number in the memo.

    `fillers` are places that are taken while it is filled, `order` the members
    by their numbers as unpickling leaves them, after `together` things that are put in at once; without an
    order it stays as unpickling fills it. `finger` is the place from which `pop` looks for a member.
    """

    index: int
    fillers: bytes
    together: int
    order: bytes
    finger: int = 0


class _Table(NamedTuple):
    """A set's table: the address of the member at each place (0: none) and its hash."""

    bits: int
    keys: list[int]
    hashes: list[int]


def _table(members: set[Any] | frozenset[Any]) -> _Table:
    _, _, mask, address = (ctypes.c_size_t * 4).from_address(id(members) + object.__basicsize__)
    words = (ctypes.c_size_t * (2 * (mask + 1))).from_address(address)[:]
    return _Table(mask.bit_length(), words[::2], words[1::2])


def _finger(members: set[Any]) -> Any:
    """Return where a set keeps the place from which `pop` looks: that goes on behind what it took last."""
    return ctypes.c_size_t.from_address(id(members) + object.__basicsize__ + _FINGER * _WORD)


@functools.cache
def readable() -> bool:
    """Tell whether tables can be read in place in this interpreter."""
    if sys.implementation.name != "cpython" or hasattr(sys, "gettotalrefcount"):
        return False
    if ctypes.sizeof(ctypes.c_size_t) != _WORD or object.__basicsize__ != 2 * _WORD:
        return False
    sample = {str(number) for number in range(20)}
    fill, used, mask, address = (ctypes.c_size_t * 4).from_address(id(sample) + object.__basicsize__)
    if (fill, used, mask) != (20, 20, 127) or address % _WORD:
        return False
    table = _table(sample)
    if [key for key in table.keys if key] != list(map(id, sample)) or _finger(sample).value:
        return False
    places = [place for place, key in enumerate(table.keys) if key]
    sample.pop()
    sample.pop()
    return bool(_finger(sample).value == places[1] + 1)


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is tuple or kind is frozenset:
        return all(map(_is_plain, value))
    return type(kind) is type and (kind in _PLAIN or _module_of(kind) in _PLAIN_MODULES)


def keeps_order(members: set[Any]) -> bool:
    """Tell whether a set comes back in the order that it has."""
    return len(members) <= MEMBERS_MAX and readable() and all(map(_is_plain, members))


def recipe_for(members: set[Any], index: int) -> Recipe | None:
    """Return how to make a set as it is again; None when unpickling does it right, or nothing can be done."""
    if len(members) > MEMBERS_MAX or not all(map(_is_plain, members)):
        return None
    recipe = _order_of(members, index) if len(members) > 1 or _has_gaps(members) else None
    finger = int(_finger(members).value)
    if not finger:
        return recipe
    return msgspec.structs.replace(recipe or Recipe(index, b"", 0, b""), finger=finger)


def _has_gaps(members: set[Any]) -> bool:
    """Tell whether members are gone whose places are taken still: the table grows the sooner for it."""
    fill, used = (ctypes.c_size_t * 2).from_address(id(members) + object.__basicsize__)
    return bool(fill != used)


def _order_of(members: set[Any], index: int) -> Recipe | None:
    """Return how to fill a set again so that it is iterated as it is, where unpickling does not do that."""
    pickled = list(members)
    rebuilt = set(pickled)
    present = list(map(id, pickled))
    arrived = list(map(id, rebuilt))
    table = _table(members)
    if arrived == present and _table(rebuilt) == table:
        return None
    numbers = {key: number for number, key in enumerate(arrived)}
    for fillers, together, keys in (_plan(table), ([], len(present), present)):
        order = array("I", [numbers[key] for key in keys])
        recipe = Recipe(index, array("I", fillers).tobytes(), together, order.tobytes())
        trial = set(pickled)
        follow(recipe, trial)
        if list(map(id, trial)) == present:
            return recipe
    return None


def filling(members: set[Any] | frozenset[Any]) -> tuple[list[int], int, list[int]]:
    """Return how to fill a set so that its members come to lie where they lie, as `filled` takes it.

    That are places to be taken meanwhile, how many things are put in at once, and the members by number.
    """
    present = list(map(id, members))
    fillers, together, keys = _plan(_table(members))
    numbers = {key: number for number, key in enumerate(present)}
    if not len(keys) == len(present) == len(numbers):
        return [], 0, list(range(len(present)))
    return fillers, together, [numbers[key] for key in keys]


def filled(members: set[Any], fillers: Iterable[int], together: int, order: Iterable[Any]) -> None:
    """Fill an empty set in an order, while places of it are taken."""
    taken = [_FILLER + place for place in fillers]
    filling = [*taken, *order]
    members.update(set(filling[:together]))
    members.update(filling)
    for filler in taken:
        members.discard(filler)


def follow(recipe: Recipe, members: set[Any]) -> None:
    """Make a set as a recipe says; whatever that says, its members stay."""
    present = list(members)
    numbers = array("I", recipe.order).tolist()
    if sorted(numbers) == list(range(len(present))):
        members.clear()
        filled(members, array("I", recipe.fillers), recipe.together, [present[number] for number in numbers])
    if recipe.finger and readable():
        _finger(members).value = recipe.finger  # Python takes any number for a place in its table.


def _plan(table: _Table) -> tuple[list[int], int, list[int]]:
    """Return places to be filled, how many members make the first table, and the members in order.

    What lies where its hash says comes first: however the table grows meanwhile, it comes to lie there.
    Places of members that are gone are filled as well, so that the next growth comes when it would have.
    """
    size = 1 << table.bits
    mask = size - 1
    keys, hashes = table.keys, table.hashes
    taken = [place for place, key in enumerate(keys) if key and hashes[place] != _DUMMY_HASH]
    fillers = [place for place in range(size) if hashes[place] == _DUMMY_HASH]
    at_home = [place for place in taken if hashes[place] & mask == place]
    late = _in_order(table, [place for place in taken if hashes[place] & mask != place])
    if late is None:
        return [], 0, []
    start, needed = _growth(table.bits)
    lacking = needed - len(fillers) - len(at_home)
    if lacking > 0:
        held = {*taken, *fillers}
        free = (place for place in range(size) if place not in held)
        fillers += [place for place, _ in zip(free, range(lacking), strict=False)]
    return fillers, start, [keys[place] for place in (*at_home, *late)]


def _growth(bits: int) -> tuple[int, int]:
    """Return how many members must be put in at once, and how many in all, for a table to be of that size.

    A table grows fourfold when it is three fifths full; half of the sizes begin with sixteen places, which
    several members at once make.
    """
    if bits == _SMALL_BITS:
        return 0, 0
    start = 0 if bits % 2 else _AT_ONCE
    before = (1 << (bits - 2)) - 1
    return start, start if bits == _SMALL_BITS + 1 else -(-before * 3 // 5)


def _in_order(table: _Table, moved: list[int]) -> list[int] | None:
    """Return the places of members that are not at home, each after those that are in its way."""
    keys, hashes = table.keys, table.hashes
    waiting = set(moved)
    behind: dict[int, list[int]] = {}
    blocked: dict[int, int] = {}
    for place in moved:
        ways = []
        for step in _way(hashes[place], table.bits):
            if step == place:
                break
            ways.append(step)
        else:
            return None
        if not all(keys[step] for step in ways):
            return None
        obstacles = waiting.intersection(ways)
        blocked[place] = len(obstacles)
        for step in obstacles:
            behind.setdefault(step, []).append(place)
    ready = [place for place in moved if not blocked[place]]
    for place in ready:
        for other in behind.get(place, ()):
            blocked[other] -= 1
            if not blocked[other]:
                ready.append(other)
    return ready if len(ready) == len(moved) else None


def _way(hashed: int, bits: int) -> Iterator[int]:
    """Yield the places at which a member of a hash is looked for, in order."""
    mask = (1 << bits) - 1
    place = hashed & mask
    perturb = hashed
    for _ in range(64):
        last = place + _LINEAR_PROBES if place + _LINEAR_PROBES <= mask else place
        yield from range(place, last + 1)
        perturb >>= _PERTURB_SHIFT
        place = (place * 5 + 1 + perturb) & mask


def recipes_for(numbered: Iterable[tuple[int, Any]]) -> tuple[Recipe, ...]:
    """Return the recipes of the sets among objects with their numbers in the memo."""
    if not readable():
        return ()
    sets = [(index, value) for index, value in numbered if type(value) is set]
    found = (recipe_for(value, index) for index, value in sets)
    return tuple(recipe for recipe in found if recipe is not None)
