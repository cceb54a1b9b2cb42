"""How much memory is left: the least of the machine's and of all cgroups around the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from replkernel.gpu.host_memory import free_bytes

GIB = 2**30


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    write(tmp_path / "proc/meminfo", "MemTotal: 99 kB\nMemAvailable: 8388608 kB\n")
    return tmp_path / "proc"


def test_without_a_cgroup_it_is_the_machines(proc: Path, tmp_path: Path) -> None:
    assert free_bytes(proc, tmp_path / "none") == 8 * GIB


def test_the_narrowest_limit_around_the_process_counts_less_what_can_be_taken_back(
    proc: Path, tmp_path: Path
) -> None:
    root = tmp_path / "cgroup"
    write(proc / "self/cgroup", "0::/user/pod/box\n")
    write(root / "user/pod/box/memory.max", "max\n")
    write(root / "user/pod/memory.max", f"{4 * GIB}\n")
    write(root / "user/pod/memory.current", f"{3 * GIB}\n")
    write(root / "user/pod/memory.stat", f"anon 5\ninactive_file {GIB // 2}\n")
    assert free_bytes(proc, root) == GIB + GIB // 2


def test_a_container_sees_its_limit_at_the_root(proc: Path, tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    write(proc / "self/cgroup", "0::/\n")
    write(root / "memory.max", f"{GIB}\n")
    write(root / "memory.current", f"{2 * GIB}\n")
    assert free_bytes(proc, root) == 0


def test_version_1_of_cgroups_is_known(proc: Path, tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    write(proc / "self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a/b\n")
    write(root / "memory/a/b/memory.limit_in_bytes", f"{2 * GIB}\n")
    write(root / "memory/a/b/memory.usage_in_bytes", f"{GIB}\n")
    write(root / "memory/memory.limit_in_bytes", "9223372036854771712\n")
    write(root / "memory/memory.usage_in_bytes", "5\n")
    assert free_bytes(proc, root) == GIB


def test_a_system_that_tells_nothing_is_no_limit(tmp_path: Path) -> None:
    assert free_bytes(tmp_path, tmp_path) is None
