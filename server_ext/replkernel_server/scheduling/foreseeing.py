"""Has the lines looked at while somebody waits, between other work, and routers told what to expect.

It holds no rule: `foresight` says when to look and what has changed. Nothing that it finds is journalled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from random import Random

from replkernel_scheduler.expecting.foresight import Foresight
from replkernel_scheduler.harvest.types import HarvestEffect
from replkernel_scheduler.types import CellUsage

from replkernel_server.driver import SchedulerDriver
from replkernel_server.errors import ServerError
from replkernel_server.scheduling.channel import Channel
from replkernel_server.scheduling.desk_words import Foreseen
from replkernel_server.scheduling.journal_tables import PAGE

log = logging.getLogger("replkernel.scheduler")
BEFORE_S = 7 * 86_400.0
"""Leases that ended longer before a restart say nothing of those to come."""
PAGES_MAX = 5


class Foreseeing:
    """One foresight on the running event loop."""

    def __init__(self, driver: SchedulerDriver, channel: Channel) -> None:
        """Look at the core of `driver`, and have the clients of `channel` told."""
        self.foresight = Foresight(Random("foresight"))  # noqa: S311 (draws, no secrets)
        self._driver, self._channel = driver, channel
        self._woken = asyncio.Event()
        channel.desk.foresight = self.foresight
        driver.listen(self._saw)

    async def keep(self) -> None:
        """Look whenever that is due; a look that fails is logged, and the next one is made all the same."""
        with contextlib.suppress(ServerError):
            self.foresight.learn(await self._before())
        self.foresight.wake(self._driver.clock.now())
        while True:
            due = self.foresight.due()
            self._woken.clear()
            if due is None or (left_s := self._driver.clock.left_s(due)) > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if due is None else left_s):
                        await self._woken.wait()
                continue
            try:
                await self._look()
            except Exception:
                log.exception("What those who wait may expect could not be found out.")

    async def _look(self) -> None:
        looking = self.foresight.look(self._driver.core, self._driver.clock.now())
        while True:
            try:
                next(looking)
            except StopIteration as done:
                if done.value:
                    await self._channel.happened(Foreseen(done.value))
                return
            await asyncio.sleep(0)

    async def _before(self) -> list[CellUsage]:
        """Return the newest rows of the accounts, oldest first."""
        journal, since = self._driver.journal, time.time() - BEFORE_S
        found: list[CellUsage] = []
        after = (0, 0)
        while True:
            page = await self._driver.in_journal(journal.usage, since, after)
            found = [*found, *(row for _, row in page)][-PAGES_MAX * PAGE :]
            if len(page) < PAGE:
                return found
            after = (page[-1][0].number, page[-1][0].part)

    def _saw(self, effects: list[HarvestEffect], _took_s: float) -> None:
        before = self.foresight.due()
        self.foresight.saw(effects, self._driver.clock.now())
        if self.foresight.due() != before:
            self._woken.set()
