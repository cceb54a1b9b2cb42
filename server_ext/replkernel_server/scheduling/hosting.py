"""The scheduler's service as a library: whoever has an event loop and a Tornado application can host it.

Law: one journal, one scheduler; all that serves it is made here, and only once the core is back from its
journal. Who may ask is for the host to say (`Identify`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

import msgspec
from replkernel_scheduler import core_is_compiled
from replkernel_scheduler.events import MonthBegan, PricesSet
from replkernel_scheduler.harvest.types import JobStopAsked
from replkernel_scheduler.settings import CoreSettings
from replkernel_scheduler.types import HostShape
from tornado.routing import URLSpec

from replkernel_server.driver import SchedulerDriver
from replkernel_server.errors import ServerError
from replkernel_server.handlers.scheduler_routes import routes
from replkernel_server.launchers.protocol import Capabilities, Launcher
from replkernel_server.scheduling.booking import set_right
from replkernel_server.scheduling.channel import Channel
from replkernel_server.scheduling.deferring import Deferring, preempting
from replkernel_server.scheduling.desk import DeskTimes
from replkernel_server.scheduling.foreseeing import Foreseeing
from replkernel_server.scheduling.identity import Identify
from replkernel_server.scheduling.journal import Journal
from replkernel_server.scheduling.journal_place import JournalPlace
from replkernel_server.scheduling.launching import Launching
from replkernel_server.scheduling.live_policies import check_live
from replkernel_server.scheduling.metrics import Metrics
from replkernel_server.scheduling.past import PAST_S, SAMPLE_S, PastKeeper, Sample
from replkernel_server.scheduling.recovery import Recovered, recover
from replkernel_server.scheduling.settings import ServiceSettings
from replkernel_server.scheduling.shortening import Shortening

log = logging.getLogger("replkernel.scheduler")
MONTH_LOOK_S = 60.0
CLOCK_SETTLES_S = 3600.0
"""A clock that is wrong when the machine starts has been set by then."""
MONTH_S = 31 * 86_400.0


class Hosted:
    """A scheduler that runs; `open` makes one."""

    def __init__(
        self, recovered: Recovered, journal: Journal, settings: ServiceSettings, identify: Identify
    ) -> None:
        """Serve a core that is back from its journal."""
        self.driver = SchedulerDriver(recovered, journal)
        self.metrics = Metrics(self.driver.core.view())
        self.past = PastKeeper()
        self.driver.listen(self.metrics.observe)
        self.driver.listen(self.past.observe)
        times = DeskTimes(settings.away_s, settings.grace_s, settings.host_away_s)
        self.channel = Channel(self.driver, times, settings.bounds)
        self.channel.takes_jobs = settings.jobs
        self.channel.desk.routers.sharing = settings.gpu_sharing
        self.channel.desk.follows(settings.idle_gpus, self.driver.core.view(), self.driver.clock.now())
        self.foreseeing = Foreseeing(self.driver, self.channel)
        policy = preempting(settings.preempt)
        self.channel.desk.routers.pauses = policy.on_arrival
        self.deferring = Deferring(self.driver, policy)
        self._identify = identify
        self.shortening = Shortening(self.driver)
        self._tasks: list[asyncio.Task[None]] = []
        self._launching: Launching | None = None

    @classmethod
    async def open(
        cls,
        settings: ServiceSettings,
        identify: Identify,
        *,
        new_journal: bool = False,
        launcher: Launcher | None = None,
    ) -> Hosted:
        """Lock the journal, bring the core back from it, and serve; raises what `recover` raises.

        With a launcher, its hosts have agents from then on; raises LauncherFailed if it cannot be used.
        Whatever is raised, the journal is free again.
        """
        loop = asyncio.get_running_loop()
        journal, recovered = await loop.run_in_executor(
            None, open_journal, settings, new_journal, core_settings(launcher)
        )
        log.info("The scheduler's core is %s.", "compiled" if core_is_compiled() else "Python's own code")
        hosted = cls(recovered, journal, settings, identify)
        try:
            await hosted._begin(settings, launcher)
        except BaseException:
            await hosted.close()
            raise
        months = hosted._keep_months(recovered.wall)
        hosted._tasks = [
            loop.create_task(work)
            for work in (months, hosted.shortening.keep(), hosted._keep_past(), hosted.foreseeing.keep())
        ]
        return hosted

    async def _begin(self, settings: ServiceSettings, launcher: Launcher | None) -> None:
        """Decide what follows from a start and from the settings; open the launcher."""
        await self.driver.resume(settings.grace_s)
        await set_right(self.driver)
        if self.driver.core.prices != settings.prices:
            await self.driver.apply(PricesSet(settings.prices))
        if not settings.jobs:
            for job in self.driver.beside.jobs():
                await self.driver.apply(JobStopAsked(job.spec.job))
        if launcher is not None:
            self._launching = Launching(launcher, self.driver, self.channel)
            await self._launching.open()

    def routes(self, prefix: str = "") -> list[URLSpec]:
        """Return the routes of its API and channel, all below `prefix`."""
        return routes(self.driver, self._identify, self.metrics, self.channel, self.past, prefix)

    @property
    def failed(self) -> asyncio.Event:
        """Return the event that is set once nothing is decided any more."""
        return self.driver.failed

    @property
    def trouble(self) -> Exception | None:
        """Return why."""
        return self.driver.trouble

    async def close(self) -> None:
        """Disconnect all clients, write all and a last snapshot, let others use the journal."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._launching is not None:
            await self._launching.close()
        await self.channel.close()
        await self.deferring.close()
        await self.shortening.last()
        await self.driver.close()

    async def _keep_past(self) -> None:
        """Look at the cluster from time to time, for the charts; go on where the journal's looks end."""
        with contextlib.suppress(ServerError, msgspec.MsgspecError):
            kept = await self.driver.in_journal(self.driver.journal.past)
            samples = [msgspec.json.decode(one, type=Sample) for one in kept]
            self.past.restore(one for one in samples if one.point.at >= time.time() - PAST_S)
        while True:
            with contextlib.suppress(ServerError):
                view = await self.driver.view("hosts", "leases", "waiting", "kernels")
                use_of = self.channel.desk.hosts.use_of
                sample = self.past.look(
                    view, time.time(), {host.name: use_of(host.name) for host in view.hosts}
                )
                at, told = sample.point.at, msgspec.json.encode(sample).decode()
                await self.driver.in_journal(self.driver.journal.add_past, at, told, at - PAST_S)
            await asyncio.sleep(SAMPLE_S)

    async def _keep_months(self, last: float) -> None:
        """Let everybody's hours of the month count anew in each month (UTC), also one begun meanwhile."""
        settled_at = time.monotonic() + CLOCK_SETTLES_S
        while True:
            is_settled = time.monotonic() > settled_at
            month = month_begun(self.driver.core.month, last, time.time(), is_settled=is_settled)
            if month:
                with contextlib.suppress(ServerError):
                    await self.driver.apply(MonthBegan(month))
            await asyncio.sleep(MONTH_LOOK_S)


