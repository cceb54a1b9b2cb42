"""The names of a namespace, looked at again after each cell: what stayed costs a comparison of memory.

A notebook of twenty thousand cells has as many names of sources (``_i1``, ``_i2``, …) beside the user's own.
Law: `look` misses no change of the names; what is compared are objects by their identity, so no code runs.
To take hold of each object costs a millisecond for ten thousand names, so where a dictionary's own table can
be read, only the entries that differ are looked at.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import sys
import threading
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.process.part import Part
from replkernel.state.python.kinds import type_name

WORD_BYTES = 8
"""What an identity takes."""
MANY = 512
"""Of fewer names each is looked at."""
BLOCK_BYTES = 4096
"""So much of a table is compared at once, and word by word where it differs."""
ENTRIES_MAX = 2**24
_NOTHING = object()

_KEYS_POINTER = 32
"""Where a dictionary has the address of its table of keys."""
_HEADER = struct.Struct("<8xBBB5xqq")
"""A table: its sizes as powers of two, its kind, how many entries fit in yet, how many are taken."""
_TEXT_KEYS = 1
"""The kind of table in which an entry is two words, key and value: all keys are plain text."""
ENTRY_BYTES = 2 * WORD_BYTES
_GAP = bytes(ENTRY_BYTES)
"""The entry of a key that was deleted. No other zeros of an address and its neighbours' make so many."""


