"""Modules that the user wrote, told by the directory they are in, and the code that they have.

Where that directory really is counts: installers fill a library's with links into a cache of theirs.
A function or class of such a module is the same after an import elsewhere; what else it holds is a place
(`module_places.py`). Law: nobody's code runs; a look at a process without such modules costs one comparison.
"""

from __future__ import annotations

import contextlib
import os
import site
import sys
import sysconfig
import types
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from replkernel.state.python.kinds import is_a, kind_of

NOT_THE_USERS = ("replkernel", "replkernel_scheduler", "replkernel_server", "__main__", "__mp_main__")

NEWEST = 8
INSTALLED_IN = frozenset({"site-packages", "dist-packages"})
"""Where installers put libraries, those of another Python that ``PYTHONPATH`` names as well."""
PATHS_MAX = 256
"""So many directories of ``sys.path`` are known by what is installed there."""
FILES_MAX = 16_384
"""So many files of modules, and directories, are known by where they really are."""
_MODULE_DICT: Any = types.ModuleType.__dict__["__dict__"]  # type: ignore[index]
_CLASS_DICT = type.__dict__["__dict__"]
_BOUND = (classmethod, staticmethod)


def _library_directories() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found.update([*site.getsitepackages(), site.getusersitepackages(), sys.prefix, sys.base_prefix])
    return tuple(os.path.realpath(path) + os.sep for path in found)


_libraries = _library_directories()


class _Seen(NamedTuple):
    """The last look at all modules: `own` are the user's, `undecided` those and what may become so."""

    stamp: tuple[Any, ...]
    names: list[str]
    files: list[str | None]
    own: tuple[str, ...]
    undecided: tuple[str, ...]


_seen = _Seen((), [], [], (), ())


def own_modules() -> list[tuple[str, types.ModuleType]]:
    """Return the imported modules that the user wrote, by name."""
    global _seen
    seen = _seen
    stamp = (len(sys.modules), *islice(reversed(sys.modules), NEWEST))
    if stamp != seen.stamp:
        names, before = list(sys.modules), len(seen.names)
        files = list(map(_file_of, names))
        # A cell may have put another module in the place of one, or loaded it anew from another file.
        as_they_were = names[:before] == seen.names and files[:before] == seen.files
        looked = [*seen.undecided, *names[before:]] if as_they_were else names
        own = tuple(name for name in looked if is_own(name))
        undecided = tuple(name for name in looked if not _is_settled(name))
        seen = _seen = _Seen(stamp, names, files, own, undecided)
    return [(name, module) for name in seen.own if is_a(module := sys.modules.get(name), types.ModuleType)]


def _is_settled(name: str) -> bool:
    """Tell whether a module is not the user's for good; what has no file, or is made late, is open."""
    if name.partition(".")[0] in NOT_THE_USERS:
        return True
    file = _file_of(name)
    return file is not None and _lies_in_a_library(file)


def _file_of(name: str) -> str | None:
    """Return the file that an imported module says it was made from."""
    module = sys.modules.get(name)
    file = _MODULE_DICT.__get__(module).get("__file__") if type(module) is types.ModuleType else None
    return file if type(file) is str else None


def is_own(name: str) -> bool:
    """Tell whether a module was made from a file of the user's, outside all libraries."""
    if name.partition(".")[0] in NOT_THE_USERS:
        return False
    module = sys.modules.get(name)
    if type(module) is not types.ModuleType:
        return False
    attributes = _MODULE_DICT.__get__(module)
    file, spec = attributes.get("__file__"), attributes.get("__spec__")
    if (
        type(file) is not str
        or not file.endswith(".py")
        or spec is None
        or attributes.get("__name__") != name
    ):
        return False
    return not _is_in_library(file)


def _is_in_library(file: str) -> bool:
    """Tell whether an installer put a file there: into a Python, or into a directory of its own."""
    if _lies_in_a_library(file):
        return True
    path = _real_directory(os.path.dirname(file)) + os.path.basename(file)
    roots = (_real_directory(entry or os.getcwd()) for entry in sys.path if type(entry) is str)
    return any(
        path.startswith(root) and path[len(root) :] in _installed_in(root, _changed(root)) for root in roots
    )


@lru_cache(FILES_MAX)
def _lies_in_a_library(file: str) -> bool:
    return _is_a_library(_real_directory(os.path.dirname(file)))


@lru_cache(FILES_MAX)
def _is_a_library(directory: str) -> bool:
    return directory.startswith(_libraries) or not INSTALLED_IN.isdisjoint(directory.split(os.sep))


def _changed(root: str) -> int:
    try:
        return os.stat(root).st_mtime_ns
    except OSError:
        return 0


@lru_cache(PATHS_MAX)
def _installed_in(root: str, changed: int) -> frozenset[str]:
    """Return the modules' files that installers recorded in a directory (``pip install --target``)."""
    found: set[str] = set()
    for record in Path(root).glob("*.dist-info/RECORD"):
        with contextlib.suppress(OSError):
            lines = record.read_text("utf-8", "replace").splitlines()
            found.update(line.partition(",")[0].strip('"') for line in lines if ".py" in line)
    return frozenset(found)


@lru_cache(FILES_MAX)
def _real_directory(path: str) -> str:
    """Return a directory without symbolic links, a separator at its end; the file system is asked once."""
    return os.path.join(os.path.realpath(path), "")


def codes_of(module: types.ModuleType) -> dict[str, types.CodeType]:
    """Return the code of a module's own functions and methods, by their names in it."""
    found: dict[str, types.CodeType] = {}
    name = _MODULE_DICT.__get__(module).get("__name__")
    for key, value in list(_MODULE_DICT.__get__(module).items()):
        if type(value) is type and _CLASS_DICT.__get__(value).get("__module__") == name:
            for method, held in list(_CLASS_DICT.__get__(value).items()):
                function = getattr(held, "__func__", held) if kind_of(held) in _BOUND else held
                if is_a(function, types.FunctionType) and function.__module__ == name:
                    found[f"{key}.{method}"] = function.__code__
        elif is_a(value, types.FunctionType) and value.__module__ == name:
            found[key] = value.__code__
    return found


def held_by_modules() -> Iterator[Any]:
    """Yield what the user's modules hold under their names."""
    for _, module in own_modules():
        yield from list(_MODULE_DICT.__get__(module).values())
