"""What the scheduler's REST tells of jobs: written by the server's side, read by the command line."""

from __future__ import annotations

import msgspec


class EndsIn(msgspec.Struct, frozen=True):
    """When a job would be done with so many GPUs all along."""

    gpus: int
    seconds: float


class Reshape(msgspec.Struct, frozen=True):
    """For `ago_s` seconds a job has had so many GPUs, or cores where it wants no GPU; `why` is a clause."""

    ago_s: float
    gpus: int
    why: str


class JobAnswer(msgspec.Struct):
    """A job: waiting, starting, running, stopping, held, or over as done, failed or stopped.

    `gpus` are those that it runs with, `shapes` the numbers that it can run with; `starts` is how often it
    was started. `said` is a clause about how it stands. `ends_in_s` is a guess, null where there is none,
    and so is `ends_in` for each number of GPUs. `reshapes` are the last changes of its GPUs, oldest first.
    A job that wants no GPU has `cpus` cores and `memory_gb` GiB of its host; its `reshapes` are of cores.
    A job on several `hosts` at once has GPUs `on_hosts`; `host` is the first of them, and has its log.
    """

    job: str
    user: str
    state: str
    host: str | None
    gpus: tuple[str, ...]
    shapes: list[int]
    command: list[str]
    directory: str
    starts: int
    epoch: float | None
    epochs: float | None
    loss: float | None
    ends_in_s: float | None
    gpu_hours: float
    said: str
    ends_in: list[EndsIn] = []
    reshapes: list[Reshape] = []
    cpus: int = 0
    memory_gb: float = 0.0
    cpu_hours: float = 0.0
    hosts: int = 1
    on_hosts: list[str] = []


class JobsAnswer(msgspec.Struct):
    """Jobs: those that are not over in the order in which they came, then the last that are."""

    jobs: list[JobAnswer]


class LogAnswer(msgspec.Struct):
    """What a job has written, from byte `at` on; ask for what follows from `next` on."""

    text: str
    at: int
    next: int
    over: bool
