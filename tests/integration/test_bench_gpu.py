"""The one command that measures a GPU runs through, with host memory that poses as one."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.bench.gpu.__main__ import NO_TIME, README, judged, keep, measure, put_into, table
from tests.bench.gpu.one_row import Plan, plan
from tests.bench.gpu.rows import Row
from tests.support.needs import need
from tests.support.stub_drivers import Stubs

need("torch")
pytestmark = pytest.mark.timeout(240)

SHORT = ["first-kernel", "training", "pressure", "children", "first-use-process"]
"""One of each kind: `training` leaves the GPU and comes back as `by-torch` and `by-driver` do."""
NEW = datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC)
TOLD = """<testsuites><testsuite>
<testcase name="test_one"/>
<testcase name="test_two"><skipped message="the driver cannot: too old"/></testcase>
<testcase name="test_cupy"><skipped message="could not import 'cupy': No module named 'cupy'"/></testcase>
<testcase name="test_three"><failure message="assert 1 == 2"/></testcase>
</testsuite></testsuites>"""


def pretended(*arguments: str) -> list[str]:
    """Run it with a pretended GPU; return its rows. It keeps no figure."""
    before = README.read_text()
    ran = subprocess.run(
        [sys.executable, "-m", "tests.bench.gpu", "--pretend", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "PRETENDED GPU" in ran.stdout
    assert README.read_text() == before
    rows = [line for line in ran.stdout.splitlines() if line.startswith("| ")]
    assert [row for row in rows if "NOT AS WANTED" in row or NO_TIME in row] == []
    return rows[2:]


def test_a_short_form_runs_to_its_end_with_a_pretended_gpu_and_keeps_no_figure(stubs: Stubs) -> None:
    rows = pretended("--rows", *SHORT)
    assert len(rows) == len(SHORT)
    assert any("| bit for bit | identical |" in row for row in rows)
    for seen in ("have to go back to GPU-", "the child goes on", "by the library before `cuInit`"):
        assert any(seen in row for row in rows), seen


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_all_of_it_runs_with_a_pretended_gpu(stubs: Stubs) -> None:
    rows = pretended()
    assert len(rows) == len(plan(1, short=True)) + 1, "the captures are two rows"


def test_a_test_that_is_left_out_on_a_gpu_is_a_failure() -> None:
    assert judged(TOLD) == [
        "test_two was left out: the driver cannot: too old",
        "test_three failed: assert 1 == 2",
    ]
    assert judged("<testsuites/>") == ["No test ran."]


def test_figures_are_kept_row_by_row_while_more_are_measured(tmp_path: Path) -> None:
    into = tmp_path / "gpu" / "now.json"
    keep(into, "H100, driver 580", NEW, [Row("one", "", "2 s")], ["test_two was left out"])
    said = json.loads(into.read_text())
    assert (said["device"], said["when"]) == ("H100, driver 580", "2026-01-02T03:04:00+00:00")
    assert (said["rows"], said["tests"]) == (
        [{"what": "one", "goal": "", "figure": "2 s"}],
        ["test_two was left out"],
    )


def test_a_row_whose_process_ends_or_takes_too_long_is_told_and_takes_no_other_along() -> None:
    env = dict(os.environ)
    ended = measure(Plan("no-such-row", 1, 60), env, time.monotonic() + 60, pretend=True)
    assert "FAILED: its process ended with 1: There is no row no-such-row." in ended[0].figure
    late = measure(Plan("training", 1, 0.01), env, time.monotonic() + 60, pretend=True)
    assert late[0].figure.startswith("FAILED: it took longer than 0 s")
    assert measure(Plan("training", 1, 60), env, time.monotonic(), pretend=True)[0].figure == NO_TIME


def test_with_a_python_that_is_given_nothing_is_installed() -> None:
    ran = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "gpu", "PYTHON=/ready/python"],
        cwd=README.parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["/ready/python", "-m", "tests.bench.gpu"]


def test_the_table_takes_its_place_and_the_rest_of_the_file_stays() -> None:
    text = README.read_text()
    made = put_into(text, table([Row("a", "b", "c")], "H100", NEW.date()))
    assert "H100; 2 Jan 2026" in made and "| a | b | c |" in made
    assert made.partition("<!-- measured")[0] == text.partition("<!-- measured")[0]


def test_without_a_gpu_it_says_so_and_writes_nothing() -> None:
    before = README.read_text()
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    ran = subprocess.run(
        [sys.executable, "-m", "tests.bench.gpu"], env=hidden, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, README.read_text()) == (2, before)
    assert "There is no GPU" in ran.stdout


def test_a_file_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="has no lines"):
        put_into("# Other\n", "table")
