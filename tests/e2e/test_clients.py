"""The Jupyter clients that people use run a notebook on the replicated kernel as on any other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pexpect
import pytest

from tests.support.stock import OURS

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    """Return a small notebook whose second cell needs the first."""
    cells = [
        nbformat.v4.new_code_cell("greeting = 'hello'", metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell("print(greeting, 6 * 7)"),
    ]
    spec = {"kernelspec": {"name": OURS, "display_name": "Python 3 (replicated)", "language": "python"}}
    path = tmp_path / "small.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=spec), path)
    return path


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def printed(path: Path) -> str:
    last = nbformat.read(path, as_version=4).cells[-1]
    return "".join(output.text for output in last.outputs if output.output_type == "stream")


@pytest.mark.slow
def test_jupyter_execute(notebook: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "jupyter", "execute", "--inplace", str(notebook), cwd=tmp_path)
    assert printed(notebook) == "hello 42\n"


@pytest.mark.slow
def test_papermill_with_a_parameter(notebook: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.ipynb"
    program = [sys.executable, "-m", "papermill", "--no-progress-bar"]
    run(*program, str(notebook), str(out), "-p", "greeting", "good day", cwd=tmp_path)
    assert printed(out) == "good day 42\n"


def test_nbconvert_executes(notebook: Path, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "jupyter", "nbconvert", "--execute", "--to", "notebook"]
    run(*program, "--output", "converted", str(notebook), cwd=tmp_path)
    assert printed(tmp_path / "converted.ipynb") == "hello 42\n"


def test_jupyter_console_in_a_terminal() -> None:
    program = ["-m", "jupyter", "console", "--kernel", OURS, "--simple-prompt"]
    environment = os.environ | {"TERM": "dumb", "NO_COLOR": "1"}
    console = pexpect.spawn(sys.executable, program, env=environment, encoding="utf-8", timeout=90)
    try:
        console.expect(r"In \[1\]: ")
        console.sendline("value = 6 * 7")
        console.expect(r"In \[2\]: ")
        console.sendline("value + 1")
        console.expect(r"43")
        console.expect(r"In \[3\]: ")
        console.sendline("exit()")
        console.expect(pexpect.EOF)
    finally:
        console.close(force=True)
    assert console.exitstatus == 0
