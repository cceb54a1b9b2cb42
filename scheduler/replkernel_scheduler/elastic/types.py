"""The vocabulary of jobs that are reshaped: what they are, what a change costs, what happens and follows.

Law: plain frozen structs; speeds come from profiles, and a job runs only with GPU counts that its type has.
"""

from __future__ import annotations

from math import ceil
from typing import TypeAlias

import msgspec

ROUNDING = 1e-6
"""So many samples are what differences of times leave: no iteration is made for them."""


class JobType(msgspec.Struct, frozen=True):
    """A model with its data: `iteration_s` has the time of one iteration for each GPU count it can run with.

    Each GPU takes `batch` samples an iteration, so an iteration with more GPUs does more work.
    """

    name: str
    batch: int
    iteration_s: dict[int, float]

    @property
    def least(self) -> int:
        """The fewest GPUs that it runs with."""
        return min(self.iteration_s)

    def run_s(self, samples: float, gpus: int) -> float:
        """Return how long `samples` take with `gpus` GPUs: whole iterations (spec 2.1)."""
        return ceil(max(0.0, samples - ROUNDING) / (self.batch * gpus)) * self.iteration_s[gpus]

    def rate(self, gpus: int) -> float:
        """Return samples a second."""
        return self.batch * gpus / self.iteration_s[gpus]


class ReshapeCosts(msgspec.Struct, frozen=True, kw_only=True):
    """What starting, stopping and reshaping take (spec 2.1: a_i, a_t, b_i, b_t, c); the sums are measured.

    `restarts`: a job that is reshaped is ended and started anew, container and all. `early_s`: how long a job
    that takes GPUs over from another takes to be ready, as its container starts while the other still trains.
    """

    init_s: float = 159.0
    terminate_s: float = 18.0
    process_start_s: float = 15.0
    process_stop_s: float = 5.0
    checkpoint_s: float = 7.0
    grow_s: float = 10.0
    """What processes on new GPUs take more."""
    early_s: float = 110.0
    restarts: bool = False

    @property
    def start_s(self) -> float:
        """a_i + b_i: from a launch until it trains."""
        return self.init_s + self.process_start_s

    @property
    def finish_s(self) -> float:
        """c + b_t + a_t: from the last iteration until its GPUs are free."""
        return self.checkpoint_s + self.process_stop_s + self.terminate_s

    @property
    def down_s(self) -> float:
        """c + b_t + b_i, and a_t + a_i if it restarts: how long it does not train while it shrinks."""
        again = self.terminate_s + self.init_s if self.restarts else 0.0
        return self.checkpoint_s + self.process_stop_s + self.process_start_s + again

    @property
    def up_s(self) -> float:
        """The same while it grows."""
        return self.down_s + self.grow_s

    @property
    def joins_s(self) -> float:
        """From a launch onto another job's GPUs until it trains: the other has let go of them by then."""
        return max(self.down_s, self.start_s if self.restarts else self.early_s)


SIDECAR = ReshapeCosts()
TERMINATION = ReshapeCosts(grow_s=38.0, restarts=True)
"""The case study's sums: start 174; 27 down and 37 up, or 204 and 242 by termination; ready after 110."""


class TrainingWanted(msgspec.Struct, frozen=True):
    """A job that has `samples` to train on; `on_models` is what it is on GPUs where it is not as `type`."""

    job: str
    type: JobType
    samples: float
    on_models: dict[str, JobType] = {}

    def type_on(self, model: str) -> JobType:
        """Return what it is on GPUs of a model."""
        return self.on_models.get(model, self.type) if self.on_models else self.type

    @property
    def sizes(self) -> tuple[object, ...]:
        """What decides whether it finds room: how many GPUs it can run with, for each model."""
        others = [(model, *kind.iteration_s) for model, kind in self.on_models.items()]
        return (*self.type.iteration_s, *others)


class TrainingRuns(msgspec.Struct, frozen=True):
    """A launched or reshaped job trains now."""

    job: str


class TrainingPaused(msgspec.Struct, frozen=True):
    """A job that is to be reshaped has stopped."""

    job: str


class TrainingOver(msgspec.Struct, frozen=True):
    """A job has ended, and its GPUs are free."""

    job: str


ElasticEvent: TypeAlias = TrainingWanted | TrainingRuns | TrainingPaused | TrainingOver


class Launch(msgspec.Struct, frozen=True):
    """Start a job on GPUs of a host: idle ones, or those that `donor` is told to let go of."""

    job: str
    host: int
    gpus: int
    donor: str | None = None


class Reshape(msgspec.Struct, frozen=True):
    """Let a job go on with so many GPUs of its host; `for_job` is who takes those that it leaves."""

    job: str
    gpus: int
    for_job: str | None = None


class RefuseTraining(msgspec.Struct, frozen=True):
    """A job that no host could run, even empty."""

    job: str
    why: str


ElasticEffect: TypeAlias = Launch | Reshape | RefuseTraining
