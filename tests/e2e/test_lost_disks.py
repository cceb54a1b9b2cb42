"""A kernel comes back from its store or a survivor: agents, disks and hosts are lost, or two routers meet."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from jupyter_client.blocking import BlockingKernelClient

from replkernel.agent.io.lookup import agent_dir
from replkernel.cli import main
from replkernel.client.inquiry import ask_agents, live_agents
from replkernel.settings import data_dir
from tests.support.ending import end_agents
from tests.support.live import AGENT_S, Live, eventually, kernel
from tests.support.resting import CHECK, CHECKED, VARIABLES, checkpoints, hibernate, replica_pids, runs

pytestmark = pytest.mark.timeout(180)

TRIES = 5
NEWS_S = 0.5
"""The news of a death takes this long at most to whom it concerns."""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with kernel(tmp_path) as running:
        yield running


def kill_everything(fits: Callable[[], bool] = lambda: True) -> bool:
    """Kill all agents and replicas outright, delete what the agents keep on disk, wait for other replicas.

    Stopped first, they lose their files before anybody can start agents anew in their directories. When it
    does not fit what is in the store by then, they go on instead; tell whether they were killed.
    """
    pids = replica_pids()
    agents = live_agents(os.environ)
    for agent in agents:
        os.kill(agent.pid, signal.SIGSTOP)
    eventually(
        lambda: all(psutil.Process(agent.pid).status() == psutil.STATUS_STOPPED for agent in agents),
        "agents that stand still",
    )
    if not fits():
        for agent in agents:
            os.kill(agent.pid, signal.SIGCONT)
        return False
    for agent in agents:
        kept = agent_dir(agent.name, os.environ)
        shutil.rmtree(kept.rename(data_dir(os.environ) / f"lost-{agent.name}"))
    for pid in [*pids, *(agent.pid for agent in agents)]:
        os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    eventually(lambda: replica_pids() - pids, "another replica")
    print(f"another replica after {time.monotonic() - began:.2f} s")
    return True


def test_agents_replicas_and_their_disks_are_lost_and_nothing_of_the_state(live: Live) -> None:
    live.value(VARIABLES)
    eventually(checkpoints, "a checkpoint")
    kill_everything()
    ran = live.run(CHECK)
    assert ran.status == "ok", ran.error
    assert ran.out.strip() == CHECKED
    assert live.value("print(double(4))") == "8"


@pytest.mark.slow
@pytest.mark.one_host
def test_processes_of_a_host_that_lost_its_disk_do_not_live_on(live: Live) -> None:
    live.value(VARIABLES)
    eventually(checkpoints, "a checkpoint")
    had = eventually(lambda: len(found := replica_pids()) == 3 and found, "three replicas")
    (agent,) = live_agents(os.environ)
    os.kill(agent.pid, signal.SIGKILL)
    lost = agent_dir(agent.name, os.environ).rename(data_dir(os.environ) / "lost")
    shutil.rmtree(lost, ignore_errors=True)  # Its processes may still write there.
    eventually(lambda: replica_pids() and not replica_pids() & had, "other replicas")
    assert live.run(CHECK).out.strip() == CHECKED
    eventually(lambda: not any(map(runs, had)), "the end of the replicas of before")


def test_a_cell_that_no_checkpoint_had_is_told_to_be_lost(tmp_path: Path) -> None:
    """A checkpoint follows two seconds after a cell: where everything was killed later, it is tried again."""
    for _ in range(TRIES):
        with kernel(tmp_path) as live:
            live.value("kept = 1")
            had = eventually(checkpoints, "a checkpoint")
            live.value("late = 2")
            if kill_everything(lambda had=had: checkpoints() == had):
                _is_told_what_was_lost(live)
                return
        eventually(lambda: not checkpoints(), "the end of the kernel")
    raise AssertionError(f"a checkpoint had the last cell, {TRIES} times")


def _is_told_what_was_lost(live: Live) -> None:
    ran = live.run("print(kept, 'late' in globals())")
    assert ran.out.strip() == "1 False"
    assert "as of cell [1]" in ran.err
    assert "run it again" in ran.err


@pytest.mark.slow
def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(live: Live) -> None:
    live.value("first = 1")
    (older,) = eventually(checkpoints, "a checkpoint")
    live.value("second = 2")
    newer = eventually(lambda: len(found := checkpoints()) == 2 and found, "two checkpoints")[-1]
    assert newer != older
    data = bytearray(newer.read_bytes())
    data[-1] ^= 1
    newer.write_bytes(data)
    kill_everything()
    ran = live.run("print(first, 'second' in globals())")
    assert ran.out.strip() == "1 False"
    assert "is damaged" in ran.err
    assert newer.name in ran.err
    assert "as of cell [1]" in ran.err


# -- several hosts ------------------------------------------------------------------------------------

HOSTS = {"REPLKERNEL_HOSTS": "east,west,north"}


def of_host(name: str) -> tuple[int, set[int]]:
    """Return the agent of a host, and its replicas' processes."""
    (agent,) = (found for found in live_agents(os.environ) if found.name == name)
    known = ask_agents(os.environ, AGENT_S).kernels
    return agent.pid, {
        replica.kernel_pid
        for one in known
        for replica in one.replicas
        if replica.host == name and replica.kernel_pid
    }


def lose(name: str) -> None:
    """Kill a host's agent and replicas, and delete its disk."""
    agent, pids = of_host(name)
    for pid in (agent, *pids):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not runs(agent), f"the end of host {name}")
    kept = agent_dir(name, os.environ)
    shutil.rmtree(kept.rename(data_dir(os.environ) / f"lost-{name}"))


