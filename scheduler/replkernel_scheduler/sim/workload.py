"""Sessions of people who train models in notebooks, made from the quantiles that are published of them.

People work in bouts of cells with breaks between; how long a cell runs and when the next one comes hang
together; a session trains for a share of its life that is its own, and breaks are as long as that needs. Law:
the same plan and seed make the same sessions, and nobody's cells overlap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from math import exp, log, sqrt
from random import Random
from statistics import NormalDist

import msgspec

from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.mix import TEMPLATE, Mix
from replkernel_scheduler.sim.quantile import Quantiles
from replkernel_scheduler.sim.records import Cell, Record, Session

HOUR_S, DAY_S = 3600.0, 86_400.0
ADMIT_EVERY_S = 60.0
CELLS_MAX = 5_000_000
SESSIONS_MAX, HOURS_MAX = 10_000, 24 * 3660.0
"""The most that are open at a time; the longest, about ten years."""
Knots = tuple[tuple[float, float], ...]


class WorkloadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to make; the defaults are NotebookOS's 17.5 h. Quantiles are (share, value) pairs, in seconds."""

    hours: float = 17.5
    sessions: Knots = ((0, 0), (1, 34), (2.5, 55), (4.5, 68), (12.2, 86), (14, 90), (17.5, 87))
    """How many are open, at these hours; between them in proportion."""
    duration: Knots = ((0, 15), (0.5, 120), (0.75, 300), (0.9, 1020), (0.95, 2160), (0.99, 10_920))
    duration_mean_s: float = 984.0
    longest_s: float = 7 * DAY_S
    between: Knots = ((0, 240), (0.5, 300), (0.75, 480), (0.9, 1740), (0.95, 3600), (0.99, 14_400))
    """From the beginning of a cell to that of the next one, breaks apart."""
    together: float = 0.97
    """Correlation of the two (of a Gaussian copula)."""
    rest_s: float = 15.0
    """The least between a cell's end and the next one's beginning."""
    bout: float = 12.0
    """Cells of a bout, in the mean."""
    duty: Knots = ((0, 0.005), (1 / 6, 0.05), (2 / 3, 0.3113), (1, 1))
    """The share of its life for which a session trains, linear between these."""
    life_mean_days: float = 6.36
    life_spread: float = 1.6
    """Sigma of its logarithm."""
    idle_share: float = 0.15
    """The share of sessions, those with the shortest lives, that hardly train (up to 5 %)."""
    mix: Mix = TEMPLATE


LONG = WorkloadPlan(
    hours=92 * 24.0,
    sessions=((0, 1), (720, 206), (1464, 312), (1900, 433), (2208, 397)),
    between=((0, 30), (0.5, 300), (0.75, 480), (0.9, 1740), (0.95, 3600), (0.99, 14_400)),
    idle_share=0.7,
)
"""NotebookOS's 92 days."""
PLANS = {"17.5h": WorkloadPlan(), "92d": LONG}


def workload(plan: WorkloadPlan, seed: int) -> Iterator[Record]:
    """Yield each session with its cells; raise SimulationError if the plan cannot be."""
    most = max(count for _, count in plan.sessions)
    if most > SESSIONS_MAX or plan.hours > HOURS_MAX:
        raise SimulationError(
            f"At most {SESSIONS_MAX:,} sessions can be open at a time, for {HOURS_MAX:,.0f} hours: "
            "ask for less."
        )
    durations = _quantiles("duration", plan.duration, plan.longest_s, plan.duration_mean_s)
    between = _quantiles("between", plan.between, max(2 * plan.between[-1][1], plan.longest_s))
    cells = 0
    for name, begins, ends, rank in _lives(plan, Random(f"sessions {seed}")):
        dice = Random(f"session {seed} {name}")
        gpus = plan.mix.drawn(name, seed)
        duty = 0.05 * dice.random() if rank < plan.idle_share else _between(plan.duty, dice.random())
        yield Session(name, begins, ends, gpus)
        for at, lasts_s in _cells(plan, begins, ends, max(duty, 1e-3), durations, between, dice):
            cells += 1
            if cells > CELLS_MAX:
                raise SimulationError(
                    f"This makes more than {CELLS_MAX:,} cells: ask for fewer sessions or hours."
                )
            yield Cell(name, at, lasts_s, gpus)


def _quantiles(name: str, knots: Knots, longest_s: float, mean_s: float | None = None) -> Quantiles:
    """Return a distribution; raise SimulationError that names it."""
    try:
        return Quantiles(knots, longest_s, mean_s)
    except SimulationError as error:
        raise SimulationError(f"{name}: {error}") from None


def _lives(plan: WorkloadPlan, dice: Random) -> Iterator[tuple[str, float, float, float]]:
    """Yield name, beginning, end and the rank of its length (0 to 1) of each session.

    Sessions are admitted and ended so that as many are open as the plan says.
    """
    log_mean = log(plan.life_mean_days * DAY_S) - plan.life_spread**2 / 2
    lives = NormalDist(log_mean, plan.life_spread)
    over = plan.hours * HOUR_S
    open_now: list[tuple[float, str, float, float]] = []
    made, at = 0, 0.0
    while at < over:
        gone = [life for life in open_now if life[0] <= at]
        open_now = [life for life in open_now if life[0] > at]
        wanted = round(_between(plan.sessions, at / HOUR_S))
        while len(open_now) > wanted:
            first = min(open_now)
            open_now.remove(first)
            gone.append((at, *first[1:]))
        yield from ((name, begins, ends, rank) for ends, name, begins, rank in gone if ends > begins)
        while len(open_now) < wanted:
            rank = dice.random()
            lasts_s = exp(lives.inv_cdf(min(max(rank, 1e-9), 1 - 1e-9)))
            open_now.append((at + lasts_s, f"{made}", at, rank))
            made += 1
        at += ADMIT_EVERY_S
    yield from ((name, begins, min(ends, over), rank) for ends, name, begins, rank in open_now)


def _cells(
    plan: WorkloadPlan,
    begins: float,
    ends: float,
    duty: float,
    durations: Quantiles,
    between: Quantiles,
    dice: Random,
) -> Iterator[tuple[float, float]]:
    """Yield when cells of a session come and how long they run; the last one ends with the session."""
    normal = NormalDist()
    apart = sqrt(1 - plan.together**2)
    at = begins + min(plan.rest_s, (ends - begins) / 2)
    if dice.random() > duty:  # It is opened somewhere in a break, which are that long in the mean.
        at += dice.random() * plan.bout * plan.duration_mean_s * (1 / duty - 1)
    works_from, busy_s = at, 0.0
    if at >= ends:  # It is opened, tried out, and left alone.
        yield (begins + ends) / 2, min(plan.duration[0][1], (ends - begins) / 2)
    while at < ends:
        first = dice.gauss(0.0, 1.0)
        second = plan.together * first + apart * dice.gauss(0.0, 1.0)
        lasts_s = min(durations.at(normal.cdf(first)), ends - at)
        yield at, lasts_s
        busy_s += lasts_s
        at += max(between.at(normal.cdf(second) * (1 - 1 / plan.bout)), lasts_s + plan.rest_s)
        if dice.random() < 1 / plan.bout:
            at = max(at, works_from + busy_s / duty)


def _between(knots: Knots, share: float) -> float:
    """Return the value at a place, in proportion between the knots."""
    place = bisect_right([knot[0] for knot in knots], share) - 1
    if place < 0 or place >= len(knots) - 1:
        return knots[max(place, 0)][1]
    (low, least), (high, most) = knots[place], knots[place + 1]
    return least + (most - least) * (share - low) / (high - low)
