"""A way to serve jobs that share processors: how nodes are divided, and who of a queue is next.

Law: a way is data; policies are found by name, and their numbers stand in the way's own name.
"""

from __future__ import annotations

import msgspec

from replkernel_scheduler.errors import PolicyUnknown
from replkernel_scheduler.jobs.protocol import Discipline, Queues
from replkernel_scheduler.policies.installed import make, names
from replkernel_scheduler.sim.errors import SimulationError

DISCIPLINE = "easy"
RANGES = {"m": (1, 64), "mi": (1, 64), "mb": (1, 64), "r": (0.0, 99.0)}
"""The numbers that a way may name: most processes a core; percent of nodes."""


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
    base, *pairs = text.split(",")
    numbers: dict[str, float] = {}
    discipline = DISCIPLINE
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if name == "discipline" and sign:
            discipline = value
        else:
            numbers[name] = _number(text, pair, name, value)
    try:
        return JobWay(text, make("queues", base, **numbers), make("discipline", discipline))
    except PolicyUnknown as error:
        raise SimulationError(f"--policy {text}: {error}") from error
    except TypeError:
        raise SimulationError(
            f"--policy {text}: {base} takes other numbers: sq,m=4 or mq,r=2,mi=4,mb=1."
        ) from None


def _number(text: str, pair: str, name: str, value: str) -> float:
    low, high = RANGES.get(name, (0, -1))
    try:
        number: float = type(low)(value)
    except ValueError:
        number = -1.0
    if not low <= number <= high:
        known = ", ".join(f"{key} from {low} to {high}" for key, (low, high) in RANGES.items())
        raise SimulationError(f"--policy {text}: {pair!r} cannot be. There are {known}, and discipline.")
    return number
