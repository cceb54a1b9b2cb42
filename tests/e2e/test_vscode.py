"""A notebook in VS Code, whose protocol is played (`support/vscode.py`): closed, opened again, restarted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
