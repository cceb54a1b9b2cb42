"""A kernel whose hosts have no GPUs moves a replica, with its state, to one that has some, or stays whole."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Empty
from typing import Any

import pytest

from replkernel.agent.io.lookup import agent_dir, stop_agent
from replkernel.client.inquiry import live_agents
from replkernel.settings import data_dir
from tests.e2e.faults.hosts import kernel_processes
from tests.support.breadth import first_of
from tests.support.files_below import files_below
from tests.support.group import replicas, standing
from tests.support.live import Live, eventually, kernel
from tests.support.scheduler_service import Service, serving

pytestmark = pytest.mark.timeout(240)

MOVE_S = 90.0


class Agents:
    """Agents with pretended GPUs, which nobody else starts."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, host: str, gpus: int) -> int:
        """Start one; return its process id once the scheduler knows it."""
        command = [sys.executable, "-m", "replkernel.cli", "agent", "--name", host, "--fake-gpus", str(gpus)]
        self.processes[host] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually(lambda: host in self._known(), f"the agent of {host}")
        return self.processes[host].pid

    def run_all(self, hosts: Sequence[str], gpus: int) -> None:
        """Run these and a scheduler, also where the test before has ended some of them."""
        if self.service.process.poll() is not None:
            self.end()
            self.processes.clear()
            self.service = Service()
        eventually(lambda: self._alone(hosts, gpus), "all agents")

    def _alone(self, hosts: Sequence[str], gpus: int) -> bool:
        """Start those that are missing; tell whether there are no others.

        A notebook that lost its hosts in the test before has others started, also to end what it ran there.
        """
        own = {(host, one.pid) for host, one in self.processes.items() if one.poll() is None}
        there = {(one.name, one.pid) for one in live_agents(os.environ)}
        for name, _ in there - own:
            stop_agent(name, os.environ)
        for host in set(hosts) - {name for name, _ in own}:
            self.run(host, gpus)
        return there == own and {name for name, _ in own} == set(hosts)

    def _known(self) -> list[str]:
        return [host["name"] for host in self.service.rest.get("status")[1]["hosts"]]

    def lose(self, host: str) -> None:
        """Kill one with all that it keeps, as a host dies."""
        for pid in [self.processes[host].pid, *kernel_processes(agent_dir(host, os.environ))]:
            os.kill(pid, signal.SIGKILL)
        self.processes[host].wait()

    def end(self) -> None:
        """End what is left."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(30)


@contextlib.contextmanager
def agents_of_a_module() -> Iterator[Agents]:
    """Have a scheduler, and the agents that tests start; both may be others at the end."""
    with serving() as first:
        made = Agents(first)
        yield made
        made.end()
        made.service.kill()


@pytest.fixture
def agents(service: Service) -> Iterator[Agents]:
    made = Agents(service)
    yield made
    made.end()


@pytest.fixture
def service() -> Iterator[Service]:
    with serving() as running:
        yield running


@pytest.fixture
def live(tmp_path: Path, service: Service, agents: Agents) -> Iterator[Live]:
    with on_three_hosts(tmp_path) as running:
        yield running


@pytest.fixture
def losing(tmp_path: Path, service: Service, agents: Agents) -> Iterator[Live]:
    """Return one that gives a host up soon: where none is lost, one that is late would count as lost."""
    with on_three_hosts(tmp_path, REPLKERNEL_HOST_LOST_S="3") as running:
        yield running


@contextlib.contextmanager
def on_three_hosts(directory: Path, **settings: str) -> Iterator[Live]:
    with kernel(directory, REPLKERNEL_HOSTS="h1,h2,h3", **settings) as running:
        assert running.value("x = {'a': [1, 2]}; y = x['a']; print(len(y))") == "2"
        eventually(lambda: set(standing().values()) == {"h1", "h2", "h3"}, "three replicas")
        yield running


def peers() -> set[frozenset[str]]:
    """Return the group's members as each replica has noted them on its disk."""
    found = set()
    for path in files_below(data_dir(os.environ), "agents/*/kernels/*/*/r*/replica.json"):
        with contextlib.suppress(FileNotFoundError):  # One that leaves takes its directory along.
            found.add(frozenset(json.loads(path.read_bytes())["peers"]))
    return found


