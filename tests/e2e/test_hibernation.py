"""A kernel at rest has no replica, and comes back with everything by the next cell.

All tests share an agent; how kernels come back without it is in `test_lost_disks`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.cli import main
from replkernel.client.inquiry import ask_agents
from replkernel.launch.kernel_record import read_record
from replkernel.settings import data_dir
from tests.support.ending import lose
from tests.support.files_below import files_below
from tests.support.live import AGENT_S, Live, eventually, kernel
from tests.support.resting import CHECK, CHECKED, VARIABLES, checkpoints, hibernate, replica_pids, runs
from tests.support.shared_place import _kernel_in_reach, _no_kernel_left, _own_directories, place

__all__ = ["_kernel_in_reach", "_no_kernel_left", "_own_directories", "place"]

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with kernel(tmp_path) as running:
        yield running


def test_a_kernel_that_is_not_used_hibernates_by_itself(tmp_path: Path) -> None:
    with kernel(tmp_path, REPLKERNEL_HIBERNATE_IDLE_S="2") as live:
        had = {int(live.value("import os; x = 5; print(os.getpid())"))}

        def rests() -> bool:
            had.update(replica_pids())
            return [one.state for one in ask_agents(os.environ, AGENT_S).kernels] == ["hibernated"]

        eventually(rests, "rest")
        eventually(lambda: not any(map(runs, had)), "the end of all replicas")
        assert live.value("print(x)") == "5"


def test_a_kernel_that_ends_at_rest_leaves_nothing(live: Live) -> None:
    live.value("x = bytes(3_000_000)")
    hibernate(live)
    assert checkpoints()
    live.manager.shutdown_kernel(now=False)
    eventually(lambda: not files_below(data_dir(os.environ) / "store", "kernels/*/*"), "an empty store")


def blobs() -> list[Path]:
    found = files_below(data_dir(os.environ) / "store", "blobs/*/*")
    return [path for path in found if not path.name.startswith(".")]


def stored() -> int:
    """Return how many bytes the blobs take."""
    return sum(path.stat().st_size for path in blobs())


@pytest.mark.slow
def test_a_kernel_that_ends_takes_what_it_stored_along(live: Live) -> None:
    live.value("import os; x = os.urandom(3_000_000)")
    eventually(blobs, "blobs in the store")
    live.manager.shutdown_kernel(now=False)
    eventually(lambda: not blobs(), "a store without blobs")
    assert not files_below(data_dir(os.environ) / "store", "kernels/*/*")


@pytest.mark.slow
def test_a_blob_that_another_kernel_uses_stays_when_its_maker_ends(live: Live, tmp_path: Path) -> None:
    code = "import random; x = random.Random(1).randbytes(3_000_000)"
    live.value(code)
    mine = eventually(lambda: stored() >= 3_000_000 and blobs(), "all that was made in the store")
    (tmp_path / "other").mkdir()
    with kernel(tmp_path / "other") as other:
        other.value(code)
        pids = eventually(lambda: len(found := replica_pids()) == 6 and found, "the replicas of both kernels")
        eventually(lambda: len(checkpoints()) >= 2, "checkpoints of both kernels")
        live.manager.shutdown_kernel(now=False)
        eventually(lambda: len(replica_pids()) == 3, "the end of the first kernel")
        time.sleep(1)
        lose(*pids & replica_pids())
        same = "import random; print(x == random.Random(1).randbytes(3_000_000))"
        assert other.value(same) == "True"
        assert set(blobs()) & set(mine)
    eventually(lambda: set(blobs()) <= set(mine), "the end of the second kernel")


# -- the command line ---------------------------------------------------------------------------------


def test_the_command_line_hibernates_and_forgets(live: Live, capsys: pytest.CaptureFixture[str]) -> None:
    live.value("x = bytes(3_000_000)")
    (kernel_id,) = (known.kernel_id for known in ask_agents(os.environ, AGENT_S).kernels)
    assert main(["hibernate", kernel_id]) == 0
    assert "hibernates" in capsys.readouterr().out
    (known,) = ask_agents(os.environ, AGENT_S).kernels
    assert (known.kernel_id, known.state) == (kernel_id, "hibernated")
    assert main(["status"]) == 0
    assert f"kernel {kernel_id}: hibernated" in capsys.readouterr().out
    assert main(["forget", kernel_id]) == 0
    assert not ask_agents(os.environ, AGENT_S).kernels
    assert not checkpoints()
    assert not blobs()
    assert main(["forget", kernel_id]) == 1
    assert "No kernel" in capsys.readouterr().err


# -- without a router -----------------------------------------------------------------------------------


def lose_router() -> None:
    """Kill the router of the one kernel; await the end of its replicas, and their rest."""
    had = eventually(lambda: len(found := replica_pids()) == 3 and found, "three replicas")
    (known,) = ask_agents(os.environ, AGENT_S).kernels
    record = read_record(data_dir(os.environ), known.kernel_id)
    assert record is not None
    os.kill(record.router_pid, signal.SIGKILL)
    eventually(lambda: not any(map(runs, had)), "the end of all replicas")
    eventually(
        lambda: [one.state for one in ask_agents(os.environ, AGENT_S).kernels] == ["hibernated"], "rest"
    )


def test_replicas_whose_router_is_gone_go_to_rest_and_come_back(tmp_path: Path) -> None:
    with kernel(tmp_path, REPLKERNEL_ORPHAN_GRACE_S="1") as live:
        live.value(VARIABLES)
        lose_router()
        live.manager.restart_kernel(now=True)
        live.client.wait_for_ready(timeout=60)
        ran = live.run(CHECK)
        assert ran.status == "ok", ran.error
        assert ran.out.strip() == CHECKED


@pytest.mark.slow
def test_a_kept_variables_change_rests_along_when_the_router_is_gone(tmp_path: Path) -> None:
    with kernel(tmp_path, REPLKERNEL_ORPHAN_GRACE_S="1") as live:
        live.value("import replkernel; rows = [1]; replkernel.keep(rows, every='1 h')")
        live.run("rows.append(2)")
        live.run("rows.append(3)")
        lose_router()
        live.manager.restart_kernel(now=True)
        live.client.wait_for_ready(timeout=60)
        assert live.value("print(rows)") == "[1, 2, 3]"
