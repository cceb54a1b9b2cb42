"""Which jobs start, make room and grow: SideCar's two algorithms, among the jobs beside notebooks.

Laws: a job that waits starts on idle GPUs, or one that runs makes room for it (algorithm 1); where nobody
waits, jobs grow into what idles as long as all of them are done sooner by that (algorithm 2). What notebooks
have left for a while is asked back before a job makes room. What a job leaves for another is on a host where
nobody else starts or grows meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, Protocol

from replkernel_scheduler.elastic.types import Launch
from replkernel_scheduler.events import GpusAwaited
from replkernel_scheduler.harvest.asking import Asking
from replkernel_scheduler.harvest.chances import Chances
from replkernel_scheduler.harvest.floor import Floor
from replkernel_scheduler.harvest.jobs import JobRecord, Jobs
from replkernel_scheduler.harvest.leasing import SHAPES_MAX, Leasing, Place
from replkernel_scheduler.harvest.reach import Reach
from replkernel_scheduler.harvest.spanning import Spanning, Starts
from replkernel_scheduler.harvest.types import ReshapeJob, StartJob
from replkernel_scheduler.policies.reshape_sidecar import SideCar
from replkernel_scheduler.types import HostName, LeaseId, UserName

HOPES_S = 10.0
"""What notebooks were asked for is mostly there within this; then a job makes room."""
MISSED_MAX = 64


class Acts(Starts, Protocol):
    """What can be done with a job."""

    def gives_all_back(self, job: JobRecord, now: float) -> None:
        """Have it without GPUs, for a moment."""
        ...

    def stops(self, job: JobRecord, until: float | None, why: Literal["made room"], now: float) -> None:
        """Have it saved and stopped."""
        ...


class Allotting:
    """Asks the rules, and has done what they say; `reach` says where each job can be started."""

    def __init__(
        self,
        leasing: Leasing,
        jobs: Jobs,
        asking: Asking,
        reach: Reach,
        chances: Chances,
        acts: Acts,
    ) -> None:
        """Decide about `jobs`."""
        self._leasing, self._jobs, self._asking = leasing, jobs, asking
        self._reach, self._chances, self._acts = reach, chances, acts
        self._rules = SideCar(gain=0.0)
        self.spanning = Spanning(leasing, jobs, asking, reach, chances, acts)

    # -- algorithm 1 ----------------------------------------------------------------------------------

    def floor(self, now: float) -> Floor:
        """Return what those that wait are compared with."""
        return Floor(self._jobs.by_name.values(), lambda _: [], now)

    def starts(self, job: JobRecord, floor: Floor, missed: list[GpusAwaited], now: float) -> bool:
        """Start a job, or have another make room for it, or add what it misses; say whether it got any."""
        if job.span > 1:
            floor.something_changed()
            return self.spanning.starts(job, self._hosts(job, floor.closed, floor.reached), now)
        spec = job.spec
        wants = spec.owner, spec.gpu_model, spec.vram_gb, spec.type.least
        if wants not in floor.not_here:
            floor.not_here[wants] = self._chances.not_here(job)
        job.refused = floor.not_here[wants]
        if job.refused:
            return False
        idle = self._idle_seen(job, floor)
        launch = self._launch(job, floor, idle)
        if launch is not None and launch.donor is None:
            place = _roomiest(job, floor.places[launch.host], launch.gpus, idle)
            floor.something_changed()
            if self._asking.ask(job, place, self._asking.sizes(job, 0, launch.gpus), now):
                self._acts.goes_on(job, now, "idle")
                floor.take(job)
                return True
        told = self._reach.of(job) is not None and not job.refused
        hopes = told and self._hopes(job, floor, launch, missed, now)
        if launch is None or launch.donor is None or hopes:
            return False
        self._makes_room(launch, floor, idle, job, now)
        floor.something_changed()
        return True

    def goes_further(self, job: JobRecord, gpus: int, now: float) -> bool:
        """Have a job that is off its GPUs go on with more than `gpus`, here or elsewhere; say if it does.

        Here that is what was wanted back and is not needed after all: nobody knew how soon it leaves. Who
        waits goes first.
        """
        if job.host is None or self._jobs.waiting():
            return False
        closed = {each.host for each in self._jobs.by_name.values() if each.leaves is not None}
        hosts = self._hosts(job, closed, {})
        here, held = Place(job.host, job.model), job.held()
        idle = self._idle_for(job, None, hosts)
        if job.host in hosts:
            idle[here] = idle.get(here, 0) + held
        sizes = self._asking.sizes(job, gpus, max(idle.values(), default=0))
        if not sizes:
            return False
        place = here if idle.get(here, 0) >= sizes[0] else _roomiest(job, here, sizes[0], idle)
        if place != here:
            self._acts.gives_all_back(job, now)
        if not self._asking.ask(job, place, sizes, now):
            return False
        self._acts.begins(job, StartJob, now, "wanted back")
        return True

    def takes_over(self, job: JobRecord, place: Place, now: float) -> None:
        """Start a job on what another one has left for it, if cells have not taken that."""
        spec = job.spec
        idle = self._leasing.room(place.host, place.model, spec.vram_gb).gpus
        if self._asking.ask(job, place, self._asking.sizes(job, 0, idle), now):
            self._acts.goes_on(job, now, "given")

    def _hosts(
        self,
        job: JobRecord,
        closed: Collection[HostName | None],
        reached: dict[tuple[UserName, bool], list[HostName]],
    ) -> list[HostName]:
        """Return where a job may start now; `reached` keeps where those of an owner may, among all hosts."""
        whose = job.spec.owner, job.span > 1
        if whose not in reached:
            up, reach = self._leasing.hosts(), self._reach.of(job)
            among = up if reach is None else set(reach)
            reached[whose] = [host for host in up if host in among]
        return self._chances.apart(job, [host for host in reached[whose] if host not in closed])

    def _idle_seen(self, job: JobRecord, floor: Floor) -> dict[Place, int]:
        """Return what is idle for a job, from before if nothing was asked for meanwhile."""
        wants = job.spec.owner, job.spec.gpu_model, job.spec.vram_gb
        idle = None if job.failed else floor.idle_for.get(wants)
        if idle is None:
            idle = self._idle_for(job, floor, self._hosts(job, floor.closed, floor.reached))
            if not job.failed:
                floor.idle_for[wants] = idle
        return idle

    def _idle_for(self, job: JobRecord, floor: Floor | None, hosts: list[HostName]) -> dict[Place, int]:
        """Return what is idle for a job at each place where it may be, also where that is nothing."""
        model, vram_gb = job.spec.gpu_model, job.spec.vram_gb
        found: dict[Place, int] = {}
        for host in hosts:
            room = self._leasing.room(host, model, vram_gb)
            if room.gpus:
                found[Place(host, room.model)] = room.gpus
            for other in sorted(floor.models_on.get(host, ())) if floor is not None else ():
                place = Place(host, other)
                if place in found or model not in ("", other):
                    continue
                if self._leasing.offers(host, other, vram_gb):
                    found[place] = self._leasing.room(host, other, vram_gb).gpus
        return found

    def _launch(self, job: JobRecord, floor: Floor, idle: dict[Place, int]) -> Launch | None:
        """Return what algorithm 1 says."""
        job.refused = ""
        sizes = self._asking.sizes(job, 0, SHAPES_MAX) if idle else []
        return floor.openings(job, idle).best(job, sizes) if sizes else None

    def _hopes(
        self,
        job: JobRecord,
        floor: Floor,
        launch: Launch | None,
        missed: list[GpusAwaited],
        now: float,
    ) -> bool:
        """Have notebooks asked for what a job misses; say whether it is worth waiting for that."""
        if launch is None or launch.donor is None:
            if len(missed) < MISSED_MAX:
                missed.append(self._misses(job, floor))
            return False
        misses = self._misses(job, floor)
        floor.something_changed()
        if job.hopes_until <= now and self._asking.ask_back([misses], self._jobs.of_lease, now):
            job.hopes_until = now + HOPES_S
        return job.hopes_until > now

    def _misses(self, job: JobRecord, floor: Floor) -> GpusAwaited:
        """Return what notebooks could be asked back for a job."""
        spec, hosts = job.spec, self._hosts(job, floor.closed, floor.reached)
        return GpusAwaited(tuple(hosts), spec.type.least, gpu_model=spec.gpu_model, vram_gb=spec.vram_gb)

    def _makes_room(
        self, launch: Launch, floor: Floor, idle: dict[Place, int], job: JobRecord, now: float
    ) -> None:
        """Have a job stopped, so that it goes on with fewer GPUs beside another one."""
        assert launch.donor is not None
        donor = floor.record_of[launch.donor]
        donor.leaves = job.spec.job
        donor.keeps = len(donor.gpus) - (launch.gpus - idle[floor.places[launch.host]])
        self._acts.stops(donor, None, "made room", now)
        floor.take(donor)

    # -- algorithm 2 ----------------------------------------------------------------------------------

    def grow(self, now: float) -> bool:
        """Have jobs grow into what is idle; say whether notebooks were asked for more."""
        jobs = [job for job in self._jobs.by_name.values() if job.cores is None and job.span == 1]
        floor = Floor(jobs, lambda job: self._asking.sizes(job, job.held(), SHAPES_MAX), now)
        there = self._jobs.leases_by_host()
        closed = {job.host for job in jobs if job.leaves is not None}
        growing = [job for job in jobs if job.state == "running" and job.host not in closed]
        floor.barred = {str(job.spec.job) for job in jobs}
        asked = set[str]()
        for job in growing:
            told = job.host in (self._reach.of(job) or ())
            if told and self._has_asked_back(job, floor, there[_place(job).host], now):
                asked.add(str(job.spec.job))
        reached = [job for job in growing if self._reach.within(job, job.hosts())]
        floor.barred -= {str(job.spec.job) for job in reached} - asked
        at: dict[Place, list[JobRecord]] = {}
        for job in reached:
            if str(job.spec.job) not in floor.barred:
                at.setdefault(_place(job), []).append(job)
        idle = {place: self._idle_beside(free[-1]) for place, free in at.items()}
        while (looked_at := self._grows(floor, idle, now)) is not None:
            floor.barred.add(str(looked_at.spec.job))
            free = at[_place(looked_at)]
            free.remove(looked_at)
            idle[_place(looked_at)] = self._idle_beside(free[-1]) if free else 0
        self.spanning.grow(now)
        return bool(asked)

    def _grows(self, floor: Floor, idle: dict[Place, int], now: float) -> JobRecord | None:
        """Have the job grow that algorithm 2 names, if it is given the GPUs; None: it names nobody."""
        floor.offer(None, idle)
        reshape = self._rules.grow(floor, now)
        if reshape is None:
            return None
        job = floor.record_of[reshape.job]
        sizes = self._asking.sizes(job, job.held(), reshape.gpus)
        if reshape.gpus <= job.held() or self._asking.ask(job, _place(job), sizes, now):
            job.pause(now)
            self._acts.begins(job, ReshapeJob, now, "more idle")
            floor.take(job)
        return job

    def _has_asked_back(self, job: JobRecord, floor: Floor, of_jobs: Collection[LeaseId], now: float) -> bool:
        """Ask back what a job misses, the most first, until anything comes; say whether it does."""
        place, name = _place(job), str(job.spec.job)
        there, has = self._idle_beside(job), len(job.gpus)
        floor.barred.discard(name)
        more, came = max(floor.trainings[name].type.iteration_s) - has, False
        while more > there and not came:
            floor.offer(None, {place: more})
            reshape = self._rules.grow(floor, now)
            if reshape is None or reshape.gpus - has <= there:
                break
            want = GpusAwaited(
                (place.host,), reshape.gpus - job.held(), gpu_model=job.model, vram_gb=job.spec.vram_gb
            )  # fmt: skip
            came = self._asking.ask_back([want], of_jobs, now)
            more = reshape.gpus - has - 1
        floor.barred.add(name)
        return came

    def _idle_beside(self, job: JobRecord) -> int:
        """Return how many more GPUs a job could have where it is."""
        place = _place(job)
        spare = job.held() - len(job.gpus)
        return self._leasing.room(place.host, place.model, job.spec.vram_gb).gpus + spare


def _place(job: JobRecord) -> Place:
    assert job.host is not None
    return Place(job.host, job.model)


def _roomiest(job: JobRecord, place: Place, gpus: int, idle: dict[Place, int]) -> Place:
    """Return, of the places that are as good for the rules, the one with the most idle GPUs."""
    alike = [each for each in idle if not job.speeds_on or each.model == place.model]
    good = [each for each in alike if idle[each] >= gpus]
    return max(good, key=lambda each: (idle[each], each.host), default=place)
