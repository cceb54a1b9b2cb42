"""Batch jobs that are made: as many as was asked for, when the day says, as wide as the model has them."""

from __future__ import annotations

from collections import Counter
from statistics import mean, median

import pytest
from replkernel_scheduler.sim.batch import BatchPlan, batch
from replkernel_scheduler.sim.errors import SimulationError


@pytest.mark.parametrize("kind", ["poisson", "diurnal", "lublin"])
def test_as_many_come_as_was_asked_for_and_the_same_seed_makes_the_same(kind: str) -> None:
    plan = BatchPlan(kind=kind, hours=24 * 20, per_hour=30)  # type: ignore[arg-type]
    jobs = batch(plan, 3)
    assert len(jobs) == pytest.approx(30 * 24 * 20, rel=0.1)
    assert [job.at for job in jobs] == sorted(job.at for job in jobs)
    assert jobs[-1].at < 24 * 20 * 3600
    assert jobs == batch(plan, 3) != batch(plan, 4)


def test_the_hour_of_the_day_tells_how_many_come() -> None:
    def by_hour(kind: str) -> Counter[int]:
        jobs = batch(BatchPlan(kind=kind, hours=24 * 50, per_hour=60), 1)  # type: ignore[arg-type]
        return Counter(int(job.at // 3600) % 24 for job in jobs)

    day, even, model = by_hour("diurnal"), by_hour("poisson"), by_hour("lublin")
    assert day[14] + day[15] > 5 * (day[2] + day[3])  # 1.8 beside 0.2 of the mean
    assert max(even.values()) < 1.2 * min(even.values())
    assert max(model, key=model.__getitem__) in range(12, 18), "the model's rush is in the afternoon"
    assert min(model, key=model.__getitem__) in range(2, 8)


def test_lublins_jobs_are_as_wide_and_long_as_published() -> None:
    """24.4 % are serial, 57.6 % more of a power of two."""
    jobs = batch(BatchPlan(kind="lublin", hours=24 * 200, widest=128), 2)
    widths = Counter(job.width for job in jobs)
    powers = sum(count for width, count in widths.items() if width & (width - 1) == 0)
    assert widths[1] / len(jobs) == pytest.approx(0.244, abs=0.03)
    assert powers / len(jobs) > 0.244 + 0.576 - 0.03
    assert max(widths) <= 128
    wide = [job.duration_s for job in jobs if job.width >= 64]
    narrow = [job.duration_s for job in jobs if job.width <= 2]
    assert median(wide) > 2 * median(narrow), "the wider the longer"
    assert len(jobs) / (24 * 200) == pytest.approx(4.3, abs=0.4), "as often as the model says"
    assert mean(job.duration_s for job in jobs) < max(job.duration_s for job in jobs) <= 162_755


def test_an_impossible_batch_is_refused_with_the_reason() -> None:
    with pytest.raises(SimulationError, match="more than"):
        batch(BatchPlan(kind="poisson", hours=1e6, per_hour=1e6), 0)
    with pytest.raises(SimulationError, match=r"1 to 4,096 GPUs"):
        batch(BatchPlan(kind="lublin", widest=5000), 0)
    for wrong in ({"hours": float("nan")}, {"hours": 0.0}, {"per_hour": 0.0}, {"per_hour": -3.0}):
        with pytest.raises(SimulationError, match="numbers above 0"):
            batch(BatchPlan(kind="poisson", **wrong), 0)  # type: ignore[arg-type]
