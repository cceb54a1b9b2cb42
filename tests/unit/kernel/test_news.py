"""Commits and refusals reach the main thread, whatever interrupts it while it waits."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from replkernel.kernel.link import _Request
from replkernel.kernel.news import News
from replkernel.protocol.process_to_agent import NotebookStatusQuery
from replkernel.records import Seq

STRESS_S = 2.0
LATEST_S = 60e-6
"""An alarm within so many seconds meets every step of a wait that short."""

PATIENCE_S = 5.0


@pytest.fixture
def alarm() -> Iterator[None]:
    """Have SIGALRM interrupt the main thread, as SIGINT does."""

    def ring(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.signal(signal.SIGALRM, before)


def _interrupt_often(wait: Callable[[], object], check: Callable[[], None]) -> None:
    """Interrupt a wait at random moments, and have another thread make the `check` between."""
    chance, ends, met = random.Random(5), time.monotonic() + STRESS_S, 0
    while time.monotonic() < ends:
        try:
            signal.setitimer(signal.ITIMER_REAL, 1e-6 + chance.random() * LATEST_S)
            wait()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            met += 1
        if met % 10 == 0:
            thread = threading.Thread(target=check, daemon=True)
            thread.start()
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), f"interrupt {met} left a lock taken"
    assert met > 20


def test_a_commit_arrives_after_interrupts_of_whoever_waited(alarm: None) -> None:
    news = News()
    _interrupt_often(
        lambda: news.await_here(lambda: False, 20e-6),
        lambda: news.delta_committed(Seq(1), owing=False),
    )
    assert news.committed == 1


def test_an_answer_arrives_after_interrupts_of_whoever_asked(alarm: None) -> None:
    request = _Request(NotebookStatusQuery(1))
    _interrupt_often(lambda: request.await_answer(20e-6), request.answered)


def test_a_commit_ends_the_wait_at_once() -> None:
    news = News()
    thread = threading.Timer(0.05, news.delta_committed, (Seq(3),), {"owing": False})
    thread.start()
    began = time.monotonic()
    news.await_commit(Seq(3), lambda: True, lambda: False, PATIENCE_S)
    assert news.committed == 3
    assert time.monotonic() - began < PATIENCE_S / 2


def test_a_refusal_ends_the_wait_and_one_that_never_comes_does_too() -> None:
    news = News()
    news.execution_refused(Seq(4), "it lost")
    news.execution_refused(Seq(5), "it lost too")
    news.await_commit(Seq(4), lambda: True, lambda: False, PATIENCE_S)
    news.await_commit(Seq(9), lambda: True, lambda: False, 0.01)
    assert news.committed == 0
