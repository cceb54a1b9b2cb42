"""Structures, unions, arrays and numbers of ctypes: classes by their fields, objects by their bytes.

The metaclasses of ctypes have no name to import; they make a class's layout once, when its fields are set.
Law: memory that is another object's is never copied: what is a part of an object is taken from that anew, and
what only an address leads to stays where it is.
"""

from __future__ import annotations

import ctypes
import operator
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state import hooks
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.ctypes import functions as c_functions
from replkernel.state.python.kinds import qualname_of

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext


_DICT = type.__dict__["__dict__"]
_MRO = type.__dict__["__mro__"]


class _Sample(ctypes.Structure):
    _fields_ = [("field", ctypes.c_int)]


FIELD: type = type(_DICT.__get__(_Sample)["field"])
"""The type of what a class has under the name of a field; setting the fields makes them."""

LAYOUT = ("_align_", "_pack_", "_anonymous_", "_fields_")
"""What makes a class's layout, in the order in which it is to be set: the fields last, and once."""

_KINDS = ("Structure", "Union", "_SimpleCData")
METACLASSES: dict[type, str] = {type(getattr(ctypes, name)): name for name in _KINDS}
"""The metaclasses whose classes can be made again, by a class of ctypes that has it."""

_ORDERS = ("__ctype_le__", "__ctype_be__")
_NATIVE, _SWAPPED = _ORDERS if sys.byteorder == "little" else reversed(_ORDERS)
"""Where a type of numbers has that of each order of bytes; ctypes makes the other one with it."""

_DATA = _MRO.__get__(ctypes.Structure)[-2]
_POINTERS = type(ctypes._Pointer)
_METACLASSES = tuple(METACLASSES)
BELOW = frozenset({_DATA, *METACLASSES})
"""Built-in types without a name, which the classes of ctypes bring along."""


@loader("ctypes:metaclass")
def metaclass(name: str) -> type:
    """Return the metaclass of a class of ctypes (called by payloads)."""
    return type(getattr(ctypes, name))


def is_native(cls: type) -> bool:
    """Tell whether a class has a layout of ctypes."""
    return issubclass(type(cls), _METACLASSES)


def layout_of(cls: type) -> dict[str, Any]:
    """Return what makes the layout of a class, as it was told."""
    if not is_native(cls):
        return {}
    entries = _DICT.__get__(cls)
    return {key: entries[key] for key in LAYOUT if key in entries}


@loader("ctypes:lay_out")
def lay_out(cls: object, layout: dict[str, Any]) -> None:
    """Give a class its layout, unless it has it (called by payloads)."""
    for key in LAYOUT:
        if key in layout and key not in _DICT.__get__(cls):
            setattr(cls, key, layout[key])


def is_of_layout(key: str, value: object) -> bool:
    """Tell whether an entry of a class comes with its layout."""
    return key in LAYOUT or key in (_NATIVE, _SWAPPED) or type(value) is FIELD


def is_pointer_type(cls: type) -> bool:
    """Tell whether a class is the one that ctypes keeps for pointers to some type."""
    kind = _DICT.__get__(cls).get("_type_") if type(cls) is _POINTERS else None
    return isinstance(kind, type) and pointer_type(kind) is cls


@loader("ctypes:pointer_type")
def pointer_type(kind: type[ctypes._CData]) -> object:
    """Return the type of pointers to a type (called by payloads)."""
    return ctypes.POINTER(kind)


def native_type(cls: type) -> type | None:
    """Return the type of numbers in this machine's order of bytes of one that has the other order."""
    native = getattr(cls, _NATIVE, cls) if type(cls) is type(ctypes._SimpleCData) else cls
    return native if native is not cls and swapped_type(native) is cls else None


@loader("ctypes:swapped_type")
def swapped_type(native: object) -> object:
    """Return the type of numbers in the other order of bytes (called by payloads)."""
    return getattr(native, _SWAPPED, None)


def reduce_data(context: ReducerContext, data: object) -> object:
    """Reduce what has its own memory to its bytes, and a part of something to the way to it."""
    owner = _DATA._b_base_.__get__(data)
    if owner is None:
        if not _DATA._b_needsfree_.__get__(data):
            raise CannotTravel("Its memory belongs to another object, with which a copy would not share it.")
        try:
            _, (cls, (attributes, memory)) = _DATA.__reduce__(data)
        except ValueError:  # What ctypes says of any address in the memory.
            raise CannotTravel(_has_addresses(type(data))) from None
        return make_data, (cls, memory), attributes or None, None, None, fill_data
    for get, key in _ways(data, owner):
        return get, (owner, key)
    raise CannotTravel("Its memory is another object's, of which it is no part that has a name.")


