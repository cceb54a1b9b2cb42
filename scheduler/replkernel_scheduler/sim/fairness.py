"""Finish-time fairness of jobs (Themis, NSDI 2020): how long each took, beside an equal share of the cluster.

A job's share is the GPUs there were over the number of jobs there were, both in the mean of its life, and no
more than it wants; with fewer GPUs it would run in proportion longer. Law: 1 or less is fair; only jobs that
were served count, also as contenders.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

FAIR = 1.001
"""Up to this a job took no longer than on its own share."""
Integral: TypeAlias = Callable[[float], float]


class Lived(NamedTuple):
    """A job that was served: when it came, how long it took, how long it takes alone, on how many GPUs."""

    submitted: float
    took_s: float
    alone_s: float
    gpus: float


def finish_time_fairness(jobs: Sequence[Lived], gpu_seconds: Integral) -> list[float]:
    """Return how often its time on an equal share each job took; `gpu_seconds` tells GPUs' until a time."""
    job_seconds = _contention(jobs)
    found = []
    for job in jobs:
        done = job.submitted + job.took_s
        contended = job_seconds(done) - job_seconds(job.submitted)
        there = gpu_seconds(done) - gpu_seconds(job.submitted)
        longer = job.gpus * contended / there if there > 0 else 1.0
        found.append(job.took_s / (job.alone_s * max(1.0, longer)))
    return found


def _contention(jobs: Sequence[Lived]) -> Integral:
    """Return the integral of how many jobs there are, until a time."""
    changes = sorted(
        [(job.submitted, 1) for job in jobs] + [(job.submitted + job.took_s, -1) for job in jobs]
    )
    times, areas, counts = [0.0], [0.0], [0]
    for at, change in changes:
        areas.append(areas[-1] + counts[-1] * (at - times[-1]))
        times.append(at)
        counts.append(counts[-1] + change)

    def until(at: float) -> float:
        place = bisect_right(times, at) - 1
        return areas[place] + counts[place] * (at - times[place])

    return until


def integral_of(course: Sequence[float], step_s: float) -> Integral:
    """Return the integral of a course of means by steps, until a time; the last step may be a part."""
    areas = [0.0]
    for mean in course:
        areas.append(areas[-1] + mean * step_s)

    def until(at: float) -> float:
        if not course:
            return 0.0
        place = min(int(at / step_s), len(course) - 1)
        return areas[place] + course[place] * (at - place * step_s)

    return until
