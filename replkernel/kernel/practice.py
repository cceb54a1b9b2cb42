"""One completion that nobody asked for, so that the first that somebody asks for is quick.

jedi parses the types of builtins when it is first used, for 0.7 s, in a new home for seconds. The zygote has
it done in a quiet moment, for all its later forks; a standby that was forked before, while a long cell runs
elsewhere. Laws: never in a process that runs the cells; no object of the user's is looked at; whoever has
something else to do ends it at once. The main thread does nothing beside it: jedi has another `sys.path` in
place at times.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import math
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from types import FrameType

from replkernel.state.process.own_threads import own_thread

_IMPORTED_LATE = ("IPython.core.guarded_eval", "IPython.core.latex_symbols", "IPython.core.oinspect")
_CODES = ("practice_", "practice_made.re", "import o", "len")

LOOK_EVERY_S = 0.01
RAISE_EVERY_S = 2.0
"""How often it is looked whether a practice may end, and how long what was raised may take to get through."""

_TO_ITS_END = ("parso.cache", "importlib._bootstrap")
_WARNINGS = ("filters", "showwarning", "_showwarnmsg_impl")

_done = False


def practise() -> None:
    """Complete names, an attribute and a module as jedi does for the shell; it keeps what it parsed."""
    global _done
    with contextlib.suppress(Exception):  # Without jedi, or with another one, the first answer takes longer.
        for name in _IMPORTED_LATE:
            importlib.import_module(name)
        interpreter = importlib.import_module("jedi").Interpreter
        for code in _CODES:
            for completion in interpreter(code, [{"practice_made": ""}]).complete():
                _ = completion.type
    _done = True


def may_end(frame: FrameType | None) -> bool:
    """Tell whether what runs in a frame may be ended: not while it imports, or jedi's cache is open.

    A file that is cut off would spoil the completions of every kernel to come, also of other makes; an import
    holds a lock, and lets go of it in Python code.
    """
    while frame is not None:
        if frame.f_globals.get("__name__") in _TO_ITS_END:
            return False
        frame = frame.f_back
    return True


def practise_until(wanted: Callable[[], bool]) -> bool:
    """Practise on the main thread until somebody wants something; return whether it was done before that."""
    may_raise_at, before = 0.0, _Settings()

    def look(number: int, frame: FrameType | None) -> None:
        nonlocal may_raise_at
        if (now := time.monotonic()) >= may_raise_at and wanted() and may_end(frame):
            may_raise_at = now + RAISE_EVERY_S
            raise _Wanted

    handler = signal.signal(signal.SIGALRM, look)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, LOOK_EVERY_S, LOOK_EVERY_S)
            practise()
        finally:
            may_raise_at = math.inf
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, handler)
    except _Wanted:
        before.put_back()
    return _done


class _Wanted(BaseException):
    """Somebody wants something."""


class Practice:
    """A process's practice, on a thread of its own; one that was ended begins anew. Main thread only."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._before = _Settings()

    def begin(self) -> None:
        """Practise, unless this process has, or the one that it was forked from."""
        if self._thread is not None or _done:
            return
        self._before, began = _Settings(), threading.Event()
        self._thread = own_thread(_until_ended, "Practice", (began,))
        self._thread.start()
        began.wait()  # From here on what is raised in it is caught there.

    def end(self) -> None:
        """End it within milliseconds, or with what it imports or writes; leave the process as it was."""
        thread, self._thread = self._thread, None
        if thread is None or not thread.is_alive():
            return
        while thread.is_alive():
            if may_end(sys._current_frames().get(thread.ident or 0)):
                _raise_in(thread)
                thread.join(RAISE_EVERY_S)
            else:
                thread.join(LOOK_EVERY_S)
        self._before.put_back()


def _until_ended(began: threading.Event) -> None:
    with contextlib.suppress(SystemExit):
        began.set()
        practise()


class _Settings:
    """What jedi sets for a moment, and puts back unless it is ended in just that."""

    def __init__(self) -> None:
        self._path = sys.path
        self._limit = sys.getrecursionlimit()
        self._warnings = {name: vars(warnings)[name] for name in _WARNINGS if name in vars(warnings)}

    def put_back(self) -> None:
        sys.path = self._path
        sys.setrecursionlimit(self._limit)
        vars(warnings).update(self._warnings)


def _raise_in(thread: threading.Thread) -> None:
    """Have a thread end itself; it raises when it next calls something, and so before it opens a file."""
    ident = ctypes.c_ulong(thread.ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(SystemExit))
