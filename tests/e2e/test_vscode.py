"""A notebook in VS Code, whose protocol is played (`support/vscode.py`): closed, opened again, restarted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
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

    def until(self, seen: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first line that is what is waited for."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told: dict[str, Any] = json.loads(line)
            if seen(told):
                return told
        raise AssertionError("it ended without a word of that")

    def execution(self, cell: str, safety: str) -> dict[str, Any]:
        """Return the run of a cell, once it is so safe."""

        def runs(told: dict[str, Any]) -> list[dict[str, Any]]:
            found = told.get("executions", ())
            return [run for run in found if run["cell_id"] == cell and run["safety"] == safety]

        return runs(self.until(lambda told: bool(runs(told))))[-1]

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
        assert follower.until(lambda told: True)["state"] == "none"
        one = VsCode(path, argv)
        try:
            one.cell("x = 41", {"cellId": cell})
            run = follower.execution(cell, "durable")
            assert (run["state"], run["status"]) == ("done", "ok")
            one.cell("x / 0", {"cellId": cell})
            assert follower.execution(cell, "durable")["ename"] == "ZeroDivisionError"
            told = follower.until(lambda told: len((told.get("kernel") or {}).get("replicas", ())) == 3)
            assert {"executor", "standby"} == {replica["role"] for replica in told["kernel"]["replicas"]}
        finally:
            one.close()
    finally:
        assert follower.leave() == 0
