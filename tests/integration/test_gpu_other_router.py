"""A router that is killed while another process takes over for a cell: the cell runs, and runs once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_router_leases import Leased
from tests.support.breadth import first_of
from tests.support.fake_scheduler import FakeScheduler
from tests.support.needs import need

need("torch")
pytestmark = pytest.mark.timeout(180)

HOST = "GPU-fake-h"
STARTED = """import os, torch
from replkernel.gpu import fake
fake.stay()
x = fake.put(torch.arange(10.0))
print(os.environ["CUDA_VISIBLE_DEVICES"])
"""
COUNTED = """with open({path!r}, "a") as file: file.write("x")
x[0] = 100
print(os.environ["CUDA_VISIBLE_DEVICES"], x.sum().item())
"""


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Leased]:
    scheduler = FakeScheduler({HOST: 2})
    made = Leased(tmp_path, scheduler, [HOST])
    yield made
    made.kernel.close()
    scheduler.stop()


def shown(one: Leased, cell: str) -> Callable[[], Any]:
    return lambda: [line for line in one.shows(cell) if "takes over" in line]


@pytest.mark.parametrize("wait_s", first_of(0.1, 0.0, 0.02, 0.5))
def test_a_router_that_is_killed_meanwhile_runs_nothing_twice(
    one: Leased, tmp_path: Path, wait_s: float
) -> None:
    assert one.run(STARTED, gpus=1)[0] == f"{HOST}-0"
    one.scheduler.end(next(iter(one.scheduler.leases)), "expired")
    one.scheduler.occupy(HOST, 1)
    path = tmp_path / "ran"
    cell = one.send(COUNTED.format(path=str(path)), gpus=1)
    one.client.wait(shown(one, cell), "the line of the cell")
    time.sleep(wait_s)
    one.kernel.kill()
    one.kernel.start()
    content = one.client.finish(cell)
    assert content["status"] == "ok", content
    assert content["execution_count"] == 2
    said = one.client.texts(cell).splitlines()
    printed = [line for line in said if not line.startswith("replkernel: ")]  # A line on what it waits for.
    assert printed == [f"{HOST}-1 145.0"]
    assert path.read_text() == "x"
    assert one.run("print(x[0].item())", gpus=1)[0] == "100.0"
