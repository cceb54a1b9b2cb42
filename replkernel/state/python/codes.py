"""Code objects: marshalled once in their life, in the form that does not depend on reference counts.

The functions that one `def` has made have one code, also where they are in several components: what is the
same to the byte is one object here, unless one payload has it twice (the same cell, run twice).
"""

from __future__ import annotations

import importlib.util
import marshal
import types
import weakref
from collections.abc import Callable
from typing import Any

from replkernel.loaders import loader
from replkernel.state.restore import loading

MAGIC = int.from_bytes(importlib.util.MAGIC_NUMBER, "little")
_MARSHAL_VERSION = 2
"""The newest version that writes no back references: later ones depend on reference counts."""

_known: dict[int, tuple[weakref.ref[types.CodeType], bytes]] = {}
_here: weakref.WeakValueDictionary[bytes, types.CodeType] = weakref.WeakValueDictionary()
"""The codes that were dumped or loaded, by their bytes."""


def _marshalled(code: types.CodeType) -> bytes:
    key = id(code)
    entry = _known.get(key)
    if entry is not None and entry[0]() is code:
        return entry[1]
    data = marshal.dumps(code, _MARSHAL_VERSION)

    def gone(dead: weakref.ref[types.CodeType]) -> None:
        current = _known.get(key)
        if current is not None and current[0] is dead:
            del _known[key]

    _known[key] = (weakref.ref(code, gone), data)
    _here.setdefault(data, code)
    return data


def reduce_code(context: object, code: types.CodeType) -> object:
    """Reduce a code object to its marshalled bytes."""
    return call_of_code(code)


def call_of_code(code: types.CodeType) -> tuple[Callable[..., Any], tuple[bytes, int]]:
    """Return the call that makes a code object."""
    return load_code, (_marshalled(code), MAGIC)


@loader("functions:load_code")
def load_code(data: bytes, magic: int) -> object:
    """Return the code object (called by payloads)."""
    if magic != MAGIC:
        raise ImportError("a function was compiled by another Python version; run the same one on every host")
    codes = loading.current().codes
    here = _here.get(data) if data not in codes else None
    codes.add(data)
    if here is None:
        here = marshal.loads(data)  # noqa: S302 - bytes that this kernel's log names
        _here.setdefault(data, here)
    return here


EXACT = {types.CodeType: reduce_code}
