"""The control channel's answers about variables, given while a cell runs as well.

Law: no code of the user's runs for it: types are read past their metaclasses, shapes are asked of known
libraries' own types alone, and values told of plain built-in ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

import msgspec

from replkernel.protocol.variables import (
    REPLY,
    REQUEST,
    TEXT_CHARS_MAX,
    VARIABLES_MAX,
    Variable,
    VariablesDocument,
)

_LIBRARIES = frozenset(
    {"cupy", "jax", "jaxlib", "numpy", "pandas", "polars", "pyarrow", "scipy", "torch", "xarray"}
)
"""Whose types have a shape that costs nothing to ask for."""
_SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset)
_INT_BITS_MAX = 256
READS_MAX = 100
_WORD_CHARS_MAX = 200
_name_of = type.__dict__["__qualname__"].__get__
_module_of = type.__dict__["__module__"].__get__


def answer_variables(kernel: Any, waiting: Callable[[], Iterable[str]]) -> None:
    """Have a kernel answer what is asked of its variables; `waiting` names those not in the process yet."""

    def answer(stream: object, ident: list[bytes], parent: Mapping[str, Any]) -> None:
        shell = kernel.shell
        told = described(shell.user_ns, shell.user_ns_hidden, _now(waiting))
        content = {"status": "ok", **msgspec.to_builtins(told)}
        kernel.session.send(stream, REPLY, content, parent, ident)

    kernel.control_handlers[REQUEST] = answer


def _now(waiting: Callable[[], Iterable[str]]) -> list[str]:
    """Return the names that wait, while the main thread may be taking some of them away."""
    for _ in range(READS_MAX):
        with contextlib.suppress(RuntimeError):
            return list(waiting())
    return []


def described(
    namespace: Mapping[str, Any], hidden: Mapping[str, Any], waiting: Iterable[str]
) -> VariablesDocument:
    """Return the user's variables: no modules, no names that begin with `_`, nothing of the shell's."""
    found = {
        name: value
        for name, value in list(namespace.items())
        if type(name) is str
        and not name.startswith("_")
        and not issubclass(type(value), ModuleType)
        and (name not in hidden or hidden[name] is not value)
    }
    absent = {name for name in waiting if not name.startswith("_") and name not in found}
    names = sorted({*found, *absent})
    told = (
        Variable(name=name[:_WORD_CHARS_MAX], waits=True) if name in absent else _variable(name, found[name])
        for name in names[:VARIABLES_MAX]
    )
    return VariablesDocument(tuple(told), max(0, len(names) - VARIABLES_MAX))


def _variable(name: str, value: Any) -> Variable:
    kind = type(value)
    module, called = str(_module_of(kind)), str(_name_of(kind))
    plain = module == "builtins"
    known = module.partition(".")[0] in _LIBRARIES
    return Variable(
        name=name[:_WORD_CHARS_MAX],
        type=(called if plain else f"{module}.{called}")[:_WORD_CHARS_MAX],
        shape=_shape(value) if known else None,
        dtype=_dtype(value) if known else "",
        length=len(value) if kind in _SIZED else None,
        text=_text(value),
    )


def _shape(value: Any) -> tuple[int, ...] | None:
    try:
        return tuple(int(size) for size in value.shape)
    except Exception:
        return None


def _dtype(value: Any) -> str:
    if not any("dtype" in vars(base) for base in type(value).__mro__):
        return ""  # It is a column of a frame that is called so.
    try:
        return str(value.dtype)[:TEXT_CHARS_MAX]
    except Exception:
        return ""


def _text(value: Any) -> str:
    """Return what a plain value is written as; empty where that could be long, or could run code."""
    kind = type(value)
    if kind is str:
        return repr(value[:TEXT_CHARS_MAX])[:TEXT_CHARS_MAX]
    if kind is int and value.bit_length() > _INT_BITS_MAX:
        return ""
    return repr(value) if kind in (bool, int, float, complex, type(None)) else ""
