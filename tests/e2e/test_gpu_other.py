"""A lease on other GPUs than CUDA was started with: another process takes over, and the cell runs there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.gpu.fake_usage import read_usage
from tests.e2e.test_gpu_state import GPU, pid_of, two_notebooks
from tests.support.breadth import first_of
from tests.support.live import Live, Ran
from tests.support.needs import need

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


@pytest.fixture
def notebooks(tmp_path: Path) -> Iterator[tuple[Live, Live]]:
    with two_notebooks(tmp_path, gpus=2) as made:
        yield made


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
def test_replicas_on_the_same_host_take_over_in_turn(tmp_path: Path, policy: str) -> None:
    settings = {"REPLKERNEL_REPLICAS": "3", "REPLKERNEL_EXECUTOR": policy}
    with two_notebooks(tmp_path, gpus=2, **settings) as (one, two):
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
