"""One completion that nobody asked for, so that the first that somebody asks for is quick.

jedi parses the types of builtins when it is first used, for 0.7 s and more. The zygote has it done in a quiet
moment, for all its later forks; a standby that was forked before does it while a long cell runs elsewhere.
Laws: never in a process that runs the cells; no object of the user's is looked at. The main thread waits for
its end before it does anything: jedi has another `sys.path` in place at times, and puts the old one back.
"""

from __future__ import annotations

import contextlib
import importlib
import threading

from replkernel.state.process.own_threads import own_thread

_IMPORTED_LATE = ("IPython.core.guarded_eval", "IPython.core.latex_symbols", "IPython.core.oinspect")
_CODES = ("practice_", "practice_made.re", "import o", "len")

_done = False


def practise() -> None:
    """Complete names, an attribute and a module as jedi does for the shell; it keeps what it parsed."""
    global _done
    _done = True
    with contextlib.suppress(Exception):  # Without jedi, or with another one, the first answer takes longer.
        for name in _IMPORTED_LATE:
            importlib.import_module(name)
        interpreter = importlib.import_module("jedi").Interpreter
        for code in _CODES:
            for completion in interpreter(code, [{"practice_made": ""}]).complete():
                _ = completion.type


class Practice:
    """A process's one practice, on a thread of its own."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Practise, unless this process has, or the one that it was forked from. Main thread only."""
        if self._thread is not None or _done:
            return
        self._thread = own_thread(practise, "Practice")
        self._thread.start()

    def end(self) -> None:
        """Wait until it is over, which it is about a second after its beginning. Main thread only."""
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()
