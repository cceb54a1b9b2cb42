"""How long cells wait for their GPUs beside a job that trains in what notebooks leave, and without one.

The day of `tests/support/beside_day.py`, once as it is and once with a training by torch that has 1, 2, 4, 2,
no and 1 of the four GPUs. Samples are cells' waits; one may wait for the job as long as that takes to leave.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from replkernel_scheduler.elastic.types import SIDECAR
from replkernel_scheduler.harvest.types import JobName

from tests.bench.kernels import kernel, place
from tests.bench.lease import scheduler
from tests.bench.report import Result, quantile
from tests.support import beside_day, torch_training
from tests.support.cell_waits import Decided, Reshaped, cell_waits, reshapes
from tests.support.stock import OURS

EPOCHS = 1_000_000


def measure() -> Result:
    """Play the day without the job, then with it."""
    without, _ = _day(with_job=False)
    waits, played = _day(with_job=True)
    assert played is not None
    decided, job = played
    history = beside_day.history_of(decided, job)
    more = [beside - alone for beside, alone in zip(waits, without, strict=True)]
    leaves_s = max(history.left_in_s)
    details: dict[str, Any] = {
        "shapes": history.shapes,
        "left_in_s": history.left_in_s,
        "more_s": more,
        "more_s_p95": quantile(more, 95),
        "scheduler_s_max": max(wait.own_s for wait in cell_waits(decided)),
        "reshapes": [_beside_prediction(each) for each in reshapes(decided, job)],
        "compared": "the same cells without the job",
    }
    slack_s = beside_day.SLACK_S
    goal = f"p95 of what a cell waits more at most {slack_s} s above the {leaves_s:.2f} s that leaving took"
    return Result("jobs_beside", "s", waits, without, goal, details)


def _day(*, with_job: bool) -> tuple[list[float], tuple[list[Decided], JobName] | None]:
    settings = {"REPLKERNEL_FAKE_GPUS": str(beside_day.HOST_GPUS), "REPLKERNEL_REPLICAS": "1"}
    with place(**settings) as here:
        with scheduler(here), contextlib.ExitStack() as kernels:
            clients = {name: kernels.enter_context(kernel(OURS, here)).client for name in "abc"}
            notebooks = beside_day.Notebooks(clients)
            notebooks.begin()
            job = _submitted(here.env, here.root) if with_job else None
            waits = [played.waited_s for played in notebooks.play() if played.cell.gpus]
            if job is not None:
                command = [sys.executable, "-m", "replkernel.cli", "job", "stop", job]
                subprocess.run(command, env=here.env, check=True, stdout=subprocess.DEVNULL)
        if job is None:
            return waits, None
        path = Path(here.env["JUPYTER_DATA_DIR"]) / "replkernel" / "scheduler" / "journal.sqlite"
        return waits, (beside_day.journal_of(path), JobName(job))


def _beside_prediction(reshaped: Reshaped) -> dict[str, Any]:
    """Return a reshape: how long the job stood for it, and how long SideCar thinks that this takes."""
    before, after, stood_s = reshaped
    thought_s = None if stood_s is None else SIDECAR.up_s if after > before else SIDECAR.down_s
    return {"gpus": f"{before} to {after}", "stood_s": stood_s, "sidecar_s": thought_s}


def _submitted(env: dict[str, str], root: Path) -> str:
    work = root / "work"
    work.mkdir()
    shutil.copy(torch_training.__file__, work / "training.py")
    (work / "pace_s").write_text("0.5")
    run = [sys.executable, "-m", "replkernel.cli", "job", "run", "--gpus", "1,2,4", "--epochs", str(EPOCHS)]
    command = [*run, "--", sys.executable, "training.py", str(EPOCHS)]
    told = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, check=True).stdout
    found = re.search(r"Job (\S+) is", told)
    assert found is not None
    return found[1]
