"""mpmath."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from replkernel.state.library import Library, Setting

_SETTINGS = ("dps", "prec", "pretty", "trap_complex")
"""Decimal places come first: setting them sets the bits as well."""


def precision() -> dict[str, dict[str, Any]] | None:
    """Return how precise mpmath's contexts are, and how they show their numbers."""
    library: object = sys.modules.get("mpmath")
    contexts = {name: getattr(library, name, None) for name in ("mp", "iv")}
    found = {
        name: {key: vars(context)[key] for key in ("pretty", "trap_complex") if key in vars(context)}
        | {"dps": context.dps, "prec": context.prec}
        for name, context in contexts.items()
        if context is not None
    }
    return found or None


def set_precision(value: dict[str, dict[str, Any]]) -> None:
    """Set them."""
    library = import_module("mpmath")
    for name, told in value.items():
        context = getattr(library, name)
        for key in _SETTINGS:
            if key in told and getattr(context, key) != told[key]:
                setattr(context, key, told[key])


LIBRARY = Library(
    name="mpmath",
    reducers={"mpmath": "replkernel.state.libraries.mpmath.contexts"},
    settings={"contexts of mpmath": Setting(("mpmath", "sympy"), precision, set_precision)},
)
