"""Jobs by torchrun on one host: a process for each GPU; two at once; they leave together and come back."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.test_holders_gone import gpus, notebook
from tests.support import rank_training
from tests.support.beside_day import trained
from tests.support.live import eventually
from tests.support.needs import need

need("torch")
TORCHRUN = Path(sys.executable).with_name("torchrun")
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.slow,
    pytest.mark.one_host,
    pytest.mark.skipif(not TORCHRUN.exists(), reason="torchrun is not installed beside this Python"),
]

EPOCHS = 150
TOLERANCE = 1e-4


def written(name: str) -> str:
    """Return what a job has written so far."""
    logs = list(Path(os.environ["JUPYTER_DATA_DIR"]).glob(f"replkernel/agents/*/jobs/{name}/job.log"))
    return logs[0].read_text() if logs else ""


def submitted(work: Path, *words: str) -> str:
    training = [str(TORCHRUN), "training.py", str(EPOCHS), "0.1"]
    told = subprocess.run(
        [sys.executable, "-m", "replkernel.cli", "job", "run", *words, "--", *training],
        cwd=work, capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    found = re.search(r"Job (\S+) is", told)
    assert found is not None
    return found[1]


def test_two_jobs_by_torchrun_leave_for_a_cell_and_come_back(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(rank_training.__file__, work / "training.py")
    with gpus(3) as service, notebook(tmp_path, "a") as live:
        names = [submitted(work, "--gpus", "2", "--name", "wide"), submitted(work, "--name", "narrow")]
        for name in names:
            eventually(lambda name=name: "EPOCH 3\n" in written(name), f"that {name} trains", within_s=90.0)
        ran = live.run("%%gpu 3\nprint('all three')")
        assert ran.out == "all three\n", ran.error
        print(f"the cell waited {ran.said['queued_s']:.2f} s")
        live.value("%gpu release")  # Else they are this notebook's for two minutes more.
        for name in names:
            eventually(
                lambda name=name: service.rest.get(f"jobs/{name}")[1]["state"] == "done", name, within_s=120.0
            )
        said = [written(name) for name in names]
        service.kill()
    for text, ranks in zip(said, (2, 1), strict=True):
        starts = re.findall(r"BEGINS epoch=(\d+) ranks=(\d+) gpus=(\S+)", text)
        assert [int(seen) for _, seen, _ in starts] == [ranks, ranks]
        assert all(len(visible.split(",")) == ranks for _, _, visible in starts)
        assert int(starts[1][0]) >= 4, "it went on from its checkpoint"
        trained(text, EPOCHS)
    losses = [float(re.findall(r"LOSS ([\d.]+)", text)[0]) for text in said]
    assert abs(losses[0] - losses[1]) < TOLERANCE, "two ranks learn what one does"