def core_settings(launcher: Launcher | None) -> CoreSettings:
    """Return the settings of a core whose hosts come by themselves, or by a launcher that has more come."""
    able = launcher.capabilities if launcher is not None else Capabilities()
    if not able.scales:
        return CoreSettings()
    return CoreSettings(host_shape=HostShape(gpus=able.host_gpus), hosts_min=0, hosts_max=able.hosts_max)


def month_begun(known: str, last: float, now: float, *, is_settled: bool) -> str:
    """Return which month has begun, nothing where that is known; `last`: when the last event was (0: none).

    What an earlier release wrote does not say which month it knew: that of its last event, then. A month far
    ahead is that of a clock that was wrong: it is not waited for once the clock `is_settled`.
    """
    month, before = _month(now), known or (_month(last) if last else "")
    was_wrong = is_settled and before > _month(now + MONTH_S)
    return month if month > before or was_wrong else ""


def _month(wall: float) -> str:
    return time.strftime("%Y-%m", time.gmtime(wall))


def open_journal(
    settings: ServiceSettings, new: bool = False, core: CoreSettings | None = None
) -> tuple[Journal, Recovered]:
    """Open the journal and bring the core back from it; `new` sets the one that is there aside first."""
    place = JournalPlace(settings.database)
    check_live(settings.policies, scales=core is not None and core.host_shape is not None)
    preempting(settings.preempt)
    if new:
        place.lock()
        try:
            aside = place.set_aside()
        finally:
            place.unlock()
        if aside is not None:
            log.warning("The journal that was there is now %s.", aside)
    journal = Journal(place)
    try:
        return journal, recover(journal, settings, core)
    except ServerError:
        journal.close()
        raise
