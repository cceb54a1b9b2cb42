"""What a trace is like, in a few hundred numbers from which others like it are made (`resembling.py`).

Arrivals by the hour and how bursty they are; how long cells and jobs run, how long people think, how many
GPUs are wanted; how alike these are within a session or a user, and how they hang together. Law: no name of
the trace is in it, and no record as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias

import msgspec

from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.records import Cell, Job, Record, Session
from replkernel_scheduler.sim.scores import (
    Knots,
    Matrix,
    alike,
    correlation,
    knots_of,
    normal_scores,
)

HOUR_S = 3600.0
PARTS_MAX, IN_PART = 1024, 8
"""Of the time: so many parts at most, with so many arrivals in each in the mean."""
SHARES_MAX = 1000
CLASS_LEAST, CLASS_SHARE = 64, 0.01
"""Of sizes with durations of their own: so many cells or jobs, and such a share of all."""
Size: TypeAlias = tuple[int, int, tuple[str, ...]]
"""GPUs, thousandths of the one (0: all of it), models that will do."""


class Arrivals(msgspec.Struct, frozen=True):
    """How many come in each of equally long parts of the time, and the gaps between them.

    A gap is told in the mean gap of its part: independent arrivals have exponential ones, bursts many of 0.
    """

    span_s: float
    counts: tuple[int, ...]
    gaps: Knots


class Thinks(msgspec.Struct, frozen=True):
    """How long people think after a cell, and which share of the variance is between sessions."""

    values: Knots
    alike: float


class Class(msgspec.Struct, frozen=True):
    """What cells or jobs take that want up to so many GPUs, and more than the class before."""

    gpus: float
    mean_s: float
    values: Knots


class Durations(msgspec.Struct, frozen=True):
    """What cells or jobs take, by their GPUs.

    `alike`: which share of the variance among those of one class is between sessions (users).
    """

    classes: tuple[Class, ...]
    alike: float


class Sizes(msgspec.Struct, frozen=True):
    """GPUs that are wanted, from few to many, with the share of cells or jobs; `alike` as above."""

    shares: tuple[tuple[Size, float], ...]
    alike: float


class SessionsLike(msgspec.Struct, frozen=True, tag="sessions"):
    """Sessions with their cells, the last of which comes at `last_s`. Correlations are of normal scores.

    `between`: of cells, duration, thinking, GPUs of sessions; `within`: of the last three, of the cells of
    one. `users` has the share of sessions that each has.
    """

    arrivals: Arrivals
    last_s: float
    ends_s: float
    cells: Knots
    cells_mean: float
    duration: Durations
    think: Thinks
    gpus: Sizes
    before_s: Knots
    after_s: Knots
    between: Matrix
    within: Matrix
    users: tuple[float, ...]


class JobsLike(msgspec.Struct, frozen=True, tag="jobs"):
    """Batch jobs.

    `again` is the share of jobs whose user is that of the job before; `asked` what users ask for, in times
    of what the job takes.
    """

    arrivals: Arrivals
    duration: Durations
    gpus: Sizes
    users: tuple[float, ...]
    again: float
    asked: Knots | None


def likeness(records: Iterable[Record]) -> SessionsLike | JobsLike:
    """Return what records in order of time are like; raise SimulationError if that cannot be known."""
    sessions: dict[str, Session] = {}
    cells: dict[str, list[Cell]] = {}
    jobs: list[Job] = []
    for record in records:
        if isinstance(record, Session):
            sessions[record.session] = record
        elif isinstance(record, Cell):
            cells.setdefault(record.session, []).append(record)
        else:
            jobs.append(record)
    if cells and jobs:
        raise SimulationError("It has both cells and jobs: make one like each, from files of their own.")
    if len(cells) + len(jobs) < 2 or not _begins(sessions, cells, jobs):
        raise SimulationError(
            "It has too little to be like: two sessions or jobs at different times are needed."
        )
    return _jobs_like(jobs) if jobs else _sessions_like(sessions, cells)


def _begins(
    sessions: Mapping[str, Session], cells: Mapping[str, Sequence[Cell]], jobs: Sequence[Job]
) -> bool:
    times = [job.at for job in jobs] or [sessions[name].at for name in cells]
    return max(times, default=0.0) > min(times, default=0.0)


def arrivals_of(times: Sequence[float]) -> Arrivals:
    """Return how things come at these times, which rise."""
    first, span_s = times[0], times[-1] - times[0]
    parts = max(1, min(PARTS_MAX, round(span_s / HOUR_S), len(times) // IN_PART))
    counts = [0] * parts
    for at in times[:-1]:
        counts[min(int((at - first) / span_s * parts), parts - 1)] += 1
    before = [0, *accumulate(counts)]

    def passed(at: float) -> float:
        """Return how many have come until then, as if they came evenly in each part."""
        place = (at - first) / span_s * parts
        part = min(int(place), parts - 1)
        return before[part] + counts[part] * (place - part)

    gaps = [max(0.0, passed(later) - passed(sooner)) for sooner, later in pairwise(times)]
    return Arrivals(round(span_s, 3), tuple(counts), knots_of(gaps))


def _sessions_like(sessions: Mapping[str, Session], cells: Mapping[str, list[Cell]]) -> SessionsLike:
    opened = sorted((sessions[name] for name in cells), key=lambda session: session.at)
    rows: list[list[Cell]] = [cells[session.session] for session in opened]
    thinks, afters = [], []
    for session, own in zip(opened, rows, strict=True):
        ended, rests = own[0].at, []
        for cell in own:
            rests.append(max(0.0, cell.at - ended))
            ended = max(ended, cell.at) + cell.duration_s
        thinks.append(rests[1:])
        afters.append(max(0.0, session.ends - ended))
    sizes = [[amount_of((cell.gpus, cell.milli, ())) for cell in own] for own in rows]
    durations, scored_durations = _durations([[cell.duration_s for cell in own] for own in rows], sizes)
    scored = [scored_durations, _scored(thinks), _scored(sizes)]
    own_means = [[_mean(group) for group in column] for column in scored]
    lengths = [len(own) for own in rows]
    begin = opened[0].at
    return SessionsLike(
        arrivals_of([session.at for session in opened]),
        round(max(own[-1].at for own in rows) - begin, 3),
        round(max(session.ends for session in opened) - begin, 3),
        knots_of(lengths),
        round(sum(lengths) / len(lengths), 4),
        durations,
        Thinks(knots_of([one for own in thinks for one in own] or [0.0]), alike(_some(scored[1]))),
        Sizes(_shares((cell.gpus, cell.milli, ()) for own in rows for cell in own), alike(scored[2])),
        knots_of(own[0].at - session.at for session, own in zip(opened, rows, strict=True)),
        knots_of(afters),
        _matrix([normal_scores(lengths), *own_means]),
        _matrix([_within(*column, lengths) for column in zip(scored, own_means, strict=True)]),
        _users([session.user for session in opened]),
    )


def _jobs_like(jobs: Sequence[Job]) -> JobsLike:
    owned: dict[str, list[Job]] = {}
    for job in jobs:
        owned.setdefault(job.user, []).append(job)
    rows = list(owned.values())
    sizes = [[amount_of(size_of(job)) for job in own] for own in rows]
    durations, _ = _durations([[job.duration_s for job in own] for own in rows], sizes)
    asked = [job.requested_s / job.duration_s for job in jobs if job.requested_s]
    same = sum(one.user == other.user for one, other in pairwise(jobs))
    return JobsLike(
        arrivals_of([job.at for job in jobs]),
        durations,
        Sizes(_shares(size_of(job) for job in jobs), alike(_scored(sizes))),
        _users([job.user for job in jobs]),
        round(same / (len(jobs) - 1), 4),
        knots_of(asked) if len(asked) > len(jobs) / 2 else None,
    )


def size_of(job: Job) -> Size:
    """Return what a job wants."""
    return (job.width, job.milli, job.gpu_models)


def amount_of(size: Size) -> float:
    """Return its GPUs."""
    return size[1] / 1000 or float(size[0])


def _durations(
    groups: Sequence[Sequence[float]], sizes: Sequence[Sequence[float]]
) -> tuple[Durations, list[list[float]]]:
    """Return durations by classes of sizes, and the normal scores of all of them, each in its class."""
    samples = [one for group in groups for one in group]
    amounts = [one for group in sizes for one in group]
    order = sorted(range(len(samples)), key=amounts.__getitem__)
    scores, classes = [0.0] * len(samples), []
    for places in _classes(order, amounts):
        own = [samples[place] for place in places]
        classes.append(Class(amounts[places[-1]], round(sum(own) / len(own), 3), knots_of(own)))
        for place, score in zip(places, normal_scores(own), strict=True):
            scores[place] = score
    in_order = iter(scores)
    scored = [[next(in_order) for _ in group] for group in groups]
    return Durations(tuple(classes), alike(scored)), scored


def _classes(order: Sequence[int], amounts: Sequence[float]) -> list[list[int]]:
    """Return the places in classes: tasks of one size are in one, and no class is too small to tell of."""
    least = max(CLASS_LEAST, CLASS_SHARE * len(order))
    classes: list[list[int]] = []
    for place in order:
        if not classes or (len(classes[-1]) >= least and amounts[classes[-1][-1]] < amounts[place]):
            classes.append([])
        classes[-1].append(place)
    if len(classes) > 1 and len(classes[-1]) < least:
        classes[-2:] = [classes[-2] + classes[-1]]
    return classes


def _scored(groups: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the normal scores of all samples, in their groups."""
    scores = iter(normal_scores([one for group in groups for one in group]))
    return [[next(scores) for _ in group] for group in groups]


