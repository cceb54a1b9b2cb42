"""A notebook that nobody uses keeps one process; its standbys return with the next cell, and with a loss.

All tests share an agent, and the one that kills it has the next one in its place.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.cli import main
from replkernel.client.inquiry import live_agents
from tests.support.ending import lose
from tests.support.live import Live, eventually, kernel
from tests.support.resting import CHECK, CHECKED, VARIABLES, hibernate, replica_pids, runs
from tests.support.shared_place import _kernel_in_reach, _no_kernel_left, _own_directories, place

__all__ = ["_kernel_in_reach", "_no_kernel_left", "_own_directories", "place"]

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def dormant(tmp_path: Path) -> Iterator[Live]:
    """Give a notebook that has variables, and by now its executor's process alone."""
    with kernel(tmp_path, REPLKERNEL_STANDBY_IDLE_S="4") as live:
        had = _three(live)
        live.value(VARIABLES)
        eventually(lambda: len(replica_pids()) == 1, "one process")
        eventually(lambda: sum(map(runs, had)) == 1, "the end of the others")
        yield live


def _three(live: Live) -> set[int]:
    """Wait for three processes, in use all the while: unused they would go again, maybe before a look."""
    return eventually(
        lambda: live.run("pass") and len(found := replica_pids()) == 3 and found, "three replicas in use"
    )


def test_the_next_cell_finds_its_variables_and_standbys_take_over_again(dormant: Live) -> None:
    (executor,) = replica_pids()
    assert dormant.value(CHECK) == CHECKED
    _three(dormant)
    lose(executor)
    assert dormant.value(CHECK) == CHECKED


def test_an_executor_that_is_lost_meanwhile_takes_nothing_along(dormant: Live) -> None:
    (executor,) = replica_pids()
    lose(executor)
    assert dormant.value(CHECK) == CHECKED
    _three(dormant)


def test_the_next_agent_leaves_them_without_processes(
    dormant: Live, capsys: pytest.CaptureFixture[str]
) -> None:
    (agent,) = live_agents(os.environ)
    (executor,) = replica_pids()
    os.kill(agent.pid, signal.SIGKILL)
    eventually(lambda: any(one.pid != agent.pid for one in live_agents(os.environ)), "the next agent")
    eventually(lambda: replica_pids() == {executor}, "the executor alone")
    capsys.readouterr()

    def both_are_told() -> bool:
        """Tell whether the status has them; an agent that is late by seconds is left out of one."""
        assert main(["status"]) == 0
        return capsys.readouterr().out.count("dormant") == 2

    eventually(both_are_told, "two dormant standbys")
    assert dormant.value(CHECK) == CHECKED
    _three(dormant)


def test_the_notebook_hibernates_and_comes_back(dormant: Live) -> None:
    dormant.value("small")
    hibernate(dormant)
    assert dormant.value(CHECK) == CHECKED
