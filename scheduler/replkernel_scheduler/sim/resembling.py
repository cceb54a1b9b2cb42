"""A workload that resembles a trace, made from what is known of it (`likeness.py`), and how near it comes.

Law: what one cell or job takes is as often as in the trace, whatever the seed; dice say who has it, when, and
beside whom. The same likeness and seed make the same workload. Nobody's cells overlap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice, pairwise
from math import sqrt
from random import Random
from typing import Any

import msgspec

from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.level import Level
from replkernel_scheduler.sim.likeness import (
    Arrivals,
    Durations,
    JobsLike,
    SessionsLike,
    Size,
    Sizes,
    amount_of,
)
from replkernel_scheduler.sim.records import Cell, Job, Record, Session
from replkernel_scheduler.sim.scores import Together, value_at, values_of
from replkernel_scheduler.sim.summary import Spread, spread

MADE_MAX = 5_000_000
HOUR_S = 3600.0
SHORTEST_S = 0.001
LONGEST_BY = 1.5
EXCHANGES_MAX = 30
"""Others that are asked to take over one cell or rest of a session that would go on after the end."""


class Traits(msgspec.Struct, frozen=True):
    """What can be compared of a trace and one that resembles it; `running` is how many cells or jobs run."""

    sessions: int
    cells: int
    jobs: int
    gpu_hours: float
    running_mean: float
    running_max: int
    gpus_mean: float
    duration_s: Spread | None
    think_s: Spread | None
    arrive_after_s: Spread | None


class Resemblance(msgspec.Struct, frozen=True):
    """What a workload was made like, and what came of it."""

    seed: int
    times: float
    trace: Traits
    made: Traits


def resembling(like: SessionsLike | JobsLike, seed: int, times: float = 1.0) -> list[Record]:
    """Return records that resemble a trace, `times` as many; sessions before their cells."""
    if isinstance(like, JobsLike):
        return list(_jobs(like, Random(f"jobs alike {seed}"), times))
    return list(_sessions(like, Random(f"sessions alike {seed}"), times))


def _count(arrivals: Arrivals, times: float) -> int:
    count = round((sum(arrivals.counts) + 1) * times)
    if count > MADE_MAX:
        raise SimulationError(f"This makes more than {MADE_MAX:,}: ask for fewer times as many.")
    return max(count, 2)


def _arrivals(like: Arrivals, count: int, dice: Random) -> list[float]:
    """Return when so many come, from 0 on: as often as in each part of the trace, and in such bursts."""
    gaps = values_of(like.gaps, [dice.random() for _ in range(count - 1)])
    whole, parts = sum(like.counts), len(like.counts)
    before = [0, *accumulate(like.counts)]
    passed = [0.0, *accumulate(gaps)]
    times = []
    for one in passed:
        share = min(one / passed[-1] * whole if passed[-1] else 0.0, whole)
        part = min(bisect_right(before, share) - 1, parts - 1)
        inside = (share - before[part]) / like.counts[part] if like.counts[part] else 0.0
        times.append((part + inside) / parts * like.span_s)
    return times


def _mixed(common: float, own: float, alike: float) -> float:
    """Return a score of which a share of the variance is the session's (the user's)."""
    return sqrt(alike) * common + sqrt(1 - alike) * own


def _sizes(like: Sizes, scores: Sequence[float]) -> list[Size]:
    """Return a size for each score, by its rank."""
    ends, count = list(accumulate(share for _, share in like.shares)), len(scores)
    made: list[Size] = [like.shares[0][0]] * count
    for rank, place in enumerate(sorted(range(count), key=scores.__getitem__)):
        share = (rank + 0.5) / count * ends[-1]
        made[place] = like.shares[min(bisect_right(ends, share), len(ends) - 1)][0]
    return made


def _durations(like: Durations, scores: Sequence[float], sizes: Sequence[Size]) -> list[float]:
    """Return a duration for each score, by its rank among those of like sizes."""
    tops = [one.gpus for one in like.classes]
    members: list[list[int]] = [[] for _ in tops]
    for place, size in enumerate(sizes):
        members[min(bisect_left(tops, amount_of(size)), len(tops) - 1)].append(place)
    made = [0.0] * len(scores)
    for places, of_class in zip(members, like.classes, strict=True):
        values = _with_mean(values_of(of_class.values, [scores[place] for place in places]), of_class.mean_s)
        for place, value in zip(places, values, strict=True):
            made[place] = max(value, SHORTEST_S)
    return made


def _with_mean(values: list[float], mean: float) -> list[float]:
    """Return the values with the greatest tenth greater or less, so that the mean is met if it can be."""
    if not values:
        return values
    top = sorted(values)[len(values) * 9 // 10]
    longest = sum(value for value in values if value >= top)
    by = 1 + (mean * len(values) - sum(values)) / longest if longest else 1.0
    by = min(max(by, 1 / LONGEST_BY), LONGEST_BY)
    return [max(value * by, top) if value >= top else value for value in values]


class Body:
    """A session before it has its time: cells as (duration, size), and how long people think after each."""

    __slots__ = ("after_s", "at", "before_s", "cells", "thinks")

    def __init__(
        self, cells: list[tuple[float, Size]], thinks: list[float], before_s: float, after_s: float
    ) -> None:
        """Start without a time."""
        self.cells, self.thinks, self.before_s, self.after_s = cells, thinks, before_s, after_s
        self.at = 0.0

    @property
    def until_last_s(self) -> float:
        """Return how long it takes until its last cell comes."""
        return self.before_s + sum([lasts_s for lasts_s, _ in self.cells[:-1]]) + sum(self.thinks)


def _sessions(like: SessionsLike, dice: Random, times: float) -> Iterator[Record]:
    bodies = _bodies(like, _count(like.arrivals, times), dice)
    _place(bodies, _arrivals(like.arrivals, len(bodies), dice), like.last_s, dice)
    _fit(bodies, like, dice)
    for number, body in enumerate(sorted(bodies, key=lambda body: body.at)):
        yield from _session(f"{number}", body, like, _user(like.users, dice))


def _bodies(like: SessionsLike, count: int, dice: Random) -> list[Body]:
    own = list(map(Together(like.between).drawn, [dice] * count))
    counts = _with_mean(values_of(like.cells, [one[0] for one in own]), like.cells_mean)
    lengths = [max(1, round(count)) for count in counts]
    if sum(lengths) > MADE_MAX:
        raise SimulationError(f"This makes more than {MADE_MAX:,} cells: ask for fewer times as many.")
    within = Together(like.within)
    scores: tuple[list[float], list[float], list[float]] = ([], [], [])
    shares = (like.duration.alike, like.think.alike, like.gpus.alike)
    for session, length in zip(own, lengths, strict=True):
        for _ in range(length):
            drawn = within.drawn(dice)
            for column, common, one, share in zip(scores, session[1:], drawn, shares, strict=True):
                column.append(_mixed(common, one, share))
    sizes = _sizes(like.gpus, scores[2])
    cells = iter(zip(_durations(like.duration, scores[0], sizes), sizes, strict=True))
    thinks = iter(values_of(like.think.values, scores[1]))
    before = values_of(like.before_s, [dice.random() for _ in own])
    after = values_of(like.after_s, [dice.random() for _ in own])
    made = []
    for length, before_s, after_s in zip(lengths, before, after, strict=True):
        made.append(Body(list(islice(cells, length)), list(islice(thinks, length))[:-1], before_s, after_s))
    return made


def _place(bodies: Sequence[Body], arrivals: Sequence[float], last_s: float, dice: Random) -> None:
    """Say who comes when: the longest choose first, of the times after which they fit."""
    free: list[float] = []
    reached = 0
    for body in sorted(bodies, key=lambda body: -body.until_last_s):
        while reached < len(arrivals) and (not free or arrivals[reached] + body.until_last_s <= last_s):
            free.append(arrivals[reached])
            reached += 1
        chosen = dice.randrange(len(free))
        free[chosen], free[-1] = free[-1], free[chosen]
        body.at = free.pop()


def _fit(bodies: Sequence[Body], like: SessionsLike, dice: Random) -> None:
    """Have sessions that would go on after the end exchange what takes long with others that have room."""
    rooms = [_Room(body, like) for body in bodies]
    for place, body in enumerate(bodies):
        parts = [(lasts_s, True, number) for number, (lasts_s, _) in enumerate(body.cells)]
        parts += [(lasts_s, False, number) for number, lasts_s in enumerate(body.thinks)]
        for lasts_s, is_cell, number in sorted(parts, reverse=True) if rooms[place].lacks else ():
            is_last = is_cell and number == len(body.cells) - 1
            if is_last and rooms[place].until_end_s >= 0:
                continue
            mine: list[Any] = body.cells if is_cell else body.thinks
            for there in [dice.randrange(len(bodies)) for _ in range(EXCHANGES_MAX)]:
                theirs: list[Any] = bodies[there].cells if is_cell else bodies[there].thinks
                if there == place or not theirs:
                    continue
                other = dice.randrange(len(theirs))
                shorter_s = lasts_s - (theirs[other][0] if is_cell else theirs[other])
                others_last = is_cell and other == len(theirs) - 1
                if shorter_s > 0 and rooms[there].suffices(shorter_s, others_last):
                    mine[number], theirs[other] = theirs[other], mine[number]
                    rooms[place].take(-shorter_s, is_last)
                    rooms[there].take(shorter_s, others_last)
                    break
            if not rooms[place].lacks:
                break


class _Room:
    """How much longer a session may take, until its last cell comes and until it ends; below 0: too long."""

    __slots__ = ("until_end_s", "until_last_s")

    def __init__(self, body: Body, like: SessionsLike) -> None:
        self.until_last_s = like.last_s - body.at - body.until_last_s
        self.until_end_s = like.ends_s - body.at - body.until_last_s - body.cells[-1][0]

    @property
    def lacks(self) -> bool:
        return self.until_last_s < 0 or self.until_end_s < 0

    def suffices(self, longer_s: float, is_last: bool) -> bool:
        """Say whether a part may be so much longer; the last cell may be while none comes after it."""
        return self.until_end_s >= longer_s and (is_last or self.until_last_s >= longer_s)

    def take(self, longer_s: float, is_last: bool) -> None:
        self.until_end_s -= longer_s
        self.until_last_s -= 0.0 if is_last else longer_s


def _session(name: str, body: Body, like: SessionsLike, user: str) -> Iterator[Record]:
    """Yield a session and its cells, none of which comes after the trace's last one."""
    at, made = body.at + body.before_s, list[Cell]()
    for (lasts_s, (gpus, milli, _)), thinks_s in zip(body.cells, [*body.thinks, 0.0], strict=True):
        if made and at > like.last_s:
            break
        made.append(Cell(name, at, lasts_s, gpus, milli=milli))
        at += lasts_s + thinks_s
    ended = made[-1].at + made[-1].duration_s
    ends = max(ended, min(ended + body.after_s, like.ends_s))
    yield Session(name, body.at, ends, max(cell.gpus for cell in made), user)
    yield from made


