"""`make again`: what failed in the last run of tests, once more, by itself and one after another.

A test that passes now failed by chance, by load, or by what ran before it. It is listed: that is a fault too,
of the test or of the product, and wants to be explained. Failures in one module often have one cause, so
modules are counted; those of more than a few are no chance, and are not tried again.

Law: nothing passes here that did not run the code which failed. What fails when a module ends (something was
left open, a fixture could not end) is told of its last test, so all of the module's tests run again for it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KEY = "replkernel/failed"
FAILED = Path(".pytest_cache/v") / KEY
LISTED = Path("build/tests/by-chance.txt")
MOST_MODULES = 3
"""In so many modules tests may have failed by chance."""
MOST = 12
"""So many tests may have, all together."""


class LastRun:
    """A plugin of pytest: keeps what failed in this run, each with the tests that are to run again for it.

    A run that was broken off leaves nothing: nobody knows what else would have failed.
    """

    def __init__(self, cache: pytest.Cache) -> None:
        self._cache = cache
        self._ran: dict[str, list[str]] = {}
        self._failed: dict[str, bool] = {}
        """Whether it failed at its end, by name."""

    def pytest_sessionstart(self) -> None:
        """Forget the run before."""
        self._cache.set(KEY, {})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Take note of a module that could not be read."""
        if report.failed:
            self._failed[report.nodeid] = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take note of a test, and of whether it failed."""
        if report.when == "setup":
            self._ran.setdefault(_module(report.nodeid), []).append(report.nodeid)
        if report.failed:
            self._failed[report.nodeid] = report.when == "teardown"

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Keep what failed, if all tests had their turn."""
        whole = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        failed = {
            name: self._ran.get(_module(name), [name]) if at_its_end else [name]
            for name, at_its_end in self._failed.items()
            if whole or "::" not in name
        }
        self._cache.set(KEY, failed)


def chosen(text: str, folders: Iterable[str], root: Path = ROOT) -> dict[str, list[str]]:
    """Return what failed below `folders`, with what runs again for each, as `LastRun` kept it.

    Tests whose file is gone by now are left out. Raises ValueError.
    """
    failed = json.loads(text)
    if not isinstance(failed, dict):
        raise ValueError("a table of tests was expected")
    below = tuple(f"{folder.rstrip('/')}/" for folder in folders)
    return {
        name: failed[name]
        for name in sorted(failed)
        if name.startswith(below) and (root / _module(name)).exists()
    }


def refusal(failed: Iterable[str]) -> str:
    """Return why these are not tried again, as a sentence; empty: they are."""
    names = list(failed)
    if not names:
        return "No failed test is known of the last run: none failed, or what went wrong is above."
    modules = {_module(name) for name in names}
    if len(names) > MOST or len(modules) > MOST_MODULES:
        return (
            f"{_counted(names, 'test')} of {_counted(modules, 'module')} failed, and none is tried again: "
            f"more than {MOST} tests, or tests of more than {MOST_MODULES} modules, do not fail by chance."
        )
    whole = [name for name in names if "::" not in name]
    return f"{whole[0]} could not be read as a module." if whole else ""


def _counted(those: Collection[str], noun: str) -> str:
    return f"{len(those)} {noun}{'s' if len(those) > 1 else ''}"


def _module(name: str) -> str:
    return name.split("::")[0]


def main() -> None:
    """Run them, and say which passed this time."""
    parser = argparse.ArgumentParser(prog="make again", description=__doc__)
    parser.add_argument("folders", nargs="+", help="where the tests are that count")
    folders = parser.parse_args().folders
    cache = ROOT / FAILED
    failed = chosen(cache.read_text() if cache.exists() else "{}", folders)
    if why := refusal(failed):
        parser.exit(1, why + "\n")
    print("Once more, one after another:", *map(_told, failed.items()), sep="\n  ", flush=True)
    again = dict.fromkeys(name for names in failed.values() for name in names)
    if outcome := subprocess.run([sys.executable, "-m", "pytest", *again], cwd=ROOT).returncode:
        sys.exit(outcome)
    listed = ROOT / LISTED
    listed.parent.mkdir(parents=True, exist_ok=True)
    with listed.open("a") as file:
        file.writelines(f"{name}\n" for name in failed)
    print(f"FAILED, THEN PASSED (added to {LISTED}; find out why):", *failed, sep="\n  ")


def _told(item: tuple[str, list[str]]) -> str:
    name, again = item
    if again == [name]:
        return name
    return f"{_module(name)}, all {len(again)} tests: it failed at its end, which was told of {name}"


if __name__ == "__main__":
    main()
