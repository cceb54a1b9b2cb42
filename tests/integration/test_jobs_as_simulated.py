"""A day of jobs beside notebooks is decided by the service as by the simulator.

The simulator plays a drawn day. Then the service lives through it: its driver, journal, desks and own timers,
on a loop whose time jumps. Notebooks do what they did in the simulation, at the same times; agents hear of
jobs by the wire's messages alone, and answer after the same costs. Both lists of decisions are one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from functools import partial
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest
from replkernel_scheduler.effects import LeaseEnded, LeaseGranted, ReplicaMoved
from replkernel_scheduler.elastic.types import SIDECAR
from replkernel_scheduler.events import TimeReached
from replkernel_scheduler.harvest.core import HarvestCore
from replkernel_scheduler.harvest.leasing import LIVE
from replkernel_scheduler.harvest.types import (
    HarvestEffect,
    HarvestEvent,
    JobEnded,
    JobHosts,
    JobOver,
    JobRuns,
    JobsDue,
    JobSpec,
    JobStopped,
    JobSubmitted,
    ReshapeJob,
    StartJob,
    StopJob,
)
from replkernel_scheduler.sim import forms
from replkernel_scheduler.sim import harvest as simulated_jobs
from replkernel_scheduler.sim.plan import Plan, settings_for
from replkernel_scheduler.sim.records import Cell, Job, Record, Session, order
from replkernel_scheduler.sim.simulation import Simulation, core_for
from replkernel_scheduler.sim.way import way_named
from replkernel_scheduler.types import HostName, UserName
from replkernel_server.driver import SchedulerDriver
from replkernel_server.scheduling import recovery
from replkernel_server.scheduling.channel import Channel
from replkernel_server.scheduling.desk import DeskTimes
from replkernel_server.scheduling.desk_words import JobCame
from replkernel_server.scheduling.identity import Identity
from replkernel_server.scheduling.journal import Journal
from replkernel_server.scheduling.journal_place import JournalPlace
from replkernel_server.scheduling.journal_tables import Head
from replkernel_server.scheduling.recovery import Recovered, make_beside

from replkernel.leasing import wire
from tests.bench.scheduler_interactivity import trace_file
from tests.support.beside_day import Decided, journal_of
from tests.support.played_time import PlayedClock, PlayedTime

DAY_S = 86_400.0
DRAWN = Plan(hosts=3, gpus_per_host=4, seed=5)
CROWDED = Plan(hosts=5, gpus_per_host=4, seed=5)
"""Replicas are on three hosts of five, so they move."""
RECORDED = Plan(hosts=20, gpus_per_host=8, seed=1)
LEAVES_S = 11.7
"""From being asked until a job's GPUs are free: no multiple of the 2 s after which a core asks others."""
PACE = LIVE._replace(apart_s=0.97)
"""The service's, but for a second that is half of those 2 s: what happens at once has no order of its own."""
WAY = msgspec.structs.replace(way_named("harvest"), lingers=True)
USERS = (UserName("ann"), UserName("bob"))
OF_JOBS = (JobSubmitted, JobRuns, JobStopped, JobEnded, JobHosts, JobsDue, TimeReached)
"""What the service makes of what it is told, or by its own timers."""


class Decision(NamedTuple):
    """One decision: when, which, about whom, where, with which GPUs."""

    at: float
    what: str
    whose: str
    host: str
    gpus: tuple[str, ...]


