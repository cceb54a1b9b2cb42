"""Drives the desk: hands it what happens at the connections, the time and decisions; performs its acts.

It holds no rule about agents, routers or leases. Law: what one client says is decided in the order in which
it was said; nothing is sent that is not durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from math import inf
from typing import Protocol

from replkernel_scheduler.bounds import UserBounds
from replkernel_scheduler.errors import SchedulerError
from replkernel_scheduler.harvest.types import HarvestEffect
from replkernel_scheduler.types import KernelId

from replkernel.leasing.wire import (
    SCHEDULER_ENDS,
    FromClient,
    FromScheduler,
    Hello,
    JobLog,
    JobLogWanted,
)
from replkernel_server.driver import SchedulerDriver
from replkernel_server.errors import JournalFull, ServerError
from replkernel_server.scheduling.booking import members_seen
from replkernel_server.scheduling.desk import Desk, DeskTimes
from replkernel_server.scheduling.desk_words import (
    Act,
    Answered,
    Close,
    Counted,
    DeskEvent,
    Feed,
    Joined,
    Left,
    Said,
    Send,
    TimeCame,
    Told,
)
from replkernel_server.scheduling.identity import Identity

log = logging.getLogger("replkernel.scheduler")
CLIENTS_MAX = 20_000
LOGS_ASKED_MAX = 1_000
LOG_WAIT_S = 5.0
"""An agent that does not tell of a log within this does not answer."""


class Connection(Protocol):
    """What the channel wants of a connection."""

    def post(self, message: FromScheduler) -> None:
        """Send a message."""
        ...

    def refuse(self, why: str) -> None:
        """Send Refused, and close."""
        ...


class Channel:
    """All connections of agents and routers to one scheduler."""

    def __init__(self, driver: SchedulerDriver, times: DeskTimes, bounds: UserBounds | None = None) -> None:
        """Serve the core of `driver`, on the running event loop."""
        self.driver = driver
        self.desk = Desk(driver.core.view(), driver.clock.now(), times, bounds, driver.beside)
        self.takes_jobs = True
        """Whether new jobs are taken in."""
        self._logs: dict[int, tuple[int, asyncio.Future[JobLog]]] = {}
        self.connections: dict[int, Connection] = {}
        self._numbers = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._tasks: set[asyncio.Task[None]] = set()
        driver.listen(self._told)
        self._arm()

    def connected(self, connection: Connection) -> int | None:
        """Take a connection in and return its number; None if there are too many."""
        if len(self.connections) >= CLIENTS_MAX:
            return None
        self._numbers += 1
        self.connections[self._numbers] = connection
        return self._numbers

    async def joined(self, client: int, hello: Hello, identity: Identity) -> None:
        """Let a client in, or refuse it."""
        owner = self.driver.core.owner_of_kernel(KernelId(hello.name)) if hello.role == "router" else None
        await self.happened(Joined(client, hello, identity, owner))
        await members_seen(self.driver, [identity])

    async def known_again(self, identity: Identity) -> None:
        """Take note of the quota of somebody who was asked about again."""
        quota = self.desk.clients.quota_of(identity)
        if quota is not None:
            await self.driver.apply(quota)
        await members_seen(self.driver, [identity])

    async def said(self, client: int, message: FromClient) -> None:
        """Take a message; return once all that it led to is durable."""
        if isinstance(message, JobLog):
            asked = self._logs.get(message.number)
            if asked is not None and asked[0] == client and not asked[1].done():
                asked[1].set_result(message)
            return
        await self.happened(Said(client, message))

    def left(self, client: int) -> None:
        """Forget a connection that is over."""
        if self.connections.pop(client, None) is not None:
            self._in_background(Left(client))

    async def log_of(self, client: int, job: str, at: int) -> JobLog | None:
        """Ask an agent for a job's log from byte `at` on; None: it does not answer."""
        connection = self.connections.get(client)
        if connection is None or len(self._logs) >= LOGS_ASKED_MAX:
            return None
        self._numbers += 1
        number = self._numbers
        said: asyncio.Future[JobLog] = asyncio.get_running_loop().create_future()
        self._logs[number] = client, said
        try:
            connection.post(JobLogWanted(number, job, at))
            async with asyncio.timeout(LOG_WAIT_S):
                return await said
        except TimeoutError:
            return None
        finally:
            del self._logs[number]

    async def happened(self, event: DeskEvent) -> None:
        """Hand in what happened, and perform what follows."""
        acts = self.desk.handle(event, self.driver.clock.now())
        self._arm()
        await self._perform(acts)

    def counted(self, grants: list[HarvestEffect]) -> None:
        """Tell of grants that an engine has counted, before anything else is decided about them."""
        for act in self.desk.handle(Counted(grants), self.driver.clock.now()):
            self._show(act)

    async def close(self) -> None:
        """Close every connection, and wait for what they led to: the scheduler is about to end."""
        self._disarm()
        self.driver.ends()
        for connection in list(self.connections.values()):
            connection.refuse(SCHEDULER_ENDS)
        self.connections.clear()
        if self._tasks:
            await asyncio.gather(*self._tasks)

    async def _perform(self, acts: Sequence[Act]) -> None:
        """Do what the desk wants, and what it wants of the answers."""
        while acts:
            fed = [self._submit(act) for act in acts if isinstance(act, Feed)]
            for act in acts:
                self._show(act)
            self._arm()
            answers = [answer for waits in fed if (answer := await waits) is not None]
            acts = [act for answer in answers for act in self.desk.handle(answer, self.driver.clock.now())]

    def _show(self, act: Act) -> None:
        if isinstance(act, Feed):
            return
        connection = self.connections.get(act.client)
        if connection is None:
            return
        if isinstance(act, Send):
            connection.post(act.message)
        elif isinstance(act, Close):
            connection.refuse(act.why)

    def _submit(self, act: Feed) -> Awaitable[Answered | None]:
        """Have an event decided now; what is awaited is the answer for who caused it."""
        try:
            effects: Awaitable[list[HarvestEffect]] | ServerError = self.driver.submit(act.event)
        except ServerError as error:  # nothing is decided any more; the service ends
            effects = error
        return self._answer(act, effects)

    async def _answer(
        self, act: Feed, effects: Awaitable[list[HarvestEffect]] | ServerError
    ) -> Answered | None:
        followed, why, never = [], "", False
        try:
            if isinstance(effects, ServerError):
                raise effects
            followed = await effects
        except (SchedulerError, ValueError, ServerError) as error:
            why, never = str(error).partition("\n")[0], isinstance(error, JournalFull)
        return None if act.client is None else Answered(act.client, act.event, followed, why, never)

    def _told(self, effects: list[HarvestEffect], _took_s: float) -> None:
        acts = self.desk.handle(Told(effects), self.driver.clock.now()) if effects else []
        for act in acts:
            self._show(act)

    # -- time -------------------------------------------------------------------------------------

    def _arm(self) -> None:
        at = self.desk.deadline()
        if at == self._timer_at:
            return
        self._disarm()
        if at < inf:
            self._timer_at = at
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.driver.clock.left_s(at), self._ring)

    def _ring(self) -> None:
        self._timer, self._timer_at = None, inf
        self._in_background(TimeCame())

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, inf

    def _in_background(self, event: DeskEvent) -> None:
        task = asyncio.get_running_loop().create_task(self._quietly(event))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _quietly(self, event: DeskEvent) -> None:
        try:
            await self.happened(event)
        except Exception:
            log.exception("The scheduler's channel failed at %s.", type(event).__name__)
