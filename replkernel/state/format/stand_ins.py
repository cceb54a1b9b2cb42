"""What stands in a stream for values that the C pickler writes without asking anybody, and how it comes back.

`capture/rechecks` finds the values; a pickler that is asked for each (`persistent_id`) writes these instead.
Law: a stand-in is loaded as the very value; the payload names the functions here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture import sentinels
from replkernel.state.format import frozen_order, set_order
from replkernel.state.format.nans import own_nan
from replkernel.state.python import stale_keys

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext


class SharedNan:
    """A NaN of the notebook's that several places hold."""

    __slots__ = ("name",)

    def __init__(self, name: int) -> None:
        self.name = name


class LibrarysNan:
    """A NaN that a library holds, by its token."""

    __slots__ = ("token",)

    def __init__(self, token: str) -> None:
        self.token = token


class Address:
    """The id of an object."""

    __slots__ = ("owner",)

    def __init__(self, owner: Any) -> None:
        self.owner = owner


class AddressHash:
    """The hash of an object that is hashed by its id."""

    __slots__ = ("owner",)

    def __init__(self, owner: Any) -> None:
        self.owner = owner


HASH_SHIFT = 4
"""So many bits of an id, zeros as a rule, Python turns round to make a hash of it."""


def is_hashed_by_id(owner: object) -> bool:
    """Tell whether an object's hash is made of its id; None is no object."""
    return owner is not None and type(owner).__hash__ is object.__hash__


class StaleContainer:
    """A container with the hashes that its keys were put in by."""

    __slots__ = ("container", "hashes")

    def __init__(self, container: Any, hashes: list[int]) -> None:
        self.container = container
        self.hashes = hashes


class OrderedFrozenset:
    """A frozenset with a way to make one that is iterated in the same order."""

    __slots__ = ("value", "way")

    def __init__(self, value: frozenset[Any], way: frozen_order.Way) -> None:
        self.value = value
        self.way = way


def reduce_nan(pickler: UnitContext, nan: SharedNan) -> Any:
    """Reduce a NaN to its name."""
    return own_nan, (nan.name,)


def reduce_librarys_nan(pickler: UnitContext, nan: LibrarysNan) -> Any:
    """Reduce a NaN to its token."""
    if nan.token.startswith("numpy"):
        pickler.module_needed("numpy")
    return sentinels.seed, (nan.token,)


def reduce_address(pickler: UnitContext, address: Address) -> Any:
    """Reduce an id to the object."""
    return address_of, (address.owner,)


def reduce_address_hash(pickler: UnitContext, hashed: AddressHash) -> Any:
    """Reduce a hash to the object."""
    return hash_of, (hashed.owner,)


@loader("stand_ins:hash_of")
def hash_of(owner: Any) -> int:
    """Return the hash that an object has here by its id (called by payloads)."""
    return object.__hash__(owner)


@loader("stand_ins:address_of")
def address_of(owner: Any) -> int:
    """Return the id that an object has here (called by payloads)."""
    return id(owner)


def reduce_container(pickler: UnitContext, stand_in: StaleContainer) -> Any:
    """Reduce a container to its keys, their hashes, and its values."""
    container = stand_in.container
    pickler.links.append(container)
    values = tuple(container.values()) if type(container) is dict else ()
    keys, hashes = tuple(container), tuple(stand_in.hashes)
    layout: tuple[Any, ...] = ()
    if type(container) is not dict:
        fillers, together, order = set_order.filling(container)
        keys, hashes = tuple(keys[at] for at in order), tuple(hashes[at] for at in order)
        layout = tuple(fillers), together
    made_of = stale_keys.kind_of(container), hashes, *layout
    return stale_keys.make, made_of, (keys, values), None, None, stale_keys.fill


def reduce_frozenset(pickler: UnitContext, ordered: OrderedFrozenset) -> Any:
    """Reduce a frozenset to the way to make it."""
    return frozen_order.made, tuple(ordered.way)


EXACT: dict[type, Any] = {
    SharedNan: reduce_nan,
    LibrarysNan: reduce_librarys_nan,
    Address: reduce_address,
    AddressHash: reduce_address_hash,
    StaleContainer: reduce_container,
    OrderedFrozenset: reduce_frozenset,
}