def decisions(decided: list[Decided]) -> list[Decision]:
    """Return what was decided about jobs, and which cells were leased which GPUs; at one time by name."""
    found: list[Decision] = []
    for at, _, effects in decided:
        for effect in effects:
            match effect:
                case StartJob(spec, attempt, host, gpus):
                    found.append(Decision(at, "start", f"{spec.job} {attempt}", host, gpus))
                case ReshapeJob(job, attempt, host, gpus):
                    found.append(Decision(at, "reshape", f"{job} {attempt}", host, gpus))
                case StopJob(job, attempt, host, _, why):
                    found.append(Decision(at, f"stop: {why}", f"{job} {attempt}", host, ()))
                case ReplicaMoved(_, kernel_id, host, source):
                    found.append(Decision(at, "move", f"{kernel_id} from {source}", host, ()))
                case JobOver(job, why):
                    found.append(Decision(at, why, job, "", ()))
                case LeaseGranted(lease):
                    found.append(Decision(at, "lease", lease.request, lease.host, lease.gpus))
                case LeaseEnded(lease, why):
                    found.append(Decision(at, f"lease over: {why}", lease.request, lease.host, lease.gpus))
    return sorted(found, key=lambda each: (round(each.at, 3), each[1:]))


def drawn(seed: int) -> list[Record]:
    """Return a day of notebooks and jobs; nothing happens at a full second, so nothing at once by chance."""
    dice = Random(seed)
    records: list[Record] = []
    for number in range(10):
        begins = dice.uniform(0.0, 0.4 * DAY_S)
        ends = dice.uniform(begins + 3600.0, DAY_S)
        gpus = dice.choice((1, 1, 2, 4))
        records.append(Session(f"note{number}", begins, ends, gpus, dice.choice(USERS)))
        at = begins + dice.uniform(60.0, 600.0)
        while at < ends:
            lasts_s = dice.uniform(20.0, 900.0)
            records.append(Cell(f"note{number}", at, lasts_s, gpus))
            at += lasts_s + dice.expovariate(1 / 1500.0)
    for number in range(14):
        seconds = dice.uniform(1800.0, 12_000.0)
        speeds = ((1, 4.0 * seconds), (2, 2.2 * seconds), (4, 1.25 * seconds))
        at = dice.uniform(0.0, 0.7 * DAY_S)
        records.append(Job(f"train{number}", at, seconds, 2, user=dice.choice(USERS), seconds_with=speeds))
    return sorted(records, key=order)


def crowded(seed: int) -> list[Record]:
    """Return four hours in which notebooks move to where GPUs are, and jobs make room for each other."""
    dice, ends_s = Random(seed), 14_400.0
    records: list[Record] = []
    for number in range(12):
        begins = dice.uniform(0.0, 0.2 * ends_s)
        ends, gpus = dice.uniform(begins + 3600.0, ends_s), dice.choice((1, 2, 3, 4))
        records.append(Session(f"note{number}", begins, ends, gpus, dice.choice(USERS)))
        at = begins + dice.uniform(60.0, 300.0)
        while at < ends:
            lasts_s = dice.uniform(20.0, 400.0)
            records.append(Cell(f"note{number}", at, lasts_s, gpus))
            at += lasts_s + dice.expovariate(1 / 200.0)
    for number in range(6):
        seconds = dice.uniform(900.0, 4000.0)
        speeds = ((1, 4.0 * seconds), (2, 2.2 * seconds), (4, 1.25 * seconds))
        at = dice.uniform(0.0, 0.7 * ends_s)
        records.append(Job(f"train{number}", at, seconds, 2, user=dice.choice(USERS), seconds_with=speeds))
    return sorted(records, key=order)


