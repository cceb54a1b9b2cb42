"""Lazer: six ways to stop jobs for shorter ones, on Helios Venus and Philly, on one pool of 512 GPUs.

The authors' traces are not public (Earth, Saturn, Uranus), nor are their loading times; so only directions
can be compared, with their testbed's ratios.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from replkernel_scheduler.policies.preempt_deferred import JUDGED_FROM, Deferred
from replkernel_scheduler.pool.predicting import TRIALS
from replkernel_scheduler.pool.protocol import Preempting
from replkernel_scheduler.pool.types import Deferral
from replkernel_scheduler.sim import forms, summary
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.pool_simulation import PoolSimulation
from replkernel_scheduler.sim.pool_way import PoolWay, pool_way_named
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.summary import RunSummary, Spread
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


class Remembering(Deferred):
    """Lazer's deferrals, kept to be looked at afterwards."""

    def __init__(self) -> None:
        """Start without any."""
        super().__init__()
        self.deferrals: list[Deferral] = []

    def learn(self, deferral: Deferral) -> None:
        """Keep it, and hand it to the predictor."""
        self.deferrals.append(deferral)
        super().learn(deferral)


class RememberingWay(PoolWay, frozen=True):
    """The way `lazer` whose deferrals are kept."""

    def policy(self) -> Preempting:
        """Make its policy."""
        return Remembering()


def rows(short: bool) -> Iterator[Row]:
    """Yield all rows; none with `short`, for they take minutes."""
    for name, path in {} if short else TRACES.items():
        with Spool(forms.read(TraceFile(trace(path)))) as spool:
            yield from _of_trace(name, spool)


def _of_trace(name: str, spool: Spool) -> Iterator[Row]:
    lazer, learned = _play_way(spool, RememberingWay("lazer", "deferred"))
    assert isinstance(learned, Remembering)
    loss = _loss(learned)
    runs = {"lazer": lazer} | {policy: _play(spool, policy)[0] for policy in RATIOS}
    for policy, (p50, p95) in RATIOS.items():
        ours, least = _spread(runs[policy]), _spread(lazer)
        yield Row(PAPER, f"{name}, {policy}: JCT p50 over Lazer's", p50, ours.p50 / least.p50, "x", TESTBED)
        yield Row(PAPER, f"{name}, {policy}: JCT p95 over Lazer's", p95, ours.p95 / least.p95, "x", TESTBED)
    for policy, run in runs.items():
        yield from _plain(name, policy, run)
    yield from _ranking(name, runs)
    yield from _bound(name, spool, runs)
    for search, better in SEARCHES.items():
        _, other = _play(spool, f"lazer,by={search}")
        why = (
            f"mean distance of X from F after {JUDGED_FROM} deferrals, each with {TRIALS} trials: "
            f"Lazer's {loss:.2f} s, {search}'s {other:.2f} s; most need nothing, "
            "and 0 is what grid search finds too"
        )
        yield Row(PAPER, f"{name}: loss of {search} search over Lazer's", better, other / loss, "x", why)
    yield _of_hindsight(name, learned.deferrals)