class Cell:
    """A cell that runs beside the test; `shown` are the lines that said what it waits for."""

    def __init__(self, live: Live, code: str, *, gpus: int = 2) -> None:
        self.shown: list[str] = []
        self.out = ""
        self.over = False
        self._live = live
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}}
        content |= {"allow_stdin": False, "stop_on_error": True}
        self._message = live.client.session.msg(
            "execute_request", content, metadata={"replkernel": {"gpus": gpus}}
        )
        live.client.shell_channel.send(self._message)

    def shows(self, text: str) -> bool:
        """Tell whether the cell has shown a line with this text by now."""
        self._look(0.05)
        return any(text in line for line in self.shown)

    def _look(self, within_s: float) -> None:
        try:
            message = self._live.client.get_iopub_msg(timeout=within_s)
        except Empty:
            return
        if message["parent_header"].get("msg_id") != self._message["header"]["msg_id"]:
            return
        content = message["content"]
        if "data" in content and "replkernel" in content.get("metadata", {}):
            self.shown.append(content["data"]["text/plain"])
        if message["msg_type"] == "stream":
            self.out += content["text"]
        self.over = content.get("execution_state") == "idle"

    def end(self, within_s: float = MOVE_S) -> dict[str, Any]:
        """Wait for the end; return the reply."""
        deadline = time.monotonic() + within_s
        while not self.over:
            assert time.monotonic() < deadline, f"the cell has not ended; it showed {self.shown}"
            self._look(0.5)
        return self._live.reply(self._message["header"]["msg_id"], 10)


def known_hosts(service: Service) -> set[str]:
    """Return the hosts of the one kernel's replicas, as the scheduler knows them."""
    (known,) = service.rest.get("kernels")[1]["kernels"]
    return set(known["hosts"])


def said(reply: dict[str, Any]) -> dict[str, Any]:
    return dict(reply["metadata"]["replkernel"])


def moved_right(live: Live, target: str, where: dict[str, str]) -> None:
    """Check that one replica went to `target`, that the group is whole, and that the state goes on."""
    now = eventually(lambda: (found := standing()) and len(found) == 3 and found, "three replicas")
    gone = set(where) - set(now)
    assert len(gone) == 1
    assert set(now.values()) - set(where.values()) == {target}
    eventually(lambda: peers() == {frozenset(now)}, "a group of these three")
    (left,) = (where[name] for name in gone)
    eventually(lambda: not kernel_processes(agent_dir(left, os.environ)), "the end of the old process")
    (name,) = gone
    files = f"kernels/*/*/{name}"
    eventually(lambda: not files_below(agent_dir(left, os.environ), files), "no files of it")
    assert live.value("y.append(99); print(x)") == "{'a': [1, 2, 3, 99]}"
    assert live.value("print(y is x['a'])") == "True"


@pytest.mark.slow
def test_a_replica_moves_to_the_gpus_with_the_notebooks_variables(
    live: Live, service: Service, agents: Agents
) -> None:
    where = standing()
    agents.run("h4", 4)
    cell = Cell(live, "import os; y.append(3); print(os.environ['CUDA_VISIBLE_DEVICES'].count(','), x)")
    reply = cell.end()
    assert reply["content"]["status"] == "ok", reply["content"]
    assert cell.out.strip() == "1 {'a': [1, 2, 3]}"
    assert said(reply)["host"] == "h4"
    assert "Waiting for 2 GPUs: moving this notebook's state to h4 …" in cell.shown
    moved_right(live, "h4", where)
    eventually(lambda: known_hosts(service) == set(standing().values()), "the scheduler's word of it")