class Told(HarvestCore):
    """The simulator's core with the service's pace, which hears where jobs can start; it remembers all."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(core_for(WAY, plan), PACE)
        self.decided: list[Decided] = []

    def handle(self, event: HarvestEvent, now: float) -> list[HarvestEffect]:
        if isinstance(event, JobSubmitted):
            self.handle(JobHosts(event.spec.owner, tuple(sorted(self.hosts()))), now)
        effects = super().handle(event, now)
        self.decided.append(Decided(now, event, effects))
        return effects


def simulated(records: list[Record], plan: Plan) -> list[Decided]:
    """Play the day in the simulator."""
    core = Told(plan)
    Simulation(records, 0.0, WAY, plan, core=core).run()
    return core.decided


class Training:
    """A job on an agent: what it has left, and what was put down before something changed."""

    def __init__(self, spec: JobSpec) -> None:
        assert spec.samples is not None
        self.spec, self.left, self.began = spec, spec.samples, False
        self.gpus, self.since, self.version = 0, 0.0, 0
        self.trains = self.ends = False

    def halt(self, now: float) -> None:
        """Train no more; what was done is saved."""
        self.version += 1
        self.ends = False
        if self.trains:
            self.left = max(0.0, self.left - (now - self.since) * self.spec.type.rate(self.gpus))
        self.trains = False


class PlayedAgent:
    """The agent of a user on a host: it is told by the wire's messages, and answers after SideCar's costs."""

    def __init__(self, service: PlayedService, user: UserName, host: HostName) -> None:
        self._service, self.user, self.host = service, user, host
        self._client = service.channel.connected(self)

    async def join(self) -> None:
        """Say hello."""
        assert self._client is not None
        hello = wire.Hello(wire.WIRE_VERSION, "jobs", self.host)  # type: ignore[arg-type]
        await self._service.channel.joined(self._client, hello, Identity(self.user, admin=True))
        await self._service.channel.said(self._client, wire.JobsHere())

    def refuse(self, why: str) -> None:
        """Hear that the scheduler ends."""

    def post(self, message: wire.FromScheduler) -> None:
        """Hear what is to be done."""
        loop = self._service.loop
        match message:
            case wire.StartJob(job, attempt, gpus):
                training = self._service.trainings[job]
                again_s = SIDECAR.up_s if training.trains else SIDECAR.process_start_s
                takes_s = again_s if training.began else SIDECAR.start_s
                training.halt(loop.time())
                training.gpus = len(gpus)
                loop.call_later(takes_s, self._trains, training, attempt, training.version)
            case wire.StopJob(job, attempt, _, saves):
                assert saves
                training = self._service.trainings[job]
                if training.ends:
                    loop.call_later(LEAVES_S, self._over, training, attempt, training.version)
                    return
                training.halt(loop.time())
                loop.call_later(LEAVES_S, self._say, wire.JobSaid(job, attempt, "stopped"))

    def _trains(self, training: Training, attempt: int, version: int) -> None:
        if version != training.version:
            return
        loop, spec = self._service.loop, training.spec
        training.trains = training.began = True
        training.since = loop.time()
        takes_s = spec.type.run_s(training.left, training.gpus)
        loop.call_later(takes_s, self._trained, training, attempt, version)
        self._say(wire.JobSaid(spec.job, attempt, "runs"))

    def _trained(self, training: Training, attempt: int, version: int) -> None:
        if version == training.version:
            loop = self._service.loop
            training.halt(loop.time())
            training.ends = True
            loop.call_later(SIDECAR.finish_s, self._over, training, attempt, training.version)

    def _over(self, training: Training, attempt: int, version: int) -> None:
        if version == training.version:
            training.version += 1
            self._say(wire.JobSaid(training.spec.job, attempt, "done"))

    def _say(self, message: wire.FromClient) -> None:
        assert self._client is not None
        self._service.awaits(self._service.channel.said(self._client, message))


class PlayedService:
    """The service on a loop whose time jumps."""

    def __init__(self, loop: PlayedTime, path: Path, plan: Plan) -> None:
        self.loop, self._plan = loop, plan
        head = Head(plan.seed, 0, {"set": "notebook"}, settings_for(plan, WAY))
        self.journal = Journal(JournalPlace(f"sqlite:///{path}"))
        self.journal.begin(head)
        dice = Random(f"core {plan.seed}")
        recovered = Recovered(make_beside(head, dice), dice)
        self.driver = SchedulerDriver(recovered, self.journal, PlayedClock(loop))
        self.channel = Channel(self.driver, DeskTimes())
        self.trainings: dict[str, Training] = {}
        self._tasks: list[Awaitable[Any]] = []

    def awaits(self, what: Awaitable[Any]) -> None:
        """Have something done."""
        self._tasks.append(self.loop.create_task(what))  # type: ignore[arg-type]

    async def live(self, told: list[Decided]) -> None:
        """Live through what notebooks did and who submitted what."""
        for user in USERS:
            for number in range(self._plan.hosts):
                await PlayedAgent(self, user, HostName(f"host-{number:04}")).join()
        heard = [each for each in told if not isinstance(each.event, OF_JOBS[1:])]
        for at, events in groupby(heard, key=lambda each: each.at):
            self.loop.call_at(at, partial(self._happens, [each.event for each in events]))
        last = self.loop.create_future()
        self.loop.call_at(told[-1].at + 60.0, last.set_result, None)
        await last
        for task in self._tasks:
            await task
        await self.channel.close()
        await self.driver.close()

    def _happens(self, events: list[HarvestEvent]) -> None:
        for event in events:
            if isinstance(event, JobSubmitted):
                self.trainings[event.spec.job] = Training(event.spec)
                assert self.channel.desk.jobs is not None
                self.awaits(self.driver.submit(self.channel.desk.jobs.before(event.spec.owner)))
                self.awaits(self.channel.happened(JobCame(event.spec.owner)))
            self.awaits(self.driver.submit(event))


def lived(told: list[Decided], path: Path, plan: Plan) -> list[Decided]:
    """Let the service live through the day; return what its journal says."""
    loop = PlayedTime()
    try:
        loop.run_until_complete(PlayedService(loop, path, plan).live(told))
    finally:
        loop.close()
    return journal_of(path, Random(f"core {plan.seed}"))


def recorded() -> list[Record]:
    """Return a recorded day of notebooks, with drawn jobs; no two things are at once by chance."""
    dice = Random(9)
    records: list[Record] = []
    for record in forms.read(trace_file()):
        shifted = msgspec.structs.replace(record, at=record.at + dice.uniform(0.0, 0.9))
        if isinstance(shifted, Session):
            shifted = msgspec.structs.replace(shifted, at=shifted.at - 1.0, ends=shifted.ends + 2.0)
        records.append(shifted)
    last = max(record.at for record in records)
    for number in range(60):
        seconds = dice.uniform(1800.0, 14_000.0)
        speeds = ((1, 4.0 * seconds), (2, 2.2 * seconds), (4, 1.25 * seconds))
        at = dice.uniform(0.0, 0.8 * last)
        records.append(Job(f"train{number}", at, seconds, 2, user=dice.choice(USERS), seconds_with=speeds))
    return sorted(records, key=order)


def decided_the_same(records: list[Record], plan: Plan, path: Path) -> Counter[str]:
    """Play a day both ways; return how often each thing was decided."""
    told = simulated(records, plan)
    expected, found = decisions(told), decisions(lived(told, path, plan))
    whats = Counter(decision.what for decision in expected)
    print(dict(whats))
    assert [decision[1:] for decision in found] == [decision[1:] for decision in expected]
    assert max(abs(one.at - other.at) for one, other in zip(found, expected, strict=True)) <= PACE.apart_s
    assert {"start", "reshape", "stop: wanted back", "lease"} <= set(whats)
    return whats


@pytest.fixture(autouse=True)
def leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have simulated jobs leave as those of the played agents do, and both look at the same pace."""
    monkeypatch.setattr(simulated_jobs, "SAVES_S", LEAVES_S)
    monkeypatch.setattr(recovery, "LIVE", PACE)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_service_decides_about_a_day_of_jobs_as_the_simulator_does(seed: int, tmp_path: Path) -> None:
    whats = decided_the_same(drawn(seed), DRAWN, tmp_path / "journal.sqlite")
    assert whats["done"] == 14, "every job came to its end"


@pytest.mark.parametrize("seed", [3, pytest.param(13, marks=pytest.mark.slow)])
def test_so_it_does_where_replicas_move(seed: int, tmp_path: Path) -> None:
    whats = decided_the_same(crowded(seed), CROWDED, tmp_path / "journal.sqlite")
    assert whats["move"] >= 10, whats


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_so_it_does_about_a_recorded_day(tmp_path: Path) -> None:
    try:
        records = recorded()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    assert decided_the_same(records, RECORDED, tmp_path / "journal.sqlite")["done"] == 60
