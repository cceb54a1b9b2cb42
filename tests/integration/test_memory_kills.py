"""Which memory limit a process ran into, as the files of the system tell it."""

from __future__ import annotations

from pathlib import Path

import pytest

from replkernel.agent.io.memory_kills import memory_kills, shortage


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    directory = tmp_path / "proc"
    (directory / "7").mkdir(parents=True)
    (directory / "vmstat").write_text("nr_free_pages 5\noom_kill 10\n")
    return directory


@pytest.fixture
def root(tmp_path: Path, proc: Path) -> Path:
    directory = tmp_path / "cgroup"
    (directory / "user" / "kernel").mkdir(parents=True)
    (proc / "7" / "cgroup").write_text("0::/user/kernel\n")
    (directory / "user" / "kernel" / "memory.events").write_text("oom 1\noom_kill 1\n")
    return directory


def die(proc: Path, group: Path | None = None) -> None:
    (proc / "vmstat").write_text("oom_kill 11\n")
    if group is not None:
        (group / "memory.events").write_text("oom 2\noom_kill 2\n")


def test_nobody_killed_is_no_shortage(proc: Path, root: Path) -> None:
    assert shortage(memory_kills(7, proc, root), proc, root) == ""


def test_the_narrowest_limit_above_the_process_is_named(proc: Path, root: Path) -> None:
    (root / "user" / "kernel" / "memory.max").write_text("max\n")
    (root / "user" / "memory.max").write_text(str(512 << 20))
    (root / "memory.max").write_text(str(8 << 30))
    before = memory_kills(7, proc, root)
    die(proc, root / "user" / "kernel")
    assert shortage(before, proc, root) == "its cgroup's limit memory.max is 512 MiB"


def test_the_older_cgroups_name_their_own_limit(proc: Path, root: Path) -> None:
    group = root / "memory" / "box"
    group.mkdir(parents=True)
    (proc / "7" / "cgroup").write_text("4:memory:/box\n1:cpu:/\n")
    (group / "memory.oom_control").write_text("under_oom 0\noom_kill 0\n")
    (group / "memory.limit_in_bytes").write_text(str(3 << 30))
    (root / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712")
    before = memory_kills(7, proc, root)
    (group / "memory.oom_control").write_text("under_oom 0\noom_kill 1\n")
    assert shortage(before, proc, root) == "its cgroup's limit memory.limit_in_bytes is 3.0 GiB"


def test_a_kill_outside_our_cgroup_is_the_machines_shortage(proc: Path, root: Path) -> None:
    before = memory_kills(7, proc, root)
    die(proc)
    assert shortage(before, proc, root) == "the machine had no memory left"