def _jobs(like: JobsLike, dice: Random, times: float) -> Iterator[Record]:
    count = _count(like.arrivals, times)
    users = len(like.users) or 1
    own = [(dice.gauss(0.0, 1.0), dice.gauss(0.0, 1.0)) for _ in range(users)]
    ends = list(accumulate(like.users or (1.0,)))
    anew = 1.0 - _again(like)
    scores: tuple[list[float], list[float]] = ([], [])
    owners: list[int] = []
    for _ in range(count):
        if not owners or dice.random() < anew:
            owners.append(min(bisect_right(ends, dice.random() * ends[-1]), users - 1))
        else:
            owners.append(owners[-1])
        for column, common, share in zip(
            scores, own[owners[-1]], (like.duration.alike, like.gpus.alike), strict=True
        ):
            column.append(_mixed(common, dice.gauss(0.0, 1.0), share))
    sizes = _sizes(like.gpus, scores[1])
    durations = _durations(like.duration, scores[0], sizes)
    arrivals = _arrivals(like.arrivals, count, dice)
    for number, (at, lasts_s, size) in enumerate(zip(arrivals, durations, sizes, strict=True)):
        gpus, milli, models = size
        asked = 0.0 if like.asked is None else value_at(like.asked, dice.random()) * lasts_s
        yield Job(
            f"{number}", at, lasts_s, gpus, requested_s=asked, milli=milli, gpu_models=models,
            user=f"user{owners[number]}" if like.users else "",
        )  # fmt: skip


