"""What a module's tests leave open: sockets, files, threads, processes; each with the test that opened it.

What nobody closes is reported by Python when it is collected, which may be in another module's test.
So it is looked for at the end of each module, when its tests and fixtures have ended, and the module fails.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

GRACE_S = 20.0
"""What was told to end a moment ago may take so long to do so."""

LOOK_S = 0.02
FRAMES_MAX = 40
LIBRARIES = (os.sep + "site-packages" + os.sep, os.sep + "lib" + os.sep + "python")
LASTING_THREADS = (
    "fsspecIO",
    "asyncio_",
    "_run_safe_shutdown_loop",
    "ThreadPoolExecutor",
    "pytest_timeout",
    "Dummy-",
)
"""Parts of the names of threads that libraries keep for the whole process, and use again."""

LASTING_PROCESSES = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


class Opened(NamedTuple):
    """By which test a socket was made, and in which lines."""

    test: str
    where: str


lasting_pids: set[int] = set()
"""Processes that our own support keeps for the whole session, and ends with it."""

forked_pids: set[int] = set()
"""Processes that one of these forked, and that have not ended as far as a test has looked."""

lasting_threads: set[int] = set()
"""Likewise threads, by their idents."""

_sockets: weakref.WeakKeyDictionary[socket.socket, Opened] = weakref.WeakKeyDictionary()
_test = "before the first test"
_tests_of_directories: dict[str, str] = {}
_lock = threading.Lock()


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.__new__" and isinstance(arguments[0], socket.socket):
        with _lock:
            _sockets[arguments[0]] = Opened(_test, _where())


def _where() -> str:
    """Return the innermost lines that lead here, ours before libraries'."""
    lines, frame = [], sys._getframe(2)
    while frame is not None and len(lines) < FRAMES_MAX:
        lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        frame = frame.f_back  # type: ignore[assignment]
    ours = [line for line in lines if not any(part in line for part in LIBRARIES)]
    return " < ".join([*lines[1:4], *ours[:3]])


def test_begins(name: str, directory: Path) -> None:
    """Take note of which test runs, and of the directory that the environment of its processes names."""
    global _test
    _test = name
    _tests_of_directories[str(directory)] = name


def install() -> None:
    """Hear of sockets from here on."""
    sys.addaudithook(_hear)


@contextlib.contextmanager
def nothing_left_open(temporary: Path) -> Iterator[None]:
    """Fail if something is open at the end that was not at the beginning."""
    known, older = set(_open_here(temporary)), _pids()
    yield
    deadline = time.monotonic() + GRACE_S
    while (left := _left(temporary, known, older)) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    if left:
        pytest.fail("left open:\n" + "\n".join(sorted(left.values())), pytrace=False)


def _open_here(temporary: Path) -> dict[object, str]:
    return {**_open_sockets(), **_open_files(temporary), **_threads()}


def _left(temporary: Path, known: set[object], older: frozenset[str]) -> dict[object, str]:
    here = {what: said for what, said in _open_here(temporary).items() if what not in known}
    return {**here, **_processes(temporary, older)}


def _open_sockets() -> dict[object, str]:
    with _lock:
        made = list(_sockets.items())
    return {
        ("socket", id(one)): f"{one!r} of {opened.test}: {opened.where}"
        for one, opened in made
        if one.fileno() != -1 and one.family in (socket.AF_INET, socket.AF_INET6)
    }


def _open_files(temporary: Path) -> dict[object, str]:
    """Return the open files below the tests' temporary directory."""
    found: dict[object, str] = {}
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{name}")
            if path.startswith(str(temporary)):
                found["file", name, path] = f"the file {path}"
    return found


def _threads() -> dict[object, str]:
    return {
        ("thread", one.ident): f"the thread {one.name}"
        for one in threading.enumerate()
        if one.ident is not None
        and one.ident not in lasting_threads
        and not any(name in one.name for name in LASTING_THREADS)
    }


def _pids() -> frozenset[str]:
    return frozenset(filter(str.isdecimal, os.listdir("/proc") if os.path.isdir("/proc") else ()))


def _processes(temporary: Path, older: frozenset[str]) -> dict[object, str]:
    """Return children, and whoever else has one of our tests' directories in its environment.

    Those that were there before are not looked at: to read all environments twice takes 10 ms a module.
    """
    found: dict[object, str] = {}
    us, mark = os.getpid(), str(temporary).encode()
    for name in _pids() - older:
        with contextlib.suppress(OSError, psutil.Error, ValueError, IndexError):
            pid, parent = int(name), _parent(name)
            environment = Path(f"/proc/{name}/environ").read_bytes() if pid != us else b""
            if (
                pid == us
                or pid in lasting_pids
                or not (parent == us or pid in forked_pids or mark in environment)
            ):
                continue
            command = " ".join(psutil.Process(pid).cmdline()) or "(a zombie)"
            if not any(lasting in command for lasting in LASTING_PROCESSES):
                found["process", pid] = f"the process {pid}: {command[:200]}{_whose(environment)}"
    return found


def _parent(pid: str) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _whose(environment: bytes) -> str:
    text = environment.decode(errors="replace")
    for directory, test in _tests_of_directories.items():
        if f"{directory}/" in text:
            return f", of {test}"
    return ""
