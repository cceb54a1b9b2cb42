"""What Arrow's file systems say of a file.

Law: imported only when Arrow's file systems are; no file is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyarrow import fs

from replkernel.loaders import loader

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext


def reduce_file_info(context: ReducerContext, info: fs.FileInfo) -> object:
    """Reduce what a file system says of a file."""
    context.module_needed("pyarrow.fs")
    return make_file_info, (info.path, info.type, info.mtime_ns, info.size)


@loader("pyarrow-fs:make_file_info")
def make_file_info(path: str, kind: object, mtime_ns: int | None, size: int | None) -> object:
    """Return what a file system says of a file (called by payloads)."""
    return fs.FileInfo(path, kind, mtime_ns=mtime_ns, size=size)


EXACT: dict[type, Any] = {fs.FileInfo: reduce_file_info}
