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
from collections.abc import Callable, Sequence
from pathlib import Path
from time import sleep
from typing import NamedTuple

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


class _Open(NamedTuple):
    """A descriptor and the file behind it: a number that is closed may be given out again at once."""

    number: int
    device: int
    inode: int


class Descriptors:
    """The numbers that cells of this process have opened, each with the file that it was open on then."""

    def __init__(self, wait_a_moment: Callable[[], None] = lambda: sleep(_MOMENT_S)) -> None:
        self._wait_a_moment = wait_a_moment
        self._named = False
        self._before: frozenset[_Open] | None = None
        self._held: frozenset[_Open] = frozenset()

    def learn(self, source: str) -> None:
        """Look at all cells from now on once one has named such a call: it may have defined a function."""
        self._named = self._named or any(call in source for call in CALLS)

    def expect(self, source: str) -> None:
        """Note what is open before a cell runs."""
        self.learn(source)
        if self._named:
            self._before = _all_open()

    def ties(self) -> tuple[str, ...]:
        """Return a sentence on what cells have opened and not closed."""
        if self._before is not None:
            opened = {one for one in _all_open() - self._before if _may_be_notebooks(_target(one.number))}
            owned = _owned() if opened else frozenset()
            theirs = frozenset(one for one in opened if one.number not in owned)
            if theirs:
                self._wait_a_moment()
            self._held |= theirs
            self._before = None
        self._held = frozenset(one for one in self._held if _look_at(one.number) == one)
        return (_sentence(sorted(one.number for one in self._held)),) if self._held else ()


def _sentence(numbers: Sequence[int]) -> str:
    """Tell of open numbers, and how the notebook gets free of them."""
    shown = ", ".join(map(str, numbers[:_SHOWN_MAX]))
    more = f" and {len(numbers) - _SHOWN_MAX} more" if len(numbers) > _SHOWN_MAX else ""
    close = f"os.close({shown})" if len(numbers) == 1 else f"os.close() of each of {shown}{more}"
    return f"The notebook has open files by number, which are this process's alone; {close} sets it free."


def _all_open() -> frozenset[_Open]:
    """Return what is open, without the look itself: the cell's next file may get its number."""
    found = map(_look_at, map(int, os.listdir(_OPEN)))
    return frozenset(one for one in found if one is not None)


def _look_at(number: int) -> _Open | None:
    """Return what a descriptor is open on: its file has that identity under whatever name, or under none."""
    try:
        status = os.fstat(number)
    except OSError:
        return None
    return _Open(number, status.st_dev, status.st_ino)


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
