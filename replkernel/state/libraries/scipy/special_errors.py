"""What the special functions of scipy do on errors."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any


def special_errors() -> dict[str, str] | None:
    """Return what the special functions of scipy do on errors."""
    library: Any = sys.modules.get("scipy.special")
    return library and dict(library.geterr())


def set_special_errors(value: dict[str, str]) -> None:
    """Set it."""
    import_module("scipy.special").seterr(**value)
