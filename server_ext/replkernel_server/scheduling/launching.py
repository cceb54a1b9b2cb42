"""Drives a launcher: what the scheduler wants of hosts is done, what the launcher tells becomes events.

It holds no rule: `launchers/hosts.py`, `counting.py`, `engine_usage.py` and `waiting.py` say what follows.
Law: what fails is told in the log once, and done again where it matters: agents every AGENT_AGAIN_S, GPUs
every LOOK_S.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from replkernel_scheduler.errors import SchedulerError
from replkernel_scheduler.events import (
    Event,
    HostDown,
    HostDrained,
    HostNotProvisioned,
    LeaseAsked,
    LeaseReleased,
)
from replkernel_scheduler.harvest.types import HarvestEffect
from replkernel_scheduler.types import GpuUuid, HostName, Lease

from replkernel_server.driver import SchedulerDriver
from replkernel_server.errors import ServerError
from replkernel_server.launchers.counting import Counting, LeaveGpu, TakeGpu
from replkernel_server.launchers.engine_usage import EngineUsage
from replkernel_server.launchers.hosts import LaunchedHosts
from replkernel_server.launchers.protocol import (
    HOSTS_ASKED_MAX,
    WHY_CHARS_MAX,
    GpusElsewhere,
    GpusHeld,
    HostComing,
    HostEnding,
    HostJoined,
    HostLost,
    JobsWaiting,
    Launcher,
    LauncherFailed,
    Word,
)
from replkernel_server.launchers.waiting import WaitingJobs
from replkernel_server.scheduling.channel import Channel
from replkernel_server.scheduling.desk_words import HostTakenDown

log = logging.getLogger("replkernel.scheduler")
LOOK_S = 2.0
AGENT_AGAIN_S = 5.0
BACK_AGAIN_S = 15.0


class Launching:
    """One launcher for one scheduler."""

    def __init__(self, launcher: Launcher, driver: SchedulerDriver, channel: Channel) -> None:
        """Make the launcher the executor of what `driver` decides about hosts."""
        self.launcher, self._driver, self._channel = launcher, driver, channel
        view = driver.core.view()
        self._hosts = LaunchedHosts([entry.reservation for entry in view.reservations])
        self._engine_usage = EngineUsage(
            (entry.lease for entry in view.leases), (entry.request for entry in view.waiting)
        )
        self._waiting = WaitingJobs()
        self._counting: Counting | None = None
        able = launcher.capabilities
        if able.counts_gpus:
            leases = (entry.lease for entry in view.leases)
            self._counting = channel.desk.counting = Counting(able.host_prefix, leases)
        self._tasks: set[asyncio.Task[None]] = set()
        self._agents: dict[str, asyncio.Task[None]] = {}
        self._leaving: dict[tuple[str, str], asyncio.Event] = {}
        self._said: dict[str, str] = {}
        self._gpus: dict[HostName, int] = {}
        self._counts: dict[HostName, int] = {}
        self._surplus: dict[HostName, int] = {}
        driver.listen(self._decided)

    async def open(self) -> None:
        """Begin; raises LauncherFailed."""
        await self.launcher.open(self._heard)
        if self._hosts.open:
            self._do("more hosts", self._want())
        self._do("looking", self._look())

    async def close(self) -> None:
        """End; hosts and agents stay."""
        for task in [*self._tasks, *self._agents.values()]:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._agents.values(), return_exceptions=True)
        await self.launcher.close()

    # -- what the launcher tells ---------------------------------------------------------------------

    def _heard(self, word: Word) -> None:
        match word:
            case HostJoined(host, gpus):
                self._gpus[HostName(host)] = gpus
                reservation = self._hosts.joined(HostName(host))
                if reservation is not None:
                    self._channel.desk.reserved[HostName(host)] = reservation
                self._keep_agent(host)
            case HostLost(host, why):
                log.warning("Host %s is lost: %s.", host, why or "its engine says so")
                self._hosts.lost(HostName(host))
                for table in (self._gpus, self._counts, self._surplus):
                    table.pop(HostName(host), None)
                self._forget_agent(host)
                if self._counting is not None:
                    self._counting.lost(HostName(host))
                self._do(f"the loss of {host}", self._down(HostName(host)))
            case HostComing(coming, why, over):
                if over:
                    self._channel.desk.coming.pop(coming, None)
                elif coming in self._channel.desk.coming or len(self._channel.desk.coming) < HOSTS_ASKED_MAX:
                    self._channel.desk.coming[coming] = why[:WHY_CHARS_MAX]
            case HostEnding(host, within_s, why):
                log.warning("Host %s is emptied: %s within %.0f s.", host, why or "it ends", within_s)
                self._feed([HostDrained(HostName(host))])
            case GpusElsewhere(host, count):
                self._counts[HostName(host)] = count
                self._recount(HostName(host))
            case JobsWaiting():
                self._feed(self._waiting.told(word, self._driver.clock.now()))
            case GpusHeld(host, given):
                if self._counting is not None:
                    self._tell(self._counting.held(HostName(host), given))

    def _recount(self, host: HostName) -> None:
        """Have as many GPUs used as the engine's jobs use, and those that it does not know."""
        counting = self._counting
        surplus = 0 if counting is None else counting.surplus(host, self._gpus.get(host, 0))
        self._surplus[host] = surplus
        self._feed(self._engine_usage.counted(host, self._counts.get(host, 0) + surplus))

    def _keep_agent(self, host: str) -> None:
        if host not in self._agents or self._agents[host].done():
            self._agents[host] = asyncio.get_running_loop().create_task(self._start(host))

    def _forget_agent(self, host: str) -> None:
        task = self._agents.pop(host, None)
        if task is not None:
            task.cancel()

    async def _start(self, host: str) -> None:
        while True:
            try:
                await self.launcher.start_agent(host)
            except LauncherFailed as error:
                self._complain(host, f"The agent of host {host} could not be started: {error}")
                await asyncio.sleep(AGENT_AGAIN_S)
            else:
                self._said.pop(host, None)
                return

    async def _down(self, host: HostName) -> None:
        await self._driver.apply(HostDown(host))
        await self._channel.happened(HostTakenDown(host))

    # -- what was decided ----------------------------------------------------------------------------

    def _decided(self, effects: Sequence[HarvestEffect], _took_s: float) -> None:
        """Do what follows; the channel has heard of the same effects before."""
        self._engine_usage.decided(effects)
        more, back = self._hosts.decided(effects)
        if more:
            self._do("more hosts", self._want())
        for host in back:
            self._do(f"giving {host} back", self._give_back(host))
        self._step()

    async def _want(self) -> None:
        if not self.launcher.capabilities.scales:
            why = "this launcher has no more hosts"
        else:
            try:
                await self.launcher.ask_hosts(len(self._hosts.open))
            except LauncherFailed as error:
                why = str(error)
            else:
                return
        self._complain("more hosts", f"No more hosts will come: {why}")
        self._feed([HostNotProvisioned(reservation) for reservation in self._hosts.failed()])

    async def _give_back(self, host: HostName) -> None:
        if not self.launcher.capabilities.scales:
            return
        while self._is_drained(host):
            try:
                await self.launcher.give_back(host)
            except LauncherFailed as error:
                self._complain(host, f"Host {host} is not given back yet: {error}")
                await asyncio.sleep(BACK_AGAIN_S)
                continue
            self._forget_agent(host)
            self._hosts.lost(host)
            await self._down(host)
            return

    def _is_drained(self, host: HostName) -> bool:
        return any(one.name == host and one.state == "draining" for one in self._driver.core.view().hosts)

    # -- GPUs that the engine counts -----------------------------------------------------------------

    def _step(self) -> None:
        if self._counting is None:
            return
        steps, self._counting.steps = self._counting.steps, []
        for step in steps:
            match step:
                case TakeGpu(host, gpu):
                    self._do(f"taking a GPU of {host}", self._take(host, gpu))
                case LeaveGpu(host, gpu):
                    self._do(f"leaving a GPU of {host}", self._leave(host, gpu))

    async def _take(self, host: HostName, gpu: GpuUuid) -> None:
        counting = self._counting
        assert counting is not None
        if (host, gpu) in self._leaving:
            await self._leaving[host, gpu].wait()
        try:
            given = await self.launcher.take_gpu(host, gpu)
        except BaseException:
            counting.failed(host, gpu)
            raise
        if given is not None and counting.is_offered(host, given):
            self._tell(counting.given(host, gpu, given))
            return
        if given is not None:
            await self.launcher.leave_gpu(host, gpu)
            counting.failed(host, gpu)
            raise LauncherFailed(
                f"the engine gave GPU {given} of host {host}, whose agent offers none of that name: let the "
                "engine know as many GPUs as the machine has"
            )
        lease = counting.none_free(host, gpu)
        if lease is not None:
            self._bounce(counting, lease)

    def _bounce(self, counting: Counting, lease: Lease) -> None:
        """Have a request wait behind the engine's jobs, which have the GPU that it was granted."""
        wish = self._driver.core.wish_of(lease.lease)
        busy = self._engine_usage.counted(lease.host, self._engine_usage.count(lease.host) + 1)
        self._feed([*busy, LeaseReleased(lease.lease, lease.fence, 0.0)])
        if wish is None or not counting.is_unknown(lease.lease):
            return
        with contextlib.suppress(ServerError):  # A full journal takes none in; then the lease's end says so.
            asked = self._driver.submit(LeaseAsked(wish))
            counting.asked_anew(lease.lease)
            self._channel.desk.owners.asks(wish.request, wish.kernel_id, wish.user)
            self._do("an event", self._durable(asked))

    async def _leave(self, host: HostName, gpu: GpuUuid) -> None:
        """Leave a GPU, however often it takes: nobody takes that place meanwhile."""
        left = self._leaving[host, gpu] = asyncio.Event()
        try:
            while self._leaving.get((host, gpu)) is left:
                try:
                    await self.launcher.leave_gpu(host, gpu)
                    return
                except LauncherFailed as error:
                    self._complain("leaving", f"GPUs that are no longer leased are still counted: {error}")
                await asyncio.sleep(LOOK_S)
        finally:
            left.set()
            if self._leaving.get((host, gpu)) is left:
                del self._leaving[host, gpu]

    def _tell(self, grants: list[HarvestEffect]) -> None:
        if grants:
            self._channel.counted(grants)
        self._step()

    async def _look(self) -> None:
        """Do again what failed; keep what the engine's jobs hold."""
        while True:
            await asyncio.sleep(LOOK_S)
            now = self._driver.clock.now()
            self._feed([*self._engine_usage.due(now), *self._waiting.due(now)])
            if self._counting is not None:
                for host, gpus in self._gpus.items():
                    if self._counting.surplus(host, gpus) != self._surplus.get(host, 0):
                        self._recount(host)
                self._counting.look_again()
                self._step()

    # -- doing ---------------------------------------------------------------------------------------

    def _feed(self, events: Sequence[Event]) -> None:
        """Have events decided now, in their order; what is refused was over already."""
        for event in events:
            with contextlib.suppress(SchedulerError, ServerError):
                self._do("an event", self._durable(self._driver.submit(event)))

    async def _durable(self, followed: Any) -> None:
        with contextlib.suppress(SchedulerError, ServerError):
            await followed

    def _do(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._quietly(what, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _quietly(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except LauncherFailed as error:
            self._complain(what, f"The launcher failed at {what}: {error}")
        except (SchedulerError, ServerError) as error:
            log.warning("The launcher's driver failed at %s: %s", what, error)
        except Exception:
            log.exception("The launcher's driver failed at %s.", what)
        else:
            self._said.pop(what, None)

    def _complain(self, what: str, sentence: str) -> None:
        if self._said.get(what) != sentence:
            self._said[what] = sentence
            log.warning("%s", sentence)
