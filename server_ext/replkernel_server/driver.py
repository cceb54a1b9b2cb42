"""Drives the scheduler's core: gives it the time, arms its one timer, logs one line an effect.

It holds no rule about hosts or leases. Law: the core is only entered from the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time

from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import Effect
from replkernel_scheduler.events import Event, TimeReached
from replkernel_scheduler.policies.built_in import notebook
from replkernel_scheduler.types import Fence

log = logging.getLogger("replkernel.scheduler")


class SchedulerDriver:
    """One core on the running event loop."""

    def __init__(self) -> None:
        """Start an empty core. Fences begin at the wall clock's milliseconds, so they grow over restarts."""
        fence = Fence(time.time_ns() // 1_000_000)
        self.core = SchedulerCore(random.Random(fence), notebook(), fence=fence)  # noqa: S311 - a choice, no secret
        self._timer: asyncio.TimerHandle | None = None

    def apply(self, event: Event) -> list[Effect]:
        """Feed one event to the core and return what follows from it."""
        effects = self.core.handle(event, time.monotonic())
        for effect in effects:
            log.info("%s", effect)
        self._arm()
        return effects

    def close(self) -> None:
        """Disarm the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self.close()
        deadline = self.core.deadline()
        if deadline is not None:
            delay_s = max(0.0, deadline - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.apply, TimeReached())
