"""A test whose process died has failed once; what else that process was to run is run by another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

DIES = """
import os
from ran import note
def test_before(): note("before")
def test_dies(): note("dies"); os._exit(1)
def test_after(): note("after")
"""
OTHER = """
from ran import note
def test_other(): note("other")
"""
RAN = """
import pathlib
def note(name):
    with (pathlib.Path(__file__).parent / "noted").open("a") as file:
        file.write(name + "\\n")
"""


def test_a_test_that_ends_its_process_fails_once_and_the_run_ends(tmp_path: Path) -> None:
    (tmp_path / "ran.py").write_text(RAN)
    (tmp_path / "test_dies.py").write_text(DIES)
    (tmp_path / "test_other.py").write_text(OTHER)
    beside = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "-p", "tests.support.once"]
    quick = [
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",
        "-p",
        "no:asyncio",
        "-q",
        "-c",
        "/dev/null",
    ]
    command = [sys.executable, "-m", "pytest", *beside, *quick, f"--rootdir={tmp_path}", str(tmp_path)]
    path = f"{ROOT}:{tmp_path}"
    ended = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "1 failed, 3 passed" in ended.stdout
    assert sorted((tmp_path / "noted").read_text().split()) == ["after", "before", "dies", "other"]
