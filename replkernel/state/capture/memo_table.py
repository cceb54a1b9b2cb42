"""Reads the C pickler's memo in place: a copy of a large one costs more than the pickling itself.

The layout is that of CPython's `_pickle.c`, the same since 3.8; it is checked once against a copy before it
is relied on, and where it does not hold, memos are copied.
"""

from __future__ import annotations

import ctypes
import functools
import pickle
import sys
from typing import Any

_WORD = ctypes.sizeof(ctypes.c_size_t)
_WORD_EXPECTED = 8
_PERTURB_SHIFT = 5
_MASK = (1 << (8 * _WORD)) - 1


class MemoTable:
    """The memo of one pickler, as long as that neither dumps nor clears it."""

    def __init__(self, pickler: pickle.Pickler) -> None:
        self._pickler = pickler
        mask, used, allocated, table = _fields(pickler)
        self._mask = mask
        self._words: Any = (ctypes.c_size_t * (2 * allocated)).from_address(table)
        self.used = used

    def __len__(self) -> int:
        return self.used

    def __contains__(self, key: int) -> bool:
        hashed = key >> 3
        index = hashed & self._mask
        perturb = hashed
        words, mask = self._words, self._mask
        while True:
            found = words[2 * (index & mask)]
            if found == key:
                return True
            if not found:
                return False
            index = ((index << 2) + index + perturb + 1) & _MASK
            perturb >>= _PERTURB_SHIFT

    def numbered(self) -> list[tuple[int, int]]:
        """Return the ids of all objects in the memo, each with its number there."""
        words = memoryview(self._words).cast("B").cast("Q").tolist()
        return [(key, number) for key, number in zip(words[::2], words[1::2], strict=True) if key]

    def keys(self) -> set[int]:
        """Return the ids of all objects in the memo."""
        found = set(memoryview(self._words).cast("B").cast("Q")[::2].tolist())
        found.discard(0)
        return found


def object_at(key: int) -> Any:
    """Return the object of an id that a memo keeps alive."""
    return ctypes.cast(key, ctypes.py_object).value


def _fields(pickler: pickle.Pickler) -> tuple[int, int, int, int]:
    memo = ctypes.c_size_t.from_address(id(pickler) + object.__basicsize__).value
    mask, used, allocated, table = (ctypes.c_size_t * 4).from_address(memo)
    return mask, used, allocated, table


@functools.cache
def readable() -> bool:
    """Tell whether memos can be read in place in this interpreter."""
    if sys.implementation.name != "cpython" or hasattr(sys, "gettotalrefcount") or _WORD != _WORD_EXPECTED:
        return False
    from io import BytesIO

    pickler = pickle.Pickler(BytesIO(), 5)
    sample = [[index] for index in range(100)]
    pickler.dump(sample)
    copied: Any = pickler.memo.copy()
    mask, used, allocated, table = _fields(pickler)
    if used != len(copied) or mask + 1 != allocated or not used < allocated <= 4096 or table % _WORD:
        return False
    memo = MemoTable(pickler)
    return memo.keys() == set(copied) and all(key in memo for key in copied) and id(pickler) not in memo
