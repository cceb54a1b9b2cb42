"""The core of jobs that are reshaped: what comes, runs and ends, and what is launched and reshaped therefore.

Law: a pure state machine. A job that waits is tried in order of arrival whenever something changed, and one
that cannot go is passed by those behind it. GPUs are booked to one job at a time; a job that is being
reshaped is left alone until it trains again.
"""

from __future__ import annotations

from replkernel_scheduler.elastic.book import Book, Training
from replkernel_scheduler.elastic.protocol import Dice, Reshaping
from replkernel_scheduler.elastic.types import (
    ElasticEffect,
    ElasticEvent,
    Launch,
    RefuseTraining,
    Reshape,
    ReshapeCosts,
    TrainingOver,
    TrainingPaused,
    TrainingRuns,
    TrainingWanted,
)
from replkernel_scheduler.errors import SchedulerError


class ElasticCore:
    """Hosts and their jobs."""

    def __init__(
        self,
        hosts: tuple[int, ...],
        costs: ReshapeCosts,
        policy: Reshaping,
        dice: Dice,
        models: tuple[str, ...] = (),
    ) -> None:
        """Start with idle hosts of so many GPUs; `models` are those of the hosts, where they differ."""
        self.book = Book(hosts, costs, models)
        self._policy, self._dice = policy, dice

    def handle(self, event: ElasticEvent, now: float) -> list[ElasticEffect]:
        """Take one event; raise SchedulerError for one that cannot follow what came before."""
        match event:
            case TrainingWanted():
                return self._wanted(event, now)
            case TrainingPaused(job):
                training = self._training(job)
                training.left, training.state = training.samples_left(now), "adjusting"
                training.trains_with = training.gpus
                self.book.changed(training)
                return []
            case TrainingRuns(job):
                training = self._training(job)
                training.state, training.since = "running", now
                self.book.changed(training)
            case TrainingOver(job):
                self._training(job)
                self.book.over(job)
        return self._serve(now)

    def check_invariants(self) -> None:
        """Check that no GPU is booked twice; for tests."""
        for host, total in enumerate(self.book.hosts):
            booked = sum(job.gpus for job in self.book.trainings.values() if job.host == host)
            assert self.book.idle[host] >= 0
            assert booked + self.book.idle[host] == total
        for training in self.book.trainings.values():
            assert training.gpus in training.type.iteration_s
        assert not any(job in self.book.waiting for job in self.book.trainings)

    def _wanted(self, wanted: TrainingWanted, now: float) -> list[ElasticEffect]:
        book = self.book
        if wanted.job in book.trainings or wanted.job in book.waiting:
            raise SchedulerError(f"job {wanted.job} was asked for twice: give each job an id of its own.")
        if wanted.type.least > max(book.hosts):
            return [RefuseTraining(wanted.job, f"no host has the {wanted.type.least} GPUs")]
        book.waiting.join(wanted)
        return self._serve(now, wanted)

    def _serve(self, now: float, came: TrainingWanted | None = None) -> list[ElasticEffect]:
        """Launch who can be; one that `came` is tried without room as well: policies may draw."""
        book = self.book
        effects: list[ElasticEffect] = []
        alone = () if came is None else (came,)
        for wanted in book.waiting.in_order() if book.has_room else alone:
            launch = self._policy.launch(book, wanted, self._dice, now)
            if launch is not None:
                effects += self._launch(wanted, launch, now)
        while not book.waiting and any(book.idle):
            reshape = self._policy.grow(book, now)
            if reshape is None:
                break
            self._reshape(reshape, book.costs.up_s, now)
            effects.append(reshape)
        return effects

    def _launch(self, wanted: TrainingWanted, launch: Launch, now: float) -> list[ElasticEffect]:
        book, effects = self.book, list[ElasticEffect]()
        if launch.donor is not None:
            donor = book.trainings[launch.donor]
            short = launch.gpus - book.idle[launch.host]
            reshape = Reshape(launch.donor, donor.gpus - short, wanted.job)
            self._reshape(reshape, book.costs.joins_s, now)
            effects.append(reshape)
        assert launch.gpus <= book.idle[launch.host], "a policy gave GPUs away that are somebody's"
        ready = now + (book.costs.joins_s if launch.donor else book.costs.start_s)
        model = book.models[launch.host]
        book.launch(wanted.job, Training(wanted, launch.host, launch.gpus, ready, model))
        return [*effects, launch]

    def _reshape(self, reshape: Reshape, takes_s: float, now: float) -> None:
        training = self._training(reshape.job)
        assert training.state == "running", "a job that does not train cannot be reshaped"
        self.book.idle[training.host] += training.gpus - reshape.gpus
        assert self.book.idle[training.host] >= 0, "a policy gave GPUs away that are somebody's"
        training.left, training.since, training.state = training.samples_left(now), now, "yielding"
        training.gpus, training.ready = reshape.gpus, now + takes_s
        self.book.changed(training)

    def _training(self, job: str) -> Training:
        training = self.book.trainings.get(job)
        if training is None:
            raise SchedulerError(f"job {job} was not launched, or is over: hand in what happened once.")
        return training
