"""A provisioner's kernel outlives its launcher for its grace time, and as long as a client is there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from replkernel.router.io import parent
from replkernel.router.io.parent import LAUNCHER_PID, LAUNCHER_RETURNS, LauncherWatch


class Clock:
    """A time that a test moves."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(parent, "time", clock)
    return clock


@pytest.fixture
def launcher() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.communicate(b"\n")


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def test_a_kernel_without_a_provisioner_is_not_watched() -> None:
    watch = LauncherWatch({}, 0.0)
    assert (watch.overdue(), watch.interval_ms) == ("", parent.NEVER_MS)


def test_a_kernel_ends_when_launcher_and_clients_are_gone_for_the_grace_time(
    launcher: subprocess.Popen[bytes], clock: Clock
) -> None:
    watch = LauncherWatch({LAUNCHER_PID: str(launcher.pid)}, 60.0)
    watch.client_came(7)
    assert watch.overdue() == ""
    end(launcher)
    clock.now += 1000
    assert watch.overdue() == "", "a client is there"
    watch.client_left(7)
    clock.now += 10
    assert watch.overdue() == ""
    clock.now += 59
    assert watch.overdue() == ""
    clock.now += 2
    assert "REPLKERNEL_LAUNCHER_GRACE_S" in watch.overdue()
    clock.now += 1000
    assert watch.overdue() == "", "it is said once"


def test_a_client_that_comes_back_in_time_starts_the_grace_time_anew(
    launcher: subprocess.Popen[bytes], clock: Clock
) -> None:
    watch = LauncherWatch({LAUNCHER_PID: str(launcher.pid)}, 60.0)
    end(launcher)
    watch.overdue()
    clock.now += 50
    watch.client_came(8)
    assert watch.overdue() == ""
    watch.client_left(8)
    clock.now += 50
    assert watch.overdue() == ""
    clock.now += 50
    assert watch.overdue() == ""
    clock.now += 20
    assert watch.overdue() != ""


def test_where_the_launcher_may_return_it_is_said_again_as_long_as_nobody_comes(
    launcher: subprocess.Popen[bytes], clock: Clock
) -> None:
    watch = LauncherWatch({LAUNCHER_PID: str(launcher.pid), LAUNCHER_RETURNS: "1"}, 0.0)
    end(launcher)
    assert watch.returns
    assert str(launcher.pid) in watch.overdue()
    clock.now += parent.AGAIN_S - 1
    assert watch.overdue() == ""
    clock.now += 2
    assert watch.overdue() != ""
