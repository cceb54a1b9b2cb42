"""The texts of the user's modules as they were imported, and imports from these where the files are newer
or no import path leads to them any more.

Law: nobody's code runs but by an import; outside `at_hand` no import differs from a stock one.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import types
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from replkernel.state.patches.own_modules import codes_of

BYTES_MAX = 4 * 1024 * 1024
"""So much text of all modules together travels; modules beyond it travel by value."""

_MODULE_DICT: Any = types.ModuleType.__dict__["__dict__"]  # type: ignore[index]
_HEADER_BYTES = 16

texts: dict[str, bytes] = {}
"""What was imported here or told by another replica, by the module's name."""

files: dict[str, str] = {}
"""The paths of these modules' files."""

_loaded: dict[str, weakref.ref[types.ModuleType]] = {}
"""The modules that were made from a text here, and not from their file."""


def is_loaded(name: str, module: types.ModuleType) -> bool:
    """Tell whether a module was made from a text here, and not from its file."""
    loaded = _loaded.get(name)
    return loaded is not None and loaded() is module


def note(name: str, module: types.ModuleType) -> bool:
    """Keep the text that `module` was imported from; return False when it cannot be had."""
    attributes = _MODULE_DICT.__get__(module)
    told, codes = texts.pop(name, None), tuple(codes_of(module).values())
    files[name] = attributes["__file__"]
    if told is not None and is_loaded(name, module):
        texts[name] = told
        return True
    try:
        with open(attributes["__file__"], "rb") as file:
            text = file.read(BYTES_MAX + 1)
            stat = os.fstat(file.fileno())
    except OSError:
        return False
    if not _is_cached(attributes, stat) and not _made_from(text, attributes, codes):
        return False
    if sum(map(len, texts.values())) + len(text) > BYTES_MAX:
        return False
    texts[name] = text
    return True


def _is_cached(attributes: dict[str, Any], stat: os.stat_result) -> bool:
    """Tell whether the compiled file that the import left or used is of the file as it is."""
    try:
        with open(attributes["__cached__"], "rb") as file:
            header = file.read(_HEADER_BYTES)
    except (OSError, KeyError, TypeError):
        return False
    words = [int.from_bytes(header[start : start + 4], "little") for start in (4, 8, 12)]
    return len(header) == _HEADER_BYTES and words == [
        0,
        int(stat.st_mtime) & 0xFFFFFFFF,
        stat.st_size & 0xFFFFFFFF,
    ]


def _made_from(text: bytes, attributes: dict[str, Any], codes: Sequence[types.CodeType]) -> bool:
    """Tell whether the functions of a module are among those that a text makes."""
    try:
        code = compile(text, attributes["__file__"], "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    known, file = set(_codes_in(code)), attributes["__file__"]
    return all(held in known for held in codes if held.co_filename == file)


def _codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _codes_in(constant)


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads one module from a text instead of its file."""

    text = b""

    def get_code(self, fullname: str) -> types.CodeType | None:
        """Return the code of the text."""
        code: types.CodeType = self.source_to_code(self.text, self.path)
        return code

    def exec_module(self, module: types.ModuleType) -> None:
        """Run the text, as a module with the usual loader."""
        plain = importlib.machinery.SourceFileLoader(self.name, self.path)
        attributes = _MODULE_DICT.__get__(module)
        attributes["__loader__"] = attributes["__spec__"].loader = plain
        _loaded[self.name] = weakref.ref(module)
        super().exec_module(module)


class _Finder:
    """Finds the modules whose text was told and whose file has another one here."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: object = None) -> Any:
        """Return the spec of such a module; None for all others."""
        if name not in texts:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        path_told = files.get(name, "")
        if path_told and (spec is None or (spec.origin != path_told and os.path.exists(path_told))):
            return _spec_at(name, path_told)
        if spec is None or type(spec.loader) is not importlib.machinery.SourceFileLoader or not spec.origin:
            return None
        with contextlib.suppress(OSError), open(spec.origin, "rb") as file:
            if file.read(BYTES_MAX + 1) == texts[name]:
                return None
        loader = _Loader(spec.loader.name, spec.loader.path)
        loader.text = texts[name]
        spec.loader = loader
        return spec


def _spec_at(name: str, file: str) -> Any:
    """Return the spec of a module whose file the import path leads to no more, or never did here."""
    loader = _Loader(name, file)
    loader.text = texts[name]
    package = [os.path.dirname(file)] if os.path.basename(file) == "__init__.py" else None
    return importlib.util.spec_from_file_location(
        name, file, loader=loader, submodule_search_locations=package
    )


@contextlib.contextmanager
def at_hand() -> Iterator[None]:
    """Import from the texts that were told, by now or meanwhile, where the files are no longer theirs."""
    finder: Any = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(finder)