def test_one_of_three_replicas_side_by_side_moves_and_a_waiting_cell_can_be_interrupted(
    tmp_path: Path, service: Service, agents: Agents
) -> None:
    with kernel(tmp_path, REPLKERNEL_HOSTS="h1") as live:
        live.value("x = {'a': [1, 2]}; y = x['a']")
        eventually(lambda: len(standing()) == 3, "three replicas")
        (here,) = set(standing().values())
        agents.run("h4", 2)
        os.kill(agents.processes["h4"].pid, signal.SIGSTOP)
        cell = Cell(live, "y.append('never')")
        eventually(lambda: cell.shows("moving this notebook's state to h4 …"), "the word of the move")
        live.manager.interrupt_kernel()
        assert cell.end()["content"]["ename"] == "KeyboardInterrupt"
        os.kill(agents.processes["h4"].pid, signal.SIGCONT)
        assert live.value("print(x)") == "{'a': [1, 2]}"
        eventually(lambda: "h4" not in standing().values() and len(standing()) == 3, "no half of a move")
        cell = Cell(live, "y.append(3); print(x)")
        assert said(cell.end())["host"] == "h4"
        assert cell.out.strip() == "{'a': [1, 2, 3]}"
        eventually(lambda: sorted(standing().values()) == sorted([here, here, "h4"]), "three replicas")
        eventually(lambda: known_hosts(service) == {here, "h4"}, "the scheduler's word of it")


def test_a_target_that_dies_on_the_way_is_told_and_another_is_found(
    losing: Live, service: Service, agents: Agents
) -> None:
    """All that the way without a death asserts holds here too, which is why that one is nightly's."""
    live = losing
    where = standing()
    os.kill(agents.run("h4", 4), signal.SIGSTOP)
    cell = Cell(live, "import os; y.append(3); print(os.environ['CUDA_VISIBLE_DEVICES'].count(','), x)")
    eventually(lambda: cell.shows("moving this notebook's state to h4 …"), "the word of the move")
    agents.lose("h4")
    eventually(lambda: cell.shows("It could not move to h4"), "the word of its end", 60)
    assert standing() == where
    assert not cell.over
    agents.run("h5", 2)
    reply = cell.end()
    assert reply["content"]["status"] == "ok", reply["content"]
    assert cell.out.strip() == "1 {'a': [1, 2, 3]}"
    assert said(reply)["host"] == "h5"
    assert "Waiting for 2 GPUs: moving this notebook's state to h5 …" in cell.shown
    moved_right(live, "h5", where)
    eventually(lambda: known_hosts(service) == set(standing().values()), "the scheduler's word of it")


@pytest.mark.slow
def test_the_owner_moves_a_replica_by_hand(live: Live, service: Service, agents: Agents) -> None:
    where = standing()
    live.value("%gpu status")
    agents.run("h4", 0)
    address = f"kernels/{kernel_id(service)}/migration"
    status, said_ = service.rest.call("POST", address, {"host": "h4"})
    assert (status, said_["host"]) == (202, "h4"), said_
    eventually(lambda: "h4" in standing().values() and len(standing()) == 3, "a replica on h4")
    live.value("y.append(3)")
    moved_right(live, "h4", where)
    agents.run("h5", 0)
    assert "asked to move a replica of this notebook to h5" in live.value("%replkernel migrate h5")
    eventually(lambda: "h5" in standing().values() and len(standing()) == 3, "a replica on h5")
    eventually(lambda: "One of this notebook's replicas is on h5 now." in live.terminal, "the word of it")
    assert "No replica moves: no host h9 is up." in eventually(lambda: denied(live), "the word of no host")


def denied(live: Live) -> str:
    live.value("%replkernel migrate h9")
    return live.terminal if "h9 is up" in live.terminal else ""


def kernel_id(service: Service) -> str:
    known = eventually(lambda: service.rest.get("kernels")[1]["kernels"], "word of the kernel")
    return str(known[0]["kernel_id"])


DELAYS_S = tuple(float(text) for text in os.environ.get("MOVES_KILLED_AFTER_S", "0.05 0.25").split())


