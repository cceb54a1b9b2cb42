"""Arrow."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from replkernel.state.library import Library, Setting


def threads() -> dict[str, int] | None:
    """Return how many threads Arrow uses."""
    library: Any = sys.modules.get("pyarrow")
    if library is None or not hasattr(library, "io_thread_count"):
        return None
    return {"cpu": library.cpu_count(), "io": library.io_thread_count()}


def set_threads(value: dict[str, int]) -> None:
    """Set it."""
    library = import_module("pyarrow")
    library.set_cpu_count(value["cpu"])
    library.set_io_thread_count(value["io"])


LIBRARY = Library(
    name="pyarrow",
    reducers={
        "pyarrow": "replkernel.state.libraries.pyarrow.buffers",
        "pyarrow.lib": "replkernel.state.libraries.pyarrow.streams",
        "pyarrow.compute": "replkernel.state.libraries.pyarrow.compute",
        "pyarrow.dataset": "replkernel.state.libraries.pyarrow.data_sets",
        "pyarrow.fs": "replkernel.state.libraries.pyarrow.file_info",
        "pyarrow.parquet.core": "replkernel.state.libraries.pyarrow.parquet",
    },
    loaders={
        "pyarrow": (
            "replkernel.state.libraries.pyarrow.buffers",
            "replkernel.state.libraries.pyarrow.streams",
        ),
        "pyarrow-compute": ("replkernel.state.libraries.pyarrow.compute",),
        "pyarrow-dataset": ("replkernel.state.libraries.pyarrow.data_sets",),
        "pyarrow-fs": ("replkernel.state.libraries.pyarrow.file_info",),
        "pyarrow-parquet": ("replkernel.state.libraries.pyarrow.parquet",),
    },
    settings={
        "threads of Arrow": Setting(("set_cpu_count", "set_io_thread_count"), threads, set_threads),
    },
)
