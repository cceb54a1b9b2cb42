"""Views of other objects: dict views, mapping proxies, memoryviews. They travel as (owner, how)."""

from __future__ import annotations

import ctypes
import gc
import math
import struct
import types
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.kinds import is_a

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from replkernel.state.library import ReducerContext

_DICT_VIEWS = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}
_ORDERED: OrderedDict[Any, Any] = OrderedDict()
_ORDERED_VIEWS = {
    type(_ORDERED.keys()): "keys",
    type(_ORDERED.values()): "values",
    type(_ORDERED.items()): "items",
}


def _owner(view: object) -> object:
    owners = [held for held in gc.get_referents(view) if not is_a(held, type)]
    if len(owners) != 1:
        raise CannotTravel("The mapping behind this view is not known.")
    return owners[0]


def reduce_dict_view(context: ReducerContext, view: Any) -> object:
    """Reduce keys(), values() or items() of a dict; of a class's dictionary by the class."""
    kind = _DICT_VIEWS.get(type(view)) or _ORDERED_VIEWS[type(view)]
    owner = _owner(view)
    cls = _class_with(owner)
    return (class_view, (cls, kind)) if cls is not None else (dict_view, (owner, kind))


@loader("views:class_view")
def class_view(cls: type, kind: str) -> object:
    """Return a view of a class's dictionary (called by payloads)."""
    return getattr(_CLASS_DICT.__get__(cls), kind)()


@loader("views:dict_view")
def dict_view(owner: object, kind: str) -> object:
    """Return a view of a dict (called by payloads)."""
    base: object = OrderedDict if is_a(owner, OrderedDict) else dict
    return getattr(base, kind)(owner)


def reduce_proxy(context: ReducerContext, proxy: object) -> object:
    """Reduce a mappingproxy: of a class's dictionary by the class, else of its mapping."""
    owner = _owner(proxy)
    cls = _class_with(owner)
    return (class_dict, (cls,)) if cls is not None else (types.MappingProxyType, (owner,))


def _class_with(owner: Any) -> type | None:
    """Return the class whose dictionary `owner` is; None if it is no class's."""
    if type(owner) is not dict or not owner.keys() >= _CLASS_MARKS:
        return None
    known = _classes.get(id(owner))
    if known is None:
        found = (held for held in gc.get_referrers(owner) if is_a(held, type))
        known = next((cls for cls in found if _is_dict_of(owner, cls)), None)
        if known is not None:
            _classes[id(owner)] = known
    return known if known is not None and _is_dict_of(owner, known) else None


def _is_dict_of(owner: dict[str, Any], cls: type) -> bool:
    return any(held is owner for held in gc.get_referents(_CLASS_DICT.__get__(cls)))


_CLASS_MARKS = {"__module__", "__doc__"}
"""What the dictionary of a class has."""

_CLASS_DICT = type.__dict__["__dict__"]
_classes: weakref.WeakValueDictionary[int, type] = weakref.WeakValueDictionary()
"""The classes that were searched for, by the id of their dictionary: the search looks at every object."""


@loader("views:class_dict")
def class_dict(cls: type) -> object:
    """Return the dictionary of a class (called by payloads)."""
    found: object = _CLASS_DICT.__get__(cls)
    return found


_STRIDED = 0x0018 | 0x0004
"""PyBUF_STRIDES with PyBUF_FORMAT."""


class _PyBuffer(ctypes.Structure):
    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def address_of(exporter: object) -> int:
    """Return the address of the first byte of a contiguous buffer."""
    buffer = _PyBuffer()
    take, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
    take.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
    release.argtypes = [ctypes.c_void_p]
    take(exporter, ctypes.addressof(buffer), 0)
    address = buffer.buf or 0
    release(ctypes.addressof(buffer))
    return int(address)


def address_of_first(view: memoryview) -> int:
    """Return the address of the first item of a memoryview that may skip some."""
    buffer = _PyBuffer()
    take, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
    take.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
    release.argtypes = [ctypes.c_void_p]
    take(view, ctypes.addressof(buffer), _STRIDED)
    address = buffer.buf or 0
    release(ctypes.addressof(buffer))
    return int(address)


def reduce_memoryview(context: ReducerContext, view: memoryview) -> object:
    """Reduce a memoryview to its object, its place there and its step."""
    try:
        owner = view.obj
    except ValueError:
        return released_memoryview, ()
    if view.ndim != 1 or not memoryview(owner).contiguous:
        return _reduce_grid(view, owner)
    if not view.contiguous:
        assert view.strides is not None
        step = view.strides[0] // view.itemsize
        first = address_of_first(view) - address_of(owner)
        return make_strided, (owner, first, len(view), step, view.format, view.readonly)
    offset = address_of(view) - address_of(owner) if view.nbytes else 0
    return make_memoryview, (owner, offset, view.nbytes, view.format, view.readonly)


