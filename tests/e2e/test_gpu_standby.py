"""A process without a lease uses no GPU, whatever the state is that it takes over."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_gpu_state import GPU, SET, held, pid_of, two_notebooks
from tests.support.live import Live, eventually
from tests.support.needs import need

need("torch")
pytestmark = [pytest.mark.timeout(240), pytest.mark.one_host]

SETTLE_S = 2.0


@pytest.fixture
def replicated(tmp_path: Path) -> Iterator[Live]:
    with two_notebooks(tmp_path, REPLKERNEL_REPLICAS="3") as (one, _):
        yield one


def lose_executor(live: Live) -> int:
    """Kill the process that runs the cells; return the next one's."""
    first = pid_of(live)
    time.sleep(SETTLE_S)
    os.kill(first, signal.SIGKILL)
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
