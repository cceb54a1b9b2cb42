"""A file system of a few MiB, and how to fill it."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.hosts.supervisor import PLACE


@contextlib.contextmanager
def small_disk(place: Path, mebibytes: int) -> Iterator[Path]:
    """Mount a small file system at `place`; skip where that is not allowed.

    For a test that is run across machines it is the first process's, from which theirs have it.
    """
    place.mkdir()
    on_all = ["nsenter", "-t", "1", "-m"] if PLACE in os.environ else []
    command = [*on_all, "mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=0700", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small disk needs the right to mount one")
    try:
        yield place
    finally:
        subprocess.run([*on_all, "umount", "--lazy", str(place)], check=False)


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as out:
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    out.write(b"\0" * size)
        with pytest.raises(OSError) as full:
            out.write(b"\0" * 4096)
    assert full.value.errno == errno.ENOSPC