def _reduce_grid(view: memoryview, owner: Buffer) -> object:
    """Reduce a memoryview of no or several dimensions, or of what skips some items itself.

    It is as its object shows itself, or some rows of that, or a shape put over its bytes.
    """
    first = address_of_first(view) - _address_of_any(owner)
    whole = memoryview(owner)
    if _form(whole) == _form(view) and not first:
        return make_whole, (owner, view.readonly)
    if view.ndim and whole.ndim == view.ndim and whole.format == view.format:
        rows = _rows(view, whole, first)
        if rows is not None:
            return make_rows, (owner, rows, view.readonly)
    grid = _grid(view, first) if whole.c_contiguous and _is_native(view.format) else None
    if grid is None:
        raise CannotTravel("What this memoryview shows of its object cannot be told.")
    return make_grid, (owner, *grid, view.format, view.readonly)


def _grid(view: memoryview, first: int) -> tuple[int, tuple[int, ...], int] | None:
    """Return the first byte and shape of a stretch of whole rows, and the step of a view there; or None."""
    shape, strides = tuple(view.shape or ()), tuple(view.strides or ())
    if view.c_contiguous:
        return first, shape, 1
    row = math.prod(shape[1:]) * view.itemsize
    inner = [math.prod(shape[axis + 1 :]) * view.itemsize for axis in range(1, view.ndim)]
    step, uneven = divmod(strides[0], row)
    if uneven or not step or list(strides[1:]) != inner:
        return None
    count = (shape[0] - 1) * abs(step) + 1
    return (first if step > 0 else first - (count - 1) * row), (count, *shape[1:]), step


def _form(view: memoryview) -> tuple[Any, ...]:
    return view.format, view.shape, view.strides


def _is_native(kind: str) -> bool:
    """Tell whether a memoryview can be cast to a format."""
    return kind.removeprefix("@") in {*"cbB?hHiIlLqQnNfdP"}


def _address_of_any(owner: Buffer) -> int:
    """Return the address of the first item of what a memoryview looks at, however its items lie."""
    return address_of_first(memoryview(owner))


def _rows(view: memoryview, whole: memoryview, first: int) -> tuple[int, int, int] | None:
    """Return start, count and step with which a view takes rows of what its object shows; or None."""
    shape, strides, of_whole = view.shape or (), view.strides or (), whole.strides or ()
    if shape[1:] != (whole.shape or ())[1:] or strides[1:] != of_whole[1:] or not of_whole[0] or not shape[0]:
        return None
    start, rest = divmod(first, of_whole[0])
    step, uneven = divmod(strides[0], of_whole[0])
    return None if rest or uneven or not step else (start, shape[0], step)


@loader("views:make_whole")
def make_whole(owner: Buffer, readonly: bool) -> memoryview:
    """Return a memoryview of an object as that shows itself (called by payloads)."""
    view = memoryview(owner)
    return view.toreadonly() if readonly else view


@loader("views:make_rows")
def make_rows(owner: Buffer, rows: tuple[int, int, int], readonly: bool) -> memoryview:
    """Return a memoryview of some rows of an object (called by payloads)."""
    start, count, step = rows
    stop = start + count * step
    view = memoryview(owner)[start : None if stop < 0 else stop : step]
    return view.toreadonly() if readonly else view


@loader("views:make_grid")
def make_grid(
    owner: Any, offset: int, shape: tuple[int, ...], step: int, kind: str, readonly: bool
) -> memoryview:
    """Return a memoryview of every so manieth row of a stretch of an object's bytes (called by payloads)."""
    size = math.prod(shape) * struct.calcsize(kind)
    flat: Any = memoryview(owner).cast("B")[offset : offset + size]
    view: memoryview = flat.cast(kind, shape)
    view = view if step == 1 else view[::step]
    return view.toreadonly() if readonly else view


@loader("views:make_memoryview")
def make_memoryview(owner: Buffer, offset: int, size: int, kind: str, readonly: bool) -> memoryview:
    """Return a memoryview (called by payloads)."""
    view = memoryview(owner)
    if view.format == kind and view.ndim == 1 and view.contiguous:
        view = view[offset // view.itemsize : (offset + size) // view.itemsize]
    else:
        view = view.cast("B")[offset : offset + size].cast(kind)  # type: ignore[call-overload]
    return view.toreadonly() if readonly else view


@loader("views:released_memoryview")
def released_memoryview() -> memoryview:
    """Return a memoryview that was released (called by payloads)."""
    view = memoryview(b"")
    view.release()
    return view


@loader("views:make_strided")
def make_strided(owner: Buffer, first: int, count: int, step: int, kind: str, readonly: bool) -> memoryview:
    """Return a memoryview of every so manieth item, from the one at byte `first` (called by payloads)."""
    whole = memoryview(owner).cast("B")
    size = struct.calcsize(kind)
    lowest = first if step > 0 else first + (count - 1) * step * size
    span = ((count - 1) * abs(step) + 1) * size
    view = whole[lowest : lowest + span].cast(kind)[::step]  # type: ignore[call-overload]
    return view.toreadonly() if readonly else view  # type: ignore[no-any-return]


EXACT: dict[type, Any] = {
    **dict.fromkeys((*_DICT_VIEWS, *_ORDERED_VIEWS), reduce_dict_view),
    types.MappingProxyType: reduce_proxy,
    memoryview: reduce_memoryview,
}
