"""Where a job can start now: algorithm 1 for all jobs that differ in their lengths alone.

Laws: the choice is the one that a look at every place and every job there would find. What does not depend on
the newcomer is worked out once for all of them: when others are done if one of them makes room, and when GPUs
come free by themselves. So one more job that waits costs as much as it has sizes, not as there are hosts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

from replkernel_scheduler.elastic.book import PLACES, Book, Score, Training
from replkernel_scheduler.elastic.types import SIDECAR, Launch
from replkernel_scheduler.harvest.jobs import JobRecord
from replkernel_scheduler.harvest.leasing import Place

LEAVES_S = SIDECAR.checkpoint_s + SIDECAR.process_stop_s
"""How long a job is thought to take until it has left GPUs for another one."""
UNKNOWN_S = 3600.0
"""A job that says nothing of its length is thought to need so long with its fewest GPUs, when it starts."""
SURE_S = 1e-5
"""Sums of ends that differ by more are different, however they are rounded."""


class Giver(NamedTuple):
    """A job that could make room: the makespan then, and by how much its end moves."""

    makespan: float
    later_s: float
    host: int
    job: str


class Way(NamedTuple):
    """All that can be had of one size, on GPUs of one model: idle at `host`, or from one of `givers`."""

    model: str
    gpus: int
    host: int | None
    givers: list[Giver]


class Freeing(NamedTuple):
    """What comes free first where so many GPUs are there then."""

    model: str
    gpus: int
    free_at: float


class Openings:
    """What newcomers of one priority may choose from, at places where each of them may be."""

    def __init__(
        self,
        book: Book,
        places: Sequence[Place],
        idle: Sequence[int],
        donors: dict[int, list[tuple[str, Training]]],
        offered: Iterable[Place],
        now: float,
    ) -> None:
        """See so many GPUs `idle` at each of `places`, and who may give; newcomers may be at `offered`."""
        self._book, self._places, self._idle, self._donors = book, places, idle, donors
        self._offered, self._now, self._outlook = set(offered), now, book.outlook(now)
        self._known: dict[tuple[int, ...], tuple[list[Way], list[Freeing]]] = {}

    def best(self, job: JobRecord, sizes: Sequence[int]) -> Launch | None:
        """Return how a job is to start with one of these sizes; None: it waits.

        It also waits where all are done as soon if it starts once another job is over: nobody makes room.
        """
        ways, waits = self._ways(tuple(sizes))
        if not ways:
            return None
        left, now = samples_of(job), self._now
        begins_s = SIDECAR.process_start_s if job.attempt else SIDECAR.start_s
        models = {way.model for way in ways} | {free.model for free in waits}
        kinds = {model: job.type_on(model) for model in models}
        at_once: tuple[tuple[Score, int, int], Launch] | None = None
        best: tuple[tuple[Score, int, int], Launch] | None = None
        for model, gpus, host, givers in ways:
            run_s = kinds[model].run_s(left, gpus)
            if host is not None:
                score = self._outlook.score(_end(now, begins_s, 0.0, run_s), gpus=gpus)
                if at_once is None or (score, host, gpus) < at_once[0]:
                    at_once = (score, host, gpus), Launch(str(job.spec.job), host, gpus)
            new = _end(now, begins_s, LEAVES_S, run_s) if givers else 0.0
            for giver in givers:
                sum_s = round(giver.later_s + new, PLACES)
                score = Score(max(giver.makespan, new), sum_s, gpus, SIDECAR.down_s)
                if best is None or (score, giver.host, gpus) < best[0]:
                    best = (score, giver.host, gpus), Launch(str(job.spec.job), giver.host, gpus, giver.job)
        if best is None or (at_once is not None and at_once[0] < best[0]):
            return None if at_once is None else at_once[1]
        room = best[0][0]
        ends = [_end(free, begins_s, 0.0, kinds[model].run_s(left, gpus)) for model, gpus, free in waits]
        wait = self._outlook.score(min(ends, default=inf))
        if (wait.makespan, wait.completions) <= (room.makespan, room.completions):
            return None if at_once is None else at_once[1]
        return best[1]

    def _ways(self, sizes: tuple[int, ...]) -> tuple[list[Way], list[Freeing]]:
        if sizes not in self._known:
            models = dict.fromkeys([place.model for place in self._places])
            ways = [self._way(model, gpus) for model in models for gpus in sizes]
            ways = [way for way in ways if way.host is not None or way.givers]
            anybody = any(way.givers for way in ways)
            self._known[sizes] = ways, self._waits(sizes) if anybody else []
        return self._known[sizes]

    def _way(self, model: str, gpus: int) -> Way:
        book, now = self._book, self._now
        at, givers = None, list[Giver]()
        for host, idle in enumerate(self._idle):
            if self._places[host].model != model:
                continue
            if gpus <= idle:
                at = host if at is None else at
                continue
            for job, training in self._donors.get(host, ()):
                left = training.gpus - (gpus - idle)
                if left in training.type.iteration_s:
                    end = book.reshaped_end(training, left, now)
                    makespan = self._outlook.score(None, job, end).makespan
                    givers.append(Giver(makespan, end - book.end(training, now), host, job))
        return Way(model, gpus, at, undominated(givers))

    def _waits(self, sizes: tuple[int, ...]) -> list[Freeing]:
        """Return when what is enough for each size comes free first, thought to be so by itself."""
        book, now, free_at = self._book, self._now, dict[tuple[str, int], float]()
        for training in book.trainings.values():
            place, there = self._places[training.host], self._idle[training.host] + training.gpus
            fit = [gpus for gpus in sizes if gpus <= there]
            if place not in self._offered or not fit or training.state != "running":
                continue
            if not training.samples_left(now):
                continue  # One that has overrun may do so for long.
            of, free = (place.model, max(fit)), book.end(training, now) - book.costs.finish_s
            free_at[of] = min(free, free_at.get(of, inf))
        return [Freeing(model, gpus, free) for (model, gpus), free in free_at.items()]


def samples_of(job: JobRecord) -> float:
    """Return what a job that waits is thought to have left."""
    left, kind = job.left_at(job.since), job.type
    return max(left, UNKNOWN_S * kind.rate(kind.least)) if job.left is None else left


def undominated(givers: list[Giver]) -> list[Giver]:
    """Leave out those that are never the choice, whatever a newcomer's length; the order stays."""
    found: list[Giver] = []
    for giver in givers:
        if any(_beats(each, giver, 0.0) for each in found):
            continue
        found = [each for each in found if not _beats(giver, each, SURE_S)]
        found.append(giver)
    return found


def _beats(one: Giver, other: Giver, by_s: float) -> bool:
    return one.makespan <= other.makespan and one.later_s <= other.later_s - by_s


def _end(now: float, begins_s: float, leaves_s: float, run_s: float) -> float:
    """F_new: one that has run before has less to set up; another one's GPUs come once that has left."""
    return now + begins_s + leaves_s + run_s + SIDECAR.finish_s
