"""Batch jobs that are made: at random (Poisson), by the hour of the day, or by Lublin and Feitelson's model.

Law: the same plan and seed make the same jobs, in order of time; the file says what it was made from.

The last follows *The workload on parallel supercomputers* (Lublin and Feitelson, JPDC 2003) for jobs of all
kinds together. Sizes: two uniform distributions of their logarithm, many of them powers of two. Run times:
two gamma distributions of theirs, the wider the longer. Arrivals: a gamma distribution that the hour of the
day stretches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import cos, exp, inf, log, log2, pi
from random import Random
from typing import Literal, TypeAlias

import msgspec

from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.mix import Mix
from replkernel_scheduler.sim.quantile import Quantiles
from replkernel_scheduler.sim.records import Job
from replkernel_scheduler.sim.summary import spread
from replkernel_scheduler.sim.workload import HOUR_S, Knots, WorkloadPlan
from replkernel_scheduler.sim.workload_file import MADE_BY

Kind: TypeAlias = Literal["poisson", "diurnal", "lublin"]
KINDS: tuple[Kind, ...] = ("poisson", "diurnal", "lublin")
JOBS_MAX = 5_000_000
BUSIEST_H = 15.0
COLUMNS = "job,arrival_s,duration_s,gpus"
# Of the model, for jobs of all kinds together.
SERIAL, POWERS, LOW, BELOW_HIGH, UP_TO_MEDIUM = 0.244, 0.576, 0.8, 2.5, 0.86
RUNS_SHORT, RUNS_LONG, SHORT_BY_SIZE, SHORT = (4.2, 0.94), (312.0, 0.03), -0.0054, 0.78
BETWEEN, BY_DAY, ALL_HOURS = (10.2303, 0.4871), (8.1737, 3.9631), 1.0225
RUNS_MOST, BETWEEN_MOST = 12.0, 13.0
"""Natural logarithms of seconds; more is drawn again."""
BUCKETS, BUCKET_S, DAY_BEGINS = 48, 1800.0, 11


class BatchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to make; `per_hour` None: as Lublin and Feitelson's model has it (4.3), else 60 jobs an hour."""

    kind: Kind
    hours: float = 168.0
    per_hour: float | None = None
    swing: float = 0.8
    """How much the hour of the day makes of it: at 15 h that much more than in the mean, 12 h later less."""
    widest: int = 128
    """The most GPUs of a job of the model."""
    mix: Mix = Mix(((1, 50.0), (2, 15.0), (4, 15.0), (8, 20.0)))
    """GPUs of the other kinds' jobs (ours)."""
    duration: Knots = WorkloadPlan().duration
    duration_mean_s: float | None = WorkloadPlan().duration_mean_s
    longest_s: float = 7 * 86_400.0


def batch(plan: BatchPlan, seed: int) -> list[Job]:
    """Return the jobs; raise SimulationError for a plan that cannot be, or makes too many."""
    dice = Random(f"batch {plan.kind} {seed}")
    if not 1 <= plan.widest <= 4096 or not 0 <= plan.swing <= 1:
        raise SimulationError("A job has 1 to 4,096 GPUs, and the swing of a day is from 0 to 1.")
    often = 60.0 if plan.per_hour is None else plan.per_hour
    if not (0 < plan.hours < inf and 0 < often < inf):
        raise SimulationError("The hours, and the jobs in each, are numbers above 0.")
    if plan.hours * (plan.per_hour or 60.0) > JOBS_MAX:
        raise SimulationError(f"This makes more than {JOBS_MAX:,} jobs: ask for fewer hours.")
    return list(_lublin(plan, dice) if plan.kind == "lublin" else _drawn(plan, seed, dice))


def lines(jobs: Sequence[Job], plan: BatchPlan, seed: int) -> Iterator[str]:
    """Yield the lines of the file."""
    yield f"{MADE_BY} from {msgspec.json.encode(plan).decode()} with seed {seed}"
    yield COLUMNS
    for job in jobs:
        yield f"{job.job},{job.at:.3f},{job.duration_s:.3f},{job.width}"


