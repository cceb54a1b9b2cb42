"""The agent's part of jobs: orders written down, supervisors kept alive, the scheduler told.

Law: the job's directory is the truth, so an agent that was killed goes on with what it finds there. Nothing
runs whose command bears no seal of this user. The scheduler hears of an end until it says that it has. What
has lost its supervisor starts again only once the scheduler could say that it is somebody else's by now.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from replkernel.errors import ReplkernelError
from replkernel.jobs import processes
from replkernel.jobs.life import END_SHARE
from replkernel.jobs.shelf import check_start, is_live, places_in, superfluous
from replkernel.jobs.words import (
    GONE,
    MEMORY,
    MET,
    WAKE,
    JobPlace,
    OnHost,
    Order,
    Record,
    open_fifo,
)
from replkernel.leasing.channel import SchedulerChannel
from replkernel.leasing.finding import find_scheduler, stranger_at
from replkernel.leasing.starting import SchedulerNotStarted, find_or_start
from replkernel.leasing.wire import (
    JOBS_OF_HOST_MAX,
    LOG_BYTES_MAX,
    WHY_MAX,
    WIRE_VERSION,
    FromClient,
    FromScheduler,
    Hello,
    HostUse,
    JobGone,
    JobLog,
    JobLogWanted,
    JobMeets,
    JobSaid,
    JobsAwait,
    JobsHere,
    RanksFailed,
    Refused,
    StartJob,
    StartRanks,
    StopJob,
    StopRanks,
    UseWanted,
)
from replkernel.ranks.starting import Launchers
from replkernel.records import HostName

log = logging.getLogger(__name__)

SEARCH_S = 5.0
LOOK_S = 2.0
"""How often directories are looked at without a wake-up."""
SPAWN_S_MIN = 2.0
"""A supervisor that is gone is started again no sooner."""
KEPT_MAX = 50
"""Directories of jobs that do not run here any more are kept for their logs, so many."""
PROGRESS_S = 1.0
"""Progress of a job is told no more often."""
STOP_S = 10.0
ALONE_S = 10.0
"""With jobs, and so long without a scheduler, one of the user's own is started."""
KILLED_S = 0.1
"""Whether killed processes are gone is looked at again after this."""
HEARD_S = 1.0
"""The scheduler's orders have come by so long after it has welcomed us."""


class Unwritten(NamedTuple):
    """An order that could not be written down: by `until` the job's processes are to be off."""

    order: Order
    until: float
    is_told: bool = False


