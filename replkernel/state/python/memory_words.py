"""The words that an object of CPython consists of in memory, where nothing else tells what it holds.

Law: who reads or writes one has found its place by a sample, and does without where that does not show it.
"""

from __future__ import annotations

import ctypes
from typing import Any

WORD = ctypes.sizeof(ctypes.c_void_p)


def words_of(thing: object, kind: type, begin: int = 0) -> Any:
    """Return the words of an object, as an array that writes through; `begin` bytes are left out.

    As many as instances of `kind`, which is its class or the base that Python has written in C, consist of.
    """
    return (ctypes.c_ssize_t * ((kind.__basicsize__ - begin) // WORD)).from_address(id(thing) + begin)
