"""Finds in a small dump what the C pickler has written wrongly, because it asks nobody for such values.

That are NaNs which several places hold (a container finds them by identity only), ids of the notebook's
objects and the hashes made of these, containers with a key whose hash has changed, and frozensets that would
be iterated in another order. A unit that has such is dumped again by a pickler that is asked for each value.
Law: nothing is found in doubt; nothing is kept after a capture.
"""

from __future__ import annotations

import pickle
import types
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from replkernel.state.capture.dump import Dump
from replkernel.state.format.frozen_order import way_of
from replkernel.state.format.nans import NAN, shared_nans
from replkernel.state.format.shared_values import Value
from replkernel.state.format.stand_ins import (
    HASH_SHIFT,
    Address,
    AddressHash,
    LibrarysNan,
    OrderedFrozenset,
    SharedNan,
    StaleContainer,
    is_hashed_by_id,
)
from replkernel.state.python import stale_keys
from replkernel.state.python.kinds import is_a, key_of, kind_of
from replkernel.state.python.paths import instance_dict
from replkernel.state.seeds import MATH_NAN, NUMPY_NAN, nan_of

STREAM_BYTES_MAX = 64 * 1024
"""Longer streams are taken as they are."""

LONG_BYTES = 1024
_LOOKED_AT = 256
"""Among so many objects it is worth looking for long bytes."""

OWNERS_MAX = 50_000
"""Of so many objects the ids are known."""

_DEPTH_MAX = 4
_SIX_BYTES = b"\x8a\x06"
"""How a pickle announces an integer of the size of an address."""
_LOWEST, _HIGHEST = 1 << 32, 1 << 47
_ATOMS = frozenset({int, float, complex, bool, str, bytes, type(None), tuple, frozenset, range, slice})
_CONTAINERS = frozenset({list, tuple, set, frozenset})
_SHELLS = frozenset({"In", "Out", "exit", "quit", "get_ipython", "open"})


class Addresses:
    """The notebook's objects by id: those that variables hold, directly or in containers and attributes."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._owners: dict[int, Any] | None = None

    def owner(self, address: int) -> Any:
        """Return the object of an id; None when it is none of the notebook's."""
        if self._owners is None:
            self._owners = {}
            names = (name for name in self._namespace if name[:1] != "_" and name not in _SHELLS)
            self._walk([self._namespace[name] for name in names], 0)
        return self._owners.get(address)

    def _walk(self, values: Iterable[Any], depth: int) -> None:
        owners = self._owners
        assert owners is not None
        below: list[Any] = []
        for value in values:
            kind = kind_of(value)
            if len(owners) >= OWNERS_MAX:
                return
            if kind in _CONTAINERS:
                below.extend(value)
            if kind in _ATOMS or id(value) in owners:
                continue
            owners[id(value)] = value
            if kind is dict:
                below.extend(value.values())
                below.extend(value)
            elif type(value).__flags__ & (1 << 9) and not is_a(value, (type, types.ModuleType)):
                below.extend((instance_dict(value) or {}).values())
        if below and depth < _DEPTH_MAX:
            self._walk(below, depth + 1)


class StandIns:
    """What stands for values of one unit: by the id of a NaN or container, by the value of an integer."""

    def __init__(self) -> None:
        self.nans: dict[int, Any] = {}
        self.addresses: dict[int, Address | AddressHash] = {}
        self.containers: dict[int, StaleContainer] = {}
        self.frozensets: dict[int, OrderedFrozenset] = {}

    def __bool__(self) -> bool:
        return bool(self.nans or self.addresses or self.containers or self.frozensets)

    def of(self, value: Any) -> Any:
        """Return what stands for a value; None for one that is written as it is."""
        kind = type(value)
        if kind is float:
            return self.nans.get(id(value)) if value != value else None
        if kind is int:
            return self.addresses.get(value)
        if kind is frozenset and id(value) in self.frozensets:
            return self.frozensets[id(value)]
        return self.containers.get(id(value)) if key_of(kind) in stale_keys.KINDS else None


def without_long_bytes(stream: bytes, memo: Mapping[int, tuple[int, Any]]) -> bytes:
    """Return a stream without the contents of long bytes, by which arrays are told; `memo` holds these.

    What is searched for in a stream would be found there by chance alone. Contents are cut out only where
    nothing else can be their beginning: all of them lie behind it, so it is not among the last bytes.
    """
    if len(stream) < LONG_BYTES or len(memo) > _LOOKED_AT:
        return stream
    for _, value in memo.values():
        if type(value) is not bytes or len(value) < LONG_BYTES:
            continue
        announced, last = pickle.BINBYTES + len(value).to_bytes(4, "little"), len(stream) - len(value)
        at = stream.find(announced, 0, last)
        start = at + len(announced)
        if at >= 0 and stream.find(announced, at + 1, last) < 0 and stream.startswith(value, start):
            stream = stream[:start] + stream[start + len(value) :]
    return stream


def may_have(stream: bytes) -> bool:
    """Tell whether a stream may have a NaN, an id or a frozenset in it."""
    return NAN in stream or _SIX_BYTES in stream or pickle.FROZENSET in stream


def find(
    dump: Dump, roots: Mapping[str, Any], seeds: int, addresses: Addresses, named: Collection[Value]
) -> StandIns:
    """Return what must stand for values of a unit; the first objects of its memo are the `seeds`.

    The values that are `named` stand in front of the stream, with their order.
    """
    found = StandIns()
    if dump.table is not None or len(dump.parts) != 1 or len(dump.parts[0]) > STREAM_BYTES_MAX:
        return found
    stream = dump.parts[0] if named else without_long_bytes(dump.parts[0], dump.memo)
    if not dump.classes and not may_have(stream):
        return found
    held = [value for place, value in dump.memo.values() if place >= seeds]
    if NAN in stream:
        _find_nans(found, held, roots)
    if _SIX_BYTES in stream and not all(name[:1] == "_" or name in _SHELLS for name in roots):
        _find_addresses(found, stream, addresses)
    if pickle.FROZENSET in stream:
        _find_frozensets(found, held, set(map(id, named)))
    if dump.classes:
        for value in held:
            if kind_of(value) in stale_keys.KINDS and (hashes := stale_keys.stale(value)) is not None:
                found.containers[id(value)] = StaleContainer(value, hashes)
    return found


def _find_nans(found: StandIns, held: list[Any], roots: Mapping[str, Any]) -> None:
    named = shared_nans(held, roots)
    if named:
        found.nans = {key: SharedNan(name) for key, name in named.items()}
        found.nans.update({id(nan_of(token)): LibrarysNan(token) for token in (NUMPY_NAN, MATH_NAN)})


def _find_frozensets(found: StandIns, held: list[Any], named: Collection[int]) -> None:
    for value in held:
        if type(value) is frozenset and id(value) not in named and (way := way_of(value)) is not None:
            found.frozensets[id(value)] = OrderedFrozenset(value, way)


def _find_addresses(found: StandIns, stream: bytes, addresses: Addresses) -> None:
    at = stream.find(_SIX_BYTES)
    while at >= 0:
        value = int.from_bytes(stream[at + 2 : at + 8], "little", signed=True)
        if _LOWEST < value < _HIGHEST and value not in found.addresses:
            owner = addresses.owner(value)
            if owner is not None:
                found.addresses[value] = Address(owner)
            elif is_hashed_by_id(hashed := addresses.owner(value << HASH_SHIFT)):
                found.addresses[value] = AddressHash(hashed)
        at = stream.find(_SIX_BYTES, at + 1)
