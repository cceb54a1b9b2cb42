"""Files in a tar file (`extractfile`), once that is closed: nothing of the process is left in them."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext


def reduce_member(context: ReducerContext, file: Any) -> object:
    """Reduce a file in a tar file that was closed, or read to its end before that was."""
    raw = file.raw
    if file.closed or (raw.fileobj.closed and file.tell() == raw.size):
        return member, (type(file), raw)
    raise CannotTravel("Only files on disk can be opened again elsewhere.")


@loader("files:tar_member")
def member(cls: Any, raw: Any) -> object:
    """Return a file in a tar file, over what it reads (called by payloads)."""
    file = cls.__new__(cls)
    io.BufferedReader.__init__(file, raw)
    return file


EXACT = {tarfile.ExFileObject: reduce_member}
