"""`make nightly`: what repeats for breadth: examples, slow tests, the compiled core, further Pythons.

A release that this machine does not have is named, and is no failure. Every step runs, whatever came before.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.12", "3.13")
FAST = "not slow and not ui"
UNIT = "tests/unit"
OTHERS = ("tests/golden", "tests/integration", "tests/security", "tests/fuzz", "tests/e2e")
STATE = "classes or containers or functions or identities or iterators or names or exceptions"
"""The sequences that need no library."""
CONTRACTS = tuple(
    f"tests/integration/test_{name}.py" for name in ("store_memory", "store_file", "raft_contract")
)
"""What implements an interface and needs no server of its own."""

UNRAISABLE = "pytest.PytestUnraisableExceptionWarning"
"""Python 3.13 says more of what is let go of while it is open: which tests close theirs is 3.11's to say."""

COMPILED = ". build/compiled server_ext tests/support/lighter"
"""Where tests import from when the scheduler's core is the compiled one."""
SUBCLASSING = ("backfill", "harvest", "money", "simulated_parts", "simulation")
"""Tests that subclass the core, which is not possible of the compiled one."""
ALIKE = (
    "tests/integration/test_compiled_core.py",
    "tests/unit/scheduler",
    *(f"--ignore=tests/unit/scheduler/test_{name}.py" for name in SUBCLASSING),
)
PACKAGES = (
    "grimp", "hypothesis", "ipywidgets", "jupyterhub", "jupyterlab", "matplotlib", "mcp", "nbclient",
    "nbconvert", "numpy", "pandas", "pexpect", "polars", "pyarrow", "pydantic", "pytest>=9", "pytest-asyncio",
    "pytest-timeout", "pytest-xdist", "redis", "s3fs", "scikit-learn", "scipy", "seaborn", "xarray",
)  # fmt: skip
"""What the tests need on another Python: all of `dev` but torch, whose tests are skipped, and the linters."""


class Step(NamedTuple):
    """One command, mostly a run of pytest."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]


def steps(python: str, others: Mapping[str, str], processes: int) -> Iterator[Step]:
    """Yield the runs: `python` has everything, `others` are further releases by their numbers."""
    beside = ("-n", str(processes), "--dist", "loadfile", "--no-loadscope-reorder") if processes > 1 else ()
    test = ("-m", "pytest", *beside)
    everything = {"EXAMPLES": "all"}
    yield Step("all examples", (python, *test, UNIT, "-m", "not ui"), everything)
    yield Step("slow", (python, "-m", "pytest", *OTHERS, "-m", "slow and not ui"), everything)
    yield Step("browser, slow", (python, "-m", "pytest", "tests/ui", "-m", "slow"), {})
    shuffled = ("-m", "pytest", "-p", "tests.support.shuffled", UNIT, "-m", FAST)
    for order in ("reversed", str(date.today().toordinal())):
        yield Step(f"order {order}", (python, *shuffled), {"ORDER": order})
    others_shuffled = (*test, "-p", "tests.support.shuffled", *OTHERS, "-m", FAST)
    yield Step("order reversed, others", (python, *others_shuffled), {"ORDER": "reversed"})
    yield Step("compiled core, built", (python, "scheduler/compiled.py", "build/compiled"), {})
    yield Step("compiled core", (python, *test, *ALIKE, "-o", f"pythonpath={COMPILED}", "-m", FAST), {})
    for release, other in others.items():
        quick = (UNIT, *CONTRACTS, "tests/golden", "-m", FAST, "-W", f"ignore::{UNRAISABLE}")
        yield Step(f"Python {release}", (other, *test, *quick), {})
        sequences = ("tests/e2e/state/test_sequences.py", "-k", STATE)
        yield Step(f"Python {release}, state", (other, "-m", "pytest", *sequences, "-m", FAST), {})


def find(release: str) -> str | None:
    """Return the interpreter of a release that runs: on the path, or one that pyenv has built."""
    built = map(str, sorted(Path.home().glob(f".pyenv/versions/{release}.*/bin/python"), reverse=True))
    named = shutil.which(f"python{release}")
    tried = [*([named] if named else []), *built]
    # What pyenv puts on the path may be a script that finds no release.
    return next(
        (one for one in tried if not subprocess.run([one, "-c", ""], capture_output=True).returncode), None
    )


def versions(lock: str) -> str:
    """Return the versions of a lock without their digests, which another release of Python has others of."""
    lines = (line.removesuffix("\\").strip() for line in lock.splitlines() if line[:1].isalnum())
    return "\n".join(lines) + "\n"


def prepare(release: str) -> str | None:
    """Return the interpreter of an environment for a release; None if it cannot be had.

    It is made on first use, and again when the tests need other packages.
    """
    place = ROOT / "build" / f"python{release}"
    python = place / "bin" / "python"
    needed = "\n".join(PACKAGES)
    installed = place / "installed"
    if installed.exists() and installed.read_text() == needed:
        return str(python)
    found = find(release)
    if found is None:
        print(f"Python {release} was not found: its tests are left out.")
        return None
    made = _run([found, "-m", "venv", str(place)])
    if made:
        limits = place / "constraints.txt"
        limits.write_text(versions((ROOT / "requirements" / "dev.lock").read_text()))
        packages = ("--constraint", str(limits), "--editable", str(ROOT), *PACKAGES)
        made = _run([str(python), "-m", "pip", "install", "--quiet", *packages])
    if not made:
        print(f"The packages for Python {release} could not be installed: its tests are left out.")
        return None
    installed.write_text(needed)
    return str(python)


def _run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> bool:
    return not subprocess.run(command, cwd=ROOT, env={**os.environ, **(environment or {})}).returncode


def main() -> None:
    """Run all steps, and tell which failed."""
    parser = argparse.ArgumentParser(prog="make nightly", description=__doc__)
    parser.add_argument("--pythons", nargs="*", default=PYTHONS, help=f"other releases ({' '.join(PYTHONS)})")
    parser.add_argument("--processes", type=int, default=1, help="test processes at a time (1)")
    parser.add_argument("--only", default="", help="the steps whose name begins with this")
    asked = parser.parse_args()
    others = {release: python for release in asked.pythons if (python := prepare(release)) is not None}
    failed = []
    for step in steps(sys.executable, others, asked.processes):
        if not step.name.startswith(asked.only):
            continue
        print(f"\n== {step.name}", flush=True)
        if not _run(step.command, step.environment):
            failed.append(step.name)
    if failed:
        parser.exit(1, f"Failed: {', '.join(failed)}.\n")


if __name__ == "__main__":
    main()