def told(jobs: Sequence[Job], plan: BatchPlan) -> str:
    """Return in a sentence what was made."""
    work_h = sum(job.width * job.duration_s for job in jobs) / HOUR_S
    runs = spread([job.duration_s for job in jobs])
    busy = f"{work_h:,.0f} GPU-hours, {work_h / plan.hours:,.1f} GPUs busy in the mean"
    head = f"{len(jobs):,} jobs in {plan.hours:,.0f} h, {busy}."
    if runs is None:
        return head
    times = f"p50 {runs.p50:,.0f}, p90 {runs.p90:,.0f}, p99 {runs.p99:,.0f}, mean {runs.mean:,.0f}"
    return f"{head}\njobs run for (s): {times}"


def _drawn(plan: BatchPlan, seed: int, dice: Random) -> Iterator[Job]:
    """Yield jobs whose arrivals are independent, as often as the hour of the day says."""
    runs = Quantiles(plan.duration, plan.longest_s, plan.duration_mean_s)
    swing = plan.swing if plan.kind == "diurnal" else 0.0
    most_per_s = (plan.per_hour or 60.0) * (1 + swing) / HOUR_S
    at, number = 0.0, 0
    while (at := at + dice.expovariate(most_per_s)) < plan.hours * HOUR_S:
        now = 1 + swing * cos(2 * pi * (at / HOUR_S - BUSIEST_H) / 24)
        if dice.random() * (1 + swing) < now:
            yield Job(f"{number}", at, runs.at(dice.random()), plan.mix.drawn(f"{number}", seed))
            number += 1


def _lublin(plan: BatchPlan, dice: Random) -> Iterator[Job]:
    """Yield the model's jobs: each pays for the time since the last one, and rush hours are cheap."""
    weights, stretch = _day(), 1.0
    if plan.per_hour is not None:
        stretch = HOUR_S / plan.per_hour / _mean_between_s()
    bucket, paid, number = 0, 0.0, 0
    while True:
        between_s = stretch * exp(_below(BETWEEN_MOST, dice, BETWEEN[0] * ALL_HOURS, BETWEEN[1]))
        points = between_s / BUCKET_S
        while points > weights[bucket % BUCKETS] * (1 - paid):
            points -= weights[bucket % BUCKETS] * (1 - paid)
            bucket, paid = bucket + 1, 0.0
        paid += points / weights[bucket % BUCKETS]
        at = (bucket + paid) * BUCKET_S
        if at >= plan.hours * HOUR_S:
            return
        width = _width(plan.widest, dice)
        yield Job(f"{number}", at, _run_s(width, dice), width)
        number += 1


def _mean_between_s() -> float:
    """Return the mean time between two jobs of the model: what is drawn again is not in it."""
    alpha, beta, steps = BETWEEN[0] * ALL_HOURS, BETWEEN[1], 2000
    points = [BETWEEN_MOST * (step + 0.5) / steps for step in range(steps)]
    weights = [exp((alpha - 1) * log(point) - point / beta) for point in points]
    return sum(weight * exp(point) for weight, point in zip(weights, points, strict=True)) / sum(weights)


def _day() -> list[float]:
    """Return how many jobs come in each half hour of the day, beside the mean."""
    alpha, beta = BY_DAY
    weights = [0.0] * BUCKETS
    for place in range(DAY_BEGINS, BUCKETS + DAY_BEGINS):
        weights[(place - 1) % BUCKETS] = exp((alpha - 1) * log(place) - place / beta)
    mean = sum(weights) / BUCKETS
    return [weight / mean for weight in weights]


def _width(widest: int, dice: Random) -> int:
    kind, high = dice.random(), log2(widest)
    if kind <= SERIAL or high < LOW:
        return 1
    medium = max(LOW, high - BELOW_HIGH)
    low, most = (LOW, medium) if dice.random() <= UP_TO_MEDIUM else (medium, high)
    exponent = low + (most - low) * dice.random()
    if kind <= SERIAL + POWERS:
        exponent = round(exponent)
    return min(widest, max(1, round(2**exponent)))


def _run_s(width: int, dice: Random) -> float:
    short = min(1.0, max(0.0, SHORT_BY_SIZE * width + SHORT))
    while True:
        alpha, beta = RUNS_SHORT if dice.random() <= short else RUNS_LONG
        drawn = dice.gammavariate(alpha, beta)
        if drawn <= RUNS_MOST:
            return exp(drawn)


def _below(most: float, dice: Random, alpha: float, beta: float) -> float:
    while (drawn := dice.gammavariate(alpha, beta)) > most:
        pass
    return drawn
