"""A job and a notebook on one machine: cells have its GPUs within seconds, and its loss is as if alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_holders_gone import gpus, history, notebook
from tests.support import training
from tests.support.live import eventually

pytestmark = [pytest.mark.timeout(240), pytest.mark.one_host]

EPOCHS = 80


def written(name: str) -> str:
    """Return what a job has written so far."""
    logs = Path(os.environ["JUPYTER_DATA_DIR"]).glob(f"replkernel/agents/*/jobs/{name}/job.log")
    return next(logs).read_text()


def submitted(work: Path, *command: str) -> str:
    """Submit a job that trains on one GPU or two; return its name."""
    told = subprocess.run(
        [sys.executable, "-m", "replkernel.cli", "job", "run", "--gpus", "1,2", "--", *command],
        cwd=work, capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    found = re.search(r"Job (\S+) is", told)
    assert found is not None
    return found[1]


def test_cells_have_a_jobs_gpus_and_its_loss_is_that_of_a_training_alone(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(training.__file__, work / "training.py")
    command = [sys.executable, "training.py", str(EPOCHS)]
    with gpus(2) as service:
        with notebook(tmp_path, "a") as one, notebook(tmp_path, "b") as two:
            name = submitted(work, *command, "0.4")

            def job() -> dict[str, object]:
                return service.rest.get(f"jobs/{name}")[1]  # type: ignore[no-any-return]

            eventually(lambda: job()["state"] == "running" and job()["epoch"], "that it trains")
            first = one.run("%%gpu 1\nimport os\nprint(os.environ['CUDA_VISIBLE_DEVICES'])")
            assert first.status == "ok", first.error
            eventually(lambda: "gpus=1 " in written(name), "that it goes on with the other one")
            both = two.run("%%gpu 2\nprint('both')")
            assert both.status == "ok", both.error
        print(f"cells waited {first.said['queued_s']:.2f} s and {both.said['queued_s']:.2f} s")
        eventually(lambda: job()["state"] == "done", "that it is done", within_s=120.0)
        said = written(name)
        service.kill()
    shapes = [int(gpus) for gpus in re.findall(r"BEGINS epoch=\d+ gpus=(\d+)", said)]
    assert shapes[:2] == [2, 1] and len(shapes) >= 3, "it shrank, paused and came back"
    assert "TWICE" not in said
    shutil.copy(training.__file__, tmp_path / "a" / "training.py")
    alone = subprocess.run([*command, "0"], cwd=tmp_path / "a", capture_output=True, text=True, check=True)
    assert said.strip().splitlines()[-1] == alone.stdout.strip().splitlines()[-1]
    assert history().leases > 0
