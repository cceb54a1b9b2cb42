"""Who trains where with how many GPUs, how much is left, and when all that is thought to end.

Law: predictions are those of the specification, 2.2 and 2.3: of every job, not only of the two that a
change is about. GPUs that a job lets go of belong to whom they were promised from that moment on, and to
nobody twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from replkernel_scheduler.elastic.types import ReshapeCosts, TrainingWanted

State: TypeAlias = Literal["starting", "running", "yielding", "adjusting"]
"""yielding: it trains on with what it had until it is stopped to be reshaped."""


class Score(NamedTuple):
    """How good a choice is, less is better: the makespan first (spec 2.3)."""

    makespan: float
    completions: float
    gpus: int
    overhead_s: float


class Training:
    """A launched job; `ready` is when it is thought to train again while it does not."""

    __slots__ = ("gpus", "host", "left", "ready", "since", "state", "trains_with", "wanted")

    def __init__(self, wanted: TrainingWanted, host: int, gpus: int, ready: float) -> None:
        """Start as launched."""
        self.wanted, self.host, self.gpus, self.ready = wanted, host, gpus, ready
        self.state: State = "starting"
        self.trains_with = gpus
        self.left, self.since = wanted.samples, ready

    def samples_left(self, now: float) -> float:
        """Return what it is thought to have left: profiles say how fast it is."""
        if self.state not in ("running", "yielding"):
            return self.left
        return max(0.0, self.left - (now - self.since) * self.wanted.type.rate(self.trains_with))


class Book:
    """Hosts, jobs, and the queue in order of arrival."""

    def __init__(self, hosts: tuple[int, ...], costs: ReshapeCosts) -> None:
        """Start with idle hosts of so many GPUs."""
        self.hosts, self.costs = hosts, costs
        self.idle = list(hosts)
        self.trainings: dict[str, Training] = {}
        self.waiting: dict[str, TrainingWanted] = {}
        self.drawn: dict[str, int] = {}
        """What was drawn once for jobs that wait, so that it is not drawn until it suits."""

    def donors(self, host: int, now: float) -> list[tuple[str, Training]]:
        """Return the jobs of a host that may be reshaped: they train, and have something left."""
        return [
            (job, training)
            for job, training in self.trainings.items()
            if training.host == host and training.state == "running" and training.samples_left(now) > 0
        ]

    def new_end(self, wanted: TrainingWanted, gpus: int, donor: bool, now: float) -> float:
        """F_new: when a job that is launched now is thought to be over."""
        begins_s = self.costs.joins_s if donor else self.costs.start_s
        return now + begins_s + wanted.type.run_s(wanted.samples, gpus) + self.costs.finish_s

    def end(self, training: Training, now: float) -> float:
        """When a job is thought to be over if nobody changes it."""
        begins = now if training.state == "running" else max(now, training.ready)
        run_s = training.wanted.type.run_s(training.samples_left(now), training.gpus)
        return begins + run_s + self.costs.finish_s

    def reshaped_end(self, training: Training, gpus: int, now: float) -> float:
        """F_run: when it is thought to be over if it goes on with `gpus`."""
        pause_s = self.costs.down_s if gpus < training.gpus else self.costs.up_s
        run_s = training.wanted.type.run_s(training.samples_left(now), gpus)
        return now + pause_s + run_s + self.costs.finish_s

    def ends(self, now: float) -> dict[str, float]:
        """Return when each job is thought to be over."""
        return {job: self.end(training, now) for job, training in self.trainings.items()}

    @staticmethod
    def score(ends: Mapping[str, float], gpus: int = 0, overhead_s: float = 0.0) -> Score:
        """Return how good these ends are."""
        return Score(max(ends.values(), default=0.0), sum(ends.values()), gpus, overhead_s)
