"""What payloads name: loaders, by ids of their own. So code may move, and stored notebooks stay readable.

A payload names this module and an id, such as ``pandas:make_frame``; the topic before the colon says which
module brings it. Law: an id is never taken back and never given to something else: stored notebooks have it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

MODULE = __name__

Loader = TypeVar("Loader", bound=Callable[..., Any])


def loader(wire_id: str) -> Callable[[Loader], Loader]:
    """Have payloads name a function by an id: its topic, a colon, and what it does."""
    topic, colon, what = wire_id.partition(":")
    if not (topic and colon and what) or "." in wire_id:
        raise ValueError(f"The loader id {wire_id!r} is not like 'pandas:make_frame'.")

    def enter(function: Loader) -> Loader:
        other = globals().get(wire_id)
        if other is not None and _place(other) != _place(function):
            raise ValueError(f"There are two loaders {wire_id!r}: {_place(other)} and {_place(function)}.")
        function.__module__, function.__qualname__ = MODULE, wire_id
        globals()[wire_id] = function
        return function

    return enter


def is_loader(function: Any) -> bool:
    """Tell whether this very function is found here, as the loaders of payloads are."""
    return function.__module__ is MODULE and globals().get(function.__qualname__) is function


def wire_name(wire_id: str) -> tuple[str, str]:
    """Return the module and name by which payloads name a loader."""
    return MODULE, wire_id


def find(wire_id: str) -> Callable[..., Any] | None:
    """Return a loader, importing the module that brings it; None if this release has none of that id."""
    for module in homes(wire_id.partition(":")[0]):
        if wire_id in globals():
            break
        importlib.import_module(module)
    found: Callable[..., Any] | None = globals().get(wire_id)
    return found


def homes(topic: str) -> tuple[str, ...]:
    """Return the modules that bring the loaders of a topic."""
    if topic in HOMES:
        return HOMES[topic]
    index = importlib.import_module("replkernel.state.libraries.index")
    return tuple(index.homes(topic))


def __getattr__(name: str) -> object:
    """Return a loader whose module has not been imported yet."""
    if ":" not in name:
        raise AttributeError(f"module {MODULE!r} has no attribute {name!r}")
    found = find(name)
    if found is None:
        raise AttributeError(
            f"Nothing here has the loader {name!r}: a newer release wrote that payload, or one with "
            "a package that brings a library's record, and that is not installed here."
        )
    return found


def _place(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(function)


HOMES: dict[str, tuple[str, ...]] = {
    "asyncio": ("replkernel.state.python.asyncio.finished",),
    "classes": ("replkernel.state.restore.loading", "replkernel.state.python.classes"),
    "contextvars": (
        "replkernel.state.python.contexts",
        "replkernel.state.python.copied_contexts",
    ),
    "csv": ("replkernel.state.python.csv",),
    "ctypes": (
        "replkernel.state.python.ctypes.structs",
        "replkernel.state.python.ctypes.functions",
    ),
    "enum": ("replkernel.state.python.enums",),
    "exceptions": ("replkernel.state.python.exceptions",),
    "files": (
        "replkernel.state.python.files.closed",
        "replkernel.state.python.files.compressors",
        "replkernel.state.python.files.directories",
        "replkernel.state.python.files.opened",
        "replkernel.state.python.files.packed",
        "replkernel.state.python.files.tar_members",
    ),
    "frozensets": ("replkernel.state.format.frozen_order",),
    "functions": (
        "replkernel.state.python.codes",
        "replkernel.state.python.functions",
        "replkernel.state.python.lru_caches",
    ),
    "instances": ("replkernel.state.python.instances",),
    "iterators": (
        "replkernel.state.python.iterator_adapters",
        "replkernel.state.python.dict_iterators",
        "replkernel.state.python.hidden_parts",
        "replkernel.state.python.generators",
    ),
    "library_instances": ("replkernel.state.capture.library_instances",),
    "locks": ("replkernel.state.python.threading",),
    "loggers": ("replkernel.state.python.logging.loggers",),
    "lost": ("replkernel.state.tombstone",),
    "methods": ("replkernel.state.python.methods",),
    "mmap": ("replkernel.state.python.mmap",),
    "mock": ("replkernel.state.python.mock",),
    "modules": ("replkernel.state.python.modules",),
    "multiprocessing": (
        "replkernel.state.python.multiprocessing.contexts",
        "replkernel.state.python.multiprocessing.pools",
        "replkernel.state.python.multiprocessing.processes",
    ),
    "namespaces": ("replkernel.state.python.namespaces",),
    "nan": ("replkernel.state.format.nans",),
    "own_weakrefs": ("replkernel.state.python.own_weakrefs",),
    "patches": ("replkernel.state.patches.book", "replkernel.state.patches.places"),
    "reduced": ("replkernel.state.python.whole_states",),
    "reduced_extras": ("replkernel.state.python.left_out",),
    "regex": ("replkernel.state.python.regex",),
    "registered": ("replkernel.state.capture.registered",),
    "sentinels": ("replkernel.state.capture.sentinels",),
    "shared": ("replkernel.state.format.shared_values",),
    "small_values": ("replkernel.state.python.small_values",),
    "sqlite": (
        "replkernel.state.python.sqlite3.cursors",
        "replkernel.state.python.sqlite3.images",
        "replkernel.state.python.sqlite3.opening",
    ),
    "stale_keys": ("replkernel.state.python.stale_keys",),
    "stand_ins": ("replkernel.state.format.stand_ins",),
    "threads": ("replkernel.state.python.threading",),
    "typing": ("replkernel.state.python.typing",),
    "views": ("replkernel.state.python.views",),
    "weakrefs": ("replkernel.state.python.weakrefs",),
}
"""The modules that bring the loaders of a topic that is no library's: those are in the libraries' records."""
