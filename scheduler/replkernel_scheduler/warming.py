"""Pre-warmed processes: kept on every host as the policy says, used by new replicas (and cells of baselines).

Law: `warming` are asked for and not yet answered; never more than PER_HOST_MAX on one host.
"""

from __future__ import annotations

from replkernel_scheduler.effects import Prewarm
from replkernel_scheduler.events import Prewarmed, PrewarmFailed
from replkernel_scheduler.hosts import Host
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.types import HostName

PER_HOST_MAX = 64


class Warming:
    """Refills and uses."""

    def __init__(self, parts: Parts) -> None:
        """Decide about `parts`."""
        self.parts = parts

    def use(self, host: Host) -> bool:
        """Use a pre-warmed process of the host, if there is one, and have another one made."""
        self.parts.rate.used(self.parts.now)
        warm = host.prewarmed > 0
        host.prewarmed -= warm
        self.refill(host)
        return warm

    def give_back(self, host: Host) -> None:
        """Take back a process that ran a cell, unless there are enough."""
        if host.prewarmed + host.warming < self._target():
            host.prewarmed += 1

    def refill(self, host: Host) -> None:
        """Have as many processes pre-warmed as are missing on the host."""
        if host.state != "up" or self.parts.timers.at(("prewarm", host.name)) is not None:
            return
        missing = self._target() - host.prewarmed - host.warming
        if missing > 0:
            host.warming += missing
            self.parts.out.append(Prewarm(host.name, missing))

    def answered(self, event: Prewarmed | PrewarmFailed) -> None:
        """Count a process that is ready, or wait a while after one that will not come."""
        parts = self.parts
        host = parts.hosts.by_name.get(event.host)
        if host is None:
            return
        if not host.warming:
            raise parts.history.unexpected(
                host.name, "no answer about pre-warmed processes", type(event).__name__
            )
        host.warming -= 1
        if isinstance(event, Prewarmed):
            host.prewarmed += 1
            self.refill(host)
        else:
            parts.timers.set(("prewarm", host.name), parts.now + parts.settings.prewarm_pause_s)

    def due(self, name: HostName) -> None:
        """Try again after the pause."""
        host = self.parts.hosts.by_name.get(name)
        if host is not None:
            self.refill(host)

    def _target(self) -> int:
        parts = self.parts
        hosts = len(parts.hosts.by_name)
        wanted = parts.policies.prewarm.target(parts.rate.uses_per_s(parts.now), parts.rate.ready_s, hosts)
        return min(PER_HOST_MAX, wanted)
