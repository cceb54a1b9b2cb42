"""SJF: the shortest that fits is next, and nobody is stopped (spec 3.5)."""

from __future__ import annotations

from replkernel_scheduler.policies.preempt_shortest import Shortest


class NeverPreempt(Shortest):
    """Arrivals and ends decide who starts."""

    on_arrival = False
