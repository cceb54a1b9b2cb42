"""What a run's plots are drawn from: courses over time, and distributions by their quantiles.

Law: a few thousand numbers, whatever the size of the run; they go from process to process as data.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import msgspec

from replkernel_scheduler.sim.figures import Figures
from replkernel_scheduler.sim.history import History
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.summary import HOUR_S, AnyWay

QUANTILES = 200


class Picture(msgspec.Struct, frozen=True):
    """One run: means by step of `step_s` (GPUs, subscription ratio, who waits), counts by step, quantiles.

    `cost` and `revenue` are sums until the end of each step, from the warm-up on; other courses have the
    whole run. Quantiles are in seconds; `slowdown`, `bounded_slowdown` and `fairness` have them in times.
    """

    step_s: float
    provisioned: list[float]
    committed: list[float]
    reserved: list[float]
    subscription: list[float]
    added: list[float]
    released: list[float]
    moves: list[float]
    delay_s: list[float]
    completion_s: list[float]
    wait_s: list[float]
    job_completion_s: list[float]
    slowdown: list[float]
    bounded_slowdown: list[float]
    fairness: list[float]
    waiting: list[float]
    cost: list[float]
    revenue: list[float]


def picture_of(figures: Figures, now: float, way: AnyWay, plan: Plan) -> Picture:
    """Return the picture of a run that ended at `now`."""
    provisioned = figures.gpus.course(now)
    subscribed = figures.subscribed.course(now) if way.replicas else []
    history = figures.gpus.history
    assert history is not None, "The GPUs of a run keep their history."
    steps = len(provisioned)
    ratio = [
        part / (whole * way.replicas) if whole else 0.0
        for part, whole in zip(subscribed, provisioned, strict=False)
    ]
    return Picture(
        history.step_s,
        provisioned,
        figures.committed.course(now),
        figures.reserved.course(now) if way.reserves else [],
        ratio if any(ratio) else [],
        _counts(figures.added, now, steps),
        _counts(figures.released, now, steps),
        _counts(figures.moves, now, steps),
        quantiles(figures.delays),
        quantiles(figures.cell_times),
        quantiles(figures.waits),
        quantiles(figures.job_times),
        quantiles(figures.slowdowns),
        quantiles(figures.bounded_slowdowns()),
        quantiles(figures.fairness(now)),
        _means(figures.waiting, now, steps),
        *_money(figures, now, way, plan),
    )


def _money(figures: Figures, now: float, way: AnyWay, plan: Plan) -> tuple[list[float], list[float]]:
    """Return cost and revenue so far at the end of each step; the last sums are those of the summary."""
    prices, gpus_per_host = plan.prices, plan.gpus / plan.hosts
    hosts = figures.hosts.course(now)
    used = (figures.reserved if way.reserves else figures.committed).course(now)
    billed = [gpus / gpus_per_host for gpus in used]
    if not way.reserves and way.kernels != "none":
        both = zip(billed, figures.replicas.course(now), figures.executing.course(now), strict=True)
        billed = [gpus + prices.standby * max(0.0, there - running) for gpus, there, running in both]
    history = figures.hosts.history
    assert history is not None, "The hosts of a run keep their history."
    step_s = history.step_s
    hours = [_counted_s(place * step_s, step_s, now, plan) / HOUR_S for place in range(len(hosts))]
    earned = prices.factor * prices.host_hour
    cost = accumulate(count * prices.host_hour * hour for count, hour in zip(hosts, hours, strict=True))
    revenue = accumulate(count * earned * hour for count, hour in zip(billed, hours, strict=True))
    return list(cost), list(revenue)


def _counted_s(begins: float, step_s: float, now: float, plan: Plan) -> float:
    """Return how much of a step is after the warm-up, and before the end."""
    return max(0.0, min(begins + step_s, now) - max(begins, plan.warmup_s))


def _means(history: History, now: float, steps: int) -> list[float]:
    """Return the mean value of each step."""
    history.reach(now)
    spans = [min(history.step_s, now - place * history.step_s) for place in range(steps)]
    return [area / span_s for area, span_s in zip(history.sums, spans, strict=False)]


def _counts(history: History, now: float, steps: int) -> list[float]:
    history.reach(now)
    return history.sums[:steps]


def quantiles(samples: Sequence[float]) -> list[float]:
    """Return the samples at QUANTILES equal distances, the least and the most among them; [] without any."""
    ordered = sorted(samples)
    last = len(ordered) - 1
    return [ordered[round(last * place / QUANTILES)] for place in range(QUANTILES + 1)] if ordered else []
