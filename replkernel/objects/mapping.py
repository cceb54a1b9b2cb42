"""Files that never change as a process's own memory: mapped copy on write, so their pages are shared.

Law: only a file of this user's that no other user can write is mapped, and only from a disk of this machine,
where nothing but this machine's system can take its bytes away. Linux; elsewhere nothing is mapped.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import stat
import sys
from functools import cache
from pathlib import Path
from typing import Any

from replkernel.hosts.disk_path import DiskPath

PAGE = mmap.PAGESIZE

LARGE_BYTES = 2 * 2**20
"""Smaller buffers are cleared when they are made: that costs less than not to."""

WORTH_BYTES = 32 * 2**20
"""Less is read. glibc gives what is at least so large a mapping of its own, unless it has as much free."""

_LOCAL_DISKS = frozenset({
    0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630, 0x2FC12FC1, 0xF2F52010, 0xCA451A4E,
})  # fmt: skip
"""The `f_type` of ext4, XFS, Btrfs, tmpfs, overlayfs, ZFS, F2FS and bcachefs."""

_MAPS_PART = 2
"""Chunks take this part of the maps that the system allows a process; the rest is the user's."""

_MAPS_MAX = 65530
_WHOLE = "user.replkernel.whole"
_MAP_FIXED = 0x10
_FAILED = ctypes.c_void_p(-1).value


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
    ]  # fmt: skip
    libc.fstatfs.argtypes = [ctypes.c_int, ctypes.c_void_p]
    return libc


def has_room(maps: int) -> bool:
    """Tell whether this process may have so many maps more."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        here = DiskPath("/proc/self/maps").read_bytes().count(b"\n")
        most = int(DiskPath("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        here, most = 0, _MAPS_MAX
    return here + maps <= most // _MAPS_PART


def may_be_mapped(file: int, status: os.stat_result) -> bool:
    """Tell whether an open file is this user's alone, and on a disk of this machine."""
    own = status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o022
    if not own or not stat.S_ISREG(status.st_mode):
        return False
    answer = ctypes.create_string_buffer(256)
    if _libc().fstatfs(file, answer):
        return False
    return ctypes.c_long.from_buffer(answer).value & 0xFFFFFFFF in _LOCAL_DISKS


def lay_over(file: int, address: int, size: int) -> bool:
    """Have these pages of memory be the file's until they are written; False when the system does not.

    They are a part of one mapping that the caller owns. Where the system refuses, they are blank afterwards.
    """
    rights, how = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED
    if _libc().mmap(address, size, rights, how, file, 0) != _FAILED:
        return True
    if _libc().mmap(address, size, rights, how | mmap.MAP_ANONYMOUS, -1, 0) == _FAILED:
        raise MemoryError
    return False


def blank(size: int) -> bytearray:
    """Return a buffer that is about to be filled wholly; a large one is not cleared before."""
    if size < LARGE_BYTES:
        return bytearray(size)
    make = ctypes.pythonapi.PyByteArray_FromStringAndSize
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_char_p, ctypes.c_ssize_t)
    made: bytearray = make(None, size)
    return made


def bytes_at(address: int, size: int) -> memoryview:
    """Return memory as bytes; the caller keeps it alive."""
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


# -- verified once, while this machine runs -----------------------------------------------------------


@cache
def _running_since() -> bytes:
    """Return what names this run of the machine: notes of an earlier one say nothing after a crash."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except OSError:
        return b""


def note_whole(file: int) -> None:
    """Note with an open file that its bytes were seen to be what its name says, if its disk takes notes."""
    if hasattr(os, "setxattr") and _running_since():
        with contextlib.suppress(OSError):  # Of a file that is stored (0400) only root can note it.
            os.setxattr(file, _WHOLE, _running_since())


def is_whole(file: int) -> bool:
    """Tell whether somebody has noted so since the machine was started."""
    try:
        return bool(_running_since()) and os.getxattr(file, _WHOLE) == _running_since()
    except (OSError, AttributeError):
        return False
