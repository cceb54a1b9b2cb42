"""What `sqlite3` was told to make of Python's values and of SQLite's: adapters by class, converters by name.

Both are the process's own, whatever connections there are; what was there from the start is the import's, and
what IPython adds for its history is every kernel's.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

from replkernel.state.patches.places import ADAPTER, ITEM, Absent, Place, class_label
from replkernel.state.python.kinds import Odd, key_of

MODULE, ADAPTERS, CONVERTERS = "sqlite3", "adapters", "converters"
_adapters: dict[Any, Any] = vars(sqlite3)[ADAPTERS]
_converters: dict[str, Any] = vars(sqlite3)[CONVERTERS]
_FIRST_ADAPTERS, _FIRST_CONVERTERS = dict(_adapters), dict(_converters)
_EVERY_KERNELS = "IPython."


def changed_entries() -> Iterator[tuple[Place, Any]]:
    """Find the adapters and converters that are not the import's, with what that had there."""
    if _adapters != _FIRST_ADAPTERS:
        for key, function in list(_adapters.items()):
            before = Absent if key_of(key[0]) is Odd else _FIRST_ADAPTERS.get(key, Absent)
            theirs = before is function or _is_every_kernels(function)
            if not theirs and key[1] is sqlite3.PrepareProtocol:
                first = Absent if before is Absent else (key[0], before)
                yield Place(ADAPTER, MODULE, ADAPTERS, class_label(key[0])), first
    if _converters != _FIRST_CONVERTERS:
        for name, function in list(_converters.items()):
            before = _FIRST_CONVERTERS.get(name, Absent)
            if before is not function and not _is_every_kernels(function):
                yield Place(ITEM, MODULE, CONVERTERS, json.dumps(name)), before


def _is_every_kernels(function: object) -> bool:
    return str(getattr(function, "__module__", "")).startswith(_EVERY_KERNELS)
