"""Mapped memory: an anonymous mapping travels with its bytes, one of a file is mapped again.

Where a mapping comes from is read from the process's own table, for the object does not tell.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.views import address_of
from replkernel.state.restore.loading import take_buffer

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_ANONYMOUS = ("", "/dev/zero (deleted)", "[heap]")
_MAPS = Path("/proc/self/maps")


def reduce_mmap(context: ReducerContext, mapping: mmap.mmap) -> object:
    """Reduce a mapping; what is in a private mapping of a file is not known to the file, so it is stuck."""
    if mapping.closed:
        return make_closed, ()
    path, offset, access, shared = _origin(mapping)
    if path in _ANONYMOUS:
        view = memoryview(mapping)
        context.touched = True
        data = context.emit(bytes(view), None)
        view.release()
        return make_anonymous, (len(mapping), data, mapping.tell())
    if not shared or not os.path.isfile(path):
        raise CannotTravel("A private mapping, or one of a file that is gone, belongs to its process.")
    mapping.flush()
    return make_of_file, (path, len(mapping), offset, access, mapping.tell())


def _origin(mapping: mmap.mmap) -> tuple[str, int, int, bool]:
    """Return file, offset in it, access and whether changes reach the file."""
    address = address_of(mapping)
    for line in _MAPS.read_text().splitlines():
        span, rights, offset, _, _, *path = line.split(maxsplit=5)
        begin, end = (int(number, 16) for number in span.split("-"))
        if begin <= address < end:
            access = mmap.ACCESS_WRITE if "w" in rights else mmap.ACCESS_READ
            return "".join(path), int(offset, 16) + address - begin, access, rights.endswith("s")
    raise CannotTravel("This mapping is not in the process's table of mappings.")


@loader("mmap:make_anonymous")
def make_anonymous(size: int, data: bytes | int, position: int) -> mmap.mmap:
    """Return a mapping with these bytes (called by payloads)."""
    mapping = mmap.mmap(-1, size)
    mapping[:] = bytes(take_buffer(data))
    mapping.seek(position)
    return mapping


@loader("mmap:make_of_file")
def make_of_file(path: str, size: int, offset: int, access: int, position: int) -> mmap.mmap:
    """Map a file again (called by payloads)."""
    with open(path, "rb" if access == mmap.ACCESS_READ else "r+b") as file:
        mapping = mmap.mmap(file.fileno(), size, access=access, offset=offset)
    mapping.seek(position)
    return mapping


@loader("mmap:make_closed")
def make_closed() -> mmap.mmap:
    """Return a mapping that is closed (called by payloads)."""
    mapping = mmap.mmap(-1, 1)
    mapping.close()
    return mapping


EXACT: dict[type, Any] = {mmap.mmap: reduce_mmap}
