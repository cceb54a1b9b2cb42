"""Some more than what computes, with a floor and a buffer (spec 1.7)."""

from __future__ import annotations

from math import ceil

from replkernel_scheduler.policies.protocol import ClusterLoad, ScalingStep

OUT, IN, RELEASED_MAX = 1.05, 1.1, 2


class Buffered:
    """Out below 1.05 times the load, in above 1.1 times: the difference keeps hosts from coming and going."""

    enabled = True

    def step(self, load: ClusterLoad) -> ScalingStep:
        """Compare hosts with hosts, never below the floor, at most RELEASED_MAX released a pass."""
        if not load.sampled:
            return ScalingStep(0, 0)
        floor = load.hosts_min + load.buffer
        busy = load.committed / max(1.0, load.gpus_per_host)
        target = min(load.hosts_max, max(ceil(OUT * busy), floor))
        coming = load.hosts + load.provisioning
        if coming < target:
            return ScalingStep(target - coming, 0)
        spare = load.hosts - max(ceil(IN * busy), floor)
        return ScalingStep(0, min(RELEASED_MAX, max(0, spare)))
