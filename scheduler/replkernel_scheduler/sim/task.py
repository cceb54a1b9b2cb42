"""A cell or a job while it is asked for, served and finished.

Law: submitted <= bound <= started <= ended <= done; a run that was lost leaves only its number of tries
behind.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from replkernel_scheduler.sim.records import Job
from replkernel_scheduler.types import HostName, Lease

Outcome: TypeAlias = Literal["done", "refused", "failed", "unserved"]


class Parts:
    """How long a job that may be stopped waited, loaded, ran, was saved; `futile_s`: loaded in vain."""

    __slots__ = ("futile_s", "loaded_s", "paused_s", "ran_s", "tries", "waited_s")

    def __init__(self) -> None:
        """Start at nothing."""
        self.waited_s = self.loaded_s = self.ran_s = self.paused_s = self.futile_s = 0.0
        self.tries = 0


class Task:
    """One; times in seconds from the beginning of the run."""

    __slots__ = (
        "asked",
        "before",
        "bound",
        "done",
        "duration_s",
        "early",
        "ended",
        "expected_s",
        "gpus",
        "host",
        "job",
        "kind",
        "lease",
        "milli",
        "moved",
        "name",
        "number",
        "parts",
        "session",
        "started",
        "submitted",
        "tries",
        "user",
    )

    def __init__(
        self, name: str, number: int, submitted: float, duration_s: float, gpus: int, *, user: str, job: bool
    ) -> None:
        """Start as submitted: the `number`-th task, of the session (or the job) `name`."""
        self.name, self.number, self.submitted = name, number, submitted
        self.duration_s, self.gpus, self.user, self.job = duration_s, gpus, user, job
        self.kind = ""
        self.early = False
        """It came during the warm-up, so it is not counted."""
        self.asked: Job | None = None
        """What the trace says of a job."""
        self.expected_s = 0.0
        self.milli = 0
        """So many thousandths of its one GPU it holds; 0: all of it, as where nobody has parts."""
        self.parts: Parts | None = None
        self.session: str | None = None
        self.lease: Lease | None = None
        self.host: HostName | None = None
        self.before: HostName | None = None
        self.bound = self.started = self.ended = self.done = 0.0
        self.tries = 0
        self.moved = False

    @classmethod
    def of_job(cls, job: Job, number: int, submitted: float, duration_s: float | None = None) -> Task:
        """Return a job as submitted; `duration_s` where it does not run as long as the trace says."""
        runs_s = job.duration_s if duration_s is None else duration_s
        task = cls(job.job, number, submitted, runs_s, job.width, user=job.user, job=True)
        task.asked = job
        return task

    @property
    def amount(self) -> int | float:
        """Return how many GPUs it holds: a whole number, but for a part of one."""
        return self.milli / 1000 if self.milli else self.gpus

    @property
    def immediate(self) -> bool:
        """Say whether it was bound to its GPUs as it was submitted, without moving or waiting."""
        return self.bound == self.submitted and not self.moved

    @property
    def reused(self) -> bool:
        """Say whether it ran where the cell before it in its session ran."""
        return self.before is not None and self.host == self.before
