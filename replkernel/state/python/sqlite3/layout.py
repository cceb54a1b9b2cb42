"""Where Python's `sqlite3` keeps what it does not tell of a connection: found by experiment, once.

Law: where the experiment is not clear, `layout` is None and nothing else here may be called.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import functools
import sys
import threading
from typing import Any, NamedTuple

HEADER_BYTES = object.__basicsize__
_BASE = _sqlite3.Connection
_TYPES_MARK = 0x5A17C300
"""Bits of `detect_types` that mean nothing, by which its place is found."""


class Layout(NamedTuple):
    """Where a connection keeps `detect_types`, `check_same_thread` and the thread that made it."""

    detect_types: int
    same_thread: int
    thread: int


def _image(connection: object) -> bytes:
    return ctypes.string_at(id(connection), _BASE.__basicsize__)


def _places(image: bytes, value: int, size: int) -> set[int]:
    wanted = value.to_bytes(size, sys.byteorder)
    return {at for at in range(HEADER_BYTES, len(image), size) if image[at : at + size] == wanted}


@functools.cache
def layout() -> Layout | None:
    """Return where a connection keeps its settings; None when that cannot be found for certain."""
    made = []
    try:
        for types, same in ((_TYPES_MARK | 1, True), (_TYPES_MARK | 2, True), (_TYPES_MARK | 1, False)):
            made.append(_BASE(":memory:", detect_types=types, check_same_thread=same))
        one, two, three = (_image(connection) for connection in made)
        types_at = _places(one, _TYPES_MARK | 1, 4) & _places(two, _TYPES_MARK | 2, 4)
        same_at = _places(one, 1, 4) & _places(two, 1, 4) & _places(three, 0, 4)
        ident = threading.get_ident()
        thread_at = _places(one, ident, 8) & _places(two, ident, 8)
        made[2].close()
        closed = int.from_bytes(_image(made[2])[HEADER_BYTES : HEADER_BYTES + 8], sys.byteorder)
        opened = int.from_bytes(one[HEADER_BYTES : HEADER_BYTES + 8], sys.byteorder)
    finally:
        for connection in made:
            connection.close()
    if closed or not opened or not len(types_at) == len(same_at) == len(thread_at) == 1:
        return None
    return Layout(*types_at, *same_at, *thread_at)


def _at(kind: Any, connection: object, offset: int) -> Any:
    return kind.from_address(id(connection) + offset)


def handle(connection: object) -> int:
    """Return SQLite's own connection; 0 when it is closed, or was never opened."""
    return _at(ctypes.c_void_p, connection, HEADER_BYTES).value or 0


def detect_types(connection: object) -> int:
    """Return the `detect_types` that a connection was made with."""
    return int(_at(ctypes.c_int, connection, _known().detect_types).value)


def checks_thread(connection: object) -> bool:
    """Tell whether a connection was made with `check_same_thread`."""
    return bool(_at(ctypes.c_int, connection, _known().same_thread).value)


def thread_of(connection: object) -> int:
    """Return the thread that made a connection."""
    return int(_at(ctypes.c_ulong, connection, _known().thread).value)


def write_thread(connection: object, ident: int) -> None:
    """Give a connection that is being made to a thread."""
    _at(ctypes.c_ulong, connection, _known().thread).value = ident


def _known() -> Layout:
    found = layout()
    assert found is not None
    return found
