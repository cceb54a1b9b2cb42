"""GPUs of notebooks that have settings, and so a scheduler and an agent, of their own."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from replkernel.cli.status import describe
from replkernel.client.inquiry import ask_agents
from replkernel.leasing.asking import Bounds, ask
from replkernel.leasing.finding import find_scheduler
from replkernel.leasing.standing import ask_scheduler, join
from tests.e2e.test_gpu_state import GPU, SET, held, pid_of, two_notebooks
from tests.support.live import AGENT_S, eventually
from tests.support.needs import need

need("torch")
pytestmark = [pytest.mark.timeout(240), pytest.mark.one_host]


def test_a_gpu_that_is_used_without_a_lease_is_seen_and_told(tmp_path: Path) -> None:
    """Where a cell without a lease sees every GPU, nothing stops it: the agent sees it."""
    with two_notebooks(tmp_path) as (one, two):
        two.value("%%gpu 1\nprint(1)")  # There is a scheduler.
        one.value("%gpu status")
        taken = f"import os; os.environ['CUDA_VISIBLE_DEVICES'] = {GPU!r}\n"
        pid = pid_of(one)
        one.value(taken + "import torch\nfrom replkernel.gpu.fake import put\nx = put(torch.ones(1000))")
        eventually(lambda: "without a lease" in one.run("pass").err, "the word that it has no lease")
        document = join(ask_agents(os.environ, AGENT_S), *ask_scheduler(os.environ))
        gpu = document.hosts[0].gpus[0]
        assert [(each.pid, each.memory_bytes, each.unleased) for each in gpu.processes] == [(pid, 4000, True)]
        assert any(f"without a lease: process {pid}" in line for line in describe(document))
        url, token = find_scheduler(os.environ)
        bounds = Bounds(silent_s=5.0, within_s=10.0, bytes_max=10**6)
        seen = msgspec.json.decode(ask(url, token, "/api/v1/status", bounds))
        assert seen["hosts"][0]["gpus"][0]["unleased"] == 1


@pytest.mark.slow
def test_state_that_nobody_wants_leaves_after_its_time_and_is_back_when_needed(tmp_path: Path) -> None:
    with two_notebooks(tmp_path, REPLKERNEL_GPU_LINGER_S="0.2") as (one, _):
        pid = pid_of(one)
        assert one.value(SET.format(name="x", factor=1)) == "499500.0"
        eventually(lambda: not held(), "the GPU without it")
        ran = one.run("print(row.sum().item())")
        assert (ran.error, ran.out.strip()) == ("", "145.0")
        assert ran.said["resumed_bytes"] == ran.said["gpu_bytes"] == 4000
        assert pid_of(one) == pid
