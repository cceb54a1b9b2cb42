"""What a run is set up with beside the trace and the way: hosts, seed, costs, faults, prices.

Law: with the same trace, way and plan a run gives the same bytes.
"""

from __future__ import annotations

import msgspec

from replkernel_scheduler.settings import CoreSettings
from replkernel_scheduler.sim.costs import Costs
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.faults import FaultModel
from replkernel_scheduler.sim.mix import Mix
from replkernel_scheduler.sim.nodes import GPU_MODEL, Hosts, each
from replkernel_scheduler.sim.speeds import Speeds
from replkernel_scheduler.sim.way import Way
from replkernel_scheduler.types import Gpu, GpuUuid, HostName, HostShape


class Prices(msgspec.Struct, frozen=True):
    """What a host costs its provider an hour, and what its users pay on top (spec 1.10)."""

    host_hour: float = 10.0
    factor: float = 1.15
    standby: float = 0.125
    """The share of a host that a replica without a cell is billed."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at its beginning, and what is drawn."""

    hosts: int = 30
    gpus_per_host: int = 8
    """Of the host with the most, where `nodes` lists them."""
    nodes: tuple[Hosts, ...] = ()
    """The hosts where they are not all equal; `hosts` of them."""
    speeds: Speeds = ()
    across_hosts: float = 1.0
    """A job on several hosts takes so many times as long."""
    memory_gb: float = 0.0
    """What a host has for jobs that share its processors; 0: as much as they want."""
    hosts_max: int | None = None
    """The most hosts that a scaling policy may have; None: as many as there are at the beginning."""
    warmup_s: float = 0.0
    """What comes in the first seconds of a run is played, and not counted."""
    seed: int = 0
    mix: Mix | None = None
    """The GPUs that sessions want in the place of the trace's; the driver of a run does not look at it."""
    costs: Costs = Costs()
    faults: FaultModel = FaultModel()
    prices: Prices = Prices()

    def host_list(self) -> list[Hosts]:
        """Return every host of the beginning."""
        return list(each(self.nodes or (Hosts(self.hosts, self.gpus_per_host),)))

    @property
    def gpus(self) -> int:
        """Return how many GPUs all hosts have."""
        return sum(alike.count * alike.gpus for alike in self.nodes) or self.hosts * self.gpus_per_host

    @property
    def watts(self) -> frozenset[tuple[float, float]]:
        """Return what GPUs of the hosts draw, busy and idle; nothing unless it is known of all."""
        found = frozenset([(alike.gpu_busy_w, alike.gpu_idle_w) for alike in self.nodes])
        return found if all(busy_w for busy_w, _ in found) else frozenset()

    def counts(self, what: str) -> bool:
        """Say whether every host says how much of `cpus` or `memory_gb` it has, so that it can be counted."""
        return bool(self.nodes) and all(getattr(alike, what) for alike in self.nodes)


def settings_for(plan: Plan, way: Way) -> CoreSettings:
    """Return the core's numbers: hosts can be provisioned only where the way scales."""
    if plan.nodes and way.policies.scaling.enabled:
        raise SimulationError(
            f"--policy {way.name}: hosts that come are all equal; give --hosts NxG in the place of --nodes."
        )
    shape = HostShape(plan.gpus_per_host, GPU_MODEL) if way.policies.scaling.enabled else None
    most = plan.hosts if plan.hosts_max is None else plan.hosts_max
    usual = CoreSettings()
    return CoreSettings(
        host_shape=shape,
        hosts_max=most,
        hosts_min=min(usual.hosts_min, most),
        gpus_per_host_max=max(usual.gpus_per_host_max, plan.gpus_per_host if way.bare else 0),
    )


def gpus_of(name: HostName, host: Hosts) -> tuple[Gpu, ...]:
    """Return what a host offers."""
    model, memory_gb = host.gpu_model, host.gpu_memory_gb
    return tuple([Gpu(GpuUuid(f"{name}/{number}"), model, memory_gb) for number in range(host.gpus)])
