"""The compiled core decides as Python's does, byte for byte; `make compiled` builds what is tried here."""

from __future__ import annotations

import filecmp
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILED = ROOT / "build" / "compiled"
PACKAGE = "replkernel_scheduler"


def stale() -> str:
    """Say why there is no compiled core of these sources."""
    sources = ROOT / "scheduler" / PACKAGE
    names = [str(file.relative_to(sources)) for file in sources.rglob("*.py")]
    _, changed, missing = filecmp.cmpfiles(sources, COMPILED / PACKAGE, names, shallow=False)
    if not list((COMPILED / PACKAGE).glob("core.*.so")):
        return "the core is not compiled here: make compiled"
    return (
        f"compiled from other sources ({[*changed, *missing][0]}): make compiled"
        if changed or missing
        else ""
    )


def decisions(*paths: Path) -> tuple[str, list[str]]:
    """Return which core it was, and what it decided."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*paths, ROOT)))}
    command = [sys.executable, "-m", "tests.support.decisions"]
    lines = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()
    return lines[0], lines[1:]


@pytest.mark.skipif(bool(stale()), reason=stale())
def test_the_compiled_core_decides_the_same() -> None:
    ours, decided = decisions(ROOT / "scheduler")
    theirs, compiled = decisions(COMPILED)
    assert (ours, theirs) == ("interpreted", "compiled")
    assert len(set(decided)) == len(decided) == 28
    assert compiled == decided
