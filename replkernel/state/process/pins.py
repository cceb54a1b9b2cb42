"""What ties a notebook to its process: threads, child processes, tasks, GUI loops, replaced streams, traces.

Law: each look costs a few microseconds while there is nothing; names and reasons are made only when there is.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import tracemalloc
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from replkernel.hosts.disk_path import DiskPath

Found: TypeAlias = tuple[str, str, str]
"""A pin's name, the type of what is pinned, and the reason."""

ThreadTest: TypeAlias = Callable[[threading.Thread], bool]

OWN_ROOTS = frozenset({
    "IPython", "ipykernel", "replkernel", "zmq", "tornado", "debugpy", "pydevd", "_pydevd_bundle",
    "jupyter_client", "_pydev_bundle", "traitlets", "ipywidgets",
})  # fmt: skip
SERVICE_ROOTS = frozenset({
    "tqdm", "joblib", "loky", "threadpoolctl", "numexpr", "fsspec", "tensorboard", "pycares",
})  # fmt: skip
"""Libraries whose threads and children hold nothing of the notebook and start again by themselves."""

SERVICE_MODULES = ("concurrent.futures.process", "torch._inductor")
"""The same of modules, with those below them, where other threads of the library may be the notebook's."""

CHILDREN_MAX = 64
_OUTPUT = ("sys.stdout", "sys.stderr")
_home_of = vars(type)["__module__"].__get__


def nobodys(_thread: threading.Thread) -> bool:
    """Tell of no thread that it is the kernel's own."""
    return False


def threads(baseline: Mapping[int, threading.Thread], is_ours: ThreadTest) -> Iterator[Found]:
    """Find live threads that neither the kernel nor a library's service started."""
    for thread in threading.enumerate():
        if id(thread) in baseline or is_ours(thread) or not _is_notebooks_thread(thread):
            continue
        yield (
            f"thread {thread.name}",
            f"{type(thread).__module__}.{type(thread).__qualname__}",
            "A running thread cannot be copied to another process.",
        )


def _is_notebooks_thread(thread: threading.Thread) -> bool:
    kind = type(thread)
    if "_target" not in thread.__dict__:
        return False  # What it was to do is over.
    target = thread.__dict__["_target"]
    if getattr(target, "__module__", None) == "asyncio.unix_events":
        return False  # It waits for a child process, which is found itself while it lives.
    for module in (kind.__module__, getattr(target, "__module__", None)):
        root = str(module).partition(".")[0]
        if root in OWN_ROOTS or root in SERVICE_ROOTS or str(module).startswith(SERVICE_MODULES):
            return False
    return not (_is_of_fsspec(thread) or _is_idle_worker(thread))


def _is_of_fsspec(thread: threading.Thread) -> bool:
    """Tell whether fsspec reads and writes on a thread: its class and target are Python's."""
    asyn = sys.modules.get("fsspec.asyn")
    return asyn is not None and thread in getattr(asyn, "iothread", ())


def _is_idle_worker(thread: threading.Thread) -> bool:
    """Tell whether a thread of an executor's pool waits for work, being in the pool's own loop."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None and frame.f_globals.get("__name__") == "threading":
        frame = frame.f_back
    return frame is not None and (
        frame.f_globals.get("__name__") == "concurrent.futures.thread" and frame.f_code.co_name == "_worker"
    )


def children() -> frozenset[int]:
    """Return the process ids of this process's children; the usual answer, none, costs one system call."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return frozenset()
    found: set[int] = set()
    for path in DiskPath("/proc/self/task").glob("*/children"):
        try:
            found.update(map(int, path.read_text().split()))
        except OSError:
            continue
    return frozenset(found)


def child_processes(baseline: frozenset[int]) -> Iterator[Found]:
    """Find living child processes that the notebook started."""
    new = children() - baseline
    for pid in sorted(new)[:CHILDREN_MAX]:
        command = _command_of(pid)
        if command is None or _is_service(command):
            continue
        shown = " ".join(command)[:80] or str(pid)
        why = f"A running process ({shown}) cannot be handed to another parent."
        yield (f"process {pid}", "child process", why)


def _command_of(pid: int) -> list[str] | None:
    """Return a process's command line; None when it has ended or is a zombie."""
    try:
        state = DiskPath(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        raw = DiskPath(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, IndexError):
        return None
    return None if state in "ZX" else [part.decode(errors="replace") for part in raw.split(b"\0") if part]


def _is_service(command: list[str]) -> bool:
    text = " ".join(command)
    marks = (
        "resource_tracker", "forkserver", "loky.backend", "joblib.externals.loky", "replkernel",
        "torch/_inductor/compile_worker",
    )  # fmt: skip
    return any(mark in text for mark in marks)


def tasks() -> Iterator[Found]:
    """Find unfinished asyncio tasks of the running loop that are not the kernel's own."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    present = asyncio.current_task(loop)
    for task in asyncio.all_tasks(loop):
        if task is present or task.done():
            continue
        coroutine: object = task.get_coro()
        module = _module_of(coroutine)
        if module.partition(".")[0] in OWN_ROOTS:
            continue
        label = getattr(coroutine, "__qualname__", task.get_name())
        yield (f"task {task.get_name()}", "asyncio.Task", f"The asyncio task {label!r} has not finished.")


def _module_of(coroutine: object) -> str:
    frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
    if frame is not None:
        return str(frame.f_globals.get("__name__", ""))
    return str(type(coroutine).__module__)


def event_loops(shell: object) -> Iterator[Found]:
    """Find an event loop of a GUI that the notebook enabled (``%gui``, ``%matplotlib qt``)."""
    kernel = getattr(shell, "kernel", None)
    if kernel is not None and kernel.eventloop is not None:
        toolkit = getattr(shell, "active_eventloop", None) or "a GUI"
        yield ("event loop", "GUI event loop", f"The event loop of {toolkit} runs in this process.")


def memory_traces(traced: bool) -> Iterator[Found]:
    """Find that the notebook has memory traced, where it was not `traced` from the start."""
    if tracemalloc.is_tracing() and not traced:
        why = "What tracemalloc has traced is the memory of this process; tracemalloc.stop() ends it."
        yield ("tracemalloc", "memory traces", why)


def streams() -> tuple[Any, ...]:
    """Return what stands for standard output, error and input, and who shows results and exceptions."""
    return (sys.stdout, sys.stderr, sys.stdin, sys.displayhook, sys.excepthook)


def replaced_streams(baseline: tuple[Any, ...]) -> Iterator[Found]:
    """Find standard streams and hooks that the notebook replaced for good, by an object or file of its own.

    What a library put there (a wrapper for colours or progress bars) holds nothing of the notebook; one of
    the process's own two in the other's place is told by `own_streams`.
    """
    names = ("sys.stdout", "sys.stderr", "sys.stdin", "sys.displayhook", "sys.excepthook")
    for name, before, present in zip(names, baseline, streams(), strict=True):
        if present is before or (name in _OUTPUT and any(present is own for own in baseline[:2])):
            continue
        if is_of_notebook(present):
            kind = type(present).__name__
            yield (name, kind, f"The notebook replaced {name} by a {kind}.")


def is_of_notebook(present: Any) -> bool:
    """Tell whether a stream or a hook is an object or a file of the notebook's, and no library's."""
    kind = type(present)
    home = present.__module__ if kind is types.FunctionType else _home_of(kind)
    return home in ("__main__", "_io", "io")
