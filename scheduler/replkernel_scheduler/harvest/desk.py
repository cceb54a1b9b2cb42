"""Who of the jobs runs where, with how many GPUs: in what notebooks leave idle, until a cell wants it.

A job holds GPUs of one host as leases that linger, so the core asks them back as soon as a cell wants them;
then it is saved, and goes on with fewer or waits. Laws: cells come first, always. A job asks only for GPUs
that are idle and that nobody who waits has a claim on, never runs with a number that it does not allow, nor
on GPUs that are wanted back. Who starts, makes room and grows, SideCar's rules say (`allotting`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import Literal

from msgspec import UNSET

from replkernel_scheduler.effects import EndReason
from replkernel_scheduler.events import (
    GpusAwaited,
    LeaseReleased,
    LeaseRenewed,
)
from replkernel_scheduler.gangs.desk import END_S
from replkernel_scheduler.harvest.allotting import Allotting
from replkernel_scheduler.harvest.asking import LEASE_S, Asking
from replkernel_scheduler.harvest.chances import Chances
from replkernel_scheduler.harvest.jobs import JobRecord, Jobs
from replkernel_scheduler.harvest.leasing import Leasing, Pace, Place, problem
from replkernel_scheduler.harvest.past import PastJobs
from replkernel_scheduler.harvest.processors import Processors
from replkernel_scheduler.harvest.reach import Reach
from replkernel_scheduler.harvest.types import (
    ChangeWhy,
    HostJobs,
    HostUsed,
    JobEnd,
    JobEnded,
    JobHoldAsked,
    JobHosts,
    JobLeased,
    JobLeaseEnded,
    JobName,
    JobOver,
    JobProgress,
    JobRefused,
    JobRuns,
    JobsEffect,
    JobStopAsked,
    JobStopped,
    JobSubmitted,
    OnHost,
    ReshapeJob,
    StartJob,
    StopJob,
    StopWhy,
    type_as_seen,
)
from replkernel_scheduler.jobs.protocol import Discipline, Queues
from replkernel_scheduler.types import (
    HostName,
    Lease,
    LeaseId,
    RequestId,
)

LOOK_EVERY_S = 60.0
UNHEARD_S = 300.0
"""What runs where no agent of its owner is has so long to end, when its first host is lost."""
FORGETS_S = 3600.0
"""Who has run for so long where he fails now may fail as often again elsewhere."""
BACK_S = 2.0
"""What was asked back for a job that grows is looked for after so long."""


class Desk:
    """Decides about all jobs; `tell` takes the effects."""

    def __init__(
        self,
        leasing: Leasing,
        tell: Callable[[JobsEffect], None],
        pace: Pace,
        queues: Queues,
        discipline: Discipline,
    ) -> None:
        """Start with no jobs; those on cores are served as `queues` and `discipline` say."""
        self.pace = pace
        self.looked_at: float | None = None
        self.looked_until: JobName | None = None
        """Where the last look stopped, if it did not come to the end."""
        self.jobs = Jobs()
        self.asking = Asking(leasing, self.jobs)
        self.soon_at: float | None = None
        self.look_at: float | None = None
        self.renew_at: dict[LeaseId, float] = {}
        """When each lease is renewed, the first one first."""
        self._leasing, self._tell = leasing, tell
        self.reach = Reach()
        self.past = PastJobs()
        self.chances = chances = Chances(leasing, self.reach)
        self._allotting = Allotting(leasing, self.jobs, self.asking, self.reach, chances, self)
        self.processors = Processors(leasing, self.jobs, self.reach, chances, self, queues, discipline)
        self._giving = self._launching = False
        self._bereft: dict[JobName, JobRecord] = {}

    # -- what is said of jobs -----------------------------------------------------------------------

    def submitted(self, event: JobSubmitted, now: float) -> None:
        """Take a job in, or refuse it."""
        spec = event.spec
        job = JobRecord(spec, spec.samples, counted_at=now)
        why = problem(spec, self.jobs, keeps=self._leasing.keeps()) or self.chances.never(job)
        if why:
            self._tell(JobRefused(spec.job, why))
            return
        self.jobs.add(job)
        self._look_soon(now)

    def runs(self, event: JobRuns, now: float) -> None:
        """Take note that a job trains."""
        job = self._current(event.job, event.attempt)
        if job is not None and job.state == "starting":
            job.state, job.since = "running", now
            job.left = job.left if event.left is None else event.left

    def progress(self, event: JobProgress, now: float) -> None:
        """Take note of what a job has left."""
        job = self._current(event.job, event.attempt)
        if job is not None and job.state == "running":
            job.pause(now)
            job.left = event.left
            job.speeds, job.seen_on = event.speeds, job.model
            job.speeds_on = {**job.speeds_on, job.model: event.speeds}
            job.seen = type_as_seen(job.spec.type, event.speeds, job.size)

    def stopped(self, event: JobStopped, now: float) -> None:
        """Give back what is wanted back, and let the job go on with the rest."""
        job = self._current(event.job, event.attempt)
        if job is not None:
            job.pause(now)
            job.left = job.left if event.left is None else event.left
            job.tells(event.epoch, event.loss)
            self.goes_on(job, now, job.why)

    def ended(self, event: JobEnded, now: float) -> None:
        """Take note that a job is over, also one that was given up where it ran and waits since."""
        job = self.jobs.by_name.get(event.job)
        if job is not None and job.attempt == event.attempt:
            job.tells(event.epoch, event.loss)
            elsewhere = event.elsewhere is True and event.why == "failed"
            if elsewhere and job.failed_at == event.attempt:
                return  # It was told before.
            if elsewhere and self._fails(job, event.said, now):
                self.goes_on(job, now, "failed")
            else:
                self._over(job, event.why, now, event.said)

    def stop_asked(self, event: JobStopAsked, now: float) -> None:
        """End a job that its owner does not want any more."""
        job = self.jobs.by_name.get(event.job)
        if job is None:
            return
        if job.state == "waiting":
            self._over(job, "stopped", now)
            return
        job.ending = "stopped"
        if job.state != "stopping":
            self.stops(job, None, "asked", now)

    def hold_asked(self, event: JobHoldAsked, now: float) -> None:
        """Have a job wait without GPUs, or go on; one that ends does so."""
        job = self.jobs.by_name.get(event.job)
        if job is None or job.ending is not None:
            return
        job.on_hold = event.held
        if not event.held:
            self._look_soon(now)
        elif job.state in ("starting", "running"):
            self.stops(job, None, "asked", now)

    def reaches(self, event: JobHosts, now: float) -> None:
        """Take note of where an owner's jobs can be started."""
        self.reach.told[event.owner] = event
        if self.jobs.by_name:
            self._look_soon(now)

    def uses(self, event: HostUsed, now: float) -> None:
        """Take note of what is used on a host beside jobs on cores."""
        self.processors.uses(event, now)
        if self.jobs.waiting_for_cores():
            self._look_soon(now)

    def host_has(self, event: HostJobs, now: float) -> None:
        """Compare what a host runs with what it should: nothing runs twice, and nothing is forgotten."""
        host, there = event.host, set(event.jobs)
        for name, attempt in event.jobs:
            job = self._current(name, attempt)
            if job is None or job.host != host or event.owner not in (None, job.spec.owner):
                self._tell(StopJob(name, attempt, host, None, "stale", saves=False))
            elif job.state == "stopping":
                until = min(job.back.values(), default=None)
                why: StopWhy = "asked" if job.ending or job.on_hold else "wanted back"
                saves = job.span == 1 or (job.gone_at is None and job.why != "lease over")
                self._tell(StopJob(name, attempt, host, until, why, saves))
        for job in self.jobs.on(host):
            mine = event.owner in (None, job.spec.owner)
            if not mine or (job.spec.job, job.attempt) in there:
                continue
            if job.span > 1:
                self._first_is_lost(job, now, "lost")
            else:
                job.pause(now)
                self.goes_on(job, now, job.why if job.state == "stopping" else "lost")

    # -- what the core says -------------------------------------------------------------------------

    def granted(self, lease: Lease, now: float) -> bool:
        """Take note of a lease; say whether it is a job's."""
        asker = self.asking.who(lease.request)
        if asker is not None:
            self.jobs.take(asker, lease, now)
            self.renew_at[lease.lease] = now + LEASE_S / 2
            self._tell(JobLeased(asker.spec.job, lease))
            return True
        return lease.lease in self.jobs.of_lease

    def refused(self, request: RequestId, why: str) -> bool:
        """Keep why a job was refused GPUs; say whether it was one."""
        asker = self.asking.who(request)
        if asker is not None:
            asker.refused = why
        return asker is not None

    def lease_ended(self, lease: Lease, why: EndReason, now: float) -> bool:
        """Take note that GPUs are idle; say whether they were a job's."""
        if self.jobs.by_name and not self._launching and not self.asking.is_open:
            self._look_soon(now)  # What a look itself gives back nobody could use.
        job = self.jobs.leave(lease, now)
        if job is None:
            return False
        del self.renew_at[lease.lease]
        self._tell(JobLeaseEnded(job.spec.job, lease, why))
        if why != "released" or not (self._giving or self.asking.is_open):
            self._bereft[job.spec.job] = job
        return True

    def reclaimed(self, lease: Lease, until: float, now: float) -> bool:
        """Stop the job whose GPUs a cell wants; say whether it was a job's."""
        job = self.jobs.of_lease.get(lease.lease)
        if job is None:
            self.asking.asked_back += 1
            return False
        job.back.setdefault(lease.lease, until)
        if job.state in ("starting", "running"):
            self.stops(job, until, "wanted back", now)
        return True

    def settle(self, now: float) -> None:
        """See to the jobs that lost leases unasked, once all of that has happened."""
        while self._bereft:
            job = self._bereft.pop(next(iter(self._bereft)))
            if self.jobs.by_name.get(job.spec.job) is not job:
                continue
            job.since = now  # What was not saved is lost.
            if job.leases:
                self.stops(job, None, "lease over", now, saves=False)
                if job.host not in job.hosts():  # Nobody is left there to say that it is over.
                    self._first_is_lost(job, now, "lease over")
            elif job.ending is not None:
                self._over(job, job.ending, now)
            else:
                self.rests(job, now, "lease over")

    # -- when it looks ------------------------------------------------------------------------------

    def due_at(self) -> float | None:
        """Return when `due` wants to be called."""
        times = [self.soon_at, self.look_at, next(iter(self.renew_at.values()), None)]
        if self.jobs.across:
            times += [job.gone_at for job in self.jobs.by_name.values()]
        return min([at for at in times if at is not None], default=None)

    def due(self, now: float) -> None:
        """Renew leases, launch those that wait, and each minute let jobs grow unless somebody waits."""
        for name, _ in list(takewhile(lambda each: each[1] <= now, self.renew_at.items())):
            lease = self.jobs.of_lease[name].leases[name]
            del self.renew_at[name]
            self.renew_at[name] = now + LEASE_S / 2
            self._leasing.feed(LeaseRenewed(lease.lease, lease.fence), now)
        for job in list(self.jobs.by_name.values()) if self.jobs.across else ():
            if job.gone_at is not None and job.gone_at <= now:
                self.goes_on(job, now, job.why)
        looks = self.look_at is not None and self.look_at <= now
        if looks or (self.soon_at is not None and self.soon_at <= now):
            self.soon_at, self.looked_at = None, now
            self._launching = True
            self._launch(now)
            self._launching = False
        if looks:
            self.look_at = None
            jobs = list(self.jobs.by_name.values())
            if not self._allotting.spanning.hold_up(jobs, now):
                asked_back = self._allotting.grow(now)
                self.look_at = now + BACK_S if asked_back else None
            if jobs:
                self._look_soon(now)

    def _look_soon(self, now: float) -> None:
        """Look at those that wait once all of this moment has happened, and at all within a minute.

        Not too soon after the last look: what comes free meanwhile is seen then.
        """
        if self.soon_at is None:
            self.soon_at = now if self.looked_at is None else max(now, self.looked_at + self.pace.apart_s)
        if self.look_at is None:
            self.look_at = now + LOOK_EVERY_S

    # -- decisions ----------------------------------------------------------------------------------

    def _launch(self, now: float) -> None:
        """Start those that wait; after so many that get nothing the next look goes on."""
        missed: list[GpusAwaited] = []
        waiting, in_vain = self.jobs.waiting(), 0
        floor = self._allotting.floor(now) if waiting else None
        promised = self.jobs.promised()
        names = [job.spec.job for job in waiting]
        begin = names.index(self.looked_until) + 1 if self.looked_until in names else 0
        self.looked_until = None
        for job in waiting[begin:]:
            if in_vain >= self.pace.jobs:
                self._look_soon(now)
                break
            assert floor is not None
            if job.spec.job not in promised and not self._allotting.starts(job, floor, missed, now):
                in_vain += 1
            self.looked_until = job.spec.job
        else:
            self.looked_until = None
        if missed:
            self.asking.ask_back(missed, self.jobs.of_lease, now)
        if self.processors.launch(now, self.pace.hosts):
            self._look_soon(now)

    def goes_on(self, job: JobRecord, now: float, why: ChangeWhy) -> None:
        """Nothing of the job is on its GPUs: give back what is wanted back, and go on with the rest.

        It waits where that is too little, or nobody starts it.
        """
        if job.ending is not None:
            self._over(job, job.ending, now)
            return
        if job.cores is not None:
            self.rests(job, now, why)
            self._look_soon(now)
            return
        newcomer, job.leaves, job.gone_at = self._newcomer_of(job), None, None
        place = None if job.host is None else Place(job.host, job.model)
        self._give_wanted_back(job, now)
        there = self.reach.within(job, job.hosts()) and not self.chances.avoids(job, job.hosts())
        stays = there and job.spec.type.least <= job.at_hand() and not job.on_hold
        further = stays and why == "wanted back" and job.span == 1
        if further and self._allotting.goes_further(job, job.fits(), now):
            return
        if stays and job.leases:
            self._give_back(job, job.spares(job.fits(job.keeps if newcomer else None)), now)
            self._give_wanted_back(job, now)
        if stays and job.spec.type.least <= job.at_hand():
            self.begins(job, StartJob, now, why)
        else:
            self.gives_all_back(job, now)
            self.rests(job, now, why)
        if newcomer is not None and place is not None:
            self._allotting.takes_over(newcomer, place, now)

    def _newcomer_of(self, job: JobRecord) -> JobRecord | None:
        """Return who waits for what a job leaves, if it still does."""
        newcomer = None if job.leaves is None else self.jobs.by_name.get(job.leaves)
        waits = newcomer is not None and newcomer.state == "waiting" and not newcomer.on_hold
        return newcomer if waits else None

    def begins(
        self, job: JobRecord, how: type[StartJob] | type[ReshapeJob], now: float, why: ChangeWhy
    ) -> None:
        """Start another attempt, with the most GPUs that it can use of its own."""
        each = job.fits() // job.span
        first, *others = [OnHost(host, gpus[:each]) for host, gpus in job.usable_on().items()]
        gpus = tuple([gpu for there in (first, *others) for gpu in there.gpus])
        job.attempt += 1
        job.state, job.gpus, job.ran_on = "starting", gpus, first.host
        job.changed(len(gpus), why, now)
        if how is StartJob:
            self._tell(StartJob(job.spec, job.attempt, first.host, first.gpus, tuple(others)))
        else:
            self._tell(ReshapeJob(job.spec.job, job.attempt, first.host, first.gpus, tuple(others)))

    def starts_on(self, job: JobRecord, host: HostName, now: float) -> None:
        """Start an attempt of a job on cores."""
        assert job.cores is not None
        job.count(now)
        job.attempt += 1
        self.jobs.start(job, host, now)
        job.state, job.ran_on = "starting", host
        job.changed(job.cores.count, "idle", now)
        self._tell(StartJob(job.spec, job.attempt, host, ()))

    def stops(
        self,
        job: JobRecord,
        until: float | None,
        why: Literal["wanted back", "made room", "asked", "lease over"],
        now: float,
        *,
        saves: bool = True,
    ) -> None:
        assert job.host is not None
        job.pause(now)
        job.state, job.why = "stopping", why
        self._tell(StopJob(job.spec.job, job.attempt, job.host, until, why, saves))

    def _first_is_lost(self, job: JobRecord, now: float, why: Literal["lost", "lease over"]) -> None:
        """Have the other hosts of a job end it; until they have, what they compute on is nobody else's."""
        if job.gone_at is not None:
            return
        if job.state != "stopping" or job.why != "lease over":
            self.stops(job, None, "lease over", now, saves=False)
        job.why = why
        heard = self.reach.within(job, [host for host in job.hosts() if host != job.host])
        job.gone_at = now + (END_S if heard else UNHEARD_S)

    def _fails(self, job: JobRecord, how: str, now: float) -> bool:
        """Take note that a program has failed too often where it is; say whether it is started elsewhere."""
        where = tuple(job.hosts()) if job.host is None or job.cores is None else (job.host,)
        if job.state == "waiting":  # Where it ran was given up meanwhile.
            where = () if job.ran_on is None or job.span > 1 else (job.ran_on,)
        if not where:
            return False
        job.since = now  # What was not saved is lost.
        if job.changes and now - job.changes[-1].at >= FORGETS_S:
            job.failed = ()
        job.failed, job.failed_at, job.failure = (*job.failed, where), job.attempt, how
        return job.ending is None and self.chances.has_others(job)

    def rests(self, job: JobRecord, now: float, why: ChangeWhy) -> None:
        """Let a job without GPUs wait."""
        job.pause(now)
        job.count(now)
        job.changed(0, why, now)
        if job.cores is not None:
            job.saved_s += now - job.begun if why in ("wanted back", "asked") else 0.0
            self.jobs.unsettle(job)
        job.state, job.gpus, job.host, job.model, job.leaves = "waiting", (), None, "", None
        job.gone_at = None

    def gives_all_back(self, job: JobRecord, now: float) -> None:
        """Have all of a job's GPUs idle again."""
        self._give_back(job, list(job.leases), now)

    def _over(self, job: JobRecord, why: JobEnd, now: float, said: str = "") -> None:
        self.jobs.remove(job)
        self._give_back(job, list(job.leases), now)
        job.count(now)
        self.past.add(job.past(why, said, now))
        core_s = UNSET if job.cores is None else job.core_s
        self._tell(JobOver(job.spec.job, why, job.gpu_s, job.ran_on, job.spec.owner, core_s))
        if job.cores is not None:
            self._look_soon(now)

    def _give_wanted_back(self, job: JobRecord, now: float) -> None:
        """Give back what is wanted back, also what is while that happens."""
        while job.back:
            self._give_back(job, list(job.back), now)

    def _give_back(self, job: JobRecord, names: list[LeaseId], now: float) -> None:
        self._giving = True
        for name in names:
            lease = job.leases[name]
            self._leasing.feed(LeaseReleased(lease.lease, lease.fence), now)
        self._giving = False

    def _current(self, name: JobName, attempt: int) -> JobRecord | None:
        """Return the job whose newest attempt this is, if that is not over."""
        job = self.jobs.by_name.get(name)
        return job if job is not None and job.attempt == attempt and job.state != "waiting" else None
