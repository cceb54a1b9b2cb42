"""Containers with a key whose hash has changed since it was put in: it is found and missed as before.

What was hashed is in the memory of the dict or set only. A copy is made with keys that have the old hashes,
and these are exchanged for the real ones in place. The layout is CPython's; it is checked before it is used.
Law: the real keys are neither hashed nor compared when a copy is made.
"""

from __future__ import annotations

import ctypes
import dis
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

from replkernel.loaders import loader
from replkernel.state.format import set_order

_WORD = 8
_DICT_KEYS = 32
_LOG2_INDEX_BYTES, _KIND, _ENTRIES_USED, _INDICES = 9, 10, 24, 32
_GENERAL = 0
_ENTRY_WORDS = 3
_SET_MASK, _SET_TABLE = 32, 40
_SIGNED = 1 << 63

KEYS_MAX = 2_000
"""Containers with more keys are not looked at: every key is hashed for that."""

_DEPTH_MAX = 8
"""How deep tuples in a key's tuple are looked into."""

_TUPLE_HASH = tuple.__dict__["__hash__"]
_STORES = frozenset(
    {"STORE_ATTR", "STORE_GLOBAL", "STORE_SUBSCR", "STORE_DEREF", "DELETE_ATTR", "DELETE_SUBSCR"}
)
_EFFECTS = frozenset(
    {"print", "append", "add", "update", "next", "write", "display", "sleep", "info", "debug"}
)
_DICT = type.__dict__["__dict__"]
_MRO = type.__dict__["__mro__"]
_increase = ctypes.pythonapi.Py_IncRef
_decrease = ctypes.pythonapi.Py_DecRef


class Placeholder:
    """A key with a given hash, equal to itself only, that keeps a place for a real one."""

    __slots__ = ("hashed", "number")

    def __init__(self, hashed: int, number: int) -> None:
        self.hashed = hashed
        self.number = number

    def __hash__(self) -> int:
        return self.hashed


def _words(address: int, count: int) -> Any:
    return (ctypes.c_size_t * count).from_address(address)


def _signed(word: int) -> int:
    return word - 2 * _SIGNED if word >= _SIGNED else word


def _dict_places(container: object) -> Iterator[tuple[int, int]]:
    (keys,) = _words(id(container) + _DICT_KEYS, 1)
    head = (ctypes.c_uint8 * _WORD).from_address(keys + 8)
    if head[_KIND - 8] != _GENERAL:
        return
    (used,) = _words(keys + _ENTRIES_USED, 1)
    entries = keys + _INDICES + (1 << head[_LOG2_INDEX_BYTES - 8])
    for number in range(used):
        hashed, key, value = _words(entries + number * _ENTRY_WORDS * _WORD, _ENTRY_WORDS)
        if key and value:
            yield _signed(hashed), entries + (number * _ENTRY_WORDS + 1) * _WORD


def _set_places(container: object) -> Iterator[tuple[int, int]]:
    mask, table = _words(id(container) + _SET_MASK, 2)
    for number in range(mask + 1):
        key, hashed = _words(table + number * 2 * _WORD, 2)
        if key and _signed(hashed) != -1:
            yield _signed(hashed), table + number * 2 * _WORD


def _places(container: object) -> list[tuple[int, int]]:
    """Return the hash of each key as it was put in, and the address of the reference to it."""
    return list((_dict_places if type(container) is dict else _set_places)(container))


@functools.cache
def readable() -> bool:
    """Tell whether dicts and sets lie in memory as is known here."""
    if sys.implementation.name != "cpython" or hasattr(sys, "gettotalrefcount"):
        return False
    keys = [Placeholder(-7 * number - 2, number) for number in range(40)]
    holed = dict.fromkeys(keys)
    del holed[keys[3]]
    for sample in (holed, set(keys), frozenset(keys[:3])):
        found = [(key.hashed, id(key)) for key in sample]
        if [(hashed, *_words(place, 1)) for hashed, place in _places(sample)] != found:
            return False
    return True


