"""The driver of the core of reshaped jobs, and the machines under it: what starting and reshaping take.

Law: it holds no rule of scheduling. A donor trains until the newcomer's container is nearly there, stops,
and goes on with what it has left; the newcomer trains from then on. Same jobs, policy and seed: same times.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from replkernel_scheduler.elastic.core import ElasticCore
from replkernel_scheduler.elastic.protocol import Reshaping
from replkernel_scheduler.elastic.types import (
    ElasticEvent,
    Launch,
    Reshape,
    ReshapeCosts,
    TrainingOver,
    TrainingPaused,
    TrainingRuns,
    TrainingWanted,
)
from replkernel_scheduler.events import ARRIVES
from replkernel_scheduler.sim.event_queue import EventQueue

FREES, RUNS = 0, 1


class Arrival(msgspec.Struct, frozen=True):
    """A job and when it comes."""

    at: float
    wanted: TrainingWanted


class Trained:
    """A job's story: when it was launched, trained first and was over; how long reshaping stopped it."""

    __slots__ = (
        "at",
        "gpus",
        "grown",
        "launched",
        "left",
        "over",
        "paused_at",
        "resumes_with",
        "runs",
        "shrunk",
        "since",
        "started",
        "stopped_s",
        "type",
        "version",
        "wanted",
    )  # fmt: skip

    def __init__(self, at: float, wanted: TrainingWanted) -> None:
        """Start as submitted."""
        self.at, self.wanted, self.left = at, wanted, wanted.samples
        self.type = wanted.type
        self.launched = self.started = self.over = self.since = self.paused_at = 0.0
        self.stopped_s = 0.0
        self.gpus = self.resumes_with = self.version = self.shrunk = self.grown = 0
        self.runs = False


class ElasticSimulation:
    """One run of jobs that are reshaped."""

    def __init__(
        self,
        jobs: Sequence[Arrival],
        hosts: tuple[int, ...],
        costs: ReshapeCosts,
        policy: Reshaping,
        seed: int = 0,
        models: tuple[str, ...] = (),
    ) -> None:
        """Play `jobs` on hosts of so many GPUs, of these models where they differ."""
        self.core = ElasticCore(hosts, costs, policy, Random(f"core {seed}"), models)
        self.costs, self.jobs = costs, {job.wanted.job: Trained(job.at, job.wanted) for job in jobs}
        self.refused: dict[str, str] = {}
        self.now = 0.0
        self.in_use = 0
        self._event_queue = EventQueue()
        for job in jobs:
            self._event_queue.post(job.at, ARRIVES, self._feed, job.wanted)

    def run(self) -> dict[str, Trained]:
        """Play to the end, and return the stories of all jobs that were served."""
        while (head := self._event_queue.head()) is not None:
            self.now = head[0]
            self._event_queue.do_next()
        return {job: story for job, story in self.jobs.items() if story.over}

    @property
    def makespan(self) -> float:
        """When the last job was over."""
        return max((story.over for story in self.jobs.values()), default=0.0)

    def _feed(self, event: ElasticEvent, now: float) -> None:
        for effect in self.core.handle(event, now):
            if isinstance(effect, Launch):
                self._launch(effect, now)
            elif isinstance(effect, Reshape):
                self._reshape(effect, now)
            else:
                self.refused[effect.job] = effect.why

    def _launch(self, effect: Launch, now: float) -> None:
        story = self.jobs[effect.job]
        story.launched, story.resumes_with = now, effect.gpus
        story.type = self.core.book.type_on(story.wanted, effect.host)
        wait_s = self.costs.start_s if effect.donor is None else self.costs.joins_s
        self._event_queue.post(now + wait_s, RUNS, self._runs, story)

    def _reshape(self, effect: Reshape, now: float) -> None:
        story = self.jobs[effect.job]
        shrinks = effect.gpus < story.gpus
        takes_s = self.costs.down_s if shrinks else self.costs.up_s
        story.shrunk += shrinks
        story.grown += not shrinks
        story.resumes_with = effect.gpus
        resumes = now + (max(takes_s, self.costs.joins_s) if effect.for_job is not None else takes_s)
        self._event_queue.post(resumes - takes_s, FREES, self._pauses, (story, resumes))

    def _pauses(self, what: tuple[Trained, float], now: float) -> None:
        story, resumes = what
        if not story.runs:
            return  # It ended before it was stopped; what it was to let go of is the newcomer's.
        story.left = max(0.0, story.left - (now - story.since) * story.type.rate(story.gpus))
        story.runs = False
        story.version += 1
        self.in_use -= story.gpus
        story.paused_at = now
        self._feed(TrainingPaused(story.wanted.job), now)
        self._event_queue.post(resumes, RUNS, self._runs, story)

    def _runs(self, story: Trained, now: float) -> None:
        if not story.started:
            story.started = now
        else:
            story.stopped_s += now - story.paused_at
        story.gpus, story.since, story.runs = story.resumes_with, now, True
        self.in_use += story.gpus
        assert self.in_use <= sum(self.core.book.hosts), "a GPU has two jobs"
        run_s = story.type.run_s(story.left, story.gpus)
        self._event_queue.post(now + run_s, FREES, self._trained, (story, story.version))
        self._feed(TrainingRuns(story.wanted.job), now)

    def _trained(self, what: tuple[Trained, int], now: float) -> None:
        story, version = what
        if version == story.version and story.runs:
            story.left, story.runs = 0.0, False
            self.in_use -= story.gpus
            story.version += 1
            self._event_queue.post(now + self.costs.finish_s, FREES, self._over, story)

    def _over(self, story: Trained, now: float) -> None:
        story.over = now
        self._feed(TrainingOver(story.wanted.job), now)
