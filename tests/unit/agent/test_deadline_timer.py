"""A core's timer rings for each deadline, however that is moved, and for nothing once all is over."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, example, given, settings

from replkernel.agent.io.deadline_timer import DeadlineTimer

FAR_S = 1_000.0
STEPS = st.lists(st.one_of(st.none(), st.just(math.inf), st.integers(0, 20).map(float)), max_size=40)


class Handle:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at = at
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """A loop of which nothing but the time goes by, and a core with one deadline."""

    def __init__(self) -> None:
        self.now = 100.0
        self.due: float | None = None
        self.rung: list[float] = []
        self._handles: list[Handle] = []
        self.timer: DeadlineTimer | None = None

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Handle:
        self._handles.append(Handle(self.now + delay_s, call))
        return self._handles[-1]

    def waiting(self) -> list[Handle]:
        return [handle for handle in self._handles if not handle.cancelled]

    def deadline(self) -> float | None:
        return self.due

    def ring(self) -> None:
        assert self.due is not None and self.due <= self.now, "it rings before its time"
        self.rung.append(self.now)
        self.due = None

    def go_to(self, now: float) -> None:
        while handles := [handle for handle in self.waiting() if handle.at <= now]:
            first = min(handles, key=lambda handle: handle.at)
            self._handles.remove(first)
            self.now = max(self.now, first.at)
            first.call()
        self.now = now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: made)
    monkeypatch.setattr(time, "monotonic", lambda: made.now)
    return made


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
@example([20.0, 5.0])
@example([20.0, None, 5.0, math.inf])
def test_no_deadline_is_missed_and_none_rings_early(clock: Clock, steps: list[float | None]) -> None:
    clock.__init__()  # type: ignore[misc]
    timer = DeadlineTimer(clock.deadline, clock.ring)
    for step in steps:
        clock.due = None if step is None else clock.now + step
        timer.arm()
        assert len(clock.waiting()) <= 1
        before, due = len(clock.rung), clock.due
        clock.go_to(clock.now + 10.0)
        rang = clock.rung[before:]
        assert rang == ([due] if due is not None and due <= clock.now else [])
    clock.go_to(clock.now + FAR_S)
    assert clock.due is None or clock.due == math.inf
    assert clock.waiting() == [], "it rings for nothing"


def test_a_closed_one_rings_no_more(clock: Clock) -> None:
    timer = DeadlineTimer(clock.deadline, clock.ring)
    clock.due = clock.now + 1.0
    timer.arm()
    timer.close()
    timer.arm()
    clock.go_to(clock.now + FAR_S)
    assert clock.rung == []
