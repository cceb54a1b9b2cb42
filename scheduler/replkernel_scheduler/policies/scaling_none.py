"""The cluster is as large as it is."""

from __future__ import annotations

from replkernel_scheduler.policies.protocol import ClusterLoad, ScalingStep


class NoScaling:
    """Hosts come and go by themselves."""

    enabled = False

    def step(self, load: ClusterLoad) -> ScalingStep:
        """Return nothing to do."""
        return ScalingStep(0, 0)
