"""The names of a namespace, looked at again after each cell: what stayed costs a comparison of memory.

A notebook of twenty thousand cells has as many names of sources (``_i1``, ``_i2``, …) beside the user's own.
Law: `look` misses no change of the names; what is compared are objects by their identity, so no code runs.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Mapping
from typing import Any

WORD_BYTES = 8
"""What an identity takes."""
_NOTHING = object()


class Names:
    """The keys of one namespace in their order, as of the last look.

    `epoch` grows when keys that were known are gone or stand elsewhere; as long as it stays, keys have come
    at the end alone.
    """

    def __init__(self, namespace: Mapping[Any, Any]) -> None:
        self.namespace = namespace
        self.keys: tuple[Any, ...] = ()
        self.epoch = 0
        self.plain = True
        """Whether all keys are plain text."""
        self._known = identities(())
        self._lock = threading.Lock()

    def look(self) -> tuple[Any, ...]:
        """Return the keys as they are now."""
        with self._lock:
            before, keys = len(self.keys), tuple(self.namespace)
            known = identities(keys)
            if known[: len(self._known)] != self._known:
                self.epoch += 1
                before, self.plain = 0, True
            fresh = keys[before:]
            self.plain = self.plain and list(map(type, fresh)).count(str) == len(fresh)
            self.keys, self._known = keys, known
            return keys

    def glance(self) -> tuple[Any, ...]:
        """Return the keys for one who follows somebody that has just looked: only their number and the last
        one are compared.
        """
        keys = self.keys
        last = next(reversed(self.namespace), _NOTHING)
        if len(keys) == len(self.namespace) and (not keys or keys[-1] is last):
            return keys
        return self.look()


def identities(things: tuple[Any, ...]) -> bytes:
    """Return the ids of objects, `WORD_BYTES` for each; ids are good only as long as the objects are kept."""
    if not _tuples_readable():
        return b"".join(id(thing).to_bytes(WORD_BYTES, sys.byteorder) for thing in things)
    return ctypes.string_at(id(things) + tuple.__basicsize__, WORD_BYTES * len(things))


@functools.cache
def _tuples_readable() -> bool:
    """Tell whether a tuple's objects lie in memory as is known here."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != WORD_BYTES:
        return False
    things = (object(), "text", 5)
    expected = b"".join(id(thing).to_bytes(WORD_BYTES, sys.byteorder) for thing in things)
    if sys.getsizeof(things) < tuple.__basicsize__ + len(expected):
        return False
    return ctypes.string_at(id(things) + tuple.__basicsize__, len(expected)) == expected
