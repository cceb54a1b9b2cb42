"""What a module's tests leave open: sockets, files, threads, processes; each with the test that opened it.

Likewise what they leave changed: the working directory, the environment, where modules are imported from.

A module's fixture belongs to the test that asked for it first.

What nobody closes is reported by Python when it is collected, which may be in another module's test.
So it is looked for at the end of each module, when its tests and fixtures have ended, and the module fails.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import psutil
import pytest
import zmq

GRACE_S = 20.0
"""What was told to end a moment ago, a thread or a process, may take so long to do so."""

LOOK_S = 0.02
LEFT = "left open (close it in the test or the fixture that opened it, best by `with`):"
CHANGED = "left changed by some test of this module (undo it there, best by `monkeypatch`):"
FRAMES_MAX = 40
LIBRARIES = (os.sep + "site-packages" + os.sep, os.sep + "lib" + os.sep + "python", "<frozen ")
LASTING_THREADS = (
    "fsspecIO",
    "asyncio_",
    "_run_safe_shutdown_loop",
    "ThreadPoolExecutor",
    "pytest_timeout",
    "Dummy-",
)
"""Parts of the names of threads that libraries keep for the whole process, and use again."""

IDLE_THREADS = ("pytest_timeout", "Dummy-")
"""Likewise those that close nothing: what is open while no others run stays open."""

UNHEARD = "a library that Python does not hear"

LASTING_SOCKETS = ("/jupyter_core/utils/", "/fsspec/asyn.py")
"""Parts of the paths of libraries that keep an event loop, which has a pair of sockets to wake it."""

OUR_VARIABLES = ("REPLKERNEL_", "JUPYTER", "IPYTHON", "PYTHON", "CUDA_VISIBLE", "HOME", "TMPDIR")
"""How variables begin that no library sets by itself; of others, only what was there is looked at."""

_DIRECTORY, _PATH = "working directory", "sys.path"

LASTING_PROCESSES = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


Left = tuple[object, ...]
"""A kind of thing, and what tells it from others of its kind."""


class Opened(NamedTuple):
    """By which test a socket was made, and in which lines."""

    test: str
    where: str

    def __str__(self) -> str:
        return f"of {self.test}: {self.where}"


lasting_pids: set[int] = set()
"""Processes that our own support keeps for the whole session, and ends with it."""

forked_pids: set[int] = set()
"""Processes that one of these forked, and that have not ended as far as a test has looked."""

lasting_threads: set[int] = set()
"""Likewise threads, by their idents."""

lasting_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
"""Likewise sockets."""

_sockets: weakref.WeakKeyDictionary[socket.socket, Opened] = weakref.WeakKeyDictionary()
_zmq_sockets: dict[int, str] = {}
"""What to say of each socket of ZeroMQ that is open, by its id."""
_tests_of_threads: weakref.WeakKeyDictionary[threading.Thread, str] = weakref.WeakKeyDictionary()
_tests_of_files: dict[str, str] = {}
"""Who opened a path last, since the module began."""
_test = "before the first test"
_tests_of_directories: dict[str, str] = {}
_lock = threading.Lock()


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        if isinstance(arguments[0], str):
            _tests_of_files[arguments[0]] = _test
    elif event == "socket.__new__" and isinstance(arguments[0], socket.socket):
        lines = _lines(sys._getframe(1))
        if not any(part in line for line in lines for part in LASTING_SOCKETS):
            with _lock:
                _sockets[arguments[0]] = Opened(_test, _where(lines))


def _hear_of_zmq() -> None:
    """Hear of sockets of ZeroMQ, which Python does not: each context is told by its own.

    Whether one is closed cannot be asked of the socket itself, which may be another thread's.
    No lock is taken: a collection closes what nobody holds any more, in whatever runs then.
    """
    add, remove = zmq.Context._add_socket, zmq.Context._rm_socket

    def added(context: zmq.Context[zmq.Socket[bytes]], one: zmq.Socket[bytes]) -> None:
        add(context, one)
        _zmq_sockets[id(one)] = f"{one!r} {Opened(_test, _where(_lines(sys._getframe(1))))}"

    def removed(context: zmq.Context[zmq.Socket[bytes]], one: zmq.Socket[bytes]) -> None:
        remove(context, one)
        _zmq_sockets.pop(id(one), None)

    zmq.Context._add_socket = added
    zmq.Context._rm_socket = removed


def _lines(frame: FrameType | None) -> list[str]:
    """Return the innermost lines that lead to a frame."""
    lines: list[str] = []
    while frame is not None and len(lines) < FRAMES_MAX:
        lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        frame = frame.f_back
    return lines


def _where(lines: list[str]) -> str:
    """Return the first of these lines, and of ours too."""
    ours = [line for line in lines if not any(part in line for part in LIBRARIES)]
    return " < ".join([*lines[1:4], *ours[:3]])


def test_begins(name: str) -> None:
    """Take note of which test runs."""
    global _test
    _test = name


def test_has(directory: Path) -> None:
    """Take note of the directory that the environment of the test's processes names."""
    _tests_of_directories[str(directory)] = _test