def _again(like: JobsLike) -> float:
    """Return how often the user of the job before goes on, beside being drawn again."""
    by_chance = sum(share * share for share in like.users)
    return max(0.0, (like.again - by_chance) / (1 - by_chance)) if by_chance < 1 and like.users else 0.0


def _user(shares: Sequence[float], dice: Random) -> str:
    if not shares:
        return ""
    return f"user{dice.choices(range(len(shares)), shares)[0]}"


def traits_of(records: Iterable[Record]) -> Traits:
    """Return what can be compared, of records in order of time."""
    ended: dict[str, float] = {}
    came: list[float] = []
    sessions = cells = jobs = 0
    durations, thinks, spans = [], [], []
    gpus = work_s = 0.0
    for record in records:
        if isinstance(record, Session):
            continue
        amount = record.milli / 1000 or (record.gpus if isinstance(record, Cell) else record.width)
        begins = record.at
        if isinstance(record, Job):
            came.append(record.at)
            jobs += 1
        elif record.session in ended:
            begins = max(record.at, ended[record.session])
            thinks.append(begins - ended[record.session])
        else:
            came.append(record.at)
            sessions += 1
        if isinstance(record, Cell):
            cells += 1
            ended[record.session] = begins + record.duration_s
        durations.append(record.duration_s)
        spans.append((begins, begins + record.duration_s))
        gpus, work_s = gpus + amount, work_s + amount * record.duration_s
    running = Level()
    first, last = min(spans)[0], max(record[0] for record in spans)
    for at, delta in sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans]):
        running.add(delta, at - first)
    over_s = last - first
    inside_s = sum(min(end, last) - begin for begin, end in spans)
    came.sort()
    return Traits(
        sessions, cells, jobs, work_s / HOUR_S, inside_s / over_s if over_s else 0.0, int(running.peak),
        gpus / len(spans), spread(durations), spread(thinks),
        spread([later - sooner for sooner, later in pairwise(came)]),
    )  # fmt: skip
