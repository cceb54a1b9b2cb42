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


def wire_name(wire_id: str) -> tuple[str, str]:
    """Return the module and name by which payloads name a loader."""
    return MODULE, wire_id


def find(wire_id: str) -> Callable[..., Any] | None:
    """Return a loader, importing the module that brings it; None if this release has none of that id."""
    for module in HOMES.get(wire_id.partition(":")[0], ()):
        if wire_id in globals():
            break
        importlib.import_module(module)
    found: Callable[..., Any] | None = globals().get(wire_id)
    return found


def __getattr__(name: str) -> Any:
    """Return a loader whose module has not been imported yet."""
    if ":" not in name:
        raise AttributeError(f"module {MODULE!r} has no attribute {name!r}")
    found = find(name)
    if found is None:
        raise AttributeError(f"This release has no loader {name!r}: a newer one wrote that payload.")
    return found


def _place(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(function)


HOMES: dict[str, tuple[str, ...]] = {
    "asyncio": ("replkernel.namespace.reducers.finished_work", "replkernel.namespace.reducers.loop_bound"),
    "attrs": ("replkernel.namespace.reducers.kept_hashes",),
    "bokeh": ("replkernel.namespace.reducers.notifying_containers",),
    "bs4": ("replkernel.namespace.reducers.parse_trees",),
    "classes": ("replkernel.namespace.loading", "replkernel.namespace.reducers.classes"),
    "contextvars": (
        "replkernel.namespace.reducers.contexts",
        "replkernel.namespace.reducers.copied_contexts",
    ),
    "csv": ("replkernel.namespace.reducers.csv_objects",),
    "ctypes": (
        "replkernel.namespace.reducers.c_arrays",
        "replkernel.namespace.reducers.c_functions",
        "replkernel.namespace.reducers.c_structs",
    ),
    "dask": ("replkernel.namespace.reducers.query_plans",),
    "duckdb": ("replkernel.namespace.reducers.duckdb_connections",),
    "enum": ("replkernel.namespace.reducers.enum_members",),
    "exceptions": ("replkernel.namespace.reducers.exceptions",),
    "files": (
        "replkernel.namespace.reducers.closed_owners",
        "replkernel.namespace.reducers.files",
        "replkernel.namespace.reducers.finished_streams",
        "replkernel.namespace.reducers.memory_streams",
        "replkernel.namespace.reducers.packed_files",
    ),
    "frozensets": ("replkernel.namespace.frozen_order",),
    "functions": (
        "replkernel.namespace.reducers.codes",
        "replkernel.namespace.reducers.functions",
        "replkernel.namespace.reducers.lru_caches",
    ),
    "h5py": ("replkernel.namespace.reducers.hdf_files",),
    "instances": ("replkernel.namespace.reducers.instances",),
    "iterators": (
        "replkernel.namespace.reducers.adapters",
        "replkernel.namespace.reducers.dict_iterators",
        "replkernel.namespace.reducers.hidden_parts",
        "replkernel.namespace.reducers.iterators",
    ),
    "jinja2": ("replkernel.namespace.reducers.templates",),
    "library_instances": ("replkernel.namespace.reducers.told_instances",),
    "locks": ("replkernel.namespace.reducers.locks",),
    "loggers": ("replkernel.namespace.reducers.log_handlers", "replkernel.namespace.reducers.loggers"),
    "lost": ("replkernel.namespace.tombstone",),
    "matplotlib": ("replkernel.namespace.reducers.figures",),
    "matplotlib-transforms": ("replkernel.namespace.reducers.transforms",),
    "methods": ("replkernel.namespace.reducers.methods",),
    "mmap": ("replkernel.namespace.reducers.mapped_memory",),
    "mock": ("replkernel.namespace.reducers.mocks",),
    "modules": ("replkernel.namespace.reducers.modules",),
    "msgspec": ("replkernel.namespace.reducers.message_structs",),
    "multiprocessing": ("replkernel.namespace.reducers.start_contexts",),
    "namespaces": ("replkernel.namespace.reducers.namespaces",),
    "nan": ("replkernel.namespace.nans",),
    "numba": ("replkernel.namespace.reducers.compiled_functions",),
    "numpy": (
        "replkernel.namespace.reducers.arrays",
        "replkernel.namespace.reducers.bare_arrays",
        "replkernel.namespace.reducers.memmaps",
        "replkernel.namespace.reducers.numpy_objects",
        "replkernel.namespace.reducers.object_arrays",
    ),
    "numpy-random": ("replkernel.namespace.reducers.bit_generators",),
    "own_weakrefs": ("replkernel.namespace.reducers.own_weakrefs",),
    "pandas": ("replkernel.namespace.reducers.frames",),
    "pandas-readers": ("replkernel.namespace.reducers.table_readers",),
    "patches": ("replkernel.namespace.patches.book",),
    "pillow": ("replkernel.namespace.reducers.pixels",),
    "pillow-draw": ("replkernel.namespace.reducers.drawings",),
    "pillow-file": ("replkernel.namespace.reducers.picture_files",),
    "pillow-font": ("replkernel.namespace.reducers.fonts",),
    "plotly": ("replkernel.namespace.reducers.plotly_figures",),
    "polars": ("replkernel.namespace.reducers.polars_frames",),
    "pyarrow": ("replkernel.namespace.reducers.arrow_buffers", "replkernel.namespace.reducers.arrow_streams"),
    "pyarrow-compute": ("replkernel.namespace.reducers.arrow_options",),
    "pyarrow-dataset": ("replkernel.namespace.reducers.arrow_data_sets",),
    "pyarrow-fs": ("replkernel.namespace.reducers.arrow_file_info",),
    "pyarrow-parquet": ("replkernel.namespace.reducers.arrow_files",),
    "pydantic": ("replkernel.namespace.reducers.validated_calls",),
    "reduced": ("replkernel.namespace.reducers.whole_states",),
    "reduced_extras": ("replkernel.namespace.reducers.left_out",),
    "regex": ("replkernel.namespace.reducers.matches", "replkernel.namespace.reducers.scanners"),
    "registered": ("replkernel.namespace.reducers.users_ways",),
    "scipy": ("replkernel.namespace.reducers.rotations",),
    "sentinels": ("replkernel.namespace.reducers.sentinels",),
    "shared": ("replkernel.namespace.shared_values",),
    "small_values": ("replkernel.namespace.reducers.small_values",),
    "sqlalchemy": ("replkernel.namespace.reducers.engine_events",),
    "sqlite": (
        "replkernel.namespace.reducers.database_cursors",
        "replkernel.namespace.reducers.database_images",
        "replkernel.namespace.reducers.database_opening",
    ),
    "stale_keys": ("replkernel.namespace.reducers.stale_keys",),
    "stand_ins": ("replkernel.namespace.reducers.stand_ins",),
    "sympy": ("replkernel.namespace.reducers.expressions",),
    "threads": ("replkernel.namespace.reducers.threads",),
    "torch": (
        "replkernel.gpu.graphs",
        "replkernel.gpu.jagged",
        "replkernel.gpu.layouts",
        "replkernel.gpu.mapped_files",
        "replkernel.gpu.modules",
        "replkernel.gpu.optimizers",
        "replkernel.gpu.storages",
        "replkernel.gpu.tensors",
    ),
    "tqdm": ("replkernel.namespace.reducers.progress_bars",),
    "traitlets": ("replkernel.namespace.reducers.observed_traits",),
    "typing": ("replkernel.namespace.reducers.typevars",),
    "views": ("replkernel.namespace.reducers.views",),
    "weakrefs": ("replkernel.namespace.reducers.weakrefs",),
    "wrapt": ("replkernel.namespace.reducers.wrapped_proxies",),
}
"""The modules that bring the loaders of a topic."""
