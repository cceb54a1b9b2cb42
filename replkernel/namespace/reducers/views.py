"""Views of other objects: dict views, mapping proxies, memoryviews. They travel as (owner, how)."""

from __future__ import annotations

import ctypes
import gc
import struct
import types
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from replkernel.namespace.reducers.outcome import CannotTravel

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler

_DICT_VIEWS = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}
_ORDERED: Any = OrderedDict()
_ORDERED_VIEWS = {
    type(_ORDERED.keys()): "keys",
    type(_ORDERED.values()): "values",
    type(_ORDERED.items()): "items",
}


def _owner(view: Any) -> Any:
    owners = [held for held in gc.get_referents(view) if not isinstance(held, type)]
    if len(owners) != 1:
        raise CannotTravel("The mapping behind this view is not known.")
    return owners[0]


def reduce_dict_view(pickler: CapturePickler, view: Any) -> Any:
    """Reduce keys(), values() or items() of a dict; of a class's dictionary by the class."""
    kind = _DICT_VIEWS.get(type(view)) or _ORDERED_VIEWS[type(view)]
    owner = _owner(view)
    cls = _class_with(owner)
    return (class_view, (cls, kind)) if cls is not None else (dict_view, (owner, kind))


def class_view(cls: type, kind: str) -> Any:
    """Return a view of a class's dictionary (called by payloads)."""
    return getattr(_CLASS_DICT.__get__(cls), kind)()


def dict_view(owner: Any, kind: str) -> Any:
    """Return a view of a dict (called by payloads)."""
    base: Any = OrderedDict if isinstance(owner, OrderedDict) else dict
    return getattr(base, kind)(owner)


def reduce_proxy(pickler: CapturePickler, proxy: Any) -> Any:
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
        found = (held for held in gc.get_referrers(owner) if isinstance(held, type))
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


def class_dict(cls: type) -> Any:
    """Return the dictionary of a class (called by payloads)."""
    found: Any = _CLASS_DICT.__get__(cls)
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


def address_of(exporter: Any) -> int:
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


def reduce_memoryview(pickler: CapturePickler, view: memoryview) -> Any:
    """Reduce a memoryview to its object, its place there and its step."""
    try:
        owner = view.obj
    except ValueError:
        return released_memoryview, ()
    if view.ndim != 1:
        raise CannotTravel("Only memoryviews of one dimension can be copied.")
    if not view.contiguous:
        assert view.strides is not None
        step = view.strides[0] // view.itemsize
        first = address_of_first(view) - address_of(owner)
        return make_strided, (owner, first, len(view), step, view.format, view.readonly)
    offset = address_of(view) - address_of(owner) if view.nbytes else 0
    return make_memoryview, (owner, offset, view.nbytes, view.format, view.readonly)


def make_memoryview(owner: Any, offset: int, size: int, kind: str, readonly: bool) -> memoryview:
    """Return a memoryview (called by payloads)."""
    view = memoryview(owner)
    if view.format == kind and view.ndim == 1 and view.contiguous:
        view = view[offset // view.itemsize : (offset + size) // view.itemsize]
    else:
        view = view.cast("B")[offset : offset + size].cast(kind)  # type: ignore[call-overload]
    return view.toreadonly() if readonly else view


def released_memoryview() -> memoryview:
    """Return a memoryview that was released (called by payloads)."""
    view = memoryview(b"")
    view.release()
    return view


def make_strided(owner: Any, first: int, count: int, step: int, kind: str, readonly: bool) -> memoryview:
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
