"""Drives the scheduler's core: gives it the time, arms its one timer, writes its journal, performs effects.

It holds no rule about hosts or leases. Law: the core is only entered from the event loop's thread, and no
effect leaves before its event is committed. What comes while one commit is made is committed together, next.
While the journal has no room, its events are kept and tried again, nothing new is leased, no effect leaves.
Once a commit fails otherwise, nothing is decided any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias, TypeVar

import msgspec
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import UsageRecorded
from replkernel_scheduler.events import (
    KernelStarted,
    LeaseAsked,
    MoveAsked,
    Resumed,
    TimeReached,
)
from replkernel_scheduler.gangs.types import GangAsked
from replkernel_scheduler.harvest.core import HarvestCore
from replkernel_scheduler.harvest.types import HarvestEffect, HarvestEvent, JobsDue, JobSubmitted
from replkernel_scheduler.view import ClusterView
from replkernel_scheduler.viewing import TableName

from replkernel_server.errors import JournalFailed, JournalFull, ServerError
from replkernel_server.scheduling.clock import CoreClock
from replkernel_server.scheduling.journal import Journal
from replkernel_server.scheduling.journal_tables import (
    EVENTS_MAX,
    Entry,
    UsageEntry,
    as_text,
    outcome,
    proof,
)
from replkernel_server.scheduling.recovery import Recovered

log = logging.getLogger("replkernel.scheduler")
FULL_LOOK_S = 1.0
KEPT_MAX = 20_000
"""So many events are kept while the journal has no room; with more, the scheduler ends."""
NEW_THINGS = (LeaseAsked, KernelStarted, MoveAsked, JobSubmitted, GangAsked)
"""What is refused meanwhile; all else is about what is there already."""
Effects: TypeAlias = list[HarvestEffect]
Result = TypeVar("Result")
Listener = Callable[[Effects, float], None]
"""Told of the effects of one event, once they may leave, and how many seconds the decision took."""


class _Batch:
    """Events that are committed together."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.usage: list[UsageEntry] = []
        self.effects: list[tuple[Effects, float]] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.done.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.known: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done with the batch, or before if there is no room for it at the moment."""
        self.known.add_done_callback(lambda done: done.cancelled() or done.exception())

    def end(self, trouble: Exception | None) -> None:
        """Let nobody wait for it any more."""
        for waits in (self.done, self.known):
            if waits.done():
                continue
            if trouble is None:
                waits.set_result(None)
            else:
                waits.set_exception(trouble)


class SchedulerDriver:
    """One core with its journal on the running event loop."""

    def __init__(self, recovered: Recovered, journal: Journal, clock: CoreClock | None = None) -> None:
        """Go on where the journal ends."""
        self.beside: HarvestCore = recovered.beside
        """The core with its jobs: events go through this one alone."""
        self.clock = clock or CoreClock(recovered.at)
        self.journal = journal
        self.number = recovered.number
        """The number of the last event that was decided."""
        self.durable = recovered.number
        """The number of the last one that is on the disk."""
        self.failed = asyncio.Event()
        self._dice, self._proof = recovered.dice, recovered.proof
        self._at, self._wall = recovered.at, recovered.wall
        self._listeners: list[Listener] = []
        self._next: _Batch | None = None
        self._writing: _Batch | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "journal")
        self._timer: asyncio.TimerHandle | None = None
        self._trouble: Exception | None = None
        self._full: JournalFull | None = None
        self._closing = asyncio.Event()

    async def resume(self, grace_s: float) -> None:
        """Give all who hold leases `grace_s` to renew, if there was anything before."""
        if self.number:
            await self.apply(Resumed(grace_s))

    def listen(self, listener: Listener) -> None:
        """Let `listener` be told of effects, in their order."""
        self._listeners.append(listener)

    async def apply(self, event: HarvestEvent) -> Effects:
        """Feed one event to the core; return what follows from it once that is durable.

        Raises what the core raises, which is journalled as well, and JournalFailed. With JournalFull, what it
        says of what is there already is durable later, if the scheduler lives on.
        """
        if self._full is not None:
            if not isinstance(event, NEW_THINGS):
                self._decide(event)
            raise self._full
        followed, batch = self._decide(event)
        return await self._once(batch.known, followed)

    def submit(self, event: HarvestEvent) -> Awaitable[Effects]:
        """Have one event decided at once, as `apply` does; what follows is awaited after, however long."""
        if self._full is not None and isinstance(event, NEW_THINGS):
            raise self._full
        followed, batch = self._decide(event)
        return self._once(batch.done, followed)

    async def _once(self, done: asyncio.Future[None], followed: Effects | Exception) -> Effects:
        await asyncio.shield(done)
        if isinstance(followed, Exception):
            raise followed
        return followed

    async def view(self, *tables: TableName) -> ClusterView:
        """Return these tables, once all that they show is durable.

        They are made in slices between which others have their turn; few records are of one moment.
        """
        making = self.core.view_in_slices(tables)
        while True:
            try:
                next(making)
            except StopIteration as made:
                view: ClusterView = made.value
                break
            await asyncio.sleep(0)
        await self.settled()
        return view

    async def settled(self) -> None:
        """Return once all that was decided is durable; raises what ended the decisions."""
        batch = self._next or self._writing
        if batch is not None:
            if self._full is not None:
                raise self._full
            await asyncio.shield(batch.known)
        if self._trouble is not None:
            raise self._trouble

    async def in_journal(self, call: Callable[..., Result], *arguments: object) -> Result:
        """Have something done with the journal, between two commits."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    def ends(self) -> None:
        """Wait for room in the journal no longer: the scheduler is about to end."""
        self._closing.set()

    async def rest(self) -> Recovered | None:
        """Decide nothing more by itself, and finish what is being written; return what there is then.

        None: not all that was decided is durable.
        """
        self._disarm()
        self.ends()
        if self._task is not None:
            await self._task
        if self._trouble is not None or self._full is not None or self.durable != self.number:
            return None
        return Recovered(self.beside, self._dice, self.number, self._at, self._proof, self._wall)

    async def close(self) -> None:
        """Disarm the timer, finish what is being written, close the journal."""
        await self.rest()
        self._thread.shutdown()
        self.journal.close()

    def _decide(self, event: HarvestEvent) -> tuple[Effects | Exception, _Batch]:
        if self._trouble is None and self.number - self.journal.held_from >= EVENTS_MAX:
            self._stop(
                JournalFailed(f"The journal has {EVENTS_MAX} events, its limit: start with --new-journal.")
            )
        if self._full is not None and self._next is not None and len(self._next.entries) >= KEPT_MAX:
            self._stop(self._full)
        if self._trouble is not None:
            raise self._trouble
        text = as_text(event)
        now, began = self.clock.now(), time.perf_counter()
        followed: Effects | Exception
        try:
            followed = self.beside.handle(event, now)
        except Exception as error:  # journalled, then raised to who fed it
            followed = error
        took_s = time.perf_counter() - began
        batch = self._next = self._next or _Batch()
        self._write(batch, text, now, followed)
        batch.effects.append(([] if isinstance(followed, Exception) else followed, took_s))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._commit())
        self._arm()
        return followed, batch

    def _write(self, batch: _Batch, text: bytes, now: float, followed: Effects | Exception) -> None:
        self.number += 1
        wall = time.time()
        self._at, self._wall = now, wall
        self._proof = proof(self._proof, self.number, now, text, outcome(followed))
        batch.entries.append(Entry(self.number, now, wall, text.decode(), self._proof))
        if isinstance(followed, Exception):
            return
        rows = [effect.usage for effect in followed if isinstance(effect, UsageRecorded)]
        for part, row in enumerate(rows):
            batch.usage.append(UsageEntry(self.number, part, wall, msgspec.json.encode(row).decode()))

    async def _commit(self) -> None:
        """Commit batches until there is none; perform the effects of each once it is durable."""
        while (batch := self._take()) is not None:
            try:
                await self._append(batch)
            except Exception as error:  # whatever it is, it is not certain that the events are on the disk
                known = isinstance(error, JournalFailed)
                trouble = error if known else JournalFailed(f"The journal cannot be written: {error!r}.")
                batch.end(trouble)
                self._stop(trouble)
                behind = self._take()
                if behind is not None:
                    behind.end(trouble)
                break
            self.durable = batch.entries[-1].number
            self._perform(batch)
            batch.end(None)
        self._task = self._writing = None

    async def _append(self, batch: _Batch) -> None:
        """Write a batch; while there is no room, try again, until the driver is closed or has stopped."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                await loop.run_in_executor(self._thread, self.journal.append, batch.entries, batch.usage)
            except JournalFull as full:
                if self._closing.is_set() or self._trouble is not None:
                    raise
                if self._full is None:
                    log.warning("%s", full)
                self._full = full
                for waits in (batch, self._next):
                    if waits is not None and not waits.known.done():
                        waits.known.set_exception(full)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FULL_LOOK_S):
                        await self._closing.wait()
                continue
            if self._full is not None:
                log.warning("There is room for the journal again.")
                self._full = None
            return

    def _take(self) -> _Batch | None:
        """Return the batch to write now; what comes meanwhile goes into another."""
        self._writing, self._next = self._next, None
        return self._writing

    def _perform(self, batch: _Batch) -> None:
        for effects, took_s in batch.effects:
            if log.isEnabledFor(logging.INFO):
                for effect in effects:
                    log.info("%s", effect)
            for listener in self._listeners:
                try:
                    listener(effects, took_s)
                except Exception:
                    log.exception("A listener failed; what it was told of is durable all the same.")

    def _stop(self, error: Exception) -> None:
        """Decide nothing any more; whoever hosts the driver ends."""
        self._trouble = error
        self._disarm()
        self.failed.set()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._disarm()
        times = (self.core.deadline(), self.beside.jobs_due())
        deadline = min([at for at in times if at is not None], default=None)
        if deadline is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.clock.left_s(deadline), self._ring)

    def _ring(self) -> None:
        self._timer = None
        timer, jobs = self.core.deadline(), self.beside.jobs_due()
        jobs_alone = jobs is not None and (timer is None or jobs < timer)
        followed, _ = self._decide(JobsDue() if jobs_alone else TimeReached())
        if isinstance(followed, Exception):
            log.error("The core raised at its own timer.", exc_info=followed)
            self._stop(ServerError(f"The scheduler's core failed at its own timer: {followed!r}."))

    @property
    def core(self) -> SchedulerCore:
        """Return the scheduler's core, to read what it has."""
        return self.beside.core

    @property
    def trouble(self) -> Exception | None:
        """Return why nothing is decided any more."""
        return self._trouble
