"""Handlers, filters and levels that the notebook gave to loggers, as places in the ``logging`` module.

Loggers named for an imported library keep what its import gave them; `@logging` tells their settings. Those
of the user's modules are the notebook's.
Law: looking runs no user code; what a process had at its start stays its own.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from replkernel.state.patches.own_modules import is_own
from replkernel.state.python.kinds import kind_of
from replkernel.state.tombstone import is_tombstone

MODULE, OWNER = "logging", "root"
OWN_ROOTS = ("replkernel", "IPKernelApp", "traitlets", "tornado", "asyncio", "zmq")
ROOT = ""
_BUILT_IN_LEVELS = {
    50: "CRITICAL",
    40: "ERROR",
    30: "WARNING",
    20: "INFO",
    10: "DEBUG",
    0: "NOTSET",
}
_BUILT_IN_NAMES = {**{name: level for level, name in _BUILT_IN_LEVELS.items()}, "FATAL": 50, "WARN": 30}
FIRST_LEVELS: dict[str, dict[Any, Any]] = {
    "_levelToName": _BUILT_IN_LEVELS,
    "_nameToLevel": _BUILT_IN_NAMES,
}
"""The tables of levels, with what they have at first."""
born: dict[str, tuple[Any, ...]] | None = None
"""The handlers and filters that loggers had at the start of the process; None where nobody asks for it."""


def remember_birth() -> None:
    """Take what the loggers hold now as the process's own."""
    global born
    held = {name: (*logger.handlers, *logger.filters) for name, logger in _loggers()}
    born = {name: own for name, own in held.items() if own}


def is_kernels(name: str) -> bool:
    """Tell whether a logger belongs to the kernel."""
    return name.partition(".")[0] in OWN_ROOTS


def is_librarys(name: str) -> bool:
    """Tell whether a logger is named for an imported library, whose import brings its handlers along.

    That of a module of the user's has its handlers also in variables of that module, which travel.
    """
    return _is_library(name.partition(".")[0])


def of_libraries() -> Callable[[str], bool]:
    """Return `is_librarys` for many loggers at one time: it asks once for each library."""
    ask = cache(_is_library)
    return lambda name: ask(name.partition(".")[0])


def _is_library(root: str) -> bool:
    return root in sys.modules and root not in (ROOT, "__main__") and not is_own(root)


def _loggers() -> list[tuple[str, logging.Logger]]:
    known = list(logging.root.manager.loggerDict.items())
    loggers = [(name, logger) for name, logger in known if isinstance(logger, logging.Logger)]
    return [(ROOT, logging.root), *loggers]


def equipped() -> Iterator[str]:
    """Yield the names of the loggers to which the notebook gave handlers or filters."""
    if born is None:
        return
    given = [name for name, logger in _loggers() if logger.handlers or logger.filters]
    is_of_library = of_libraries()
    yield from (name for name in given if not is_kernels(name) and not is_of_library(name))


def changed_entries() -> Iterator[tuple[str, str, Any]]:
    """Yield the changed entries of the tables of levels: table, key, and what is there at first (or None)."""
    for table, first in FIRST_LEVELS.items():
        present = vars(logging)[table]
        if present != first:
            for key, value in present.items():
                if first.get(key) != value and kind_of(key) in (int, str):
                    yield table, json.dumps(key), first.get(key)


def read(name: str) -> tuple[Any, ...] | None:
    """Return how many handlers the notebook gave to a logger, these, and its filters; None for nothing."""
    logger = logging.root if name == ROOT else logging.root.manager.loggerDict.get(name)
    if born is None or not isinstance(logger, logging.Logger):
        return None
    own = set(map(id, born.get(name, ())))
    handlers = [handler for handler in logger.handlers if id(handler) not in own]
    filters = [each for each in logger.filters if id(each) not in own]
    return (len(handlers), *handlers, *filters) if handlers or filters else None


def put(name: str, value: tuple[Any, ...]) -> None:
    """Give a logger these handlers and filters, but for lost ones: each message would fail at one."""
    logger = logging.getLogger(name) if name else logging.root
    own = set(map(id, (born or {}).get(name, ())))
    first_filter = 1 + value[0]
    _fill(logger.handlers, own, value[1:first_filter])
    _fill(logger.filters, own, value[first_filter:])


def _fill(held: list[Any], own: set[int], given: tuple[Any, ...]) -> None:
    kept = [each for each in held if id(each) in own]
    held[:] = [*kept, *(each for each in given if not is_tombstone(each))]
