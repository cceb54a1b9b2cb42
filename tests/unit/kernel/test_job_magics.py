"""`%%job`: the cell's text is kept and submitted as a program; what a job cannot have is named before."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.error import UsageError

from replkernel.errors import ReplkernelError
from replkernel.jobs import submitting
from replkernel.jobs.submitting import Wanted
from replkernel.kernel.job_magics import VERBS, JobMagics, complete_job, names_from_outside
from replkernel.leasing.asking import NoAnswer

Submitted = tuple[str, tuple[str, ...], str, Wanted]
NOTEBOOK = {"np": None, "model": None, "data": None, "job": None, "exit": None, "__name__": "__main__"}


@pytest.fixture
def submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Submitted]:
    """Return what was handed to the scheduler; the notebook's directory is an empty one."""
    seen: list[Submitted] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(submitting, "submit", lambda *told: seen.append(told[:4]))
    return seen


def magics() -> Any:
    made: Any = JobMagics(None)
    made.shell = SimpleNamespace(user_ns=NOTEBOOK)
    return made


def test_the_cell_is_kept_line_by_line_and_runs_with_the_notebooks_python(
    submitted: list[Submitted], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    magics().job("--gpus 1,2,4 --name resnet --epochs 90", "from __future__ import annotations\nprint(1)\n")
    ((name, command, directory, wanted),) = submitted
    assert name.startswith("resnet-") and directory == str(tmp_path)
    assert wanted == Wanted((1, 2, 4), "resnet", 90.0)
    file = tmp_path / "replkernel-jobs" / name / "cell.py"
    assert command == (shutil.which("env"), f"PYTHONPATH={tmp_path}", sys.executable, str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().splitlines()[1] == "from __future__ import annotations", (
        "line 2, as in the notebook"
    )
    compile(file.read_text(), str(file), "exec")
    assert f"`%job logs -f {name}`" in capsys.readouterr().out


def test_a_cell_may_run_without_gpus_and_what_does_not_go_together_is_told(
    submitted: list[Submitted],
) -> None:
    magics().job("--cpus 4 --memory 16 --name prepare", "print(1)\n")
    ((_, _, _, wanted),) = submitted
    assert (wanted.cpus, wanted.memory_gb) == (4, 16.0)
    with pytest.raises(UsageError, match=r"%%job: .* name --gpus or --cpus, not both"):
        magics().job("--cpus 4 --gpus 1", "print(1)\n")
    with pytest.raises(UsageError, match="'4GB' is not in GiB"):
        magics().job("--cpus 4 --memory 4GB", "print(1)\n")


def test_another_program_runs_the_file(submitted: list[Submitted]) -> None:
    magics().job("--gpus 1,2 -- sh -e", "echo $HOME !\n")
    ((name, command, directory, wanted),) = submitted
    assert name.startswith("cell-") and wanted.gpus == (1, 2)
    assert command[2:] == (
        shutil.which("sh"),
        "-e",
        os.path.join(directory, "replkernel-jobs", name, "cell.py"),
    )


@pytest.mark.parametrize(
    ("line", "cell", "told"),
    [
        ("", "x = 1\n%matplotlib inline\n", "line 3 of the cell is no plain Python"),
        ("", "import asyncio\nawait asyncio.sleep(1)\n", "no plain Python"),
        ("", "import torch\ntorch.save(model, np)\n", "model, np, which this notebook alone has"),
        ("", "def f():\n    return [display(x) for x in data]\n", "data, display"),
        ("--gpus 0", "1\n", "'0' is no list of numbers"),
        ("--gpu 1", "1\n", "unrecognized arguments"),
        ("--name 'x", "1\n", "cannot be read"),
        ("-- ", "1\n", "name the program behind --"),
        ("-- sh -c 'x", "1\n", "cannot be read"),
        ("-- no-such-program", "1\n", "There is no program 'no-such-program' here"),
    ],
)
def test_a_cell_that_no_job_can_run_is_refused_by_line_and_not_submitted(
    submitted: list[Submitted], tmp_path: Path, line: str, cell: str, told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        magics().job(line, cell)
    assert not submitted and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "cell",
    [
        "import numpy as np\nprint(np.zeros(3))",
        "def model(data): return data\nmodel(1)",
        "def f():\n    global data\n    data = 1\nf(); print(data, __name__)\nexit()",
        "from replkernel import job\njob.progress(1)",
        "for model in range(3): pass\nprint(model, [data for data in 'ab'], lambda np: np)",
        "from numpy import *\nprint(model)",
    ],
)
def test_names_that_the_cell_defines_itself_are_its_own(cell: str) -> None:
    assert names_from_outside(cell, NOTEBOOK) == set()


def test_a_job_that_is_refused_leaves_no_file(
    submitted: list[Submitted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*told: object) -> None:
        raise ReplkernelError("100 jobs are there already.")

    monkeypatch.setattr(submitting, "submit", refuse)
    with pytest.raises(UsageError, match="100 jobs are there already"):
        magics().job("", "print(1)")
    assert not list((tmp_path / "replkernel-jobs").iterdir())


def test_a_directory_that_is_gone_is_named(
    submitted: list[Submitted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(UsageError, match="this notebook's working directory is gone"):
        magics().job("", "print(1)")
    assert not submitted


def test_an_interrupt_leaves_the_file_of_a_job_that_was_taken_in(
    submitted: list[Submitted],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def take_in(name: str, *told: object) -> None:
        submitted.append((name, (), "", Wanted()))
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(submitting, "submit", take_in)
    with pytest.raises(KeyboardInterrupt):
        magics().job("", "print(1)")
    ((name, *_),) = submitted
    assert f"Job {name} may have been submitted: `%job list` tells." in capsys.readouterr().out
    assert (tmp_path / "replkernel-jobs" / name / "cell.py").exists()


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (NoAnswer("it does not answer within 30 s"), True),
        (NoAnswer("its answer breaks off"), True),
        (NoAnswer("it answers 504", 504), True),
        (NoAnswer("it answers 409", 409, "100 jobs are there already."), False),
        (NoAnswer("it does not answer (Connection refused)", sent=False), False),
    ],
)
def test_a_job_whose_answer_got_lost_keeps_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: NoAnswer, kept: bool
) -> None:
    def fail(*told: object) -> bytes:
        raise error

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REPLKERNEL_SCHEDULER_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(submitting, "ask", fail)
    with pytest.raises(UsageError) as told:
        magics().job("--name lost", "print(1)")
    left = [place.name for place in (tmp_path / "replkernel-jobs").iterdir()]
    assert len(left) == kept
    assert ("may have been submitted: `replkernel job list` tells" in str(told.value)) == kept
    for name in left:
        assert name in str(told.value) and (tmp_path / "replkernel-jobs" / name / "cell.py").exists()


def test_a_directory_of_the_team_keeps_each_members_cells_apart(
    submitted: list[Submitted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "replkernel-jobs"
    theirs.mkdir()
    theirs.chmod(0o777)
    magics().job("", "print(1)")
    ((name, command, *_),) = submitted
    own = tmp_path / f"replkernel-jobs-{os.geteuid()}"
    assert command[-1] == str(own / name / "cell.py") and not list(theirs.iterdir())
    assert own.stat().st_mode & 0o777 == 0o700
    own.chmod(0o777)
    with pytest.raises(UsageError, match="remove it, or run the job in a directory of your own"):
        magics().job("", "print(2)")
    assert len(submitted) == 1


@pytest.mark.parametrize(("line", "cell"), [("", None), ("--help", None), ("--help", "print(1)")])
def test_help_tells_that_variables_stay_behind_and_asks_nobody(
    submitted: list[Submitted], line: str, cell: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    magics().job(line, cell)
    said = capsys.readouterr().out
    assert "does not see" in said and all(f"%job {verb}" in said for verb in VERBS)
    assert not submitted


def test_verbs_and_options_are_completed() -> None:
    event = SimpleNamespace(line="%job st", symbol="st")
    assert complete_job(None, event) == ["stop"]
    event = SimpleNamespace(line="%%job --g", symbol="--g")
    assert complete_job(None, event) == ["--gpus", "--gpu-model"]


def test_an_unknown_verb_is_told() -> None:
    with pytest.raises(UsageError, match="%job lst: unknown"):
        magics().job("lst")
