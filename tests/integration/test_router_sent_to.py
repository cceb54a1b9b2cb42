"""The process that a cell is sent to, as a real process that is killed, stopped, reaped."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from replkernel.router.io.sent_to import SentTo
from tests.support.live import eventually


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that waits, and reap it."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_a_process_that_lives_is_not_over_also_when_stopped(child: subprocess.Popen[bytes]) -> None:
    sent_to = SentTo(child.pid)
    assert not sent_to.is_over()
    child.send_signal(signal.SIGSTOP)
    assert not sent_to.is_over()


def test_a_process_that_was_killed_is_over_before_it_is_reaped_and_after(
    child: subprocess.Popen[bytes],
) -> None:
    sent_to = SentTo(child.pid)
    child.kill()
    # Between taking the signal and beginning to exit, for some microseconds, a process shows neither.
    eventually(sent_to.is_over, "the end that nobody has reaped", within_s=60.0)
    assert sent_to.is_over()
    child.wait()
    assert sent_to.is_over()


def test_a_process_that_was_never_seen_here_is_not_judged(child: subprocess.Popen[bytes]) -> None:
    assert not SentTo(0).is_over()
    child.kill()
    child.wait()
    assert not SentTo(child.pid).is_over()