@pytest.mark.slow
def test_two_of_three_hosts_lose_their_disks_and_the_survivor_has_it_all(tmp_path: Path) -> None:
    with kernel(tmp_path, **HOSTS) as live:
        live.value(VARIABLES)
        eventually(lambda: len(replica_pids()) == 3, "three replicas")
        eventually(checkpoints, "a checkpoint")
        ran = live.run("late = [1]")
        survivor = next(host for host in HOSTS["REPLKERNEL_HOSTS"].split(",") if host == ran.said["host"])
        time.sleep(NEWS_S)
        had = replica_pids()
        for name in HOSTS["REPLKERNEL_HOSTS"].split(","):
            if name != survivor:
                lose(name)
        eventually(lambda: replica_pids() and not replica_pids() & had, "other replicas")
        ran = live.run(CHECK + "; late.append(2); print(late)")
        assert ran.status == "ok", ran.error
        assert ran.out.split("\n")[:2] == [CHECKED, "[1, 2]"]
        assert "brought back" not in ran.err
        live.value("late.append(3)")
        hibernate(live)
        assert live.value("print(late)") == "[1, 2, 3]"


@pytest.mark.slow
def test_a_kernel_hibernates_on_all_of_its_hosts(tmp_path: Path) -> None:
    with kernel(tmp_path, **HOSTS) as live:
        live.value(VARIABLES)
        hibernate(live)
        kept = [agent_dir(agent.name, os.environ) / "kernels" for agent in live_agents(os.environ)]
        assert len(kept) == 3
        eventually(lambda: not any(list(directory.iterdir()) for directory in kept), "empty directories")
        assert live.run(CHECK).out.strip() == CHECKED


@pytest.mark.slow
def test_hosts_that_never_come_back_are_given_up_on_demand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with kernel(tmp_path, **HOSTS) as live:
        ran = live.run("kept = [1]")
        names = HOSTS["REPLKERNEL_HOSTS"].split(",")
        eventually(lambda: len(replica_pids()) == 3, "three replicas")
        eventually(checkpoints, "a checkpoint")
        (kernel_id,) = (known.kernel_id for known in ask_agents(os.environ, AGENT_S).kernels)
        frozen = [pid for name in names if name != ran.said["host"] for pid in flat(of_host(name))]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            live.value("kept.append(2)")
            assert main(["recover", kernel_id]) == 0
            assert live.value("kept.append(3); print(kept)") == "[1, 2, 3]"
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
        eventually(lambda: not any(map(runs, frozen[1::2])), "the end of the replicas that were given up")
        assert live.value("print(kept)") == "[1, 2, 3]"


def flat(found: tuple[int, set[int]]) -> list[int]:
    agent, replicas = found
    return [agent, *replicas]


# -- two routers, on machines that do not see each other -----------------------------------------------


@contextlib.contextmanager
def taken_over(live: Live, directory: Path, store: str) -> Iterator[BlockingKernelClient]:
    """Have another machine, with disks of its own, bring the kernel back from the store; return a client."""
    directory.mkdir()
    (record,) = (data_dir(os.environ) / "kernels").glob("*/kernel.json")
    there = directory / "replkernel" / "kernels" / record.parent.name
    there.mkdir(parents=True, mode=0o700)
    known = json.loads(record.read_text())
    (there / "kernel.json").write_text(json.dumps(known | {"machine": "another"}))
    (there / "kernel.json").chmod(0o600)
    file = directory / f"kernel-{record.parent.name}.json"
    file.write_text(
        json.dumps(live.client.get_connection_info() | PORTS | {"key": known["connection"]["key"]})
    )
    settings = {
        "JUPYTER_DATA_DIR": str(directory),
        "REPLKERNEL_HOST_NAME": "another",
        "REPLKERNEL_STORE": store,
    }
    env = os.environ | settings
    with subprocess.Popen([sys.executable, "-m", "replkernel.router", "-f", str(file)], env=env) as router:
        eventually(
            lambda: all(json.loads(file.read_text())[port] for port in PORTS), "the other router's ports"
        )
        client = BlockingKernelClient(connection_file=str(file))
        client.load_connection_file()
        client.start_channels(hb=False)
        try:
            client.wait_for_ready(timeout=60)
            yield client
        finally:
            client.stop_channels()
            router.kill()
            end_agents(env)


PORTS = dict.fromkeys(("shell_port", "stdin_port", "control_port", "iopub_port", "hb_port"), 0)


@pytest.mark.slow
def test_of_two_routers_that_do_not_see_each_other_the_later_one_counts(tmp_path: Path) -> None:
    store = f"file://{tmp_path}/shared"
    with kernel(tmp_path, REPLKERNEL_STORE=store) as live:
        live.value("x = [1]")
        eventually(lambda: list(Path(tmp_path, "shared").glob("kernels/*/checkpoint-*")), "a checkpoint")
        with taken_over(live, tmp_path / "another", store) as client:
            there = Live(live.manager, client, tmp_path / "none")
            assert there.value("x.append(2); print(x)") == "[1, 2]"

            def refused() -> str:
                """Run cells here until one of them ends by it: the one that runs just then, or the next."""
                ran = live.run("x.append('lost')")
                return ran.error if ran.status == "error" else ""

            assert "goes on elsewhere" in eventually(refused, "the end here", 40.0)
            assert live.run("x").error.startswith("KernelTakenOver")
            assert there.value("print(x)") == "[1, 2]"
