"""Readers and writers of `csv` part-way: over the same file, with the same dialect, at the same line.

What they read from or write to only the garbage collector can see; the number of the line has no way in but
memory, whose layout is checked before it is relied on.
Law: nothing is read or written. Imported only when `csv` is.
"""

from __future__ import annotations

import csv
import ctypes
import functools
import gc
import sys
import types
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.kinds import is_a

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_READER = type(csv.reader(()))
_WRITER = type(csv.writer(types.SimpleNamespace(write=len)))
_DIALECT: object = type(csv.reader(()).dialect)
_SETTINGS = (
    "delimiter", "doublequote", "escapechar", "lineterminator", "quotechar", "quoting", "skipinitialspace",
    "strict",
)  # fmt: skip
_SOURCE, _LINE = 16, 80
"""Where in a reader are what it reads from, and the number of the line."""
_LINES = 3


def _settings(dialect: object) -> dict[str, Any]:
    return {name: getattr(dialect, name) for name in _SETTINGS}


def _line(reader: object) -> Any:
    return ctypes.c_ulong.from_address(id(reader) + _LINE)


@functools.cache
def _readable() -> bool:
    """Tell whether readers lie in memory as is known here."""
    if sys.implementation.name != "cpython" or _READER.__basicsize__ != _LINE + 8:
        return False
    source = iter(["a"] * _LINES)
    sample = csv.reader(source)
    before = _line(sample).value
    list(sample)
    return (before, _line(sample).value, _source(sample).value) == (0, _LINES, id(source))


def _source(reader: object) -> Any:
    return ctypes.c_size_t.from_address(id(reader) + _SOURCE)


def _parts(value: object, of_type: object) -> list[Any]:
    return [part for part in gc.get_referents(value) if type(part) is not _DIALECT and part is not of_type]


def reduce_reader(context: ReducerContext, reader: Any) -> object:
    """Reduce a reader; what it has returned is not its any more."""
    source = _parts(reader, _READER)
    if not source or not _readable():
        raise CannotTravel("What it reads from cannot be seen in this release of Python.")
    return make_reader, (source[0], _settings(reader.dialect), reader.line_num)


@loader("csv:make_reader")
def make_reader(source: object, settings: dict[str, Any], line: int) -> Any:
    """Return a reader that goes on at a line; the source may be closed (called by payloads)."""
    if not _readable():
        raise LookupError("how readers lie in memory is not known in this release of Python")
    nothing = iter(())
    reader = csv.reader(nothing, **settings)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(source))
    _source(reader).value = id(source)
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(nothing))
    _line(reader).value = line
    return reader


def reduce_writer(context: ReducerContext, writer: Any) -> object:
    """Reduce a writer: it knows of its file how to write to it."""
    writes = [part for part in _parts(writer, _WRITER) if callable(part) and not is_a(part, type)]
    if len(writes) != 1:
        raise CannotTravel("What it writes to cannot be seen in this release of Python.")
    return make_writer, (writes[0], _settings(writer.dialect))


@loader("csv:make_writer")
def make_writer(write: object, settings: dict[str, Any]) -> object:
    """Return a writer (called by payloads)."""
    return csv.writer(types.SimpleNamespace(write=write), **settings)


EXACT: dict[type, Any] = {_READER: reduce_reader, _WRITER: reduce_writer}
