"""What travels by reference: the user namespace, IPython's own objects, the process's streams.

A payload names these by a token, and each process puts its own object there: functions keep live globals.
Law: the order of SEED_TOKENS is part of the payload's format.
"""

from __future__ import annotations

import argparse
import builtins
import math
import os
import pickle
import sys
import types
from typing import Any

from replkernel.state.python.kinds import is_a, kind_of, module_of

SEED_MODULE = "@"
"""The module name under which a payload asks for its seeds."""

SUPPRESS = "argparse.SUPPRESS"
NUMPY_NAN, MATH_NAN = "numpy.nan", "math.nan"

SEED_TOKENS = ("namespace", "builtins", "modules", "In", "Out", MATH_NAN, NUMPY_NAN, SUPPRESS)
"""Builtin containers, which the pickler would otherwise copy, and two floats and a text that are known by
identity: they sit in its memo from the start."""

STREAMS = ("stdout", "stderr", "stdin")

_SHELL_TYPES_LEFT = frozenset({dict, list, str, int, float, bool, bytes, tuple, set, frozenset, type(None)})


def is_notebooks(stream: object) -> bool:
    """Tell whether the notebook made a stream, or opened it: libraries wrap the process's own."""
    return module_of(type(stream)) in ("__main__", "_io", "io")


def nan_of(token: str) -> float:
    """Return the NaN that a library holds, by its token."""
    library = sys.modules.get("numpy", math) if token == NUMPY_NAN else math
    found: float = vars(library).get("nan", math.nan)
    return found


def _preamble() -> bytes:
    """Return the opcodes that put the seeds into an unpickler's memo, in the order of SEED_TOKENS."""
    out = bytearray(b"\x80\x05")
    for token in SEED_TOKENS:
        for text in (SEED_MODULE, token):
            encoded = text.encode()
            out += pickle.SHORT_BINUNICODE + bytes([len(encoded)]) + encoded
        out += pickle.STACK_GLOBAL + pickle.MEMOIZE + pickle.POP
    return bytes(out)


PREAMBLE = _preamble()


class Seeds:
    """The objects of this process that payloads name by token."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.namespace = namespace
        self.main_name = str(namespace.get("__name__", "__main__"))
        self._blanks = {token: _Blank() for token in SEED_TOKENS}
        self._shell: Any = None
        self._shell_objects: dict[str, Any] = {}
        self._streams = {name: getattr(sys, name) for name in STREAMS}
        """The process's own: what the notebook puts in their places is a variable's object like any other."""

    def object_of(self, token: str) -> Any:
        """Return this process's object for a token: a seed, ``stdout``, ``shell``, ``shell.kernel``…"""
        if token in self._blanks:
            return self._container(token)
        for known, value in self.singletons():
            if known == token:
                return value
        raise LookupError(f"this process has no {token}")

    def _container(self, token: str) -> Any:
        if token in (MATH_NAN, NUMPY_NAN):
            return nan_of(token)
        if token == SUPPRESS:
            return argparse.SUPPRESS
        if token == "namespace":  # noqa: S105
            return self.namespace
        if token == "builtins":  # noqa: S105
            return vars(builtins)
        if token == "modules":  # noqa: S105
            return sys.modules
        value = self.namespace.get("_ih" if token == "In" else "_oh")  # noqa: S105
        return value if kind_of(value) in (list, dict) else self._blanks[token]

    def main_module(self) -> types.ModuleType:
        """Return the module whose dictionary the namespace is."""
        module = sys.modules.get(self.main_name)
        if module is None or vars(module) is not self.namespace:
            raise LookupError("the notebook's module is not here")
        return module

    def memo(self) -> dict[int, tuple[int, Any]]:
        """Return the pickler memo that holds the seeds."""
        memo: dict[int, tuple[int, Any]] = {}
        for index, token in enumerate(SEED_TOKENS):
            value = self._container(token)
            if id(value) in memo:
                value = self._blanks[token]
            memo[id(value)] = (index, value)
        return memo

    def singletons(self) -> list[tuple[str, Any]]:
        """Return the process's objects of other types that travel by reference, with their tokens."""
        found: list[tuple[str, Any]] = [
            *self._streams.items(),
            *((f"{name} as it is", now) for name in STREAMS if not is_notebooks(now := getattr(sys, name))),
            ("true stdout", sys.__stdout__),
            ("true stderr", sys.__stderr__),
            ("true stdin", sys.__stdin__),
            ("environ", os.environ),
        ]
        self._look_at_shell()
        found.extend(self._shell_objects.items())
        return found

    def ids(self) -> set[int]:
        """Return the ids of all that travels by reference."""
        return {*self.memo(), *(id(value) for _, value in self.singletons() if value is not None)}

    def _find_shell(self) -> Any:
        """Return this namespace's shell, also where the notebook has imported its own `get_ipython`."""
        module = sys.modules.get("IPython.core.interactiveshell")
        shell = None if module is None else module.InteractiveShell._instance
        if getattr(shell, "user_ns", None) is self.namespace:
            return shell
        getter = self.namespace.get("get_ipython")
        return getattr(getter, "__self__", None) if isinstance(getter, types.MethodType) else None

    def _look_at_shell(self) -> None:
        shell = self._find_shell()
        if shell is self._shell:
            return
        self._shell = shell
        self._shell_objects = {}
        if shell is None:
            return
        self._shell_objects["shell"] = shell
        for name in sorted(shell.trait_names()):
            value = shell._trait_values.get(name)
            if kind_of(value) not in _SHELL_TYPES_LEFT and not is_a(value, type):
                self._shell_objects[f"shell.{name}"] = value
        for name in ("history_manager", "kernel", "display_pub", "displayhook", "Completer"):
            value = getattr(shell, name, None)
            if value is not None:
                self._shell_objects[f"shell.{name}"] = value
        io_loop = getattr(getattr(shell, "kernel", None), "io_loop", None)
        for token, loop in (("loop", getattr(io_loop, "asyncio_loop", None)), ("io loop", io_loop)):
            if loop is not None:
                self._shell_objects[token] = loop
        display = getattr(shell, "display_formatter", None)
        for name, formatter in getattr(display, "formatters", {}).items():
            self._shell_objects[f"formatter {name}"] = formatter
        for name in ("ipython_display_formatter", "mimebundle_formatter"):
            if (formatter := getattr(display, name, None)) is not None:
                self._shell_objects[f"shell.{name}"] = formatter


class _Blank:
    """Keeps a seed's place in the memo where this process has no such object."""
