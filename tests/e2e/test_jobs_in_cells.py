"""`%%job` in a notebook: the cell returns at once, its text runs as a job, also after a move.

All tests share a scheduler and the hosts' agents; each has a notebook of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replkernel.agent.io.lookup import agent_dir
from replkernel.agent.io.measuring import kept_in
from replkernel.leasing.wire import USE_S
from tests.e2e.test_moves import Agents, agents_of_a_module
from tests.support.group import standing
from tests.support.live import Live, eventually, kernel
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

HOSTS = ("h1", "h2", "h3")
TRAINING = """\
%%job --gpus 1,2 --epochs 2 --name {name}
import os
from replkernel import job
import beside_the_notebook
for epoch in range(2):
    job.progress(epoch + 1, 0.5)
print("trained", beside_the_notebook.WORD, job.gpus, os.getcwd())
"""

SPINS = f"""
import subprocess, sys
command = [sys.executable, "-IS", "-c", "import time\\nwhile time.process_time() < {0.2 * USE_S}: pass"]
[each.wait() for each in [subprocess.Popen(command) for _ in range(4)]]
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
    return agents.service


@pytest.fixture
def live(tmp_path: Path, agents: Agents) -> Iterator[Live]:
    (tmp_path / "beside_the_notebook.py").write_text("WORD = 'well'\n")
    with kernel(tmp_path, REPLKERNEL_HOSTS=",".join(HOSTS), REPLKERNEL_HOST_LOST_S="3") as running:
        assert running.value("model = [1]; print(model)") == "[1]"
        eventually(lambda: set(standing().values()) == set(HOSTS), "three replicas")
        yield running


def submitted(live: Live, name: str) -> str:
    told = live.value(TRAINING.format(name=name))
    found = re.search(r"Job (\S+) is submitted", told)
    assert found is not None and found[1].startswith(f"{name}-"), told
    return found[1]


def done(service: Service, name: str) -> dict[str, Any]:
    def over() -> dict[str, Any] | None:
        told: dict[str, Any] = service.rest.get(f"jobs/{name}")[1] or {}
        return told if told.get("state") in ("done", "failed", "stopped") else None

    return eventually(over, f"the end of {name}", within_s=60.0)


def test_a_cell_is_a_job_also_where_another_host_runs_the_notebook(
    live: Live, service: Service, tmp_path: Path
) -> None:
    refused = live.run("%%job\nprint(model)")
    assert "model, which this notebook alone has" in refused.error + refused.err
    first = submitted(live, "first")
    told = done(service, first)
    assert told["state"] == "done", told
    assert live.value(f"%job logs {first}") == f"trained well 2 {tmp_path}"
    assert first in live.value("%job list")
    at = live.run("print('where')").said["host"]
    assert "ExecutorLost" in live.run("import os; os.kill(os.getpid(), 9)").error
    moved = live.run("print(model)")
    assert moved.out == "[1]\n" and moved.said["host"] != at
    second = submitted(live, "second")
    told = done(service, second)
    assert told["state"] == "done", told
    assert live.value(f"%job logs {second}") == f"trained well 2 {tmp_path}"


def test_a_cell_is_a_job_on_cores_and_agents_keep_when_the_notebook_computed(
    live: Live, service: Service, agents: Agents
) -> None:
    said = "import os\nfrom replkernel import job\nprint(job.cpus, job.gpus, os.nice(0))"
    told = live.value(f"%%job --cpus 1 --memory 0.5 --name cores\n{said}")
    (name,) = re.findall(r"Job (cores-\S+) is submitted", told)
    over = done(service, name)
    assert (over["state"], over["cpus"], over["gpus"]) == ("done", 1, []), over
    assert live.value(f"%job logs {name}") == "1 0 19"
    # An agent looks every USE_S. One of its looks finds more than a fifth computed, wherever they fall: four
    # processes together compute as much also where many others want the cores.
    a_look_later = f"time.sleep({USE_S + 2})\n"
    at = live.run("import time\n" + a_look_later + SPINS + a_look_later).said["host"]
    agents.end()
    kept = kept_in(agent_dir(at, os.environ))
    phases_s = [one.record.phases_s for one in kept.living]
    assert any(sum(each[1::2]) >= USE_S for each in phases_s), phases_s
