"""Ideas of one paper on top of another's: Lazer's deferral before NotebookOS's moves, SideCar's reshaping of
batch jobs into the GPUs that NotebookOS's idle notebooks leave.

Nobody has published figures of that, so its rows stand beside those of the plain policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from replkernel_scheduler.sim import forms
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.playing import any_way_named, play
from replkernel_scheduler.sim.records import Job
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.trace_file import TraceFile

from tests.paper.report import Row
from tests.paper.traces import trace

PAPER = "combined"
HOSTS = (12, 30)
WAYS = {"moves at once": "notebook", "moves deferred by 20 s": "notebook,migration=deferred"}
BESIDE = {"on GPUs of their own": "notebook", "reshaped into what notebooks leave": "harvest"}
JOBS = 300
WHY = "no figures are published; 17.5 h with the GPUs of the trace"


def rows(short: bool) -> Iterator[Row]:
    """Yield both."""
    yield from _deferred(short)
    yield from _harvested()


def _harvested() -> Iterator[Row]:
    """Yield what cells and batch jobs wait where both are on the authors' hosts."""
    cells = forms.read(TraceFile(trace("adobe_sensei/adobe_17h5_reconstructed.csv")))
    with Spool([*cells, *batch()]) as spool:
        for name, policy in BESIDE.items():
            run = play(spool, any_way_named(policy), Plan(hosts=HOSTS[-1]))
            assert run.cells.delay_s is not None
            assert run.jobs.completion_s is not None
            what, why = (
                f"{JOBS} batch jobs beside 931 cells, {name}",
                f"{WHY}; jobs and their speeds are ours",
            )
            yield Row(PAPER, f"{what}: cells' delay p95", None, run.cells.delay_s.p95, "s", why)
            yield Row(PAPER, f"{what}: jobs' JCT p50", None, run.jobs.completion_s.p50, "s", why)
            yield Row(PAPER, f"{what}: jobs' mean JCT", None, run.jobs.completion_s.mean, "s", why)
            if run.harvest is not None:
                idle = (
                    f"of {run.harvest.idle_gpu_hours:,.0f} GPU-hours that open notebooks left idle, jobs used"
                )
                yield Row(PAPER, f"{what}: {idle}", None, run.harvest.harvested_gpu_hours, "h", why)


def batch() -> Iterator[Job]:
    """Yield jobs of 5 minutes to 2 hours that come at random, one in 200 s."""
    dice, at = Random(4), 0.0
    for number in range(JOBS):
        at += dice.expovariate(1 / 200)
        yield Job(f"batch-{number}", at, 300 * 24 ** dice.random(), dice.choice((1, 1, 2, 4)))


def _deferred(short: bool) -> Iterator[Row]:
    """Yield moves and delays, on few hosts and on the authors' number."""
    with Spool(forms.read(TraceFile(trace("adobe_sensei/adobe_17h5_reconstructed.csv")))) as spool:
        for hosts in HOSTS[:1] if short else HOSTS:
            for name, policy in WAYS.items():
                run = play(spool, any_way_named(policy), Plan(hosts=hosts))
                assert run.cells.delay_s is not None
                what = f"NotebookOS on {hosts} hosts, {name}"
                yield Row(PAPER, f"{what}: replicas moved", None, float(run.changes.migrations), "moves", WHY)
                yield Row(PAPER, f"{what}: delay p95", None, run.cells.delay_s.p95, "s", WHY)
                yield Row(PAPER, f"{what}: mean delay", None, run.cells.delay_s.mean, "s", WHY)