class Names:
    """The keys of one namespace in their order, as of the last look.

    `epoch` grows when keys that were known are gone or stand elsewhere; as long as it stays, keys have come
    at the end alone.
    """

    def __init__(self, namespace: Mapping[Any, Any]) -> None:
        self.namespace = namespace
        self.keys: list[Any] = []
        """Grows in place; another list when the epoch changes."""
        self.epoch = 0
        self.plain = True
        """Whether all keys are plain text."""
        self._table: bytes | None = None
        """The entries of the dictionary's table as of the last look, where they can be read."""
        self._rebound: set[int] | None = None
        self._lock = threading.Lock()

    def look(self) -> list[Any]:
        """Return the keys as they are now."""
        with self._lock:
            before, self._table = self._table, None
            if len(self.namespace) >= MANY:
                self._table = entries(self.namespace)
            if before is None or self._table is None or not self._look_at_differences(before, self._table):
                self._look_at_each()
            return self.keys

    def rebound(self) -> set[int] | None:
        """Return the places of keys that were bound anew since the last call; None: any may have been."""
        with self._lock:
            places, self._rebound = self._rebound, set()
            return places

    def _look_at_each(self) -> None:
        before, keys = len(self.keys), _keys_of(self.namespace)
        self._rebound = None
        if identities(keys[:before]) != identities(tuple(self.keys)):
            self.epoch += 1
            before, self.plain, self.keys = 0, True, []
        self._take(keys[before:])
        if self._table is not None and _words(self._table)[::2] != _words(identities(keys)):
            self._table = None  # A thread has added a name meanwhile.

    def _look_at_differences(self, before: bytes, now: bytes) -> bool:
        """Learn what has changed from two looks at the table; return whether names have come at most."""
        if len(now) < len(before):
            return False
        rebound = set()
        for at in range(0, len(before), BLOCK_BYTES):
            end = min(at + BLOCK_BYTES, len(before))
            if before[at:end] == now[at:end]:
                continue
            for entry in range(at, end, ENTRY_BYTES):
                value, after = entry + WORD_BYTES, entry + ENTRY_BYTES
                if before[entry:value] != now[entry:value]:
                    return False
                if before[value:after] != now[value:after]:
                    rebound.add(entry // ENTRY_BYTES)
        try:
            fresh = tuple(islice(reversed(self.namespace), (len(now) - len(before)) // ENTRY_BYTES))[::-1]
        except RuntimeError:  # A thread has added or deleted a name meanwhile.
            return False
        told = b"".join(now[at : at + WORD_BYTES] for at in range(len(before), len(now), ENTRY_BYTES))
        if identities(fresh) != told:
            return False
        self._take(fresh)
        if self._rebound is not None:
            self._rebound |= rebound
        return True

    def _take(self, fresh: tuple[Any, ...]) -> None:
        self.plain = self.plain and list(map(type, fresh)).count(str) == len(fresh)
        self.keys.extend(fresh)

    def glance(self) -> list[Any]:
        """Return the keys for one who follows somebody that has just looked: only their number and the last
        one are compared.
        """
        keys = self.keys
        try:
            last = next(reversed(self.namespace), _NOTHING)
        except RuntimeError:  # A thread has added or deleted a name meanwhile.
            return self.look()
        if len(keys) == len(self.namespace) and (not keys or keys[-1] is last):
            return keys
        return self.look()


def plain_names(namespace: Mapping[Any, Any], keys: Iterable[Any]) -> list[str]:
    """Return keys of a namespace as plain text: a name may have been bound under a child of `str`."""
    told = (key if key.__class__ is str else plain_name(namespace, key) for key in keys)
    return [name for name in told if name is not None]


def plain_name(namespace: Mapping[Any, Any], key: object) -> str | None:
    """Return a key as the text that finds the same entry; None where there is none."""
    if not issubclass(type(key), str):
        return None
    name = str.__str__(key)
    return name if namespace.get(name, _NOTHING) is namespace.get(key) else None


def _keys_of(namespace: Mapping[Any, Any]) -> tuple[Any, ...]:
    try:
        return tuple(namespace)
    except RuntimeError:  # A collection ran as the tuple was made, and a thread took its turn in it.
        return tuple(dict(namespace))


def identities(things: tuple[Any, ...]) -> bytes:
    """Return the ids of objects, `WORD_BYTES` for each; ids are good only as long as the objects are kept."""
    if not _tuples_readable():
        return b"".join(id(thing).to_bytes(WORD_BYTES, sys.byteorder) for thing in things)
    return ctypes.string_at(id(things) + tuple.__basicsize__, WORD_BYTES * len(things))


def entries(mapping: Mapping[Any, Any]) -> bytes | None:
    """Return the ids of a dictionary's keys and values by turns, in its order; None if that cannot be done.

    The system reads for us: what another thread has given back meanwhile is no crash, and as the table is the
    same one afterwards, it was the dictionary's while it was read.
    """
    return _entries(mapping) if type(mapping) is dict and _tables_readable() else None


def _words(table: bytes) -> list[int]:
    return memoryview(table).cast("Q").tolist()


def _entries(mapping: dict[Any, Any]) -> bytes | None:
    pointer = ctypes.c_size_t.from_address(id(mapping) + _KEYS_POINTER)
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        table = pointer.value
        _, index_bytes, kind, _, count = _HEADER.unpack(os.pread(memory, _HEADER.size, table))
        if kind != _TEXT_KEYS or not 0 <= count <= ENTRIES_MAX or index_bytes > WORD_BYTES * 4:
            return None
        size = ENTRY_BYTES * count
        found = os.pread(memory, size, table + _HEADER.size + (1 << index_bytes))
    except (OSError, struct.error):
        return None
    finally:
        os.close(memory)
    if len(found) != size or pointer.value != table:
        return None
    return found if len(mapping) == count else found.replace(_GAP, b"")


@functools.cache
def _tables_readable() -> bool:
    """Tell whether a dictionary's table lies in memory as is known here."""
    if not _tuples_readable() or sys.byteorder != "little":
        return False
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    if dict.__basicsize__ < _KEYS_POINTER + WORD_BYTES:
        return False
    for size in (1, 5, 300):
        example: dict[str, object] = {f"name {number}": object() for number in range(size)}
        example["last"] = example.pop("name 0")
        words = [word for item in example.items() for word in item]
        expected = identities(tuple(words))
        if _entries(example) != expected:
            return False
    return True


@functools.cache
def _tuples_readable() -> bool:
    """Tell whether a tuple's objects lie in memory as is known here."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != WORD_BYTES:
        return False
    things = (object(), "text", 5)
    expected = b"".join(id(thing).to_bytes(WORD_BYTES, sys.byteorder) for thing in things)
    if sys.getsizeof(things) < tuple.__basicsize__ + len(expected):
        return False
    return ctypes.string_at(id(things) + tuple.__basicsize__, len(expected)) == expected


# Which of the names are the user's: all but IPython's own and those that nobody gave.
#
# Law: the same as asking of each name anew; only what came since is asked, for old notebooks have many.

OF_NOBODY = (
    "__compiled_fn_", "__resume_at_", "__builtins_dict__", "__import_", "__nested_resume_fns",
    "__warningregistry__",
)  # fmt: skip
"""Names that `torch.compile` puts among the user's, which each process makes when it compiles; and the table
of warnings that a cell has shown: IPython deletes it before the next one, and an undo would take that back.
"""


class UserNames:
    """The user's names of one namespace. `ignore` are IPython's own.

    These may become more at any time; a set of them that can become fewer says so by its `version`, and has
    looked at the names right before these are asked for.
    """

    def __init__(self, names: Names, ignore: AbstractSet[str]) -> None:
        self._names = names
        self._ignore = ignore
        self._found: list[str] = []
        self._asked = 0
        """So many of the namespace's keys have been asked about."""
        self._as_of = (0, 0)

    def now(self) -> list[str]:
        """Return them in the order of the namespace."""
        names, ignore = self._names, self._ignore
        version = getattr(ignore, "version", None)
        keys = names.look() if version is None else names.glance()
        if not names.plain:
            self._as_of = (-1, -1)
            return self._of(plain_names(names.namespace, keys))
        as_of = (names.epoch, version or 0)
        if as_of != self._as_of or not ignore.isdisjoint(self._found):
            self._found, self._asked, self._as_of = [], 0, as_of
        fresh = keys[self._asked :]
        self._found += self._of(fresh)
        self._asked += len(fresh)
        return self._found.copy()

    def _of(self, keys: Any) -> list[str]:
        ignore = self._ignore
        return [
            name
            for name in keys
            if name not in ignore and not (name[:2] == "__" and name.startswith(OF_NOBODY))
        ]


# ``@odd_names``: entries of the namespace under keys that no name reaches, as of ``globals()[5] = 1``.
#
# They ship nothing; what is there is told as stuck.

SHOWN_MAX = 10
_SHOWN = frozenset({int, float, bool, bytes, type(None)})


class OddNamesPart(Part[tuple[str, ...]]):
    """The keys of the namespace that are no names."""

    cid = ComponentId("@odd_names")

    def __init__(self, names: Names) -> None:
        self._names = names
        super().__init__()

    def look(self) -> tuple[str, ...]:
        """Return the keys as a user knows them."""
        namespace, keys = self._names.namespace, self._names.glance()
        if self._names.plain:
            return ()
        odd = [key for key in keys if key.__class__ is not str and plain_name(namespace, key) is None]
        return tuple(repr(key) if type(key) in _SHOWN else f"<{type_name(key)}>" for key in odd[:SHOWN_MAX])

    def pack(self, seen: tuple[str, ...]) -> bytes | None:
        """Tell that what they have stays here."""
        self.stuck = tuple(
            f"`globals()[{key}]` is no name: what it has stays in this process." for key in seen
        )
        return None

    def apply(self, data: bytes) -> None:
        """Do nothing: nothing is told."""
