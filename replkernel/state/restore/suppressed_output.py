"""What modules print, log and warn of while they are imported here, and objects rebuilt, belongs to no cell.

In the process where the cell ran that imported or made them, its reader has seen it.
Law: Python does not notice, so that warnings it has shown stay shown; filters that an import adds
meanwhile stay too, and so does what an import keeps of a stream; other threads are heard.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from replkernel.state.python.logging.places import is_kernels

_IGNORE: Any = ("ignore", re.compile(""), Warning, None, 0)
"""Unlike any filter that a call makes, which would take the place of an equal one."""

WRITE, HANDLE = "write", "handle"


@contextmanager
def nothing_shown() -> Iterator[None]:
    """Have nothing shown that this thread prints, logs or warns of, and no warning raised."""
    filters: Any = warnings.filters
    filters.insert(0, _IGNORE)
    muted: list[_Unlogged | _Mute] = [_Unlogged()]
    muted += [_Mute(stream) for stream in {id(one): one for one in (sys.stdout, sys.stderr)}.values()]
    try:
        yield
    finally:
        for mute in muted:
            mute.end()
        at = next((at for at, entry in enumerate(filters) if entry is _IGNORE), None)
        if at is not None:
            del filters[at]


class _Unlogged:
    """Keeps the records of one thread's loggers, but for the kernel's own, from their handlers."""

    def __init__(self) -> None:
        self._handle = handle = vars(logging.Logger)[HANDLE]
        self._thread: int | None = threading.get_ident()

        def only_ours(logger: logging.Logger, record: logging.LogRecord) -> None:
            if self._thread != threading.get_ident() or is_kernels(record.name):
                handle(logger, record)

        self._only_ours = only_ours
        setattr(logging.Logger, HANDLE, only_ours)

    def end(self) -> None:
        """Let the loggers be heard again."""
        self._thread = None
        if vars(logging.Logger)[HANDLE] is self._only_ours:
            setattr(logging.Logger, HANDLE, self._handle)


class _Mute:
    """Stands for a stream's `write`, for one thread, until it is ended; from then on it is that `write`."""

    def __init__(self, stream: object) -> None:
        self._stream = stream
        self._attributes: dict[str, Any] = getattr(stream, "__dict__", {})
        self._own = WRITE in self._attributes  # IPython leaves one there
        self._write: Callable[[str], Any] | None = getattr(stream, WRITE, None)
        self._thread: int | None = threading.get_ident()
        self._attributes[WRITE] = self

    def __call__(self, text: str) -> Any:
        if self._thread == threading.get_ident():
            return len(text)
        return self._write(text) if self._write is not None else len(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._stream, WRITE)

    def end(self) -> None:
        """Let the stream be heard again."""
        self._thread = None
        if self._attributes.get(WRITE) is not self:
            return
        if self._own:
            self._attributes[WRITE] = self._write
        else:
            del self._attributes[WRITE]
