"""A way to serve jobs whose GPUs change while they run: who is reshaped, and what that costs.

Law: a way is data. What a job takes with other GPU counts than its own stands in the trace (`seconds_with`),
or is guessed from `efficiency`: what each doubling of its GPUs keeps of twice the speed.
"""

from __future__ import annotations

import math
from functools import lru_cache

import msgspec

from replkernel_scheduler.elastic.protocol import Reshaping
from replkernel_scheduler.elastic.types import SIDECAR, TERMINATION, JobType, ReshapeCosts
from replkernel_scheduler.policies.installed import make, names
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.records import Job

POLICIES = {
    "sidecar": ("sidecar", SIDECAR),
    "termination": ("grow", TERMINATION),
    "never-reshape": ("never", SIDECAR),
    "elastic": ("", SIDECAR),
}
"""The reshaping policy of each, and what its changes cost; that of `elastic` is named in its options."""
COSTS = {"sidecar": SIDECAR, "termination": TERMINATION}
EFFICIENCY = 0.9
ITERATIONS = 1000
"""How finely a job's work is divided, whatever its GPUs."""
DOUBLINGS = (-2, -1, 0, 1, 2)


class ElasticWay(msgspec.Struct, frozen=True):
    """How a trace of jobs is served; the other fields say that there are no kernels."""

    name: str
    policy: Reshaping
    costs: ReshapeCosts
    efficiency: float = EFFICIENCY
    kernels: str = "none"
    replicas: int = 0
    reserves: bool = False

    def kind(self, job: Job, gpus_max: int) -> JobType:
        """Return what a job takes with each number of GPUs of a host that it can run with."""
        seconds = dict(job.seconds_with) or self._guessed(job, gpus_max)
        samples = samples_of(seconds)
        return JobType(job.job, 1, {gpus: took * gpus / samples for gpus, took in seconds.items()})

    def _guessed(self, job: Job, gpus_max: int) -> dict[int, float]:
        shares = _guessed_shares(job.width, gpus_max, self.efficiency)
        return {gpus: job.duration_s * share for gpus, share in shares}


@lru_cache(maxsize=256)
def _guessed_shares(width: int, gpus_max: int, efficiency: float) -> tuple[tuple[int, float], ...]:
    """Return the GPU counts of a job of such a width, and what share of its time it takes with each."""
    counts = {step: width * 2.0**step for step in DOUBLINGS}
    return tuple(
        (int(gpus), (2 * efficiency) ** -step)
        for step, gpus in counts.items()
        if gpus == int(gpus) and (gpus <= gpus_max or not step)
    )


def samples_of(seconds: dict[int, float]) -> int:
    """Return a number of samples that each of the GPU counts takes in whole iterations."""
    return ITERATIONS * math.lcm(*seconds)


def is_elastic_way(text: str) -> bool:
    """Say whether a way's name is one of jobs that are reshaped."""
    return text.partition(",")[0] in POLICIES


def elastic_way_named(text: str) -> ElasticWay:
    """Return the way `NAME[,efficiency=SHARE][,costs=NAME][,gain=SHARE|any]`; raise SimulationError.

    `elastic,reshape=NAME` is one with another installed policy.
    """
    base, *pairs = text.split(",")
    policy_name, costs = POLICIES[base]
    efficiency, options = EFFICIENCY, dict[str, float]()
    for pair in pairs:
        name, _, value = pair.partition("=")
        share = _share(value)
        if name == "efficiency" and share is not None and share >= 0.5:
            efficiency = share
        elif name == "costs" and value in COSTS:
            costs = COSTS[value]
        elif (base, name) == ("elastic", "reshape"):
            policy_name = value
        elif (base, name) == ("sidecar", "gain") and (share is not None or value == "any"):
            options["gain"] = float("-inf") if share is None else share
        else:
            raise SimulationError(
                f"--policy {text}: {pair!r} cannot be. There are efficiency=SHARE (0.5 to 1), "
                f"costs={'|'.join(COSTS)}, elastic,reshape=NAME, and sidecar,gain=SHARE (any: grow even at a "
                "loss, as printed)."
            )
    if policy_name not in names("reshape"):
        raise SimulationError(
            f"--policy {text}: elastic,reshape=NAME takes one of {', '.join(names('reshape'))}."
        )
    return ElasticWay(text, make("reshape", policy_name, **options), costs, efficiency)


def _share(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None
