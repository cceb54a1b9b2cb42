"""What SideCar's rules see of jobs beside notebooks: who trains where with how many GPUs, and what idles.

Law: it looks at one moment and changes nothing but itself. A *place* is the GPUs of one model on one host: a
job has all of its GPUs at one. Who may give to whom, and how long a start takes, is known here; who gives,
and who grows, is for the rules to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from replkernel_scheduler.elastic.book import Book, Training
from replkernel_scheduler.elastic.types import SIDECAR, JobType, TrainingWanted
from replkernel_scheduler.harvest.jobs import JobRecord
from replkernel_scheduler.harvest.leasing import Place
from replkernel_scheduler.harvest.openings import Openings
from replkernel_scheduler.types import HostName, UserName

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
        self._openings: dict[tuple[UserName, str, float, int], Openings] = {}
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
        self._newcomer = newcomer
        for place in idle:
            self._number(place)
        self.idle = [idle.get(place, 0) for place in self.places]
        self.giving = {
            number
            for number, place in enumerate(self.places)
            if newcomer is not None and place in idle and self._gives(number)
        }

    def openings(self, job: JobRecord, idle: dict[Place, int]) -> Openings:
        """Return where a job may start, and all of its owner's and priority that want such GPUs."""
        wants = job.spec.owner, job.spec.gpu_model, job.spec.vram_gb, job.spec.priority
        found = self._openings.get(wants)
        if found is None or job.failed:
            self.offer(job, idle)
            donors = {host: self.donors(host, self._now) for host in self.giving}
            found = Openings(self, self.places, self.idle, donors, idle, self._now)
            if not job.failed:
                self._openings[wants] = found
        return found

    def something_changed(self) -> None:
        """Look anew at what idles, and who gives."""
        self.idle_for.clear()
        self._openings.clear()

    def donors(self, host: int, now: float) -> list[tuple[str, Training]]:
        """Return who may be reshaped at a place: for a job that starts, those that are not above it."""
        newcomer = self._newcomer
        return [
            (name, training)
            for name, training in super().donors(host, now)
            if name not in self.barred and (newcomer is None or _may_give(self.record_of[name], newcomer))
        ]

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
