"""Arrow."""

from __future__ import annotations

from replkernel.state.libraries.pyarrow.threads import set_threads, threads
from replkernel.state.library import Library, Setting

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
