"""What SideCar's rules see of jobs beside notebooks: who trains where with how many GPUs, and what idles.

Law: it looks at one moment and changes nothing but itself. A *place* is the GPUs of one model on one host: a
job has all of its GPUs at one. Who may give to whom, and how long a start takes, is known here; who gives,
and who grows, is for the rules to say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from math import inf
from typing import TypeAlias

import msgspec

from replkernel_scheduler.elastic.book import Book, Training
from replkernel_scheduler.elastic.types import SIDECAR, JobType, Launch, TrainingWanted
from replkernel_scheduler.harvest.jobs import JobRecord
from replkernel_scheduler.harvest.leasing import Place
from replkernel_scheduler.types import HostName, UserName

LEAVES_S = SIDECAR.checkpoint_s + SIDECAR.process_stop_s
"""How long a job is thought to take until it has left GPUs for another one."""
UNKNOWN_S = 3600.0
"""A job that says nothing of its length is thought to need so long with its fewest GPUs, when it starts."""


Sizes: TypeAlias = Callable[[JobRecord], list[int]]


class Floor(Book):
    """The jobs that have GPUs, and what one that starts or grows may have of each place."""

    def __init__(self, jobs: Iterable[JobRecord], sizes: Sizes, now: float) -> None:
        """Look at the jobs that have GPUs; `sizes` are those that one of them may grow to."""
        super().__init__((), SIDECAR)
        self.places: list[Place] = []
        self.models_on: dict[HostName, set[str]] = {}
        """The models of GPUs that jobs have on each host."""
        self.barred: set[str] = set()
        """Jobs that are left as they are."""
        self.closed: set[HostName | None] = set()
        """The hosts where a job makes room."""
        self.reached: dict[tuple[UserName, bool], list[HostName]] = {}
        """Where the jobs of an owner may be, on one host or on several, as far as that was looked up."""
        self.idle_for: dict[tuple[UserName, str, float], dict[Place, int]] = {}
        """What idles for jobs of an owner that want such GPUs, until anything is asked for."""
        self.not_here: dict[tuple[UserName, str, float, int], str] = {}
        """Why none of their owners' hosts could take jobs of so many GPUs, as far as that was asked."""
        self._number_of: dict[Place, int] = {}
        self._sizes, self._now = sizes, now
        self.record_of: dict[str, JobRecord] = {}
        self._newcomer: JobRecord | None = None
        self._giver = True
        self._ranks: int | None = None
        self._offered: Collection[Place] = ()
        """Where the newcomer may be at all."""
        for job in jobs:
            self.take(job)

    def take(self, job: JobRecord) -> None:
        """Look at a job that has GPUs, again if it is known already; one on several hosts is left alone."""
        if job.host is None or not job.gpus or job.span > 1:
            return
        if job.leaves is not None:
            self.closed.add(job.host)
        name, number = str(job.spec.job), self._number(Place(job.host, job.model))
        kind = job.type
        if job.state == "running":
            fewer = [gpus for gpus in kind.iteration_s if gpus <= len(job.gpus)]
            kind = _with(kind, {*fewer, *self._sizes(job)})
        left = job.left_at(self._now)
        ready = self._now + SIDECAR.process_start_s
        training = Training(TrainingWanted(name, kind, left), number, len(job.gpus), ready)
        training.since = self._now
        training.state = "running" if job.state == "running" and not job.leaves else "adjusting"
        self.record_of[name] = job
        self.models_on.setdefault(job.host, set()).add(job.model)
        self.seat(name, training)

    # -- for whom ------------------------------------------------------------------------------------

    def offer(self, newcomer: JobRecord | None, idle: dict[Place, int]) -> None:
        """Let the rules see so many idle GPUs, for a job that starts; None: for those that grow."""
        self._newcomer, ranks = newcomer, None if newcomer is None else newcomer.spec.priority
        if newcomer is not None and idle is self._offered and ranks == self._ranks and self._giver:
            return  # Nothing has changed since.
        self._offered, self._ranks, self._giver = idle, ranks, True
        for place in idle:
            self._number(place)
        self.idle = [idle.get(place, 0) for place in self.places]
        self.giving = {
            number
            for number, place in enumerate(self.places)
            if newcomer is not None and place in idle and self._gives(number)
        }

    def nobody_gives(self) -> None:
        """Have the rules see what idles alone, until the next offer."""
        self.giving, self._giver = set(), False

    def wanted(self, job: JobRecord, sizes: Iterable[int]) -> TrainingWanted:
        """Return a job that waits, with the numbers of GPUs that it may have."""
        kind, left, among = job.type, job.left_at(self._now), set(sizes)
        if job.left is None:
            left = max(left, UNKNOWN_S * kind.rate(kind.least))
        on_models = {model: _with(job.type_on(model), among) for model in job.speeds_on}
        return TrainingWanted(str(job.spec.job), _with(kind, among), left, on_models)

    def donors(self, host: int, now: float) -> list[tuple[str, Training]]:
        """Return who may be reshaped at a place: for a job that starts, those that are not above it."""
        newcomer = self._newcomer
        return [
            (name, training)
            for name, training in (super().donors(host, now) if self._giver else ())
            if name not in self.barred and (newcomer is None or _may_give(self.record_of[name], newcomer))
        ]

    def worth_a_look(self, wanted: TrainingWanted) -> Iterable[int]:
        """Return all places: what is offered there differs from job to job."""
        return range(len(self.places))

    def type_on(self, wanted: TrainingWanted, host: int) -> JobType:
        """Return what a job is on GPUs of a place's model, as far as it was seen there."""
        return wanted.type_on(self.places[host].model)

    def new_end(self, wanted: TrainingWanted, gpus: int, donor: bool, now: float, host: int = 0) -> float:
        """F_new: one that has run before has less to set up; another one's GPUs come once that has left."""
        again = self._newcomer is not None and self._newcomer.attempt > 0
        begins_s = SIDECAR.process_start_s if again else SIDECAR.start_s
        run_s = self.type_on(wanted, host).run_s(wanted.samples, gpus)
        return now + begins_s + (LEAVES_S if donor else 0.0) + run_s + self.costs.finish_s

    def waits(self, wanted: TrainingWanted, launch: Launch) -> bool:
        """Say whether all are done as soon if a job waits for an end where it may be: nobody makes room."""
        now, outlook = self._now, self.outlook(self._now)
        assert launch.donor is not None
        donor = self.trainings[launch.donor]
        left = donor.gpus - (launch.gpus - self.idle[launch.host])
        new = self.new_end(wanted, launch.gpus, True, now, launch.host)
        room = outlook.score(new, launch.donor, self.reshaped_end(donor, left, now))
        there = [each for each in self.trainings.values() if self.places[each.host] in self._offered]
        ends = [self._begins_after(wanted, training) for training in there]
        wait = outlook.score(min(ends, default=inf))
        return (wait.makespan, wait.completions) <= (room.makespan, room.completions)

    def _begins_after(self, wanted: TrainingWanted, training: Training) -> float:
        """Return when a job is thought to be over that starts on the GPUs of another one, once that is."""
        there = self.idle[training.host] + training.gpus
        sizes = [gpus for gpus in wanted.type.iteration_s if gpus <= there]
        if not sizes or training.state != "running" or not training.samples_left(self._now):
            return inf  # One that has overrun may do so for long.
        free = self.end(training, self._now) - self.costs.finish_s
        return self.new_end(wanted, max(sizes), False, free, training.host)

    def _gives(self, host: int) -> bool:
        return any(training.gives for _, training in self.donors(host, self._now))

    # -- parts ---------------------------------------------------------------------------------------

    def _number(self, place: Place) -> int:
        number = self._number_of.get(place)
        if number is None:
            number = self._number_of[place] = len(self.places)
            self.places.append(place)
            self.idle.append(0)
            self._on.append({})
        return number


def _may_give(job: JobRecord, newcomer: JobRecord) -> bool:
    """Say whether a job may be reshaped for another one: leases of earlier releases cannot be parted."""
    return job.spec.priority <= newcomer.spec.priority and len(job.leases) == job.held()


def _with(kind: JobType, sizes: set[int]) -> JobType:
    """Return a type with these numbers of GPUs alone."""
    speeds = {gpus: took for gpus, took in kind.iteration_s.items() if gpus in sizes}
    return msgspec.structs.replace(kind, iteration_s=speeds)
