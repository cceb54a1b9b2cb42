"""The debugger's import, put off: it takes a quarter of a kernel's start, and no first cell needs it.

A stand-in holds the place of ``ipykernel.debugger`` among the modules until somebody asks it for more than
whether there is a debugger. Law: whoever asks gets ipykernel's own module, and its own debugger.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator
from importlib.abc import InspectLoader
from types import ModuleType
from typing import Any, cast

import ipykernel

NAME = "ipykernel.debugger"
_QUIET = "PYDEVD_DISABLE_FILE_VALIDATION"
"""With it debugpy does not write at its import what a kernel's start hides from cells: modules are frozen."""
_KEPT = "get_tmp_directory"

_loading = threading.RLock()


class _StandIn(ModuleType):
    """What can be said of the debugger without importing it."""

    _is_debugpy_available = True

    def __getattr__(self, name: str) -> object:
        # Who looks for a function among all modules, as pickle does, asks for names that it does not have.
        if name.startswith("__") or name not in _names():
            raise AttributeError(name)
        return getattr(load(), name)


@functools.cache
def _names() -> frozenset[str]:
    """Return the names that ipykernel's module mentions, of which those that it has are some."""
    spec = importlib.machinery.PathFinder.find_spec(NAME, ipykernel.__path__)
    code = None if spec is None else cast("InspectLoader", spec.loader).get_code(NAME)
    return frozenset() if code is None else frozenset(code.co_names)


def put_off() -> None:
    """Put the stand-in in the debugger's place, unless it is imported already or there is none."""
    if NAME not in sys.modules and importlib.util.find_spec("debugpy") is not None:
        sys.modules[NAME] = stand_in = _StandIn(NAME)
        vars(ipykernel)["debugger"] = stand_in


def load() -> ModuleType:
    """Return ipykernel's module, imported now if it was put off; what was set in the stand-in holds there."""
    with _loading:
        stand_in = sys.modules.get(NAME)
        if not isinstance(stand_in, _StandIn):
            return importlib.import_module(NAME)
        del sys.modules[NAME]
        try:
            with _quiet():
                module = importlib.import_module(NAME)
        except BaseException:
            sys.modules[NAME] = stand_in
            raise
        vars(ipykernel)["debugger"] = module
        _describe_only_to_readers()
        if _KEPT in vars(stand_in):
            setattr(module, _KEPT, vars(stand_in)[_KEPT])
        return module


def _describe_only_to_readers() -> None:
    """Have debugpy name the versions of all packages, which takes a second, only where a log takes them."""
    with contextlib.suppress(ImportError, AttributeError):
        log: Any = importlib.import_module("debugpy.common.log")
        describe, _ = log.describe_environment, log._levels

        def describe_environment(header: str) -> None:
            if "info" in log._levels:
                describe(header)

        log.describe_environment = describe_environment


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    if _QUIET in os.environ:
        yield
        return
    os.environ[_QUIET] = "1"
    try:
        yield
    finally:
        os.environ.pop(_QUIET, None)


class LateDebugger:
    """ipykernel's debugger, made when it is first used; takes what that one's constructor takes."""

    def __init__(self, *arguments: object) -> None:
        self._arguments = arguments
        self._made: Any = None
        self._used = asyncio.Event()

    def _debugger(self) -> Any:
        if self._made is None:
            before = set(sys.modules)
            module = load()
            # The kernel's own modules, over which the debugger steps: a list that it was given.
            for own in (argument for argument in self._arguments if isinstance(argument, list)):
                fresh = (getattr(sys.modules[name], "__file__", None) for name in set(sys.modules) - before)
                own.extend(path for path in fresh if path)
            self._made = module.Debugger(*self._arguments)
        return self._made

    async def process_request(self, message: Any) -> Any:
        """Handle a debug_request.

        After a lost process it may be switched off in the next one, where it is off already. ipykernel's own
        would raise then, and leave the question without an answer.
        """
        if message["command"] == "disconnect" and not (self._made is not None and self._made.is_started):
            seq = message["seq"]
            return {
                "type": "response",
                "command": "disconnect",
                "seq": seq,
                "request_seq": seq,
                "success": True,
            }
        debugger = self._debugger()
        self._used.set()
        return await debugger.process_request(message)

    async def handle_stopped_event(self) -> None:
        """Wait until the debugger tells that a thread has stopped, and tell the client."""
        await self._used.wait()
        await self._debugger().handle_stopped_event()

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._debugger(), name)