@pytest.mark.parametrize("delay_s", first_of(*DELAYS_S))
def test_a_router_killed_on_the_way_leaves_a_whole_group_and_the_cell_runs_once(
    live: Live, agents: Agents, delay_s: float
) -> None:
    where = standing()
    agents.run("h4", 2)
    cell = Cell(live, "y.append(3); print(x)")
    eventually(lambda: cell.shows("moving this notebook's state to h4 …") or cell.over, "the move's begin")
    time.sleep(delay_s)
    kill_router(live)
    live.manager.restart_kernel(now=True)
    reply = cell.end()
    assert reply["content"]["status"] == "ok", reply["content"]
    assert said(reply)["host"] == "h4"
    moved_right(live, "h4", where)


@pytest.mark.slow
def test_a_router_killed_past_the_turning_point_has_the_move_completed(live: Live, agents: Agents) -> None:
    """The turn is made in the record of a router that was killed just before it: nothing else differs."""
    where = standing()
    agents.run("h4", 2)
    cell = Cell(live, "y.append(3); print(x)")
    (path,) = Path(os.environ["JUPYTER_DATA_DIR"]).glob("**/kernels/*/kernel.json")
    eventually(lambda: is_started("r4"), "the start of the new one", MOVE_S)
    kill_router(live)
    record = json.loads(path.read_bytes())
    if record.get("move"):
        eventually(lambda: replicas()["r4"].raft and len(applied()) == 1, "the new one with its state")
        path.write_text(json.dumps(record | {"move": record["move"] | {"settled": True}}))
    live.manager.restart_kernel(now=True)
    reply = cell.end()
    assert reply["content"]["status"] == "ok", reply["content"]
    assert standing().get("r4") == "h4", "the one that had the state, and no other"
    moved_right(live, "h4", where)


def is_started(name: str) -> bool:
    """Tell whether a replica has been told its group's members."""
    found = files_below(data_dir(os.environ), f"agents/*/kernels/*/*/{name}/replica.json")
    return any(json.loads(path.read_bytes())["peers"] for path in found)


def applied() -> set[int]:
    """Return how far the members have come."""
    return {replica.raft.applied if replica.raft else -1 for replica in replicas().values()}


def kill_router(live: Live) -> None:
    """Kill the router as a crash does."""
    os.kill(live.manager.provisioner.pid, signal.SIGKILL)
    eventually(lambda: live.manager.provisioner.process.poll() is not None, "the router's end")


@pytest.mark.slow
@pytest.mark.parametrize("delay_s", first_of(*DELAYS_S))
def test_a_host_killed_on_the_way_leaves_a_whole_group_and_the_cell_runs_once(
    losing: Live, agents: Agents, delay_s: float
) -> None:
    live = losing
    where = standing()
    agents.run("h4", 2)
    cell = Cell(live, "y.append(3); print(x)")
    eventually(lambda: cell.shows("moving this notebook's state to h4 …") or cell.over, "the move's begin")
    time.sleep(delay_s)
    agents.lose("h4")
    agents.run("h5", 2)
    reply = cell.end()
    if reply["content"]["status"] == "ok":
        assert said(reply)["host"] in ("h4", "h5")
        done = live.value("print(x)")
    else:
        assert reply["content"]["ename"] == "ExecutorLost"
        done = eventually(lambda: _value(live, "print(x)"), "a cell after the loss", 60)
    assert done in ("{'a': [1, 2]}", "{'a': [1, 2, 3]}")
    now = eventually(lambda: (found := standing()) and len(found) == 3 and found, "three replicas", 60)
    assert "h4" not in now.values()
    assert len(set(now.values()) & set(where.values())) >= 2
    assert live.value("y.append(99); print(y is x['a'], x['a'][-1])") == "True 99"


def _value(live: Live, code: str) -> str:
    ran = live.run(code)
    return ran.out.strip() if ran.status == "ok" else ""
