"""Gives the kernel's own modules builtins of their own: a notebook may replace any of Python's.

Law: modules that were imported before keep what they have; nothing of anybody else's is changed.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

_PACKAGE = "replkernel."
_BUILTINS: dict[str, Any] = {}


class _Loader(SourceFileLoader):
    """Runs a module with builtins that nobody replaces."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module."""
        vars(module)["__builtins__"] = _BUILTINS
        super().exec_module(module)


class _Finder(MetaPathFinder):
    """Finds the modules of this package."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a module's spec with the loader above; None for those of others."""
        if not fullname.startswith(_PACKAGE):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(fullname, spec.loader.path)
        return spec


def install() -> None:
    """Have the modules of this package that are imported from now on run with builtins of their own.

    Whoever else finds modules before Python's own finder does goes on doing so.
    """
    if not _BUILTINS:
        _BUILTINS.update(vars(builtins))
        finders: list[object] = sys.meta_path  # type: ignore[assignment]
        place = finders.index(PathFinder) if PathFinder in finders else len(finders)
        finders.insert(place, _Finder())
