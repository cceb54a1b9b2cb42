"""Memory that runs out, in a real cgroup: a kernel process dies of it, by name, and the notebook goes on."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.client.inquiry import ask_agents
from tests.support.live import AGENT_S, Live, eventually, kernel
from tests.support.memory_cgroup import memory_cgroup

pytestmark = [pytest.mark.timeout(120), pytest.mark.one_machine]

WITH_ALL_MIB = 900
ALONE_MIB = 6
ROWS = "for n in range(800): globals()[f'rows_{n}'] = [str(number) * 8 for number in range(400)]"
GROW = "held = []\nwhile True: held.append(bytearray(b'x' * (8 << 20)))"


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with kernel(tmp_path) as running:
        yield running


def processes() -> dict[str, int]:
    """Return the pid of each replica's process."""
    known = [replica for found in ask_agents(os.environ, AGENT_S).kernels for replica in found.replicas]
    return {str(replica.replica): replica.kernel_pid for replica in known if replica.kernel_pid}


def three_processes() -> dict[str, int] | None:
    """Return the processes once there are as many as replicas."""
    found = processes()
    return found if len(found) == 3 else None


def services() -> set[int]:
    """Return the pids of the one agent and the one router."""
    (found,) = ask_agents(os.environ, AGENT_S).kernels
    assert found.router_pid is not None
    return {found.router_pid, *(replica.agent_pid for replica in found.replicas)}


def adjustment(pid: int) -> int:
    """Return how much more readily than by its size the system kills a process."""
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def test_the_cell_that_takes_all_memory_of_a_container_ends_by_name_and_the_notebook_goes_on(
    tmp_path: Path,
) -> None:
    with memory_cgroup() as container:
        container.limit(WITH_ALL_MIB)
        with contextlib.ExitStack() as running:
            with container.born_here():
                live = running.enter_context(kernel(tmp_path))
            live.value("kept = 41; print()")
            eventually(three_processes, "three processes")
            before = services()
            ran = live.run(GROW)
            assert ran.status == "error"
            assert "lack of memory" in ran.error and "limit" in ran.error, ran.error
            assert live.value("print(kept + 1)") == "42"
            eventually(three_processes, "the third process again")
            assert services() == before


@pytest.mark.slow
def test_a_standby_that_memory_runs_out_for_costs_no_cell(tmp_path: Path) -> None:
    with kernel(tmp_path, REPLKERNEL_DURABLE="before_reply") as live:
        outlive_a_standby(live)


def outlive_a_standby(live: Live) -> None:
    """Have memory run out for a standby, then end the executor: every cell's variables are there."""
    executor = live.run("kept = 41").replica
    before = eventually(three_processes, "three processes")
    standby = next(name for name in before if name != executor)
    with memory_cgroup() as narrow:
        narrow.limit(ALONE_MIB)
        narrow.take(before[standby])
        assert live.run(ROWS).status == "ok"
        eventually(
            lambda: processes().get(standby) not in (None, before[standby]), "another process of it", 12.0
        )
        assert live.value("print(kept + 1, len(rows_799))") == "42 400"
    os.kill(processes()[executor], signal.SIGKILL)
    assert live.value("print(kept + 1, len(rows_799), rows_799[-1])") == f"42 400 {'399' * 8}"


def test_the_system_kills_a_kernel_process_rather_than_agent_or_router(live: Live) -> None:
    pids = eventually(three_processes, "three processes").values()
    own = {adjustment(pid) for pid in services()}
    assert own == {adjustment(os.getpid())}
    eventually(
        lambda: all(adjustment(pid) > max(own) for pid in pids), "a place behind them for each process"
    )
    of_child = live.value("import subprocess; print(subprocess.getoutput('cat /proc/self/oom_score_adj'))")
    assert int(of_child) > max(own)
