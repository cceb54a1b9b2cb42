"""Faults inside an agent that its surroundings cannot make: a slow file store, and a wall clock that jumps.

For whoever has this directory on PYTHONPATH: the file that REPLKERNEL_TEST_STORE_DELAY names holds the
seconds that each read and write of the store takes longer, the one that REPLKERNEL_TEST_CLOCK names how wrong
the clock is. (libfaketime is no way: with the monotonic clock left alone, `time.sleep` of Python 3.11 fails.)
Law: nothing is imported before the process does so itself; the monotonic clock is never touched.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

SLOWED = "replkernel.objects.backends.file"
DELAY_MAX_S = 5.0
LOOK_EVERY_S = 0.05


def _number_in(variable: str) -> float:
    try:
        with open(os.environ[variable]) as file:
            return float(file.read() or 0)
    except (OSError, KeyError, ValueError):
        return 0.0


def _slowed(method: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*arguments: Any) -> Any:
        time.sleep(max(0.0, min(DELAY_MAX_S, _number_in("REPLKERNEL_TEST_STORE_DELAY"))))
        return method(*arguments)

    return slow


class Slowing:
    """Finds the store's module once, and has its class slowed when it has been executed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the module's own spec with a loader that does more."""
        if name != SLOWED:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_slow(module: ModuleType) -> None:
                execute(module)
                for method in ("put", "put_file", "get"):
                    setattr(module.FileBackend, method, _slowed(getattr(module.FileBackend, method)))

            spec.loader.exec_module = execute_and_slow  # type: ignore[method-assign]
        return spec


class WrongClock:
    """The wall clock, wrong by what a file says."""

    def __init__(self, right: Callable[[], float]) -> None:
        self._right = right
        self._looked = 0.0
        self._wrong_s = 0.0

    def __call__(self) -> float:
        now = time.monotonic()
        if now - self._looked > LOOK_EVERY_S:
            self._looked, self._wrong_s = now, _number_in("REPLKERNEL_TEST_CLOCK")
        return self._right() + self._wrong_s


if "REPLKERNEL_TEST_STORE_DELAY" in os.environ:
    sys.meta_path.insert(0, Slowing())
if "REPLKERNEL_TEST_CLOCK" in os.environ:
    time.time = WrongClock(time.time)  # type: ignore[assignment]
