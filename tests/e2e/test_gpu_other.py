"""Another process goes on with state on a GPU: on other GPUs than CUDA was started with, or after a loss.

All notebooks have one scheduler and one agent with two GPUs; each test has notebooks of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.gpu.fake_usage import read_usage
from tests.e2e.test_gpu_state import GPU, PRELOAD, SET, gpus_here, held, notebooks_there, pid_of
from tests.support.breadth import first_of
from tests.support.ending import lose
from tests.support.live import Live, Ran, eventually, kernel
from tests.support.needs import need
from tests.support.scheduler_service import Service
from tests.support.shared_place import _kernel_in_reach, _own_directories, place, shared_scope

__all__ = ["_kernel_in_reach", "_own_directories", "place"]

need("torch")
pytestmark = [pytest.mark.one_host, pytest.mark.timeout(300)]

OTHER = GPU[:-1] + "1"
STARTED = """%%gpu 1
import os, torch
from replkernel.gpu import fake
fake.stay()
x = fake.put(torch.arange(1000.0))
row = x[10:20]
print(os.environ["CUDA_VISIBLE_DEVICES"], x.sum().item())
"""
SEEN = """%%gpu 1
x[10] = -1
print(os.environ["CUDA_VISIBLE_DEVICES"], row[0].item(), x.sum().item(), os.getpid())
"""


def start(live: Live) -> int:
    """Start pretended CUDA on GPU 0; return the process."""
    assert live.value(STARTED) == f"{GPU} 499500.0"
    return pid_of(live)


def take_the_first(live: Live) -> None:
    """Have a notebook lead another one off GPU 0, and keep that itself."""
    live.value("%%gpu 2\nprint(1)")
    assert live.value("%%gpu 1\nimport os; print(os.environ['CUDA_VISIBLE_DEVICES'])") == GPU


def lines(ran: Ran) -> list[str]:
    """Return what was shown under a cell beside its output."""
    return [content["data"]["text/plain"] for kind, content in ran.messages if kind.endswith("display_data")]


@pytest.fixture(scope=shared_scope)
def running(place: Path) -> Iterator[Service]:
    with gpus_here(2) as service:
        yield service


@pytest.fixture
def free(running: Service) -> None:
    """Wait until nobody has a GPU: the notebooks of the test before may still end."""

    def nobody() -> bool:
        (host,) = running.rest.get("status")[1]["hosts"]
        return not any(gpu["lease"] for gpu in host["gpus"])

    eventually(nobody, "that nobody has a GPU")
    eventually(lambda: not read_usage(GPU, os.environ), "that nothing lies there")


@pytest.fixture
def notebooks(free: None, tmp_path: Path) -> Iterator[tuple[Live, Live]]:
    with notebooks_there(tmp_path) as made:
        yield made


@pytest.fixture
def replicated(free: None, tmp_path: Path) -> Iterator[Live]:
    with kernel(tmp_path, None, REPLKERNEL_REPLICAS="3", **PRELOAD) as live:
        yield live


def test_another_process_takes_over_and_the_cell_runs_there(notebooks: tuple[Live, Live]) -> None:
    one, two = notebooks
    before = start(one)
    count = one.run("late = list(range(5))").reply["content"]["execution_count"]
    take_the_first(two)
    ran = one.run(SEEN)
    assert ran.status == "ok", ran.error
    gpu, first, total, pid = ran.out.split()
    assert (gpu, first, total) == (OTHER, "-1.0", "499489.0")
    assert int(pid) != before
    assert ran.reply["content"]["execution_count"] == count + 1
    assert ran.kinds.count("execute_input") == 1
    assert ran.err == ""
    assert sum("Another process takes over" in line for line in lines(ran)) == 1
    assert ran.said["gpus"] == [OTHER]
    assert read_usage(OTHER, os.environ) == {int(pid): 4000}
    assert one.value("print(late, len(In))") == f"[0, 1, 2, 3, 4] {count + 3}"
    assert pid_of(one) == int(pid), "it stays"


@pytest.mark.slow
def test_a_value_that_cannot_travel_keeps_the_process_and_is_named(notebooks: tuple[Live, Live]) -> None:
    one, two = notebooks
    before = start(one)
    assert one.value("g = (n for n in range(9)); print(next(g))") == "0"
    take_the_first(two)
    ran = one.run(SEEN)
    assert ran.status == "error"
    assert ran.error.startswith("StateKept: ")
    assert "g (generator) lives in this process alone" in ran.error
    assert "end or delete that" in ran.error
    assert one.value("print(next(g))") == "1"
    assert pid_of(one) == before
    one.value("del g")
    assert one.value(SEEN).split()[:3] == [OTHER, "-1.0", "499489.0"]


@pytest.mark.parametrize("policy", first_of("sticky", "rotate"))
def test_replicas_on_the_same_host_take_over_in_turn(free: None, tmp_path: Path, policy: str) -> None:
    settings = {"REPLKERNEL_REPLICAS": "3", "REPLKERNEL_EXECUTOR": policy}
    with notebooks_there(tmp_path, PRELOAD, **settings) as (one, two):
        if policy == "rotate":  # Two replicas are enough to begin with.
            eventually(lambda: len({one.run("pass").replica for _ in range(3)}) == 3, "three replicas")
        start(one)
        pids = set()
        for number in range(3):
            ran = one.run(f"%%gpu 1\nfake.stay(); y = fake.put(torch.ones({number + 1})); print(os.getpid())")
            assert ran.status == "ok", ran.error
            pids.add(int(ran.out))
        assert len(pids) == (3 if policy == "rotate" else 1)
        assert read_usage(GPU, os.environ).keys() == pids
        take_the_first(two)
        assert not read_usage(GPU, os.environ), "every process has left it, not the last one alone"
        ran = one.run(SEEN)
        assert ran.status == "ok", ran.error
        assert ran.out.split()[:3] == [OTHER, "-1.0", "499489.0"]
        assert one.value("print(x.shape, y.sum().item())") == "torch.Size([1000]) 3.0"


# -- after a loss: a process without a lease uses no GPU, whatever the state is that it takes over -----------


def lose_executor(live: Live) -> int:
    """Kill the process that runs the cells; return the next one's."""
    first = pid_of(live)
    live.value("%replkernel sync")
    lose(first)
    eventually(lambda: first not in held(), "the end of the process")
    ran = live.run("n = 5; import os; print(os.getpid())")
    assert ran.status == "ok", ran.error
    assert ran.said["gpus"] == []
    assert int(ran.out) != first
    return int(ran.out)


def test_a_standby_that_takes_over_puts_nothing_on_a_gpu_before_it_has_a_lease(replicated: Live) -> None:
    live = replicated
    assert live.value(SET.format(name="x", factor=1)) == "499500.0"
    live.value("plain = torch.ones(3)")
    assert len(held()) == 1, "the standbys hold nothing"
    second = lose_executor(live)
    assert held() == {}
    assert live.value("print(plain.sum().item(), n)") == "3.0 5"
    assert held() == {}
    ran = live.run("x[10] = -1; print(row[0].item(), x.sum().item())")
    assert (ran.error, ran.out.strip()) == ("", "-1.0 499489.0")
    assert ran.said["gpus"] == [GPU]
    assert held() == {second: 4000}
    assert live.value("print(len(In), n)").endswith(" 5")


@pytest.mark.slow
def test_a_cell_that_asks_itself_finds_all_of_it(replicated: Live) -> None:
    live = replicated
    live.value(SET.format(name="x", factor=1))
    second = lose_executor(live)
    assert live.value("%%gpu 1\nprint(globals()['x'].sum().item())") == "499500.0"
    assert held() == {second: 4000}
