"""A cell that holds GPUs and does not use them is told so under itself, and interrupted if that is set."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.test_moves import Agents
from tests.support.live import kernel
from tests.support.scheduler_service import serving

pytestmark = [pytest.mark.timeout(180), pytest.mark.one_machine]


def test_a_cell_that_leaves_its_gpu_idle_is_told_and_then_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_IDLE_GPUS", "below=5 minutes=0.1 interrupt=0.05")
    with serving() as service:
        agents = Agents(service)
        agents.run("h1", 2)
        with kernel(tmp_path, REPLKERNEL_HOSTS="h1", REPLKERNEL_REPLICAS="1") as live:
            ran = live.run("%%gpu 2\nimport time\ntime.sleep(600)", timeout=90.0)
            assert "The 2 GPUs of this cell have computed 0 % of the last" in ran.err
            assert "If that goes on, the cell is interrupted in 3 s." in ran.err
            assert "so the cell is interrupted: your administrator has set that for idle GPUs." in ran.err
            assert ran.error.startswith("KeyboardInterrupt")
            assert live.value("print('goes on')") == "goes on"
        agents.end()
