"""Large arrays in a mapping of their own, from the beginning of a page, where files can be mapped.

They own their memory as any array does: it comes from the C library's allocator, asked for whole pages, and
goes back there. Law: glibc's own allocator, and numpy's, or the array is an ordinary one.
"""

from __future__ import annotations

import contextlib
import ctypes
import platform
import sys
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from replkernel.objects.mapping import PAGE, WORTH_BYTES
from replkernel.state.libraries.numpy.bare_arrays import address

if TYPE_CHECKING:
    from replkernel.state.libraries.numpy.bare_arrays import Array


_SET, _GET = 304, 305
"""`PyDataMem_SetHandler` and `PyDataMem_GetHandler` in numpy's table of functions."""

_CAPSULE = b"mem_handler"
_DEFAULT = b"default_allocator"
_VERSION = 1
_IS_MAPPED, _FLAGS = 2, 7


class _Handler(ctypes.Structure):
    """numpy's `PyDataMem_Handler`."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


class _Ways:
    """How arrays get pages of their own in this process. Raises where numpy or the C library is another."""

    def __init__(self) -> None:
        _check_libc()
        core: Any = sys.modules.get("numpy._core._multiarray_umath")
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        table = ctypes.cast(pointer(core._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
        self.set = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET])
        self.get = ctypes.PYFUNCTYPE(ctypes.py_object)(table[_GET])
        self._default = self.get()
        handler = _Handler.from_address(pointer(self._default, _CAPSULE))
        if (handler.name, handler.version) != (_DEFAULT, _VERSION):
            raise LookupError(handler.name)
        # `malloc(context, bytes)` is called, and `aligned_alloc(alignment, bytes)` there.
        asked = ctypes.cast(ctypes.CDLL(None).aligned_alloc, ctypes.c_void_p).value
        self._handler = _Handler(
            _DEFAULT, _VERSION, PAGE, asked, handler.calloc, handler.realloc, handler.free
        )
        self._name = ctypes.create_string_buffer(_CAPSULE)
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self.pages = make(ctypes.addressof(self._handler), self._name, None)

    def are_free(self) -> bool:
        """Tell whether numpy would use its own allocator now."""
        return self.get() is self._default


def _check_libc() -> None:
    """Raise unless memory comes from glibc, and no other allocator stands before it."""
    if platform.libc_ver()[0] != "glibc":
        raise LookupError("glibc")
    ours, everybodys = ctypes.CDLL("libc.so.6"), ctypes.CDLL(None)
    for name in ("aligned_alloc", "malloc", "realloc", "free"):
        found = [ctypes.cast(getattr(libc, name), ctypes.c_void_p).value for libc in (ours, everybodys)]
        if found[0] != found[1]:
            raise LookupError(name)


@cache
def _ways() -> _Ways | None:
    try:
        return _Ways()
    except Exception:  # whatever another numpy or another C library says
        return None


@contextlib.contextmanager
def in_own_map(size: int) -> Iterator[bool]:
    """Give arrays of this size that are made meanwhile a mapping of their own; yield whether that is so."""
    ways = _ways() if size >= WORTH_BYTES else None
    if ways is None or not ways.are_free():
        yield False
        return
    before = ways.set(ways.pages)
    try:
        yield True
    finally:
        ways.set(before)


def own_map_of(values: Array) -> int | None:
    """Return the address of an array that was made so, if its memory is a mapping of its own.

    Only of such an array may this be asked: what stands before its memory is read.
    """
    start = address(values)
    if values.nbytes < WORTH_BYTES or start % PAGE or not values.flags.owndata:
        return None
    # What glibc writes before memory that it mapped: how far back the mapping begins, its size and flags.
    before, size = (ctypes.c_size_t.from_address(start - back).value for back in (16, 8))
    low, whole = start - 16 - before, before + (size & ~_FLAGS)
    fits = not low % PAGE and not whole % PAGE and low + whole >= start + values.nbytes
    return start if size & _IS_MAPPED and fits else None
