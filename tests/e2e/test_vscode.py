"""A notebook in VS Code, whose protocol is played (`support/vscode.py`): closed, opened again, restarted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.vscode import VsCode


@pytest.fixture
def argv(tmp_path: Path) -> list[str]:
    prefix = tmp_path / "prefix"
    install = [sys.executable, "-m", "replkernel.cli", "install", "--prefix", str(prefix)]
    subprocess.run(install, check=True, capture_output=True)
    spec = json.loads((prefix / "share/jupyter/kernels/replkernel/kernel.json").read_text())
    assert spec["argv"][0] == sys.executable
    return list(spec["argv"])


def notebook(directory: Path, name: str) -> Path:
    path = directory / name
    path.write_text("{}")
    return path


def test_a_closed_notebook_finds_its_variables_again_and_leaves_the_others_alone(
    argv: list[str], tmp_path: Path
) -> None:
    first, second = notebook(tmp_path, "first.ipynb"), notebook(tmp_path, "second.ipynb")
    one, other = VsCode(first, argv), VsCode(second, argv)
    try:
        one.run("kept = list(range(3))")
        other.run("stays = (number for number in range(9)); next(stays)")
        one.close()
        assert other.run("print(next(stays))") == "1"
        one = VsCode(first, argv)
        assert one.run("print(kept)") == "[0, 1, 2]"
        assert one.interrupted("print('begun'); import time; time.sleep(60)") == "KeyboardInterrupt"
        assert one.run("print(len(kept))") == "3"
        one.run("%replkernel fresh")
    finally:
        one.close()
        other.close()
    one = VsCode(first, argv)
    try:
        assert "NameError" in one.run("kept")
    finally:
        one.close()


@pytest.mark.slow
def test_a_restart_empties_a_notebook(argv: list[str], tmp_path: Path) -> None:
    path = notebook(tmp_path, "restarted.ipynb")
    one = VsCode(path, argv, window=False)
    one.run("kept = 1")
    one.close()
    one = VsCode(path, argv, window=False)
    try:
        assert "NameError" in one.run("kept")
    finally:
        one.close()


class Follower:
    """Reads `replkernel follow`, as the extension for VS Code does."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "replkernel.cli", "follow", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._kernel: dict[str, Any] = {}
        """What was told of the kernel last: a line in which it is null leaves it as it was."""

    def hear(self) -> dict[str, Any]:
        """Return the next line."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "it ended without a word of what is waited for"
        told: dict[str, Any] = json.loads(line)
        self._kernel = told.get("kernel") or self._kernel
        return told

    def durable(self, cell: str, status: str) -> dict[str, Any]:
        """Return the run of a cell that ended so, once it is durable."""
        while True:
            for run in self.hear().get("executions", ()):
                if (run["cell_id"], run["safety"], run["status"]) == (cell, "durable", status):
                    return dict(run)

    def roles(self) -> set[str]:
        """Return the roles of three replicas, once none of them is still to start."""
        while True:
            roles = [str(replica["role"]) for replica in self._kernel.get("replicas", ())]
            if len(roles) == 3 and "starting" not in roles:
                return set(roles)
            self.hear()

    def leave(self) -> int:
        """Go, and return how it ended."""
        _, _ = self._process.communicate(timeout=20)
        return self._process.returncode


def test_an_editor_is_told_of_the_cells_gpus_and_replicas_of_its_notebook(
    argv: list[str], tmp_path: Path
) -> None:
    path = notebook(tmp_path, "followed.ipynb")
    cell = f"vscode-notebook-cell:{'/a-long-way' * 30}/followed.ipynb#W0sZmlsZQ%3D%3D"
    follower = Follower(path)
    try:
        assert follower.hear()["state"] == "none"
        one = VsCode(path, argv)
        try:
            one.cell("x = 41", {"cellId": cell})
            assert follower.durable(cell, "ok")["state"] == "done"
            one.cell("x / 0", {"cellId": cell})
            assert follower.durable(cell, "error")["ename"] == "ZeroDivisionError"
            assert follower.roles() == {"executor", "standby"}
        finally:
            one.close()
    finally:
        assert follower.leave() == 0
