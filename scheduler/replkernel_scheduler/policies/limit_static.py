"""A fixed limit of the subscription ratio."""

from __future__ import annotations

from replkernel_scheduler.policies.protocol import Subscription


class Static:
    """The same limit at all times."""

    def __init__(self, ratio: float = 1.5) -> None:
        """Take the limit."""
        self.ratio = ratio

    def limit(self, subscription: Subscription, replicas: int) -> float:
        """Return it."""
        return self.ratio