def _some(groups: Sequence[Sequence[float]]) -> list[Sequence[float]]:
    return [group for group in groups if group]


def _mean(group: Sequence[float]) -> float | None:
    return sum(group) / len(group) if group else None


def _within(
    groups: Sequence[Sequence[float]], means: Sequence[float | None], lengths: Sequence[int]
) -> list[float | None]:
    """Return how far each sample is off its group's mean; None for a last cell, after which nobody thinks."""
    found: list[float | None] = []
    for group, mean, length in zip(groups, means, lengths, strict=True):
        found += [one - (mean or 0.0) for one in group]
        found += [None] * (length - len(group))
    return found


def _matrix(columns: Sequence[Sequence[float | None]]) -> Matrix:
    """Return the correlations of columns, of the rows that both have."""
    return tuple(
        tuple(
            1.0 if one is other else correlation(
                [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
            )
            for other in columns
        )
        for one in columns
    )  # fmt: skip


def _shares(sizes: Iterable[Size]) -> tuple[tuple[Size, float], ...]:
    """Return the share of each size, from few GPUs to many; of many sizes those that are wanted most."""
    counts = Counter(sizes).most_common(SHARES_MAX)
    whole = sum(count for _, count in counts)
    ordered = sorted(counts, key=lambda one: (one[0][1] / 1000 or one[0][0], one[0]))
    return tuple((size, round(count / whole, 6)) for size, count in ordered)


def _users(names: Sequence[str]) -> tuple[float, ...]:
    """Return the share of each user, the greatest first; nothing where no user is known."""
    counts = Counter(names).most_common(SHARES_MAX)
    known = any(name for name, _ in counts)
    whole = sum(count for _, count in counts)
    return tuple(round(count / whole, 6) for _, count in counts) if known else ()
