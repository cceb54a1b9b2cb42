"""Lazer: six ways to stop jobs for shorter ones, on Helios Venus and Philly, on one pool of 512 GPUs.

The authors' traces are not public (Earth, Saturn, Uranus), nor are their loading times; so only directions
can be compared, with their testbed's ratios.
"""

from __future__ import annotations

from collections.abc import Iterator

from replkernel_scheduler.policies.preempt_deferred import JUDGED_FROM, Deferred
from replkernel_scheduler.sim import forms, summary
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.pool_simulation import PoolSimulation
from replkernel_scheduler.sim.pool_way import pool_way_named
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.summary import RunSummary
from replkernel_scheduler.sim.trace_file import TraceFile

from tests.paper.report import Row
from tests.paper.traces import trace

PAPER = "Lazer"
PLAN = Plan(hosts=64, gpus_per_host=8)
TRACES = {"Venus": "helios/helios_venus_gpu_jobs_125k.csv", "Philly": "philly/philly_rfold_111k.csv"}
RATIOS = {
    "sjf": (1.3, 1.16),
    "srtf": (1.5, 1.2),
    "periodic,every=60": (2.1, 1.4),
    "periodic,every=360": (5.3, 2.9),
    "periodic,every=600": (8.8, 3.8),
}
"""Published: JCT p50 and p95 in times Lazer's, on the authors' testbed."""
FUTILE = {"srtf": 10.0, "periodic,every=60": 13.0}
SEARCHES = {"random": 1.5, "grid": 1.4}
TESTBED = "published: the authors' testbed and jobs; ours: this trace, loads of 15 to 60 s, saving 2 to 10 s"


def rows(short: bool) -> Iterator[Row]:
    """Yield all rows; none with `short`, for they take minutes."""
    for name, path in {} if short else TRACES.items():
        with Spool(forms.read(TraceFile(trace(path)))) as spool:
            yield from _of_trace(name, spool)


def _of_trace(name: str, spool: Spool) -> Iterator[Row]:
    lazer, loss = _play(spool, "lazer")
    assert lazer.jobs.completion_s is not None and lazer.jobs.wait_s is not None
    for policy, (p50, p95) in RATIOS.items():
        run, _ = _play(spool, policy)
        assert run.jobs.completion_s is not None and run.jobs.wait_s is not None
        ours = (
            run.jobs.completion_s.p50 / lazer.jobs.completion_s.p50,
            run.jobs.completion_s.p95 / lazer.jobs.completion_s.p95,
        )
        yield Row(PAPER, f"{name}, {policy}: JCT p50 over Lazer's", p50, ours[0], "x", TESTBED)
        yield Row(PAPER, f"{name}, {policy}: JCT p95 over Lazer's", p95, ours[1], "x", TESTBED)
        yield from _plain(name, policy, run)
    yield from _plain(name, "lazer", lazer)
    for search, better in SEARCHES.items():
        _, other = _play(spool, f"lazer,by={search}")
        why = f"mean |X - F| after {JUDGED_FROM} deferrals: Lazer's {loss:.2f} s, {search}'s {other:.2f} s"
        yield Row(PAPER, f"{name}: loss of {search} search over Lazer's", better, other / loss, "x", why)


def _plain(name: str, policy: str, run: RunSummary) -> Iterator[Row]:
    """Yield what the paper gives in other units, or not at all."""
    assert run.jobs.wait_s is not None
    yield Row(PAPER, f"{name}, {policy}: mean wait", None, run.jobs.wait_s.mean / 60, "min")
    yield Row(PAPER, f"{name}, {policy}: wait p50", None, run.jobs.wait_s.p50 / 60, "min")
    share = 100 * run.cluster.futile_gpu_hours / run.cluster.committed_gpu_hours
    why = "jobs here run for minutes to hours, and load for less than one" if policy in FUTILE else ""
    yield Row(PAPER, f"{name}, {policy}: futile share of GPU time", FUTILE.get(policy), share, "%", why)


def _play(spool: Spool, policy: str) -> tuple[RunSummary, float]:
    """Return the summary, and the mean loss of its predictions (0 where nothing is predicted)."""
    way = pool_way_named(policy)
    simulation = PoolSimulation(spool, spool.first, way, PLAN)
    figures = simulation.run()
    made = simulation.policy
    learned = made.judged - JUDGED_FROM if isinstance(made, Deferred) else 0
    loss = made.loss_s / learned if isinstance(made, Deferred) and learned > 0 else 0.0
    return summary.of_run(figures, simulation.now, simulation.events, way, PLAN), loss
