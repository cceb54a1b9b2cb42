"""The vocabulary of jobs that may be stopped for others.

Law: plain frozen structs; times are seconds of the driver's clock.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import msgspec


class PoolWanted(msgspec.Struct, frozen=True, gc=False):
    """A job that runs for `run_s` on `gpus` GPUs; loading it takes `load_s`, stopping it `pause_s`."""

    job: str
    gpus: int
    run_s: float
    load_s: float
    pause_s: float
    user: str = ""
    requested_s: float = 0.0
    """What its user thinks that it runs for (0: nobody said)."""


class PoolLoaded(msgspec.Struct, frozen=True, gc=False):
    """A job has its state on its GPUs, and computes now."""

    job: str


class PoolPaused(msgspec.Struct, frozen=True, gc=False):
    """A job that was to stop has saved its state."""

    job: str


class PoolOver(msgspec.Struct, frozen=True, gc=False):
    """A job has computed all it had to."""

    job: str


class PoolTime(msgspec.Struct, frozen=True, gc=False):
    """The time that `deadline` named has come."""


PoolEvent: TypeAlias = PoolWanted | PoolLoaded | PoolPaused | PoolOver | PoolTime


class LoadJob(msgspec.Struct, frozen=True, gc=False):
    """Load a job onto its GPUs now."""

    job: str


class PauseJob(msgspec.Struct, frozen=True, gc=False):
    """Stop a job; `saves`: it computes, so its state is to be saved (else it was only loading)."""

    job: str
    saves: bool


class RefusePoolJob(msgspec.Struct, frozen=True, gc=False):
    """A job that needs more GPUs than there are."""

    job: str
    why: str


PoolEffect: TypeAlias = LoadJob | PauseJob | RefusePoolJob


class PoolLook(NamedTuple):
    """A job as the order of a pass sees it: it came at `came`, and has computed `done_s` of its `run_s`."""

    job: str
    gpus: int
    run_s: float
    done_s: float
    came: float
    user: str = ""
    requested_s: float = 0.0
    """What its user thought that it runs for (0: nobody said); `run_s` is what it does."""


class Context(msgspec.Struct, frozen=True, gc=False):
    """What a deferral is predicted from (spec 3.4): of arrivals, of the newcomer, and of its victims."""

    between_s: float
    remaining_s: float
    load_s: float
    pause_s: float


class Deferral(msgspec.Struct, frozen=True, gc=False):
    """What came of a decision: it waited `chosen_s`, and would have done best to wait `needed_s`."""

    context: Context
    chosen_s: float
    needed_s: float
