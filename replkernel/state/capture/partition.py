"""Which units belong together: those that share a mutable object, a storage, or bytes of memory.

Nothing is joined by what never changes: types, modules, library functions, strings, numbers, tuples, dtypes;
but by an instance of the notebook's own kind of text or number, which may have attributes, and of its own
kind of tuple, which its user tells apart. Variables that are one and the same immutable value are joined: a
variable that holds nothing else takes nothing along. So is who holds a variable's tuple that has no name.
Law: pure; ids are compared only while the dumps keep their objects alive.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import pathlib
import re
import types
import typing
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from replkernel.state.capture.budget import OPEN_GATE, Gate
from replkernel.state.capture.dump import Dump, Identity, roots_of
from replkernel.state.capture.memo_table import MemoTable, object_at
from replkernel.state.capture.survey_order import Known
from replkernel.state.format.shared_values import KINDS as VALUE_KINDS
from replkernel.state.format.shared_values import tells
from replkernel.state.python.class_registry import ROOT_PREFIX, ClassRegistry
from replkernel.state.python.kinds import kind_of, lineage, module_of
from replkernel.state.python.modules import importable
from replkernel.state.python.paths import getter_among

_NEVER = frozenset(
    {
        type,
        types.ModuleType,
        types.CodeType,
        types.BuiltinFunctionType,
        types.MemberDescriptorType,
        types.GetSetDescriptorType,
        types.WrapperDescriptorType,
        types.MethodDescriptorType,
        types.ClassMethodDescriptorType,
        types.GenericAlias,
        types.UnionType,
        str,
        bytes,
        int,
        float,
        complex,
        tuple,
        frozenset,
        range,
        slice,
        type(None),
        enum.Enum,
        re.Pattern,
        uuid.UUID,
        decimal.Decimal,
        fractions.Fraction,
        pathlib.PurePath,
        datetime.date,
        datetime.time,
        datetime.timedelta,
        datetime.tzinfo,
        typing._Final,
    }
)
LARGE_BYTES = 64 * 1024
"""Text and bytes from this size on do join, so that they take their memory once."""
LONG_OBJECTS = 1_000
"""A tuple of so many objects joins large units that hold it; a shorter one is copied with them."""

_MUTABLE_FINALS = (typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple)
_NEVER_PACKAGES = frozenset({"pyarrow"})
_NEVER_BY_TYPE_NAME = frozenset({"cython_function_or_method", "fused_cython_function"})
"""Functions of compiled libraries, whose type has another module in each release of the compiler."""

_FOUND_BY_NAME = frozenset({types.FunctionType, types.BuiltinFunctionType, types.ModuleType})
_NO_VARIABLES: Mapping[str, Any] = {}

_NOTEBOOK = "__main__"
_NAME = type.__dict__["__name__"]
_DICT = type.__dict__["__dict__"]
_MRO = type.__dict__["__mro__"]
_NEVER_BY_NAME = frozenset(
    {
        ("numpy", "dtype"),
        ("numpy", "generic"),
        ("torch", "dtype"),
        ("torch", "device"),
        ("pandas.core.dtypes.base", "ExtensionDtype"),
        ("pandas.api.extensions", "ExtensionDtype"),
    }
)


class Linkable:
    """Tells which objects join those who share them; it remembers types for the length of one capture."""

    def __init__(self, is_library_function: Callable[[types.FunctionType], bool]) -> None:
        self._by_type = dict.fromkeys(map(id, (dict, list, set, bytearray)), True)
        self._kinds: list[type] = []
        self._is_library_function = is_library_function

    def __call__(self, value: object) -> bool:
        """Tell whether sharing `value` joins."""
        kind = type(value)
        known = self._by_type.get(id(kind))
        if known is None:
            known = self._by_type[id(kind)] = _joins(kind)
            self._kinds.append(kind)
        if known and kind is types.FunctionType:
            return not self._is_library_function(value)  # type: ignore[arg-type]
        if kind is types.ModuleType:
            return importable(value) is None  # type: ignore[arg-type]
        if kind is str or kind is bytes:
            return len(value) >= LARGE_BYTES  # type: ignore[arg-type]
        return known


def _joins(kind: type) -> bool:
    mro = lineage(kind)
    if mro[0] in _MUTABLE_FINALS or (_has_attributes(kind, mro) and enum.Enum not in mro):
        return True
    if _NAME.__get__(kind) in _NEVER_BY_TYPE_NAME:
        return False
    if module_of(kind).partition(".")[0] in _NEVER_PACKAGES:
        return False
    return not any(base in _NEVER or (module_of(base), base.__name__) in _NEVER_BY_NAME for base in mro)


def _has_attributes(kind: type, keys: tuple[type, ...]) -> bool:
    """Tell whether a notebook class, of that lineage, gives its instances a dictionary, slots or items."""
    if module_of(kind) != _NOTEBOOK:
        return False
    if tuple in keys:
        return True
    mro = _MRO.__get__(kind)
    return getter_among(mro) is not None or any(
        module_of(cls) == _NOTEBOOK and _DICT.__get__(cls).get("__slots__") for cls in mro
    )


class _Sets:
    """Union-find over the numbers of units."""

    def __init__(self, count: int) -> None:
        self._above = list(range(count))
        self.joins = 0

    def top(self, index: int) -> int:
        """Return the number that stands for the set of `index`."""
        above = self._above
        while above[index] != index:
            above[index] = above[above[index]]
            index = above[index]
        return index

    def together(self, one: int, other: int) -> bool:
        """Tell whether two numbers are in one set."""
        return self.top(one) == self.top(other)

    def join(self, one: int, other: int) -> None:
        """Make one set of two."""
        low, high = sorted((self.top(one), self.top(other)))
        if low != high:
            self._above[high] = low
            self.joins += 1

    def groups(self, count: int) -> list[list[int]]:
        """Return the sets with more than one member, in order."""
        found: dict[int, list[int]] = {}
        for index in range(count):
            found.setdefault(self.top(index), []).append(index)
        return [group for group in found.values() if len(group) > 1]


def joined(
    dumps: Sequence[Dump],
    seeds: frozenset[int],
    linkable: Linkable,
    gate: Gate = OPEN_GATE,
    variables: Mapping[str, Any] = _NO_VARIABLES,
) -> tuple[list[list[int]], dict[int, Any]]:
    """Return the groups of units (by their numbers) that belong together; single units are left out.

    With them are the text, bytes and tuples that several units hold, by id: these join nobody.
    """
    met: dict[int, Any] = {}
    same: set[int] = set()
    sets = _Sets(len(dumps))
    never = set(seeds)
    owner: dict[int, int] = dict.fromkeys(seeds, -1)
    owned = owner.keys()
    for index, dump in enumerate(dumps):
        memo = dump.memo
        mine = set(memo).difference(never)
        if not owned.isdisjoint(mine):
            for key in owned & mine:
                value = memo[key][1]
                if not linkable(value):
                    never.add(key)
                    if kind_of(value) in VALUE_KINDS:
                        met[key] = value
                    if _has_identity(value):
                        same.add(key)
                else:
                    _join(dumps, key, index, owner[key], sets)
        owner.update(dict.fromkeys(mine, index))
    large = _large_units(dumps, sets)
    if same:
        _join_aliases(dumps, same, variables, sets)
    if large:
        _join_long_tuples(dumps, variables, sets)
    for index, table in large:
        gate.check()
        for key, other in owner.items():
            if other >= 0 and key in table and key not in never and linkable(dumps[other].memo[key][1]):
                _join(dumps, key, index, other, sets)
    if len(large) > 1:
        _join_large(dumps, large, never, linkable, sets, gate)
    _join_by_links(dumps, seeds, owner, large, linkable, sets)
    _join_by_memory(dumps, sets)
    return (sets.groups(len(dumps)) if sets.joins else []), met


def _large_units(dumps: Sequence[Dump], sets: _Sets) -> list[tuple[int, MemoTable]]:
    """Return the large units, each with its table; those of one table are parts of one, and joined."""
    first: dict[int, tuple[int, MemoTable]] = {}
    for index, dump in enumerate(dumps):
        if dump.table is not None:
            sets.join(index, first.setdefault(id(dump.table), (index, dump.table))[0])
    return list(first.values())


def _join(dumps: Sequence[Dump], key: int, one: int, other: int, sets: _Sets) -> None:
    if key not in dumps[one].unlinked and key not in dumps[other].unlinked:
        sets.join(one, other)


def _has_identity(value: object) -> bool:
    """Tell whether an immutable value may be another object than an equal one; `@same` has the plain ones."""
    kind = type(value)
    mro = lineage(kind)
    if mro[0] in VALUE_KINDS:
        return kind is not str and kind is not bytes and not tells(value)
    return mro[0] not in _FOUND_BY_NAME and type not in mro and enum.Enum not in mro


def _join_aliases(dumps: Sequence[Dump], same: set[int], variables: Mapping[str, Any], sets: _Sets) -> None:
    """Join the variables that are bound to one immutable value: there is nothing else in their units.

    A tuple that is too long to be told by a name joins whoever has it, and is told once.
    """
    holders: dict[int, int] = {}
    tuples: dict[int, int] = {}
    for index, dump in enumerate(dumps):
        for name in dump.roots:
            key = id(variables.get(name))
            if key in same and key not in dump.unlinked:
                sets.join(index, holders.setdefault(key, index))
                if type(variables[name]) is tuple:
                    tuples[key] = index
    if not tuples:
        return
    for index, dump in enumerate(dumps):
        for key in tuples.keys() & dump.memo.keys():
            _join(dumps, key, index, tuples[key], sets)


def _join_long_tuples(dumps: Sequence[Dump], variables: Mapping[str, Any], sets: _Sets) -> None:
    """Join the variables that are bound to a long tuple with who holds it too, where one of them is large.

    A short one is left to be copied: one of the rows of a long list would have it told anew each time.
    """
    for index, dump in enumerate(dumps):
        for name in dump.roots:
            value = variables.get(name)
            if type(value) is not tuple or (dump.table is None and len(dump.memo) < LONG_OBJECTS):
                continue
            if tells(value):
                continue
            for other, unit in enumerate(dumps):
                if other != index and id(value) in (unit.memo if unit.table is None else unit.table):
                    _join(dumps, id(value), index, other, sets)


def _join_large(
    dumps: Sequence[Dump],
    large: list[tuple[int, MemoTable]],
    never: set[int],
    linkable: Linkable,
    sets: _Sets,
    gate: Gate,
) -> None:
    """Join large units with each other: those that are together already have nothing more to find."""
    keys: list[tuple[int, set[int]]] = []
    for index, table in large:
        gate.check()
        keys.append((index, table.keys()))
    for position, (index, mine) in enumerate(keys):
        for other, theirs in keys[:position]:
            gate.check()
            if sets.together(index, other):
                continue
            for key in (mine & theirs) - never:
                if linkable(object_at(key)):
                    _join(dumps, key, index, other, sets)
                    if sets.together(index, other):
                        break


def _join_by_links(
    dumps: Sequence[Dump],
    seeds: frozenset[int],
    owner: dict[int, int],
    large: list[tuple[int, MemoTable]],
    linkable: Linkable,
    sets: _Sets,
) -> None:
    """Join by what stuck objects refer to, and by the identities that reducers named; seeds join nobody."""
    named: dict[int, int] = {}
    for index, dump in enumerate(dumps):
        for link in dump.links:
            if type(link) is Identity:
                sets.join(index, named.setdefault(int(link), index))
                continue
            if id(link) in seeds:
                continue
            other = owner.get(id(link), -1)
            if other < 0:
                other = next((at for at, table in large if id(link) in table), -1)
            if other < 0:
                other = named.setdefault(id(link), index)
            if other != index and linkable(link) and id(link) not in dumps[other].unlinked:
                sets.join(index, other)


def _join_by_memory(dumps: Sequence[Dump], sets: _Sets) -> None:
    ranges = sorted((start, end, index) for index, dump in enumerate(dumps) for start, end in dump.ranges)
    reach, holder = 0, -1
    for start, end, index in ranges:
        if start < reach:
            sets.join(index, holder)
        if end > reach:
            reach, holder = end, index


# What cannot be told truly when some units of a survey are left out.
#
# A component is told as a whole or not at all, and nothing that needs a class which nobody knows.


def rest_without(
    left_out: Collection[Dump],
    units: Collection[Dump],
    unseen: set[str],
    known: Mapping[str, Known],
    classes: ClassRegistry,
) -> list[Dump]:
    """Return the units that can be told without those that are left out.

    The roots of all others are added to `unseen`. `known` is what is known of the roots' components.
    """
    gone = {id(unit) for unit in left_out}
    for unit in left_out:
        unseen.update(roots_of(unit))
    defined = {class_id for unit in units if id(unit) not in gone for class_id in unit.own_classes}
    while True:
        more = [
            unit for unit in units if id(unit) not in gone and _is_torn(unit, defined, unseen, known, classes)
        ]
        if not more:
            return [unit for unit in units if id(unit) not in gone]
        for unit in more:
            gone.add(id(unit))
            unseen.update(roots_of(unit))
            defined.difference_update(unit.own_classes)


def _is_torn(
    unit: Dump,
    defined: Collection[str],
    unseen: set[str],
    known: Mapping[str, Known],
    classes: ClassRegistry,
) -> bool:
    """Tell whether a part of what a unit was, or a class that it needs, is left out."""
    for root in roots_of(unit):
        before = known.get(root)
        if before is not None and not unseen.isdisjoint(before.roots):
            return True
    return any(
        class_id not in defined and ROOT_PREFIX + class_id not in known and classes.find(class_id) is not None
        for class_id in unit.classes
    )
