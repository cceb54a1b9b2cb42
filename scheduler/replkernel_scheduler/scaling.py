"""The pass that asks the scaling policy for more or fewer hosts.

Law: a host is released only when it commits nothing, is in no migration or claim, has no job without a
lease, and holds at most IDLE_REPLICAS_MAX replicas, which move first. (Spec 1.7.)
"""

from __future__ import annotations

from heapq import nsmallest

from replkernel_scheduler.host_life import HostLife
from replkernel_scheduler.hosts import Host
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.placing import Placing
from replkernel_scheduler.policies.protocol import ClusterLoad

IDLE_REPLICAS_MAX = 4


class ScalingPass:
    """One pass each interval, while the policy wants any."""

    def __init__(self, parts: Parts, host_life: HostLife, placing: Placing) -> None:
        """Decide about `parts`."""
        self.parts, self.host_life, self.placing = parts, host_life, placing

    def begin(self) -> None:
        """Have the first pass an interval from now."""
        if self.parts.policies.scaling.enabled and self.parts.timers.at(("scaling", "")) is None:
            self.parts.timers.set(("scaling", ""), self.parts.now + self.parts.settings.scaling_every_s)

    def due(self) -> None:
        """Do one pass."""
        parts, settings = self.parts, self.parts.settings
        hosts = len(parts.hosts.by_name)
        default = settings.host_shape.gpus if settings.host_shape is not None else 1
        load = ClusterLoad(
            hosts=hosts,
            provisioning=len(parts.reservations.by_id),
            gpus=parts.hosts.gpus,
            committed=parts.demand.committed,
            gpus_per_host=parts.hosts.gpus / hosts if parts.hosts.gpus else default,
            hosts_min=settings.hosts_min,
            hosts_max=settings.hosts_max,
            buffer=settings.hosts_buffer,
            sampled=parts.demand.full,
        )
        step = parts.policies.scaling.step(load)
        for _ in range(step.out):
            if self.placing.provision() is None:
                break
        if step.release:
            for host in self._releasable(step.release):
                self.host_life.empty(host)
        parts.timers.set(("scaling", ""), parts.now + settings.scaling_every_s)

    def _releasable(self, count: int) -> list[Host]:
        """Return up to `count` hosts that may be released, those with least subscribed first."""
        may = [
            host
            for host in self.parts.hosts.by_name.values()
            if len(host.replicas) <= IDLE_REPLICAS_MAX and host.state == "up" and self._unused(host)
        ]
        return nsmallest(count, may, key=_least_subscribed)

    def _unused(self, host: Host) -> bool:
        """Say whether nobody computes on a host or is about to; what merely lingers does not keep it."""
        if host.claims or host.moves or self.parts.occupants(host.name):
            return False
        return all(len(pool.idle) + pool.lingering == len(pool.uuids) for pool in host.pools)


def _least_subscribed(host: Host) -> tuple[int, str]:
    return (host.subscribed, host.name)