def _of_hindsight(name: str, deferrals: list[Deferral]) -> Row:
    """Return what the contexts tell at all: a regression over half of the deferrals, judged on the others."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    contexts = np.log1p([[d.context.between_s, d.context.remaining_s] for d in deferrals])
    costs = np.array([[d.context.load_s, d.context.pause_s] for d in deferrals])
    known, needed = np.hstack([contexts, costs]), np.array([d.needed_s for d in deferrals])
    half = len(deferrals) // 2
    learned = HistGradientBoostingRegressor(loss="absolute_error", random_state=0)
    learned.fit(known[:half], needed[:half])
    best = float(np.abs(learned.predict(known[half:]) - needed[half:]).mean())
    none = float(needed[half:].mean())
    why = (
        f"mean distance of X from F {none:.2f} and {best:.2f} s of {len(deferrals) - half:,} deferrals: "
        f"{100 * float((needed > 0).mean()):.0f} % of all need any; what is needed moves with X: a bound"
    )
    what = f"{name}: loss of never deferring over a boosted regression's, in hindsight"
    return Row(PAPER, what, None, none / best, "x", why)


def _plain(name: str, policy: str, run: RunSummary) -> Iterator[Row]:
    """Yield what the paper gives in other units, or not at all."""
    wait, futile = run.jobs.wait_s, run.jobs.futile_s
    assert wait is not None
    for what, value in (("mean", wait.mean), ("p50", wait.p50), ("p95", wait.p95), ("longest", wait.max)):
        yield Row(PAPER, f"{name}, {policy}: {what} wait", None, value / 60, "min")
    share = 100 * run.cluster.futile_gpu_hours / run.cluster.committed_gpu_hours
    why = "jobs here run for minutes to hours, and load for less than one" if policy in FUTILE else ""
    yield Row(PAPER, f"{name}, {policy}: futile share of GPU time", FUTILE.get(policy), share, "%", why)
    if futile is not None:
        why = "all jobs; the paper's testbed: 2.03 (SRTF) and 8.47 (60 s), of jobs that were stopped so"
        yield Row(PAPER, f"{name}, {policy}: futile time of a job, mean", None, futile.mean / 60, "min", why)
        yield Row(PAPER, f"{name}, {policy}: futile time of a job, most", None, futile.max / 60, "min")


def _ranking(name: str, runs: dict[str, RunSummary]) -> Iterator[Row]:
    """Yield how many of the 15 pairs of policies are in the published order."""
    order = ["lazer", *RATIOS]
    for what, of in (
        ("JCT p50", lambda run: _spread(run).p50),
        ("JCT p95", lambda run: _spread(run).p95),
        ("mean wait", lambda run: run.jobs.wait_s.mean),
    ):
        pairs = list(combinations([of(runs[policy]) for policy in order], 2))
        held = sum(better <= worse for better, worse in pairs)
        ranked = " < ".join(sorted(order, key=lambda policy, of=of: of(runs[policy])))
        text = f"{name}: pairs of policies ranked as published, by {what}"
        yield Row(PAPER, text, len(pairs), held, "of 15", f"ours: {ranked}")


def _bound(name: str, spool: Spool, runs: dict[str, RunSummary]) -> Iterator[Row]:
    """Yield what it costs that no longer job passes one that finds no room after 24 hours."""
    for policy in ("sjf", "srtf", "lazer"):
        free, bound = _play(spool, f"{policy},patience=0")[0].jobs.wait_s, runs[policy].jobs.wait_s
        assert free is not None and bound is not None
        for what, ours, without in (("mean", bound.mean, free.mean), ("longest", bound.max, free.max)):
            text = f"{name}, {policy}: {what} wait with the 24 h bound over that without it"
            why = f"{bound.max / 3600 if what == 'longest' else ours / 60:,.0f} "
            why += f"and {without / 3600 if what == 'longest' else without / 60:,.0f} "
            yield Row(PAPER, text, None, ours / without, "x", why + ("h" if what == "longest" else "min"))


def _spread(run: RunSummary) -> Spread:
    assert run.jobs.completion_s is not None
    return run.jobs.completion_s


def _play(spool: Spool, policy: str) -> tuple[RunSummary, float]:
    """Return the summary, and the mean loss of its predictions (0 where nothing is predicted)."""
    run, made = _play_way(spool, pool_way_named(policy))
    return run, _loss(made)


def _loss(made: Preempting) -> float:
    if not isinstance(made, Deferred) or made.judged <= JUDGED_FROM:
        return 0.0
    return made.loss_s / (made.judged - JUDGED_FROM)


def _play_way(spool: Spool, way: PoolWay) -> tuple[RunSummary, Preempting]:
    simulation = PoolSimulation(spool, spool.first, way, PLAN)
    figures = simulation.run()
    return summary.of_run(figures, simulation.now, simulation.events, way, PLAN), simulation.policy