def stale(container: dict[Any, Any] | set[Any]) -> list[int] | None:
    """Return the hashes that the keys were put in by; None when all are as they were, and no two alike."""
    if not 0 < len(container) <= KEYS_MAX or not any(map(_may_be_stale, container)) or not readable():
        return None
    hashes = [hashed for hashed, _ in _places(container)]
    if len(hashes) != len(container):
        return None
    if len(set(hashes)) < len(hashes):  # keys that became equal in it would be one in a copy
        return hashes
    for key, hashed in zip(container, hashes, strict=True):
        try:
            if _may_be_stale(key) and hash(key) != hashed:
                return hashes
        except Exception:
            continue
    return None


@functools.lru_cache(maxsize=256)
def _hash_changes(method: object) -> bool:
    """Tell whether a method of the user's says the hash, and does nothing beside."""
    if type(method) is not types.FunctionType:
        return False
    code = method.__code__
    return _EFFECTS.isdisjoint(code.co_names) and _STORES.isdisjoint(
        step.opname for step in dis.get_instructions(code)
    )


def _may_be_stale(key: Any) -> bool:
    """Tell whether the hash of a key may change, and may be asked for."""
    return _can_change(type(key)) or (_is_plain_tuple(type(key)) and _holds_such(key))


def _holds_such(held: tuple[Any, ...]) -> bool:
    """Tell whether a tuple's hash is made of one that may change, and of none that does more."""
    kinds = set(map(type, _flat(held, _DEPTH_MAX)))
    return any(map(_can_change, kinds)) and not any(
        _says_its_hash(kind) and not _can_change(kind) for kind in kinds
    )


def _flat(held: tuple[Any, ...], depth: int) -> Iterator[Any]:
    for member in tuple.__iter__(held):
        if _is_plain_tuple(type(member)) and depth:
            yield from _flat(member, depth - 1)
        else:
            yield member


def _is_plain_tuple(cls: type) -> bool:
    """Tell whether a class is a tuple, a named one too, which hashes as a tuple does."""
    return cls is tuple or (tuple in _MRO.__get__(cls) and _hash_method(cls) is _TUPLE_HASH)


def _says_its_hash(cls: type) -> bool:
    """Tell whether the hash of a class's instances is a function of the user's."""
    return isinstance(_hash_method(cls), types.FunctionType)


def _can_change(cls: type) -> bool:
    method = _hash_method(cls)
    return method is not None and _hash_changes(method)


def _hash_method(cls: type) -> object:
    return next(
        (held for base in _MRO.__get__(cls)[:-1] if (held := _DICT.__get__(base).get("__hash__"))), None
    )


_KINDS: dict[type, str] = {dict: "dict", set: "set", frozenset: "frozenset"}
_MAKERS: dict[str, Any] = {"dict": dict.fromkeys, "set": set, "frozenset": frozenset}
KINDS = frozenset(_KINDS)


def kind_of(container: object) -> str:
    """Return the name of a container's type."""
    return _KINDS[type(container)]


@loader("stale_keys:make")
def make(kind: str, hashes: tuple[int, ...], fillers: tuple[int, ...] = (), together: int = 0) -> Any:
    """Return a container that keeps places for keys (called by payloads).

    A set is filled while the places `fillers` are taken, after `together` things at once (`set_order`).
    """
    held = [Placeholder(hashed, number) for number, hashed in enumerate(hashes)]
    if not fillers:
        return _MAKERS[kind](held)
    members: set[Any] = set()
    set_order.filled(members, fillers, together, held)
    return members if kind == "set" else frozenset(members)


@loader("stale_keys:fill")
def fill(container: dict[Any, Any] | set[Any], parts: tuple[tuple[Any, ...], tuple[Any, ...]]) -> None:
    """Put the real keys, and the values of a dict, where the places are kept (called by payloads)."""
    if not readable():
        raise LookupError("how dicts and sets lie in memory is not known in this release of Python")
    keys, values = parts
    held = list(container)
    if type(container) is dict:
        for placeholder in held:
            container[placeholder] = values[placeholder.number]
    for placeholder, (_, place) in zip(held, _places(container), strict=True):
        real = keys[placeholder.number]
        _increase(ctypes.py_object(real))
        _words(place, 1)[0] = id(real)
        _decrease(ctypes.py_object(placeholder))