def _has_addresses(cls: type[Any]) -> str:
    """Say why an object of a type with addresses in its memory stays, and what a user does about it."""
    where = next(_addresses_in(cls, ""), None)
    name = qualname_of(cls)
    if not where:
        return (
            f"A {name} holds an address in the memory of this process, which leads nowhere in another one. "
            "Keep what is there in a variable, and make the address from that in the cell that uses it."
        )
    return (
        f"A {name} holds addresses in the memory of this process (in `{where}`), which lead nowhere in "
        "another one. Keep the values in a variable and make it from them, or say how: "
        f"`{hooks.DUMP_METHOD}` in its class, or `replkernel.register`."
    )


def _addresses_in(cls: Any, path: str) -> Iterator[str]:
    """Yield the fields of a type, as they are written, that hold addresses."""
    if issubclass(cls, ctypes.Array):
        yield from _addresses_in(cls._type_, f"{path}[0]")
        return
    fields = [field for base in _MRO.__get__(cls) for field in _DICT.__get__(base).get("_fields_", ())]
    for name, kind, *_ in fields:
        yield from _addresses_in(kind, f"{path}.{name}")
    if issubclass(cls, (ctypes._Pointer, c_functions.FUNCTION)) or getattr(cls, "_type_", None) in _ADDRESSES:
        yield path.removeprefix(".")


_ADDRESSES = ("P", "z", "Z", "O")
"""The types of ctypes for an address, for text by its address, and for an object of Python."""


@loader("ctypes:make_data")
def make_data(cls: type[ctypes.Structure], memory: bytes) -> object:
    """Return an object of ctypes with these bytes (called by payloads)."""
    data = cls.__new__(cls)
    _DATA.__setstate__(data, {}, memory)
    return data


@loader("ctypes:fill_data")
def fill_data(data: ctypes.Structure, attributes: dict[str, Any]) -> None:
    """Give an object its attributes beside its memory (called by payloads)."""
    vars(data).update(attributes)


def _ways(data: Any, owner: Any) -> Iterator[tuple[Any, Any]]:
    """Yield how to get from an object of ctypes to a part of it."""
    offset = ctypes.addressof(data) - ctypes.addressof(owner)
    if isinstance(owner, ctypes.Array):
        place, rest = divmod(offset, ctypes.sizeof(owner._type_))
        if owner._type_ is type(data) and not rest:
            yield operator.getitem, place
        return
    for cls in _MRO.__get__(type(owner)):
        for name, kind, *bits in _DICT.__get__(cls).get("_fields_", ()):
            if kind is type(data) and not bits and _DICT.__get__(cls)[name].offset == offset:
                yield getattr, name


def reduce_pointer(context: ReducerContext, pointer: Any) -> object:
    """Reduce a pointer to what it points at, where that is an object that it holds."""
    if not pointer:
        return type(pointer), ()
    for held in (pointer._objects or {}).values():
        if type(held) is pointer._type_ and ctypes.addressof(held) == ctypes.addressof(pointer.contents):
            return type(pointer), (held,)
    raise CannotTravel(
        "It points at memory of which nobody knows what object it is. Keep that object in a variable, and "
        "make the pointer from it in the cell that uses it."
    )


FAMILIES = [
    (ctypes.Structure, reduce_data),
    (ctypes.Union, reduce_data),
    (ctypes.Array, reduce_data),
    (ctypes._SimpleCData, reduce_data),
    (ctypes._Pointer, reduce_pointer),
]


# The types of arrays of ctypes: by their elements and length.


def is_array_type(cls: type) -> bool:
    """Tell whether a type is the one that ctypes keeps for arrays of some elements and length."""
    if type(cls) is not type(ctypes.Array):
        return False
    entries = type.__dict__["__dict__"].__get__(cls)
    kind, length = entries.get("_type_"), entries.get("_length_")
    return isinstance(kind, type) and type(length) is int and array_type(kind, length) is cls


@loader("ctypes:array_type")
def array_type(kind: Any, length: int) -> Any:
    """Return the type of arrays of so many elements (called by payloads)."""
    return kind * length
