"""`-p tests.support.times`: what each test took, in build/tests/times.json for `python -m tests.slowest`.

Seconds are of the wall but `cpu` (of the test process and of all that it started: `cpu_meter`) and `slept`
(`time.sleep` of all its threads, as asked for; `asyncio.sleep` and `select` are not in it). Of processes,
those that a child started are not counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.support.cpu_meter import Meter

ROOT = Path(__file__).parents[2]
FILE = ROOT / "build" / "tests" / "times.json"
"""Absolute: a test may change the working directory."""

PROPERTY = "times"
_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.posix_spawn", "os.forkpty"})

_started = 0
_slept = 0.0
_sleep = time.sleep


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    global _started
    if event in _STARTS:
        _started += 1


def _note_and_sleep(seconds: float) -> None:
    """Sleep; only newer releases of Python tell hooks of that."""
    global _slept
    _slept += seconds
    _sleep(seconds)


class Recorder:
    """Collects the tests' times, in the process that runs them and in the one that reports."""

    def __init__(self, commit: str) -> None:
        self.commit = commit
        self.tests: dict[str, dict[str, Any]] = {}
        self._meter = Meter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note what the test began with."""
        item.stash[_BEGAN] = (self._meter.read(), _slept, _started)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add what was used until now; the last phase's has all of it."""
        report = yield
        if call.when == "teardown":
            cpu, slept, started = item.stash[_BEGAN]
            used = {"cpu": self._meter.read() - cpu, "slept": _slept - slept, "processes": _started - started}
            report.user_properties = [*report.user_properties, (PROPERTY, used)]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take one phase's time."""
        test = self.tests.setdefault(report.nodeid, {"test": report.nodeid})
        test[str(report.when)] = report.duration
        for name, value in report.user_properties:
            if name == PROPERTY and isinstance(value, dict):
                test.update(value)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write all of it, where the tests' reports come together."""
        self._meter.close()
        if not hasattr(session.config, "workerinput"):
            FILE.parent.mkdir(parents=True, exist_ok=True)
            run = {"date": date.today().isoformat(), "commit": self.commit, "cores": os.cpu_count()}
            FILE.write_text(json.dumps({**run, "tests": list(self.tests.values())}))


_BEGAN = pytest.StashKey[tuple[float, float, int]]()


def checked_out() -> str:
    """Return the commit that is tried, with `-dirty` if files were changed; nothing where git cannot tell."""
    command = ("git", "describe", "--always", "--dirty", "--exclude", "*")
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def pytest_configure(config: pytest.Config) -> None:
    """Record from here on."""
    commit = "" if hasattr(config, "workerinput") else checked_out()
    sys.addaudithook(_hear)
    time.sleep = _note_and_sleep
    config.pluginmanager.register(Recorder(commit), "replkernel-times")
