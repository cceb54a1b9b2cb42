"""A cell on several hosts: one process for each GPU trains by torch.distributed, and all end together.

All tests share a scheduler and the hosts' agents; each has a notebook of its own.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.test_moves import Agents, agents_of_a_module
from tests.support.breadth import first_of
from tests.support.ending import lives
from tests.support.live import Live, eventually, kernel
from tests.support.needs import need
from tests.support.scheduler_service import Service
from tests.support.shared_place import (
    _kernel_in_reach,
    _no_kernel_left,
    _own_directories,
    place,
    shared_scope,
)

__all__ = ["_kernel_in_reach", "_no_kernel_left", "_own_directories", "place"]

pytestmark = pytest.mark.timeout(240)

HOSTS = ("h1", "h2")
TRAINING = """\
%%gpu 4 --hosts 2 --back weights,losses,ranks
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
losses = []
x, y = torch.tensor(data[rank]), torch.tensor(targets[rank])
for step in range(20):
    model.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.data -= lr * parameter.grad / dist.get_world_size()
    dist.all_reduce(total := loss.detach().clone())
    losses.append(float(total))
weights = model.weight.detach().numpy().copy()
told = ("LOCAL_RANK", "CUDA_VISIBLE_DEVICES", "GLOO_SOCKET_IFNAME")
mine = [rank, *(os.environ[name] for name in told)]
ranks = [None] * dist.get_world_size()
dist.all_gather_object(ranks, mine)
print("rank", rank, "is done")
dist.destroy_process_group()
"""
MARKS = "import os, time\nopen('rank' + os.environ['RANK'], 'w').close()\n"
SETUP = """\
import random
random.seed(1)
data = [[[random.gauss(0, 1) for _ in range(4)] for _ in range(8)] for _ in range(4)]
targets = [[[sum(row)] for row in part] for part in data]
lr = 0.1
"""


@pytest.fixture(scope=shared_scope)
def shared(place: Path) -> Iterator[Agents]:
    with agents_of_a_module() as made:
        yield made


@pytest.fixture
def agents(shared: Agents) -> Agents:
    shared.run_all(HOSTS, 2)
    return shared


@pytest.fixture
def service(agents: Agents) -> Service:
    eventually(lambda: leased(agents.service) == 0, "that all GPUs are free")
    return agents.service


@pytest.fixture
def live(tmp_path: Path, service: Service) -> Iterator[Live]:
    with kernel(tmp_path, REPLKERNEL_HOSTS=",".join(HOSTS), REPLKERNEL_HOST_LOST_S="3") as running:
        assert running.value("import os; print(1)") == "1"
        yield running


def launchers() -> dict[str, psutil.Process]:
    """Return the launchers that live, by the pid of the agent that has started each."""
    return {
        str(process.ppid()): process
        for process in psutil.process_iter()
        if any("replkernel.ranks.launcher" in word for word in _words(process)) and _is_ours(process)
    }


def _words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _is_ours(process: psutil.Process) -> bool:
    try:
        return process.environ().get("JUPYTER_DATA_DIR") == os.environ["JUPYTER_DATA_DIR"]
    except psutil.Error:
        return False


def leased(service: Service) -> int:
    """Return how many GPUs are in leases."""
    hosts = service.rest.get("status")[1]["hosts"]
    return sum(gpu["lease"] is not None for host in hosts for gpu in host["gpus"])


def test_two_hosts_with_two_processes_each_train_as_one(live: Live, service: Service) -> None:
    need("torch")
    live.value(SETUP)
    ran = live.run(TRAINING, timeout=120.0)
    assert ran.status == "ok", (ran.error, ran.err)
    assert set(ran.out.splitlines()) >= {
        "rank 0 is done", "[1] rank 1 is done", "[2] rank 2 is done", "[3] rank 3 is done",
    }  # fmt: skip
    seen = eval(live.value("print([list(each) for each in ranks])"))
    assert [each[:2] for each in seen] == [[0, "0"], [1, "1"], [2, "0"], [3, "1"]]
    assert seen[0][2] == seen[1][2] != seen[2][2] == seen[3][2], "each host has the GPUs of its own lease"
    assert all(len(each[2].split(",")) == 2 for each in seen)
    assert all(each[3] for each in seen)
    losses = eval(live.value("print(losses)"))
    assert losses[-1] < 0.2 * losses[0]
    alone = live.value(
        "import torch\ntorch.manual_seed(0)\nmodel = torch.nn.Linear(4, 1)\n"
        "x, y = torch.tensor(sum(data, [])), torch.tensor(sum(targets, []))\n"
        "for step in range(20):\n    model.zero_grad()\n    ((model(x) - y) ** 2).mean().backward()\n"
        "    for parameter in model.parameters():\n        parameter.data -= lr * parameter.grad\n"
        "print(float((model.weight.detach() - torch.tensor(weights)).abs().max()) < 1e-4)"
    )
    assert alone == "True", "four processes learn what one does on all of the data"
    eventually(lambda: leased(service) == 0, "that all GPUs are back")
    eventually(lambda: not launchers(), "that nothing is left on the hosts")


@pytest.mark.slow
def test_a_failing_rank_is_named_once_and_leaves_nothing(live: Live, service: Service) -> None:
    failed = live.run(
        "%%gpu 2 --hosts 2\nimport os, time\nif os.environ['RANK'] == '1':\n    raise ValueError('no data')\n"
        "time.sleep(600)\n"
    )
    assert re.search(r"RanksFailed: Rank 1 on host h2 ended with status 1: ValueError: no data", failed.error)
    assert "[1] " in failed.err and "line 3" in failed.err
    refused = live.run("%%gpu 8 --hosts 2\nprint(1)")
    assert "No two hosts have 4 GPUs each: 2 hosts have 2 GPUs each at most." in refused.error
    refused = live.run("%%gpu 9 --hosts 3\nprint(1)")
    assert (
        "This cell wants 3 hosts, and your agents that can start its processes are on h1, h2" in refused.error
    )
    assert "cannot be shared out among 2 hosts" in live.run("%%gpu 3 --hosts 2\nprint(1)").error
    live.value("stream = (each for each in [1])")
    assert "the cell uses stream, which cannot be sent" in live.run("%%gpu 2 --hosts 2\nprint(stream)").err
    eventually(lambda: leased(service) == 0, "that all GPUs are back")


@pytest.mark.slow
def test_all_that_processes_write_comes_in_whole_lines(live: Live) -> None:
    ran = live.run(
        "%%gpu 2 --hosts 2\nfor number in range(20_000):\n    print(f'line {number}')\n"
        "print('x' * 100_000, end='')\n",
        timeout=120.0,
    )
    assert ran.status == "ok", ran.error
    lines = ran.out.splitlines()
    for prefix in ("", "[1] "):
        mine = [line.removeprefix(prefix) for line in lines if line.startswith(f"{prefix}line ")]
        assert mine == [f"line {number}" for number in range(20_000)]
    assert sum(line.count("x") for line in lines) == 200_000


def test_an_interrupt_ends_all_processes(live: Live, service: Service, tmp_path: Path) -> None:
    asked = live.client.execute(f"%%gpu 2 --hosts 2\n{MARKS}time.sleep(600)\n")
    eventually(lambda: len(list(tmp_path.glob("rank?"))) == 2, "two processes")
    live.manager.interrupt_kernel()
    assert live.reply(asked, 60)["content"]["ename"] == "KeyboardInterrupt"
    eventually(lambda: leased(service) == 0 and not launchers(), "that nothing is left")
    assert live.value("print(2)") == "2"


@pytest.mark.slow
def test_a_cell_waits_for_all_of_its_hosts_and_shows_that(
    live: Live, service: Service, tmp_path: Path
) -> None:
    wish = {"request": "other", "kernel_id": "somebody", "gpus": 1, "hosts": ["h2"], "ttl_s": 600}
    status, held = service.rest.call("POST", "leases", wish)
    assert status == 201, held
    asked = live.client.execute("%%gpu 4 --hosts 2\nprint('ran')\n")
    out = ""
    while "1 of 2 hosts" not in out:
        message = live.client.get_iopub_msg(timeout=30)
        if message["msg_type"] == "stream":
            out += message["content"]["text"]
    (waits,) = service.rest.get("status")[1]["queue"]
    assert not waits["kernel_id"].startswith("gang."), "people see the notebook that waits"
    lease = held["lease"]
    service.rest.call("DELETE", f"leases/{lease['lease']}?fence={lease['fence']}")
    told = live.reply(asked, 60)["content"]
    assert told["status"] == "ok", told


def test_a_host_that_is_killed_ends_the_cell_and_its_leases(
    live: Live, service: Service, agents: Agents, tmp_path: Path
) -> None:
    asked = live.client.execute(f"%%gpu 4 --hosts 2\n{MARKS}time.sleep(600)\n")
    eventually(lambda: len(list(tmp_path.glob("rank?"))) == 4, "four processes")
    assert leased(service) == 4
    victim = launchers()[str(agents.processes["h2"].pid)]
    ranks = [child for launcher in launchers().values() for child in launcher.children(recursive=True)]
    assert len(ranks) == 4
    os.kill(agents.processes["h2"].pid, signal.SIGKILL)
    victim.kill()
    killed_at = time.monotonic()
    reply = live.reply(asked, 60)
    print(f"the cell ended {time.monotonic() - killed_at:.2f} s after its host")
    assert reply["content"]["ename"] == "RanksFailed"
    assert "Host h2 is gone" in reply["content"]["evalue"]
    eventually(lambda: leased(service) == 0, "that all GPUs are back")
    print(f"its GPUs were back {time.monotonic() - killed_at:.2f} s after that")
    eventually(lambda: not any(map(lives, ranks)), "that no process is left, on neither host")
    assert live.value("print('goes on')") == "goes on"


@pytest.mark.slow
@pytest.mark.one_machine
@pytest.mark.parametrize("how", first_of("killed", "ended in order"))
def test_a_scheduler_that_is_restarted_loses_no_cell(
    live: Live, agents: Agents, tmp_path: Path, how: str
) -> None:
    service = agents.service
    asked = live.client.execute(
        f"%%gpu 2 --hosts 2\n{MARKS}while not os.path.exists('go'):\n    time.sleep(0.05)\n"
    )
    eventually(lambda: len(list(tmp_path.glob("rank?"))) == 2, "two processes")
    if how == "killed":
        service.kill()
    else:
        service.end()
    again = Service("--port", service.url.rpartition(":")[2])
    try:
        eventually(lambda: leased(again) == 2, "that the new scheduler knows its leases")
        (tmp_path / "go").touch()
        told = live.reply(asked, 60)["content"]
        assert told["status"] == "ok", told
        eventually(lambda: leased(again) == 0, "that all GPUs are back")
    finally:
        again.kill()
