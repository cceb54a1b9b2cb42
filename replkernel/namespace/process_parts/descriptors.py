"""File descriptors that a notebook has as numbers: they mean nothing in another process, or another file.

Looked for once a cell has named a call that returns one. Law: descriptors that a file object of Python owns,
sockets and the kernel's own are none of them; looking reads two directories and changes nothing. What the
kernel's threads and SQLite have open for a moment (a file that is written, a directory that is synchronized)
is gone when one looks again.
"""

from __future__ import annotations

import gc
import io
import os
from collections.abc import Callable
from pathlib import Path
from time import sleep

CALLS = (
    "os.open(", "pipe(", "pipe2(", "mkstemp(", "memfd_create(", "openpty(", "os.dup", "import open",
    "os as ",
)  # fmt: skip
"""What a cell's text has when it may open a file by number."""

_OPEN = Path("/proc/self/fd")
_MOMENT_S = 0.005
_SHOWN_MAX = 5
_SQLITE = b"SQLite format 3"
_HISTORY = "history.sqlite"
_OF_SQLITE = ("-journal", "-wal", "-shm", _HISTORY)


class Descriptors:
    """The numbers that cells of this process have opened, and what each of them was when it was seen."""

    def __init__(self, wait_a_moment: Callable[[], None] = lambda: sleep(_MOMENT_S)) -> None:
        self._wait_a_moment = wait_a_moment
        self._named = False
        self._before: frozenset[int] | None = None
        self._held: dict[int, str] = {}

    def learn(self, source: str) -> None:
        """Look at all cells from now on once one has named such a call: it may have defined a function."""
        self._named = self._named or any(call in source for call in CALLS)

    def expect(self, source: str) -> None:
        """Note what is open before a cell runs."""
        self.learn(source)
        if self._named:
            self._before = _numbers()

    def ties(self) -> tuple[str, ...]:
        """Return a sentence on what cells have opened and not closed."""
        if self._before is not None:
            found = {number: _target(number) for number in sorted(_numbers() - self._before)}
            opened = {number: what for number, what in found.items() if _may_be_notebooks(what)}
            owned = _owned() if opened else frozenset()
            theirs = {number: what for number, what in opened.items() if number not in owned}
            if theirs:
                self._wait_a_moment()
            self._held.update(theirs)
            self._before = None
        self._held = {number: what for number, what in self._held.items() if _target(number) == what}
        if not self._held:
            return ()
        shown = ", ".join(map(str, list(self._held)[:_SHOWN_MAX]))
        return (f"The notebook has open files by number, which is this process's alone: os.close({shown}).",)


def _numbers() -> frozenset[int]:
    """Return the numbers that are open, without that of the look itself: the cell's next file may get it."""
    return frozenset(number for number in map(int, os.listdir(_OPEN)) if _target(number))


def _target(number: int) -> str:
    """Return what a descriptor is open on; an empty string when it is closed."""
    try:
        return os.readlink(_OPEN / str(number))
    except OSError:
        return ""


def _may_be_notebooks(target: str) -> bool:
    """Tell whether a descriptor may be one that a call returned; those of SQLite are not."""
    if target.endswith(_OF_SQLITE) or os.path.exists(os.path.join(target, _HISTORY)):
        return False
    try:
        with open(target, "rb") if os.path.isfile(target) else io.BytesIO() as file:
            return target.startswith(("/", "pipe:")) and file.read(len(_SQLITE)) != _SQLITE
    except OSError:
        return True


def _owned() -> frozenset[int]:
    """Return the descriptors of Python's file objects, which are captured themselves."""
    files = [held for held in gc.get_objects() if type(held) is io.FileIO and not held.closed]
    return frozenset(file.fileno() for file in files)
