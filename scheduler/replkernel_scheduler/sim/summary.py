"""What is told of a run: the figures as one frozen document, the same bytes for the same figures.

Law: it computes and counts nothing anew; percentiles are exact, by linear interpolation; a figure that a
run does not have is None.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TypeAlias

import msgspec

from replkernel_scheduler.sim.elastic_way import ElasticWay
from replkernel_scheduler.sim.fairness import FAIR
from replkernel_scheduler.sim.figures import Figures
from replkernel_scheduler.sim.job_way import JobWay
from replkernel_scheduler.sim.plan import Plan, Prices
from replkernel_scheduler.sim.pool_way import PoolWay
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.way import FixedWay, Way

AnyWay: TypeAlias = Way | JobWay | PoolWay | ElasticWay | FixedWay
HOUR_S = 3600.0
WATTS_A_KW = 1000.0
SLOWED = 1.001
"""A slowdown up to this is none."""


class Spread(msgspec.Struct, frozen=True):
    """A distribution, in seconds (slowdowns: in times)."""

    mean: float
    p50: float
    p75: float
    p90: float
    p95: float
    p99: float
    max: float


class TraceFigures(msgspec.Struct, frozen=True):
    """What was to be done; `oracle_gpu_hours` is what the tasks alone compute, and nobody can need less."""

    sessions: int
    cells: int
    jobs: int
    span_hours: float
    oracle_gpu_hours: float


class CellFigures(msgspec.Struct, frozen=True):
    """Cells: until code runs, until the reply; shares of all that were served (reuse: with a cell before)."""

    served: int
    delay_s: Spread | None
    completion_s: Spread | None
    immediate: float | None
    reused: float | None
    moved: int


class JobFigures(msgspec.Struct, frozen=True):
    """Jobs: waiting, loading, until all is saved; slowdown is (waiting + run) / run alone.

    `futile_s` is load time thrown away by preemption (None where nobody is stopped). `waited` is the share of
    them that did not start at once. `bounded_slowdown` is completion / run alone (10 s at least).
    `finish_time_fairness` is completion / that on an equal share of the GPUs; `unfair` is the share of jobs
    that took longer than that.
    """

    served: int
    waited: float | None
    wait_s: Spread | None
    load_s: Spread | None
    completion_s: Spread | None
    slowdown: Spread | None
    futile_s: Spread | None
    bounded_slowdown: Spread | None
    finish_time_fairness: Spread | None
    unfair: float | None


class ClusterFigures(msgspec.Struct, frozen=True):
    """GPU-hours and hosts over the whole run.

    `subscription` is the mean of subscribed / (GPUs x replicas). `work_done_at_h` says when 90 and 95 % of
    the GPU-seconds of served tasks were done. `utilisation` is committed / provisioned (None where several
    processes share a core). `fragmentation` is the share of idle GPUs that a task of the trace, drawn at
    random, could not use. `energy_kwh` is what GPUs drew, where their watts are known.
    """

    makespan_hours: float
    hosts_max: int
    provisioned_gpu_hours: float
    committed_gpu_hours: float
    committed_gpus_max: int | float
    reserved_gpu_hours: float
    subscribed_gpu_hours: float
    subscription: float | None
    futile_gpu_hours: float
    preemptions: int
    work_done_at_h: dict[str, float]
    utilisation: float | None = None
    fragmentation: float | None = None
    energy_kwh: float | None = None


class MoneyFigures(msgspec.Struct, frozen=True):
    """What the provider pays and earns (spec 1.10)."""

    cost: float
    revenue: float
    margin: float | None


class FaultFigures(msgspec.Struct, frozen=True):
    """What went wrong, and what that took along."""

    hosts_failed: int
    runs_lost: int
    lost_gpu_hours: float
    migrations: int
    migrations_given_up: int
    hosts_added: int
    hosts_released: int


class HarvestFigures(msgspec.Struct, frozen=True):
    """GPU-hours that jobs had, those that open sessions asked for and left idle, and how many were both."""

    job_gpu_hours: float
    idle_gpu_hours: float
    harvested_gpu_hours: float


class WarmupFigures(msgspec.Struct, frozen=True):
    """The first part of a run: how long, how many cells and jobs came in it, and their work."""

    hours: float
    tasks: int
    gpu_hours: float


class RunSummary(msgspec.Struct, frozen=True):
    """One policy on one trace; `not_served` counts tasks by outcome, `whys` by reason (the first few)."""

    policy: str
    cells: CellFigures
    jobs: JobFigures
    kinds: dict[str, JobFigures]
    alone: float | None
    """The share of jobs that took no longer than alone, waiting included."""
    cluster: ClusterFigures
    money: MoneyFigures
    changes: FaultFigures
    not_served: dict[str, int]
    whys: dict[str, int]
    events: int
    place_wait_s: Spread | None = None
    """How long sessions waited for a place, which no percentile of cells need show."""
    setting: dict[str, str] = {}
    """The numbers of the plan that were swept, as they were given."""
    unserved_gpu_hours: float = 0.0
    """The work of tasks that were not served."""
    harvest: HarvestFigures | None = None
    """None where jobs have GPUs of their own."""
    warmup: WarmupFigures | None = None
    """What was played and is not counted."""


class Summary(msgspec.Struct, frozen=True):
    """All runs of one command."""

    traces: tuple[str, ...]
    rows_bad: int
    rows_empty: int
    trace: TraceFigures
    plan: Plan
    runs: tuple[RunSummary, ...]

    def with_runs(self, runs: Iterable[RunSummary]) -> Summary:
        """Return it with these runs."""
        return msgspec.structs.replace(self, runs=tuple(runs))


def of_trace(spool: Spool) -> TraceFigures:
    """Return what a trace has."""
    span_s = max(0.0, spool.last - spool.first) if len(spool) else 0.0
    return TraceFigures(spool.sessions, spool.cells, spool.jobs, span_s / HOUR_S, spool.work_gpu_s / HOUR_S)


def of_run(figures: Figures, now: float, events: int, way: AnyWay, plan: Plan) -> RunSummary:
    """Return what a run that ended at `now` has shown."""
    served = len(figures.delays)
    cells = CellFigures(
        served,
        spread(figures.delays),
        spread(figures.cell_times),
        figures.immediate_cells / served if served else None,
        figures.reused / figures.cells_with_one_before if figures.cells_with_one_before else None,
        figures.moved,
    )
    changes = FaultFigures(
        figures.host_faults,
        figures.lost_runs,
        figures.lost_gpu_s / HOUR_S,
        figures.migrations,
        figures.migrations_failed,
        figures.scaled_out,
        figures.scaled_in,
    )
    return RunSummary(
        way.name,
        cells,
        _jobs(figures, range(len(figures.waits)), now),
        {kind: _jobs(figures, places, now) for kind, places in sorted(figures.kinds.items())},
        _alone(figures.slowdowns),
        _cluster(figures, now, way, plan),
        _money(figures, now, way, plan.gpus / plan.hosts, plan.prices),
        changes,
        {outcome: count for outcome, count in figures.outcomes.items() if outcome != "done"},
        figures.whys,
        events,
        spread(figures.place_waits),
        unserved_gpu_hours=figures.unserved_gpu_s / HOUR_S,
        harvest=_harvest(figures, now),
        warmup=_warmup(figures),
    )


def _warmup(figures: Figures) -> WarmupFigures | None:
    if not figures.warmup_s:
        return None
    return WarmupFigures(figures.warmup_s / HOUR_S, figures.early_tasks, figures.early_gpu_s / HOUR_S)


def _jobs(figures: Figures, places: Sequence[int], now: float) -> JobFigures:
    """Return the figures of the jobs whose samples are at these places."""
    futile = spread([figures.futile[place] for place in places]) if figures.preemptions else None
    samples = (figures.waits, figures.loads, figures.job_times, figures.slowdowns)
    waits, loads, times, slowdowns = ([column[place] for place in places] for column in samples)
    bounded, all_fairness = figures.bounded_slowdowns(), figures.fairness(now)
    fairness = [all_fairness[place] for place in places]
    return JobFigures(
        len(waits),
        _share_above(0, waits),
        spread(waits),
        spread(loads),
        spread(times),
        spread(slowdowns),
        futile,
        spread([bounded[place] for place in places]),
        spread(fairness),
        _share_above(FAIR, fairness),
    )


def _share_above(least: float, samples: Sequence[float]) -> float | None:
    return sum([sample > least for sample in samples]) / len(samples) if samples else None


def _harvest(figures: Figures, now: float) -> HarvestFigures | None:
    counted = figures.idle_time
    if counted is None:
        return None
    counted.add(now)
    return HarvestFigures(counted.jobs / HOUR_S, counted.idle / HOUR_S, counted.harvested / HOUR_S)


def _alone(slowdowns: Sequence[float]) -> float | None:
    return sum([times <= SLOWED for times in slowdowns]) / len(slowdowns) if slowdowns else None


def _cluster(figures: Figures, now: float, way: AnyWay, plan: Plan) -> ClusterFigures:
    provisioned, subscribed = figures.gpus.until(now), figures.subscribed.until(now)
    subscription = subscribed / (provisioned * way.replicas) if provisioned and way.replicas else None
    committed = figures.committed.until(now)
    makespan = figures.done_at[-1] if figures.done_at else 0.0
    done = list(accumulate(figures.done_gpu_s))
    reached = {
        f"{percent}%": figures.done_at[bisect_left(done, done[-1] * percent / 100)] / HOUR_S
        for percent in (90, 95)
        if done
    }
    return ClusterFigures(
        makespan / HOUR_S,
        int(figures.hosts.peak),
        provisioned / HOUR_S,
        committed / HOUR_S,
        figures.committed.peak,
        figures.reserved.until(now) / HOUR_S,
        subscribed / HOUR_S,
        subscription,
        figures.futile_gpu_s / HOUR_S,
        figures.preemptions,
        reached,
        committed / provisioned if provisioned and not figures.shared_cores else None,
        figures.fragments.share(now) if figures.fragments is not None else None,
        _energy_kwh(figures, now, plan),
    )


def _energy_kwh(figures: Figures, now: float, plan: Plan) -> float | None:
    """Return what GPUs drew; None where it is not known of all, or not which of several models were busy."""
    if figures.draws is not None:
        return figures.draws.watts.until(now) / HOUR_S / WATTS_A_KW
    if len(plan.watts) != 1 or figures.shared_cores:
        return None
    [(busy_w, idle_w)] = plan.watts
    watt_s = idle_w * figures.gpus.until(now) + (busy_w - idle_w) * figures.committed.until(now)
    return watt_s / HOUR_S / WATTS_A_KW


def _money(figures: Figures, now: float, way: AnyWay, gpus_per_host: float, prices: Prices) -> MoneyFigures:
    cost = prices.host_hour * figures.hosts.until(now) / HOUR_S
    used = figures.reserved.until(now) if way.reserves else figures.committed.until(now)
    hosts_billed = used / gpus_per_host
    if not way.reserves and way.kernels != "none":
        standing = figures.replicas.until(now) - figures.executing.until(now)
        hosts_billed += prices.standby * max(0.0, standing)
    revenue = prices.factor * prices.host_hour * hosts_billed / HOUR_S
    return MoneyFigures(cost, revenue, (revenue - cost) / revenue if revenue else None)


def spread(samples: Sequence[float]) -> Spread | None:
    """Return a distribution's percentiles; None without samples."""
    if not samples:
        return None
    ordered = sorted(samples)
    p50, p75, p90, p95, p99 = (_percentile(ordered, percent) for percent in (50, 75, 90, 95, 99))
    return Spread(sum(ordered) / len(ordered), p50, p75, p90, p95, p99, ordered[-1])


def _percentile(ordered: Sequence[float], percent: int) -> float:
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
