"""The paper's formula as printed, kept to show that it never places anything (spec 1.3)."""

from __future__ import annotations

from replkernel_scheduler.policies.protocol import Subscription


class Paper:
    """The cluster's present mean ratio: 0 on an empty cluster, so that no host passes."""

    def limit(self, subscription: Subscription, replicas: int) -> float:
        """Return the mean ratio."""
        return subscription.subscribed / max(1, subscription.gpus * replicas)
