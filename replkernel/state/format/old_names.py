"""Where the loaders stood in release 0.1, whose payloads named them by module and function.

Law: what is here is never changed, for stored notebooks of that release name it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replkernel import loaders

TOPICS_OF_RELEASE_0_1 = {
    "replkernel.gpu.graphs": "torch",
    "replkernel.gpu.jagged": "torch",
    "replkernel.gpu.layouts": "torch",
    "replkernel.gpu.mapped_files": "torch",
    "replkernel.gpu.modules": "torch",
    "replkernel.gpu.optimizers": "torch",
    "replkernel.gpu.storages": "torch",
    "replkernel.gpu.tensors": "torch",
    "replkernel.namespace.frozen_order": "frozensets",
    "replkernel.namespace.loading": "classes",
    "replkernel.namespace.nans": "nan",
    "replkernel.namespace.patches.book": "patches",
    "replkernel.namespace.patches.places": "patches",
    "replkernel.namespace.reducers.adapters": "iterators",
    "replkernel.namespace.reducers.arrays": "numpy",
    "replkernel.namespace.reducers.arrow_buffers": "pyarrow",
    "replkernel.namespace.reducers.arrow_data_sets": "pyarrow-dataset",
    "replkernel.namespace.reducers.arrow_file_info": "pyarrow-fs",
    "replkernel.namespace.reducers.arrow_files": "pyarrow-parquet",
    "replkernel.namespace.reducers.arrow_options": "pyarrow-compute",
    "replkernel.namespace.reducers.arrow_streams": "pyarrow",
    "replkernel.namespace.reducers.bare_arrays": "numpy",
    "replkernel.namespace.reducers.bit_generators": "numpy-random",
    "replkernel.namespace.reducers.c_arrays": "ctypes",
    "replkernel.namespace.reducers.c_functions": "ctypes",
    "replkernel.namespace.reducers.c_structs": "ctypes",
    "replkernel.namespace.reducers.classes": "classes",
    "replkernel.namespace.reducers.closed_owners": "files",
    "replkernel.namespace.reducers.codes": "functions",
    "replkernel.namespace.reducers.compiled_functions": "numba",
    "replkernel.namespace.reducers.contexts": "contextvars",
    "replkernel.namespace.reducers.copied_contexts": "contextvars",
    "replkernel.namespace.reducers.csv_objects": "csv",
    "replkernel.namespace.reducers.database_cursors": "sqlite",
    "replkernel.namespace.reducers.database_images": "sqlite",
    "replkernel.namespace.reducers.database_opening": "sqlite",
    "replkernel.namespace.reducers.dict_iterators": "iterators",
    "replkernel.namespace.reducers.drawings": "pillow-draw",
    "replkernel.namespace.reducers.duckdb_connections": "duckdb",
    "replkernel.namespace.reducers.engine_events": "sqlalchemy",
    "replkernel.namespace.reducers.enum_members": "enum",
    "replkernel.namespace.reducers.exceptions": "exceptions",
    "replkernel.namespace.reducers.expressions": "sympy",
    "replkernel.namespace.reducers.figures": "matplotlib",
    "replkernel.namespace.reducers.files": "files",
    "replkernel.namespace.reducers.finished_streams": "files",
    "replkernel.namespace.reducers.finished_work": "asyncio",
    "replkernel.namespace.reducers.fonts": "pillow-font",
    "replkernel.namespace.reducers.frames": "pandas",
    "replkernel.namespace.reducers.functions": "functions",
    "replkernel.namespace.reducers.hdf_files": "h5py",
    "replkernel.namespace.reducers.hidden_parts": "iterators",
    "replkernel.namespace.reducers.instances": "instances",
    "replkernel.namespace.reducers.iterators": "iterators",
    "replkernel.namespace.reducers.kept_hashes": "attrs",
    "replkernel.namespace.reducers.left_out": "reduced_extras",
    "replkernel.namespace.reducers.locks": "locks",
    "replkernel.namespace.reducers.log_handlers": "loggers",
    "replkernel.namespace.reducers.loggers": "loggers",
    "replkernel.namespace.reducers.loop_bound": "asyncio",
    "replkernel.namespace.reducers.lru_caches": "functions",
    "replkernel.namespace.reducers.mapped_memory": "mmap",
    "replkernel.namespace.reducers.matches": "regex",
    "replkernel.namespace.reducers.memmaps": "numpy",
    "replkernel.namespace.reducers.memory_streams": "files",
    "replkernel.namespace.reducers.message_structs": "msgspec",
    "replkernel.namespace.reducers.methods": "methods",
    "replkernel.namespace.reducers.mocks": "mock",
    "replkernel.namespace.reducers.modules": "modules",
    "replkernel.namespace.reducers.namespaces": "namespaces",
    "replkernel.namespace.reducers.notifying_containers": "bokeh",
    "replkernel.namespace.reducers.numpy_objects": "numpy",
    "replkernel.namespace.reducers.object_arrays": "numpy",
    "replkernel.namespace.reducers.observed_traits": "traitlets",
    "replkernel.namespace.reducers.own_weakrefs": "own_weakrefs",
    "replkernel.namespace.reducers.packed_files": "files",
    "replkernel.namespace.reducers.parse_trees": "bs4",
    "replkernel.namespace.reducers.picture_files": "pillow-file",
    "replkernel.namespace.reducers.pixels": "pillow",
    "replkernel.namespace.reducers.plotly_figures": "plotly",
    "replkernel.namespace.reducers.polars_frames": "polars",
    "replkernel.namespace.reducers.progress_bars": "tqdm",
    "replkernel.namespace.reducers.query_plans": "dask",
    "replkernel.namespace.reducers.rotations": "scipy",
    "replkernel.namespace.reducers.scanners": "regex",
    "replkernel.namespace.reducers.sentinels": "sentinels",
    "replkernel.namespace.reducers.small_values": "small_values",
    "replkernel.namespace.reducers.stale_keys": "stale_keys",
    "replkernel.namespace.reducers.stand_ins": "stand_ins",
    "replkernel.namespace.reducers.start_contexts": "multiprocessing",
    "replkernel.namespace.reducers.table_readers": "pandas-readers",
    "replkernel.namespace.reducers.templates": "jinja2",
    "replkernel.namespace.reducers.threads": "threads",
    "replkernel.namespace.reducers.told_instances": "library_instances",
    "replkernel.namespace.reducers.transforms": "matplotlib-transforms",
    "replkernel.namespace.reducers.typevars": "typing",
    "replkernel.namespace.reducers.users_ways": "registered",
    "replkernel.namespace.reducers.validated_calls": "pydantic",
    "replkernel.namespace.reducers.views": "views",
    "replkernel.namespace.reducers.weakrefs": "weakrefs",
    "replkernel.namespace.reducers.whole_states": "reduced",
    "replkernel.namespace.reducers.wrapped_proxies": "wrapt",
    "replkernel.namespace.shared_values": "shared",
    "replkernel.namespace.tombstone": "lost",
    "replkernel.namespace.reducers.table": "registered",
}
"""The topic of the ids that the functions of a module have now; what comes after the colon was their name."""


def find_old(module: str, name: str) -> Callable[..., Any] | None:
    """Return the loader that release 0.1 named by module and function; None if it was none."""
    wire_id = _id_now(module, name)
    return None if wire_id is None else loaders.find(wire_id)


def name_now(module: str, name: str) -> tuple[str, str]:
    """Return the module and name by which payloads of this release name a global."""
    wire_id = _id_now(module, name)
    if wire_id is None or loaders.find(wire_id) is None:
        return module, name
    return loaders.wire_name(wire_id)


def _id_now(module: str, name: str) -> str | None:
    topic = TOPICS_OF_RELEASE_0_1.get(module)
    return None if topic is None else f"{topic}:{name.lstrip('_')}"
