"""What a kernel in the making says of itself on disk, and what is done with those whose maker was killed.

Blocks. Law: whoever makes a kernel holds the lock on its note; a note that nobody holds is of one who was
killed, or could not take back what he wrote: that goes, unless the kernel's record says that it was finished.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.hosts.own_file import read_own
from replkernel.launch.kernel_record import forget_kernel, kernels_dir, make_kernel_dir, read_record
from replkernel.objects.store import ObjectStore
from replkernel.objects.withdrawal import end_kernel
from replkernel.records import KernelId
from replkernel.settings import data_dir

NOTE = "in-the-making"
NOTE_BYTES_MAX = 4096


class _Note(msgspec.Struct, frozen=True):
    """Which of a kernel's incarnations is being made, in which store."""

    incarnation: str
    store: str


class Making:
    """The note of one kernel in the making, held until `done` or `leave`."""

    def __init__(self, store: ObjectStore, env: Mapping[str, str], kernel_id: str, incarnation: str) -> None:
        directory = make_kernel_dir(data_dir(env), kernel_id)
        self._path = directory / NOTE
        fresh = directory / f"{NOTE}.new"
        self._file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        os.write(self._file, msgspec.json.encode(_Note(incarnation, store.url)))
        fresh.rename(self._path)  # It is locked before anybody finds it.

    def done(self) -> None:
        """Take the note away: the kernel is there, or nothing of it is."""
        self._path.unlink(missing_ok=True)
        os.close(self._file)

    def leave(self) -> None:
        """Leave the note to the next who tidies: what it is about could not be taken back."""
        os.close(self._file)


def tidy_unfinished(store: ObjectStore, env: Mapping[str, str]) -> None:
    """Take back from `store` what makers wrote who were killed; what fails is left to the next time."""
    for path in kernels_dir(data_dir(env)).glob(f"*/{NOTE}"):
        with contextlib.suppress(OSError, ReplkernelError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _tidy(path, store, env)


def _tidy(path: Path, store: ObjectStore, env: Mapping[str, str]) -> None:
    try:
        note = msgspec.json.decode(read_own(path, NOTE_BYTES_MAX), type=_Note)
    except UNREADABLE:
        return
    kernel_id = KernelId(path.parent.name)
    if read_record(data_dir(env), kernel_id) is not None:
        path.unlink(missing_ok=True)
    elif note.store == store.url:
        end_kernel(store, kernel_id, note.incarnation)
        forget_kernel(path.parent)
