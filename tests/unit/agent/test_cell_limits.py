"""Cores and memory of cells: what is written to which cgroup, and what is said where none may be made."""

from __future__ import annotations

import os
from pathlib import Path

from replkernel.agent.io.cell_limits import AGENT, CellLimits, find_limits


def cgroups(tmp_path: Path, controllers: str = "cpuset cpu io memory pids") -> Path:
    """A directory that looks like cgroup v2."""
    root = tmp_path / "cgroup"
    root.mkdir()
    (root / "cgroup.controllers").write_text(controllers)
    (root / "cgroup.subtree_control").write_text("cpu memory")
    return root


def process(tmp_path: Path, group: str) -> Path:
    """What /proc says of this process, and of its parent."""
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(f"3:memory:/x\n0::{group}\n")
    (proc / "77").mkdir()
    (proc / "77" / "stat").write_text("77 (a (b) c) S 1 77")
    return proc


def written(group: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in group.iterdir()}


def test_a_cells_process_is_limited_and_has_all_again_after_it(tmp_path: Path) -> None:
    limits = CellLimits(tmp_path)
    assert limits.limit(42, 0.0, 0) == "" and not list(tmp_path.iterdir())
    assert limits.limit(42, 1.5, 2**30) == ""
    group = tmp_path / "replkernel-kernel-42"
    expected = {"cgroup.procs": "42", "cpu.max": "150000 100000", "memory.max": str(2**30)}
    assert written(group) == expected
    assert limits.limit(42, 0.0, 0) == ""
    assert written(group) == expected | {"cpu.max": "max 100000", "memory.max": "max"}


def test_a_process_that_holds_more_is_not_killed_for_it(tmp_path: Path) -> None:
    limits = CellLimits(tmp_path)
    limits.limit(42, 1.0, 0)
    group = tmp_path / "replkernel-kernel-42"
    (group / "memory.current").write_text(str(3 * 2**30))
    assert limits.limit(42, 1.0, 2 * 2**30) == "it holds 3.0 GiB already, and its cell asked for less"
    assert written(group)["memory.max"] == "max"


def test_a_cgroup_that_cannot_be_written_is_told_of_and_nothing_is_raised(tmp_path: Path) -> None:
    gone = CellLimits(tmp_path / "gone")
    assert "cannot be used (No such file or directory)" in gone.limit(42, 1.0, 0)
    assert CellLimits(None, "for a reason").limit(42, 1.0, 0) == "for a reason"


def test_root_has_a_cgroup_of_its_own_at_the_top(tmp_path: Path) -> None:
    root = cgroups(tmp_path)
    limits = find_limits({}, root, process(tmp_path, "/user.slice/session"), is_root=True)
    assert (limits.base, limits.why) == (root / "replkernel", "")
    assert (root / "replkernel" / "cgroup.subtree_control").read_text() == "+cpu +memory"


def test_a_user_with_a_delegated_cgroup_has_the_agent_step_aside(tmp_path: Path) -> None:
    root = cgroups(tmp_path)
    own = root / "user" / "run.scope"
    own.mkdir(parents=True)
    proc = process(tmp_path, "/user/run.scope")
    (own / "cgroup.procs").write_text(f"{os.getpid()}\n77\n")
    assert "(1 other processes are in it)" in find_limits({}, root, proc, is_root=False).why
    assert not (own / AGENT).exists()
    (own / "cgroup.procs").write_text(f"{os.getpid()}\n")
    limits = find_limits({}, root, proc, is_root=False)
    assert (limits.base, limits.why) == (own, "")
    assert (own / AGENT / "cgroup.procs").read_text() == str(os.getpid())
    assert (own / "cgroup.subtree_control").read_text() == "+cpu +memory"


def test_where_none_may_be_made_the_reason_is_said_with_the_fix(tmp_path: Path) -> None:
    root, proc = cgroups(tmp_path), process(tmp_path, "/nowhere")
    assert "-p Delegate=yes" in find_limits({}, root, proc, is_root=False).why
    named = find_limits({"REPLKERNEL_CGROUP": str(root / "no")}, root, proc, is_root=False)
    assert f"is no cgroup below {root}: correct or unset it" in named.why
    (root / "ours").mkdir()
    named = find_limits({"REPLKERNEL_CGROUP": str(root / "ours")}, root, proc, is_root=False)
    assert (named.base, named.why) == (root / "ours", "")
    (root / "cgroup.controllers").write_text("pids")
    assert "has no controllers for cores and memory" in find_limits({}, root, proc, is_root=True).why