def test_ends() -> None:
    """Take note of the threads that run since this test."""
    for thread in threading.enumerate():
        _tests_of_threads.setdefault(thread, _test)


def install() -> None:
    """Hear of sockets and files from here on."""
    sys.addaudithook(_hear)
    _hear_of_zmq()


@contextlib.contextmanager
def nothing_left_open(temporary: Path) -> Iterator[None]:
    """Fail if something is open at the end that was not at the beginning."""
    known, older, settings = set(_open_here(temporary)), _pids(), _settings()
    _tests_of_files.clear()
    yield
    left, now = _left_at_last(temporary, known, older), _settings()
    changed = [
        f"{name}: {settings.get(name)!r} has become {now.get(name)!r}"
        for name in sorted(settings.keys() | now.keys())
        if settings.get(name) != now.get(name) and (name in settings or name.startswith(OUR_VARIABLES))
    ]
    told = [LEFT, *sorted(left.values())] if left else []
    told += [CHANGED, *changed] if changed else []
    if told:
        _put_back(settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()  # Else Python tells the next module of what is told here.
        pytest.fail("\n".join(told), pytrace=False)


def _settings() -> dict[str, Any]:
    """Return what all modules share that run in this process."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return {_DIRECTORY: os.getcwd(), _PATH: [*sys.path], **variables}


def _put_back(before: dict[str, Any]) -> None:
    """Let the next module find what this one found: it fails for its own sake only."""
    now = _settings()
    os.chdir(before[_DIRECTORY])
    sys.path[:] = before[_PATH]
    for name in (before.keys() | now.keys()) - {_DIRECTORY, _PATH}:
        if name not in before:
            del os.environ[name]
        elif now.get(name) != before[name]:
            os.environ[name] = before[name]


def _left_at_last(temporary: Path, known: set[Left], older: frozenset[str]) -> dict[Left, str]:
    """Return what is left once nothing can close it any more, or after a time of grace."""
    if {kind for kind, *_ in _left(temporary, known, older)} == {"file"}:
        gc.collect()  # As it would be for the next module.
    deadline = time.monotonic() + GRACE_S
    while True:
        others = _others_run()  # Before the look: one that closes something, and ends, has done so by then.
        left = _left(temporary, known, older)
        may_close = others or any(kind == "process" for kind, *_ in left)
        if not left or not may_close or time.monotonic() > deadline:
            return left
        time.sleep(LOOK_S)


def _others_run() -> bool:
    """Tell whether other threads run that may close something."""
    return any(
        one is not threading.current_thread() and not any(name in one.name for name in IDLE_THREADS)
        for one in threading.enumerate()
    )


def _open_here(temporary: Path) -> dict[Left, str]:
    return {**_open_sockets(), **_open_files(temporary), **_threads()}


def _left(temporary: Path, known: set[Left], older: frozenset[str]) -> dict[Left, str]:
    here = {what: said for what, said in _open_here(temporary).items() if what not in known}
    return {**here, **_processes(temporary, older)}


def _open_sockets() -> dict[Left, str]:
    with _lock:
        made = list(_sockets.items())
    of_zmq: dict[Left, str] = {("zmq", name): said for name, said in _zmq_sockets.copy().items()}
    return of_zmq | {
        ("socket", id(one)): f"{one!r} {opened}"
        for one, opened in made
        if one.fileno() != -1 and one not in lasting_sockets
    }


def _open_files(temporary: Path) -> dict[Left, str]:
    """Return the open files below the tests' temporary directory."""
    found: dict[Left, str] = {}
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{name}")
            if path.startswith(f"{temporary}/"):
                found["file", name, path] = f"the file {path}, opened by {_tests_of_files.get(path, UNHEARD)}"
    return found


def _threads() -> dict[Left, str]:
    frames = sys._current_frames()
    return {
        ("thread", one.ident): f"the thread {one.name} "
        f"{Opened(_tests_of_threads.get(one, _test), _where(_lines(frames.get(one.ident))))}"
        for one in threading.enumerate()
        if one.ident is not None
        and one.ident not in lasting_threads
        and not any(name in one.name for name in LASTING_THREADS)
    }


def _pids() -> frozenset[str]:
    return frozenset(filter(str.isdecimal, os.listdir("/proc") if os.path.isdir("/proc") else ()))


def _processes(temporary: Path, older: frozenset[str]) -> dict[Left, str]:
    """Return children, and whoever else has one of our tests' directories in its environment.

    Those that were there before are not looked at: to read all environments twice takes 10 ms a module.
    """
    found: dict[Left, str] = {}
    us, mark = os.getpid(), f"{temporary}/".encode()
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