class JobKeeping:
    """The jobs of this agent's user on this host."""

    def __init__(
        self, host: str, directory: Path, env: Mapping[str, str], changed: Callable[[], None]
    ) -> None:
        """Go on with the jobs that an earlier agent has left; `changed` hears when `any` may be another."""
        self._host, self._env, self._changed = host, env, changed
        self._root = directory / "jobs"
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        try:
            self._places = places_in(self._root)
        except OSError as error:
            log.warning("no job can run here: %s", error)
            self._places = {}
        self._fifo = open_fifo(self._root / WAKE)
        if self._fifo is None:
            log.warning("%s has no FIFOs: what jobs say is heard every %g s", self._root, LOOK_S)
        else:
            self._loop.add_reader(self._fifo, self._wake, self._fifo)
        self._live = {name for name, place in self._places.items() if is_live(place)}
        self._told: dict[str, tuple[Record, float | None, float | None]] = {}
        self._tell_at: dict[str, float] = {}
        self._met: dict[str, int] = {}
        """The meetings that were told."""
        self._spawned_at: dict[str, float] = {}
        self._unwritten: dict[str, Unwritten] = {}
        self._use: HostUse | None = None
        self._use_is_wanted = self._use_is_news = False
        self._launchers = Launchers(host, directory / "ranks", env, changed)
        self._awaits = self._up = self._ending = False
        self._changed_at = self._loop.time()
        """When the scheduler came or went."""
        self._channel: SchedulerChannel | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = self._loop.create_task(self._run())

    def any(self) -> bool:
        """Tell whether the agent is to stay: a job runs here, or waits somewhere."""
        return bool(self._live) or self._awaits or self._launchers.any()

    def jobs_bytes(self) -> int:
        """Return what the jobs here that run on cores alone have of memory, as their supervisors tell."""
        return sum([self._places[name].number(MEMORY) for name in self._live])

    def uses(self, use: HostUse) -> None:
        """Tell the scheduler what is used of this host: what is news twice, as HostUse says."""
        news = HostUse(use.busy, round(use.used_gb, 1), round(use.jobs_gb, 1), round(use.limit_gb, 1))
        if news != self._use or self._use_is_news:
            self._use_is_news = news != self._use
            self._use = news
            self._tell_use()

    def _tell_use(self) -> None:
        if self._up and self._use_is_wanted and self._use is not None:
            self._send(self._use)

    def runs_any(self) -> bool:
        """Tell whether a job runs here, or a part of a cell on several hosts."""
        return bool(self._live) or self._launchers.any()

    async def close(self) -> None:
        """End; jobs go on."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._fifo is not None:
            self._loop.remove_reader(self._fifo)
            os.close(self._fifo)
        if self._channel is not None:
            await self._channel.close()

    def stop_all(self) -> float:
        """Have every job saved and stopped, and start none; return in how many seconds they are off.

        The scheduler starts them again where it can.
        """
        self._ending = True
        self._launchers.stop_all()
        for name in list(self._live):
            order = self._order(name)
            if order is not None and order.runs:
                self._stop(name, order, STOP_S, saves=True)
        return STOP_S

    # -- turn by turn ---------------------------------------------------------------------------------

    def _wake(self, fifo: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(fifo, 4096)
        self._woken.set()

    async def _run(self) -> None:
        searched_at = float("-inf")
        while True:
            try:
                if self._channel is None and self._loop.time() - searched_at >= SEARCH_S:
                    searched_at = self._loop.time()
                    await self._look_for_scheduler()
                await self._look()
                await self._have_scheduler()
            except Exception:
                log.exception("jobs could not be looked at")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S if self._live else SEARCH_S):
                    await self._woken.wait()
            self._woken.clear()

    async def _look(self) -> None:
        """Keep supervisors alive, and tell what is new."""
        for name in list(self._live):
            place = self._places[name]
            if name in self._unwritten:
                self._try_again(name, place)
                continue
            await self._supervise(name, place)
            live = is_live(place)  # Asked before: what ends while news are told is told at the next look.
            self._tell(name, place)
            self._tell_meeting(name, place)
            if not live:
                self._live.discard(name)
                self._tidy()
                self._changed()

    async def _supervise(self, name: str, place: JobPlace) -> None:
        now = self._loop.time()
        order = place.order()
        heard = self._up and now - self._changed_at >= HEARD_S
        if not heard and (order is None or order.runs):  # What is to stop may do so at once.
            return
        if not is_live(place) or now - self._spawned_at.get(name, float("-inf")) < SPAWN_S_MIN:
            return
        if place.is_supervised():
            return
        self._spawned_at[name] = now
        try:
            await asyncio.to_thread(processes.start_supervisor, place.directory, self._host, self._env)
        except OSError as error:
            log.error("the supervisor of job %s cannot be started: %s", name, error)

    def _tell(self, name: str, place: JobPlace, *, again: bool = False) -> None:
        """Tell how a job stands, if that is news."""
        order, record, progress = place.order(), place.record(), place.progress()
        if order is None or not self._up or record.number < order.number:
            return
        epoch = None if progress is None else progress.epoch
        loss = None if progress is None else progress.loss
        before, now = self._told.get(name), self._loop.time()
        if before == (record, epoch, loss) and not again:
            return
        if before is not None and before[0] == record and now < self._tell_at.get(name, 0.0):
            self._loop.call_at(self._tell_at[name], self._woken.set)
            return
        self._told[name], self._tell_at[name] = (record, epoch, loss), now + PROGRESS_S
        attempt, said = record.attempt, record.said
        if before is None or before[0] != record or again:
            match record.state:
                case "running":
                    self._send(JobSaid(name, attempt, "runs", said, epoch, loss))
                case "stopped" | "done" | "failed":
                    without, elsewhere = record.without, record.elsewhere
                    self._send(JobSaid(name, attempt, record.state, said, epoch, loss, without, elsewhere))
                    return
        self._send(JobSaid(name, attempt, "progress", said, epoch, loss))

    def _tell_meeting(self, name: str, place: JobPlace) -> None:
        """Tell where launchers of a job's other hosts are to come to, once on each connection."""
        meeting, order = place.meeting(), place.order()
        if meeting is None or order is None or not self._up or self._met.get(name) == meeting.number:
            return
        if meeting.attempt != order.attempt or not order.runs or place.record().number < order.number:
            return
        self._met[name] = meeting.number
        self._send(JobMeets(name, meeting.attempt, meeting.name, meeting.endpoint, meeting.seal))
        with contextlib.suppress(OSError):
            place.set_number(MET, meeting.number)

    # -- the scheduler --------------------------------------------------------------------------------

    async def _look_for_scheduler(self) -> None:
        find = partial(find_scheduler, self._env)
        url, token = await asyncio.to_thread(find)
        if not url:
            return
        hello = Hello(WIRE_VERSION, "jobs", HostName(self._host))
        stranger = partial(stranger_at, env=self._env)
        try:
            self._channel = SchedulerChannel(
                url, token, hello, self._take, self._welcomed, self._lost, find, stranger
            )
        except ReplkernelError as error:
            log.warning("jobs: %s", error)
            return
        self._channel.start()

    async def _have_scheduler(self) -> None:
        """Have one of the user's own started where none is left to give jobs GPUs, and to take them."""
        if self._up or not self.any() or self._loop.time() - self._changed_at < ALONE_S:
            return
        self._changed_at = self._loop.time()
        try:
            await find_or_start(self._env)
        except SchedulerNotStarted as error:
            log.warning("jobs have no scheduler: %s", error)

    def _welcomed(self) -> None:
        """Tell all: ends first, for what is not told to be here is thought to have stopped."""
        self._up, self._use_is_wanted, self._changed_at = True, False, self._loop.time()
        self._told.clear()
        self._met.clear()
        for name, place in self._places.items():
            if place.record().state in ("done", "failed") and not place.is_gone():
                self._tell(name, place)
        here = []
        for name in self._live:
            order, kept = self._order(name), self._unwritten.get(name)
            if order is not None and not (kept and kept.is_told):
                here.append((name, order.attempt))
        gangs = self._launchers.gangs()[:JOBS_OF_HOST_MAX]
        known = tuple(here[:JOBS_OF_HOST_MAX])
        self._send(JobsHere(known, ranks=True, gangs=gangs, uses=True, spans=True))
        for name in self._live:
            self._tell(name, self._places[name])
        self._woken.set()

    def _lost(self, why: str) -> None:
        if self._up:
            self._up, self._changed_at = False, self._loop.time()

    def _send(self, message: FromClient) -> None:
        if self._channel is not None:
            self._channel.send(message)

    def _take(self, message: FromScheduler) -> None:
        match message:
            case StartJob():
                if not self._ending:  # The scheduler sees our end, and starts it elsewhere.
                    self._start(message)
            case StopJob(job, attempt, within_s, saves):
                order = self._order(job)
                if order is not None and order.attempt == attempt:
                    self._stop(job, order, within_s, saves=saves)
            case UseWanted():
                self._use_is_wanted = self._use_is_news = True
                self._tell_use()
            case JobGone(job):
                self._gone(job)
            case JobsAwait(awaits):
                self._awaits = awaits
                self._changed()
            case JobLogWanted(number, job, at):
                place = self._places.get(job)
                begin, data = (at, b"") if place is None else place.log_from(at, LOG_BYTES_MAX)
                self._send(JobLog(number, begin, data))
            case StopRanks(gang, within_s, saves):
                self._launchers.stop(gang, within_s, saves=saves)
            case StartRanks() if not self._ending:
                self._start_ranks(message)
            case Refused(why):
                log.warning("jobs: %s", why)

    def _start_ranks(self, wanted: StartRanks) -> None:
        for_now = False
        try:
            why = self._launchers.start(wanted)
        except OSError as error:
            why, for_now = f"Host {self._host} cannot start its part: {error}.", True
            log.error("%s", why)
        if why:
            self._send(RanksFailed(wanted.gang, why[:WHY_MAX], for_now))

    # -- orders ---------------------------------------------------------------------------------------

    def _start(self, wanted: StartJob) -> None:
        name = wanted.job
        try:
            check_start(wanted, self._host, self._env)
            if name in self._places and self._places[name].is_gone():
                raise ReplkernelError(f"Job {name} was over already: submit it under another name.")
        except (ReplkernelError, OSError) as error:
            log.error("%s", error)
            self._send(JobSaid(name, wanted.attempt, "failed", str(error)[:1000]))
            return
        place = self._places.setdefault(name, JobPlace(self._root / name))
        before = self._order(name)
        if before is not None and before.attempt >= wanted.attempt:
            return
        number = 1 if before is None else before.number + 1
        order = Order(
            number, name, wanted.attempt, wanted.gpus, wanted.command, wanted.directory, runs=True,
            cpus=wanted.cpus, memory_gb=wanted.memory_gb,
            others=tuple([OnHost(other.host, other.gpus) for other in wanted.others]),
        )  # fmt: skip
        try:
            place.make()
            place.write(order)
        except OSError as error:
            log.error("job %s cannot be started: %s", name, error)
            said = f"host {self._host} cannot write down that it is to start: {error}"
            self._send(JobSaid(name, wanted.attempt, "failed", said[:1000]))
            if before is not None and name in self._live:  # What it ran with is not its any more.
                self._stop(name, before, 0.0, saves=False)
            return
        self._given(name, place)

    def _stop(self, name: str, order: Order, within_s: float, *, saves: bool) -> None:
        changed = {field: getattr(order, field) for field in Order.__struct_fields__}
        changed |= {"number": order.number + 1, "runs": False, "within_s": within_s, "saves": saves}
        order, place = Order(**changed), self._places[name]
        try:
            place.write(order)
        except OSError as error:
            log.error("job %s: that it is to stop cannot be written down, and is kept: %s", name, error)
            until, kept = self._loop.time() + within_s * END_SHARE, self._unwritten.get(name)
            self._unwritten[name] = Unwritten(order, until if kept is None else min(until, kept.until))
            self._woken.set()
        else:
            self._given(name, place)

    def _order(self, name: str) -> Order | None:
        """Return what is wanted of a job, written down or not."""
        kept, place = self._unwritten.get(name), self._places.get(name)
        if kept is not None:
            return kept.order
        return None if place is None else place.order()

    def _try_again(self, name: str, place: JobPlace) -> None:
        """Write a stop down that could not be written; when its time is over, end what runs."""
        kept = self._unwritten[name]
        with contextlib.suppress(OSError):
            place.write(kept.order)
            self._given(name, place)
            return
        if kept.is_told or self._loop.time() < kept.until:
            return
        # The supervisor first: it has not heard of the order, and would start the program again.
        first = processes.first_of(place.record())
        processes.send(processes.supervisors(place.directory), signal.SIGKILL)
        processes.send(processes.members(place.directory, first), signal.SIGKILL)
        if not processes.members(place.directory, first):
            self._unwritten[name] = kept._replace(is_told=True)
            self._send(JobSaid(name, kept.order.attempt, "stopped", "its end could not be written down"))
        else:
            self._loop.call_later(KILLED_S, self._woken.set)

    def _given(self, name: str, place: JobPlace) -> None:
        """Have a supervisor see an order that is written down."""
        self._unwritten.pop(name, None)
        self._live.add(name)
        self._changed()
        place.wake()
        self._spawned_at.pop(name, None)
        self._woken.set()

    def _gone(self, name: str) -> None:
        """Keep nothing of a job but its log."""
        place = self._places.get(name)
        if place is None:
            return
        order = self._order(name)
        if order is not None and is_live(place):
            self._stop(name, order, 0.0, saves=False)
        with contextlib.suppress(OSError):  # If not, its end is told again, and answered again.
            (place.directory / GONE).touch(mode=0o600)
        self._tidy()

    def _tidy(self) -> None:
        """Remove the oldest directories of jobs that are not here any more: over, or gone elsewhere."""
        here = self._live | self._unwritten.keys()
        left = {name: place for name, place in self._places.items() if name not in here}
        for name in superfluous(left, KEPT_MAX):
            shutil.rmtree(self._places.pop(name).directory, ignore_errors=True)
            for kept in (self._told, self._tell_at, self._spawned_at, self._met):
                kept.pop(name, None)
