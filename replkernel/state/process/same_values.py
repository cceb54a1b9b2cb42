"""``@same``: which of the notebook's variables are one and the same immutable object (`a = b = "text"`).

Components are joined by mutable objects alone; text, bytes, numbers and tuples of them travel by value, each
variable for itself. This part says which were one object, so that `a is b` answers as it did.
Law: a variable is only ever given an object of the same type and value; no code of the notebook runs.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, MutableMapping
from itertools import islice
from typing import Any, TypeAlias

from replkernel.records import ComponentId
from replkernel.state.names import Names
from replkernel.state.process.part import Part
from replkernel.state.process.plain import decode_plain, encode_plain
from replkernel.state.python.kinds import kind_of

NAMES_MAX = 10_000
"""With more variables than this that share their values, it is not told which do."""
PARTS_MAX = 1000
"""A tuple of more values than this, those in its tuples included, is not told about."""

Groups: TypeAlias = tuple[tuple[str, ...], ...]
_KINDS = frozenset((str, bytes, int, float, complex, tuple))
_SMALL_INTS = range(-5, 257)
_ABSENT = object()


class SameValuesPart(Part[Groups]):
    """The groups of names that are bound to one object, as of the last cell.

    Names that are not bound here yet, because no cell has needed them, stay in the group that was told.
    """

    cid = ComponentId("@same")

    def __init__(self, namespace: MutableMapping[str, Any], names: Names | None = None) -> None:
        self._namespace = namespace
        self._names = names or Names(namespace)
        self._told_about: list[str] = []
        """The names without an underscore among the first keys of the namespace."""
        self._seen_keys = 0
        self._epoch = 0
        self._absent: Groups = ()
        """The groups told elsewhere of which some names are not bound here."""
        super().__init__()

    def dump(self) -> bytes | None:
        """Return the groups as bytes; what was loaded and not settled is as it was loaded."""
        if self._waiting:
            return self._data
        if self._absent:
            self._unite(self._absent)
        return super().dump()

    def load(self, data: bytes) -> None:
        """Keep what another process told until `settle`: the variables are rebuilt by then."""
        self._data, self._waiting = data, True

    def settle(self) -> bool:
        """Share as told, each time: names that got another object together are not told anew."""
        self._waiting = self._data is not None
        return super().settle()

    def look(self) -> Groups:
        """Return the groups, each with its names in their order, none with a single one."""
        names, get = self._public_names(), self._namespace.get
        values = [get(name, _ABSENT) for name in names]
        keys = list(map(id, values))
        last = dict(zip(keys, names, strict=True))
        holders: dict[int, list[str]] = {}
        if len(last) < len(keys):
            several = {key for key, name in zip(keys, names, strict=True) if last[key] is not name}
            for key, name, value in zip(keys, names, values, strict=True):
                if key in several and kind_of(value) in _KINDS:
                    holders.setdefault(key, []).append(name)
        groups = [names for names in holders.values() if len(names) > 1]
        groups = [names for names in groups if _tells(self._namespace[names[0]])]
        for told in self._absent:
            away = [name for name in told if name not in self._namespace]
            here = next((names for names in groups if not set(told).isdisjoint(names)), None)
            alone = [name for name in told if name in self._namespace]
            if here is not None:
                here.extend(away)
            elif len(away) + len(alone) > 1 and away:
                groups.append(alone[:1] + away)
        if sum(map(len, groups)) > NAMES_MAX:
            return ()
        return tuple(sorted(tuple(sorted(names)) for names in groups))

    def _public_names(self) -> list[str]:
        """Return the names that begin with no underscore: thousands of others may be the shell's."""
        keys = self._names.glance()
        if self._names.epoch != self._epoch:
            self._told_about, self._seen_keys, self._epoch = [], 0, self._names.epoch
        fresh = keys[self._seen_keys :]
        self._told_about += [name for name in fresh if type(name) is str and not name.startswith("_")]
        self._seen_keys += len(fresh)
        return self._told_about

    def pack(self, seen: Groups) -> bytes:
        """Return the groups as bytes."""
        return encode_plain(seen)

    def apply(self, data: bytes) -> None:
        """Share and part values as told; raises ValueError for what no `pack` has written."""
        told = _checked(decode_plain(data))
        self._absent = ()
        self._names.look()
        place = {name: at for at, names in enumerate(told) for name in names}
        for names in self.look():
            seen = {place.get(names[0], names[0])}
            for name in names[1:]:
                if (group := place.get(name, name)) not in seen:
                    self._namespace[name] = pickle.loads(pickle.dumps(self._namespace[name]))
                    seen.add(group)
        self._unite(told)

    def _unite(self, groups: Groups) -> None:
        """Give the names of each group one object; note the groups that are not whole here."""
        for names in groups:
            bound = [name for name in names if name in self._namespace]
            first = self._namespace[bound[0]] if bound else None
            for name in bound[1:]:
                if _equal(first, self._namespace[name]):
                    self._namespace[name] = first
        self._absent = tuple(names for names in groups if any(name not in self._namespace for name in names))


def _tells(value: Any) -> bool:
    """Tell whether it is worth saying that a value is shared: Python itself has but one of the smallest."""
    kind = type(value)
    if kind is int:
        return value not in _SMALL_INTS
    if kind is str or kind is bytes:
        return len(value) > 1
    if kind is tuple:
        members = list(islice(_members(value), PARTS_MAX + 1))
        return 1 < len(members) <= PARTS_MAX and all(kind_of(member) in _KINDS for member in members)
    return True


def _members(value: object) -> Iterator[Any]:
    """Yield a value, and those in it as far as it is a tuple."""
    left = [value]
    while left:
        member = left.pop()
        yield member
        if type(member) is tuple:
            left.extend(member)


def _equal(one: object, other: object) -> bool:
    """Tell whether two values that are told about are of one type and the same, through and through."""
    if type(one) is not type(other) or not (_tells(one) and _tells(other)):
        return False
    pairs = zip(_members(one), _members(other), strict=False)
    return all(type(left) is type(right) and _alike(left, right) for left, right in pairs)


def _alike(one: Any, other: Any) -> bool:
    """Tell whether two values of one built-in type are the same; of tuples, whether they are as long."""
    if type(one) is tuple:
        return len(one) == len(other)
    if kind_of(one) in (float, complex):
        return repr(one) == repr(other)
    return bool(one == other)


def _checked(told: object) -> Groups:
    """Return what was told, as groups; raises ValueError where it is none."""
    if not isinstance(told, list) or not all(
        isinstance(names, list) and all(isinstance(name, str) for name in names) for names in told
    ):
        raise ValueError("groups of names were expected")
    return tuple(map(tuple, told))
