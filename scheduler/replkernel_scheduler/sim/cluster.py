"""The hosts that a run begins with, as people name them: 30x8.

Law: what no run can have is refused here, in one sentence.
"""

from __future__ import annotations

import re

import msgspec

from replkernel_scheduler.sim.errors import SimulationError

HOSTS_MAX, GPUS_MAX = 16_384, 4096


class Cluster(msgspec.Struct, frozen=True):
    """`hosts` equal hosts of `gpus_per_host` GPUs; for jobs that share processors those are cores.

    `hosts_max`: the most that a policy with `scaling=buffered` may have (None: as many as there are).
    `memory_gb`: what a host has for jobs that share it (0: as much as they want).
    """

    hosts: int = 30
    gpus_per_host: int = 8
    hosts_max: int | None = None
    memory_gb: float = 0.0

    def __post_init__(self) -> None:
        """Raise SimulationError for a cluster that cannot be."""
        if not (1 <= self.hosts <= HOSTS_MAX and 1 <= self.gpus_per_host <= GPUS_MAX):
            raise _refused(f"{self.hosts}x{self.gpus_per_host}")
        if self.memory_gb < 0:
            raise SimulationError(f"memory_gb={self.memory_gb:g} is less than nothing.")

    @classmethod
    def named(cls, text: str) -> Cluster:
        """Return the cluster `30x8`: 30 hosts of 8 GPUs; raise SimulationError if it is none."""
        found = re.fullmatch(r"([0-9]{1,5})x([0-9]{1,4})", text)
        if found is None:
            raise _refused(text)
        return cls(int(found[1]), int(found[2]))


def _refused(text: str) -> SimulationError:
    return SimulationError(
        f"{text!r} is not NxG, such as 30x8: 1 to {HOSTS_MAX} hosts of 1 to {GPUS_MAX} GPUs."
    )
