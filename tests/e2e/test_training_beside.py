"""A training by torch beside three notebooks: it grows, shrinks, leaves, comes back, and learns."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from replkernel_scheduler.harvest.types import JobName

from tests.e2e.test_holders_gone import gpus, notebook
from tests.support import beside_day, torch_training
from tests.support.cell_waits import cell_waits
from tests.support.live import eventually
from tests.support.needs import need
from tests.support.scheduler_service import scheduler_files

need("torch")
pytestmark = [pytest.mark.timeout(600), pytest.mark.slow, pytest.mark.one_host]

EPOCHS = 1200
LOSS_TOLERANCE = 1e-3
"""Gradients of a batch that is split and averaged differ in their last bits; 1200 steps add up."""


def test_a_training_goes_through_all_shapes_and_learns_as_if_alone(
    tmp_path: Path,
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(torch_training.__file__, work / "training.py")
    (work / "pace_s").write_text("0.5")
    command = [sys.executable, "training.py", str(EPOCHS)]
    with gpus(beside_day.HOST_GPUS) as service, contextlib.ExitStack() as kernels:
        opened = {name: kernels.enter_context(notebook(tmp_path, name)).client for name in "abc"}
        notebooks = beside_day.Notebooks(opened)
        notebooks.begin()
        told = subprocess.run(
            [sys.executable, "-m", "replkernel.cli", "job", "run", "--gpus", "1,2,4", "--epochs", str(EPOCHS),
             "--", *command],
            cwd=work, capture_output=True, text=True, timeout=60, check=True,
        ).stdout  # fmt: skip
        found = re.search(r"Job (\S+) is", told)
        assert found is not None
        name = found[1]
        cells = notebooks.play()
        (work / "pace_s").write_text("0")
        over = eventually(
            lambda: job if (job := service.rest.get(f"jobs/{name}")[1])["state"] == "done" else None,
            "that it is done",
            within_s=120.0,
        )
        logs = Path(os.environ["JUPYTER_DATA_DIR"]).glob(f"replkernel/agents/*/jobs/{name}/job.log")
        said = next(logs).read_text()
        service.kill()
    assert {cell.status for cell in cells} == {"ok"}
    decided = beside_day.journal_of(scheduler_files() / "journal.sqlite")
    history = beside_day.history_of(decided, JobName(name))
    print(f"shapes {history.shapes}; it left in {[round(s, 2) for s in history.left_in_s]} s")
    print(f"cells waited {[round(cell.waited_s, 2) for cell in cells]} s; GPU-hours {over['gpu_hours']}")
    waits = cell_waits(decided)
    assert sum(wait.for_leaving_s > 0.0 for wait in waits) >= 2, "cells have had the job leave"
    assert max(wait.own_s for wait in waits) <= beside_day.SLACK_S, waits
    assert tuple(history.shapes[: len(beside_day.SHAPES)]) == beside_day.SHAPES
    decided_starts = iter(gpus for gpus in history.shapes if gpus)
    started = [int(gpus) for gpus in re.findall(r"BEGINS epoch=\d+ gpus=(\d+)", said)]
    assert all(gpus in decided_starts for gpus in started), "no start but those that were decided, in order"
    assert {1, 2, 4} == set(started), "it has trained with each number of GPUs"
    print(f"{beside_day.trained(said, EPOCHS)} epochs were trained again")
    assert "TWICE" not in said
    alone = subprocess.run(
        [*command], cwd=work, env=_without_job(), capture_output=True, text=True, timeout=240, check=True
    ).stdout
    beside, expected = losses(said), losses(alone)
    worst = max(abs(loss - expected[epoch]) for epoch, loss in beside.items())
    print(f"losses differ by {worst:.2g} at most; at the end {beside[EPOCHS - 1]} and {expected[EPOCHS - 1]}")
    assert worst <= LOSS_TOLERANCE
    assert beside[EPOCHS - 1] < 0.2 * beside[0], "it has learnt"


def losses(text: str) -> dict[int, float]:
    """Return the loss of each epoch, as it was trained last."""
    return {int(epoch): float(loss) for epoch, loss in re.findall(r"EPOCH (\d+) .* loss=([\d.]+)", text)}


def _without_job() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("REPLKERNEL_JOB")}
