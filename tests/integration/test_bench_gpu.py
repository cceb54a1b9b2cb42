"""The one command that measures a GPU runs through, with host memory that poses as one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.gpu.__main__ import README, put_into

pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(240)

WHAT = [
    "first kernel",
    "loss curve",
    "off and back, by torch",
    "capture of an unchanged model",
    "one changed layer",
    "NotebookOS's way",
    "off and back, by the driver",
]


def test_all_of_it_runs_with_a_pretended_gpu_and_writes_its_table(tmp_path: Path) -> None:
    into = tmp_path / "README.md"
    into.write_text(put_into(README.read_text(), "nothing"))
    ran = subprocess.run(
        [sys.executable, "-m", "tests.bench.gpu", "--pretend", "--into", str(into)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    written = into.read_text()
    rows = [line for line in written.splitlines() if line in ran.stdout and line.startswith("| ")]
    assert [name for name in WHAT if not any(name in row for row in rows)] == []
    assert "| bit for bit | identical |" in written
    assert "NOT AS WANTED" not in written
    assert written.startswith(README.read_text().partition("<!-- measured")[0]), "the rest stays"


def test_without_a_gpu_it_says_so_and_writes_nothing() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    before = README.read_text()
    ran = subprocess.run(
        [sys.executable, "-m", "tests.bench.gpu"], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, README.read_text()) == (2, before)
    assert "There is no GPU" in ran.stdout


def test_a_file_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="has no lines"):
        put_into("# Other\n", "table")
