"""Chooses for how long a request is deferred before cells are paused for it, and has that decided.

Law: what is chosen is an event, and so in the journal; what the choice was learned from is the core's. So a
replay asks no predictor, and a service that is started again learns what the one before it knew. Each
question is answered, and routers are heard meanwhile: a policy thinks in a thread; who fails defers by 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from random import Random

from replkernel_scheduler.effects import DeferralAsked
from replkernel_scheduler.errors import PolicyUnknown, SchedulerError
from replkernel_scheduler.events import DeferralChosen
from replkernel_scheduler.harvest.types import HarvestEffect
from replkernel_scheduler.policies.installed import make, names
from replkernel_scheduler.pool.protocol import Preempting
from replkernel_scheduler.pool.types import Context, Deferral

from replkernel_server.driver import SchedulerDriver
from replkernel_server.errors import ServerError, ServiceSettingError
from replkernel_server.scheduling.settings import PREEMPT

log = logging.getLogger("replkernel.scheduler")
DEFERRED = "deferred"
PURE = "grid"
"""The predictor of `deferred` where numpy and scipy are not installed."""


def preempting(name: str) -> Preempting:
    """Return the policy of this name; raise ServiceSettingError for one that a live service cannot follow."""
    try:
        policy: Preempting = make("preempt", name)
    except PolicyUnknown as error:
        raise ServiceSettingError(f"{PREEMPT}={name[:40]!r}: {error}") from error
    except SchedulerError as error:
        if name != DEFERRED:
            raise ServiceSettingError(f"{PREEMPT}={name[:40]!r}: {error}") from error
        policy = make("preempt", name, by=PURE)
    if policy.every_s is not None:
        able = ", ".join(each for each in names("preempt") if each != "periodic")
        raise ServiceSettingError(
            f"{PREEMPT}={name[:40]!r} looks at all jobs at intervals, and cells are looked at when one "
            f"comes: set {PREEMPT} to one of {able}."
        )
    return policy


class Deferring:
    """One policy beside one driver, on the running event loop."""

    def __init__(self, driver: SchedulerDriver, policy: Preempting) -> None:
        """Answer for the core of `driver` from now on."""
        self._driver, self._policy = driver, policy
        self._dice = Random("deferrals")  # noqa: S311 (draws, no secrets)
        self._learned = 0
        self._thinks = asyncio.Lock()
        """One question after the other: a policy need not be made for threads."""
        self._tasks: set[asyncio.Task[None]] = set()
        driver.listen(self._saw)

    def _saw(self, effects: list[HarvestEffect], _took_s: float) -> None:
        for effect in effects:
            if isinstance(effect, DeferralAsked):
                task = asyncio.get_running_loop().create_task(self._choose(effect))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _choose(self, asked: DeferralAsked) -> None:
        defer_s = 0.0
        if self._policy.defers:
            async with self._thinks:
                self._learned, judged = self._driver.core.deferrals(self._learned)
                defer_s = await asyncio.to_thread(self._think, list(judged), asked.context)
        with contextlib.suppress(ServerError):  # Nothing is decided any more; the service ends.
            await self._driver.apply(DeferralChosen(asked.request, defer_s))

    def _think(self, judged: list[Deferral], context: Context) -> float:
        """Return for how long the policy defers a request, once it has learned what came of others."""
        try:
            for deferral in judged:
                self._policy.learn(deferral)
            defer_s = float(self._policy.defer_s(context, self._dice))
        except (
            Exception
        ):  # A policy, a predictor or a library of anybody's: the request must not wait for ever.
            log.exception("The preempt policy could not say how long to defer, so nothing is deferred")
            return 0.0
        return max(0.0, defer_s) if math.isfinite(defer_s) else 0.0

    async def close(self) -> None:
        """Wait for what is being decided."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
