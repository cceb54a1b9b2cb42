"""The hosts that a run begins with, as people name them: 30x8.

Law: what no run can have is refused here, in one sentence.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.nodes import GPUS_MAX, HOSTS_MAX, Hosts, read_hosts
from replkernel_scheduler.sim.speeds import Speeds, speeds_named

ACROSS_MAX = 100


class Cluster(msgspec.Struct, frozen=True):
    """`hosts` equal hosts of `gpus_per_host` GPUs; for jobs that share processors those are cores.

    `hosts_max`: the most that a policy with `scaling=buffered` may have (None: as many as there are).
    `memory_gb`: what a host has for jobs that share it (0: as much as they want). `nodes`: hosts that are
    not all equal, as `Cluster.of_file` reads them. `across_hosts`: jobs on several hosts (`sq`, `mq`) take
    so many times as long.
    """

    hosts: int = 30
    gpus_per_host: int = 8
    hosts_max: int | None = None
    memory_gb: float = 0.0
    nodes: tuple[Hosts, ...] = ()
    speeds: Speeds = ()
    across_hosts: float = 1.0

    def __post_init__(self) -> None:
        """Raise SimulationError for a cluster that cannot be."""
        if not (1 <= self.hosts <= HOSTS_MAX and 1 <= self.gpus_per_host <= GPUS_MAX):
            raise _refused(f"{self.hosts}x{self.gpus_per_host}")
        if self.memory_gb < 0:
            raise SimulationError(f"memory_gb={self.memory_gb:g} is less than nothing.")
        if not 1 <= self.across_hosts <= ACROSS_MAX:
            raise SimulationError(f"across_hosts={self.across_hosts:g} is not from 1 to {ACROSS_MAX}.")

    @classmethod
    def of_file(cls, path: str | Path, *, speeds: str | Path = "", across_hosts: float = 1.0) -> Cluster:
        """Return the hosts that a CSV file lists; raise SimulationError.

        Its columns are `gpus`, and `count`, `gpu_model`, `gpu_memory_gb`, `cpus`, `memory_gb` if known.
        `speeds` is a table of how fast models are (`model,speed`), or `gavel` or `sia`.
        """
        nodes = read_hosts(Path(path))
        table = speeds_named(str(speeds)) if speeds else ()
        hosts, most = sum(alike.count for alike in nodes), max(alike.gpus for alike in nodes)
        return cls(hosts, most, nodes=nodes, speeds=table, across_hosts=across_hosts)

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
