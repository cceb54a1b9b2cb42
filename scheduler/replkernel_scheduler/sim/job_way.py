"""A way to serve jobs that share processors: how nodes are divided, and who of a queue is next.

Law: a way is data; policies are found by name, and their numbers stand in the way's own name.
"""

from __future__ import annotations

import msgspec

from replkernel_scheduler.errors import PolicyUnknown
from replkernel_scheduler.jobs.protocol import Discipline, Queues
from replkernel_scheduler.policies.installed import names, queues_named
from replkernel_scheduler.sim.errors import SimulationError


class JobWay(msgspec.Struct, frozen=True):
    """How a trace of jobs is served; the other fields say that there are no kernels."""

    name: str
    queues: Queues
    discipline: Discipline
    kernels: str = "none"
    replicas: int = 0
    reserves: bool = False


def is_job_way(text: str) -> bool:
    """Say whether a way's name is one of jobs that share processors."""
    return text.partition(",")[0] in names("queues")


def job_way_named(text: str) -> JobWay:
    """Return the way `QUEUES[,NAME=NUMBER…][,discipline=NAME]`; raise SimulationError if there is none."""
    try:
        return JobWay(text, *queues_named(text))
    except PolicyUnknown as error:
        raise SimulationError(f"--policy {text}: {error}") from error
