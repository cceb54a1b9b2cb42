"""The fewer kernels compute, the more are let in (spec 1.3; the authors' code)."""

from __future__ import annotations

from replkernel_scheduler.policies.protocol import Subscription

START = 7.0


class DemandBusy:
    """The mean of the last samples of live kernels for each computing one, from 1 to 7."""

    def limit(self, subscription: Subscription, replicas: int) -> float:
        """Return the mean; 7 before the first sample."""
        samples = subscription.demand.samples
        return sum(samples) / len(samples) if samples else START
