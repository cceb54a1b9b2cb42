"""An event loop whose time jumps from timer to timer, so that a day of a service passes in seconds.

Law: time stands still while anything is to be done, threads of executors included. Sockets are not for it.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from replkernel_server.scheduling.clock import CoreClock


class _Left(float):
    """Seconds until a time, which is remembered: a difference that is added again may miss it by a bit."""

    until: float


class _Timer(asyncio.TimerHandle):
    """A timer; of those of one time the first that was set is the first."""

    number: int

    def __lt__(self, other: object) -> bool:
        assert isinstance(other, _Timer)
        return (self.when(), self.number) < (other.when(), other.number)


class _Jumping(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    """Waits for threads in earnest, and for a time not at all."""

    loop: PlayedTime

    def select(self, timeout: float | None = None) -> Any:
        """Return what is ready; where nothing is, it is the next timer's time."""
        if self.loop.busy:
            return super().select(timeout if timeout == 0 else None)
        if timeout:
            self.loop.jump()
        return super().select(0)


class PlayedTime(asyncio.SelectorEventLoop):
    """The loop; `time()` begins at 0."""

    def __init__(self) -> None:
        self.at, self.busy, self._numbers = 0.0, 0, 0
        selector = _Jumping()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        """Return the time that is played."""
        return self.at

    def jump(self) -> None:
        """Let it be the next timer's time."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        self.at = max(self.at, timers[0].when())

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Have something done at a time."""
        timer = _Timer(when, callback, args, self, context)
        self._numbers += 1
        timer.number = self._numbers
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Have something done when the delay is over, exactly."""
        when = max(self.at, delay.until) if isinstance(delay, _Left) else self.at + delay
        return self.call_at(when, callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Have a thread do something; the time waits for it."""
        self.busy += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._done)
        return future

    def _done(self, _: object) -> None:
        self.busy -= 1


class PlayedClock(CoreClock):
    """The core's clock under such a loop."""

    def __init__(self, loop: PlayedTime) -> None:
        super().__init__(0.0, loop.time)

    def left_s(self, at: float) -> float:
        """Return the seconds until `at`."""
        left = _Left(super().left_s(at))
        left.until = at
        return left
