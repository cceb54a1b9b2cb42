"""A cgroup with a memory limit of its own, and who is in it."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.hosts.memory_cgroups import CGROUPS, own_groups

_V1, _V2 = "memory.limit_in_bytes", "memory.max"


class MemoryCgroup:
    """A cgroup that the system kills in when its processes want more than its limit."""

    def __init__(self, directory: Path, before: Path) -> None:
        self._directory, self._before = directory, before

    def limit(self, mebibytes: int) -> None:
        """Set the limit."""
        name = _V1 if (self._directory / _V1).exists() else _V2
        (self._directory / name).write_text(str(mebibytes << 20))

    def take(self, pid: int) -> None:
        """Move a process here; what it holds already stays charged where it was."""
        _move(pid, self._directory)

    @contextlib.contextmanager
    def born_here(self) -> Iterator[None]:
        """Have what this process starts meanwhile live here, not itself."""
        self.take(os.getpid())
        try:
            yield
        finally:
            _move(os.getpid(), self._before)

    def leave(self) -> None:
        """Move who is left to where the test runs, and remove the cgroup."""
        for pid in (self._directory / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                _move(int(pid), self._before)
        with contextlib.suppress(OSError):
            self._directory.rmdir()


@contextlib.contextmanager
def memory_cgroup() -> Iterator[MemoryCgroup]:
    """Make a cgroup beside this process's own; skip where that is not allowed."""
    groups = own_groups(Path("/proc/self/cgroup"), CGROUPS)
    made = None
    for before, _ in groups:
        directory = before / f"replkernel-test-{uuid.uuid4().hex[:8]}"
        with contextlib.suppress(OSError):
            directory.mkdir()
            if any((directory / name).exists() for name in (_V1, _V2)):
                made = MemoryCgroup(directory, before)
                break
            directory.rmdir()
    if made is None:
        pytest.skip("a memory limit needs the right to make a cgroup with one")
    try:
        yield made
    finally:
        made.leave()


def _move(pid: int, directory: Path) -> None:
    (directory / "cgroup.procs").write_text(str(pid))
