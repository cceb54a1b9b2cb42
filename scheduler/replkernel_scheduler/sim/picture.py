"""What a run's plots are drawn from: courses over time, and distributions by their quantiles.

Law: a few thousand numbers, whatever the size of the run; they go from process to process as data.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from replkernel_scheduler.sim.figures import Figures
from replkernel_scheduler.sim.history import History
from replkernel_scheduler.sim.summary import AnyWay

QUANTILES = 200


class Picture(msgspec.Struct, frozen=True):
    """One run: means by step of `step_s` (GPUs, subscription ratio), counts by step, quantiles in seconds.

    `slowdown`, `bounded_slowdown` and `fairness` have them in times.
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


def picture_of(figures: Figures, now: float, way: AnyWay) -> Picture:
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
    )


def _counts(history: History, now: float, steps: int) -> list[float]:
    history.reach(now)
    return history.sums[:steps]


def quantiles(samples: Sequence[float]) -> list[float]:
    """Return the samples at QUANTILES equal distances, the least and the most among them; [] without any."""
    ordered = sorted(samples)
    last = len(ordered) - 1
    return [ordered[round(last * place / QUANTILES)] for place in range(QUANTILES + 1)] if ordered else []
