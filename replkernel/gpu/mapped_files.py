"""Storages that lie in a mapped file (`torch.from_file`, a map that only a tensor holds): mapped again.

Law: the file's bytes stay in the file; a map that is private to the process is no place in a file.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from typing import Any, NamedTuple

import numpy as np

from replkernel.gpu.torch_library import torch
from replkernel.loaders import loader

MAPS = "/proc/self/maps"
_PAGE = os.sysconf("SC_PAGESIZE")
_BEGINNINGS = (0, 128)
"""How far behind the start of a page a mapped file's values begin: of a plain one, and of `numpy.save`."""
_GONE, _IN_MEMORY = " (deleted)", "/dev/"
_MS_SYNC = 4
_libc = ctypes.CDLL(None, use_errno=True)


class Place(NamedTuple):
    """Where a stretch of memory lies in a file."""

    path: str
    offset: int
    mode: str


class _Map(NamedTuple):
    """A line of the process's maps."""

    low: int
    access: str
    offset: int
    path: str


def may_be_mapped(storage: torch.UntypedStorage) -> bool:
    """Tell whether a storage that is not torch's own memory may lie in a file, without looking for it."""
    return bool(storage.filename) or storage.data_ptr() % _PAGE in _BEGINNINGS


def place_in_file(start: int, size: int) -> Place | None:
    """Return where in a file these bytes lie, if all who map it see what is written there."""
    map_ = _map_at(start, size)
    if (
        map_ is None
        or map_.access[3] != "s"
        or not map_.path.startswith("/")
        or map_.path.startswith(_IN_MEMORY)
    ):
        return None
    if map_.path.endswith(_GONE) or not os.path.isfile(map_.path):
        return None
    return Place(map_.path, start - map_.low + map_.offset, "r+" if map_.access[1] == "w" else "r")


def seen_by_forks(start: int, size: int) -> bool:
    """Tell whether what is written to these bytes is written for the processes forked from here as well."""
    map_ = _map_at(start, size)
    return map_ is not None and map_.access[3] == "s"


def _map_at(start: int, size: int) -> _Map | None:
    try:
        with open(MAPS, encoding="utf-8", errors="surrogateescape") as maps:
            lines = maps.read().splitlines()
    except OSError:
        return None
    for line in lines:
        span, access, offset, _, _, *path = line.split(maxsplit=5)
        low, _, high = span.partition("-")
        if int(low, 16) <= start and start + size <= int(high, 16):
            return _Map(int(low, 16), access, int(offset, 16), path[0] if path else "")
    return None


def write_out(start: int, size: int) -> None:
    """Have what was written to a mapped file be in it for whoever reads it elsewhere."""
    first = start - start % _PAGE
    _libc.msync(ctypes.c_void_p(first), ctypes.c_size_t(start + size - first), _MS_SYNC)


@loader("torch:make_mapped")
def make_mapped(path: str, offset: int, mode: Any, size: int) -> object:
    """Return the storage of a file that is mapped again (called by payloads)."""
    values: object = np.memmap(path, np.uint8, mode, offset, (size,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a file that may only be read
        return torch.from_numpy(np.asarray(values)).untyped_storage()


@loader("torch:make_from_file")
def make_from_file(path: str, size: int) -> object:
    """Return the storage of a file that torch itself had mapped (called by payloads)."""
    return torch.UntypedStorage.from_file(path, True, size)
