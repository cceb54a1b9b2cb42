"""Ideas of one paper on top of another's: Lazer's deferral before NotebookOS's moves.

Nobody has published figures of that, so its rows stand beside those of the plain policy.
"""

from __future__ import annotations

from collections.abc import Iterator

from replkernel_scheduler.sim import forms
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.playing import any_way_named, play
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.trace_file import TraceFile

from tests.paper.report import Row
from tests.paper.traces import trace

PAPER = "combined"
HOSTS = (12, 30)
WAYS = {"moves at once": "notebook", "moves deferred by 20 s": "notebook,migration=deferred"}
WHY = "no figures are published; 17.5 h with the GPUs of the trace"


def rows(short: bool) -> Iterator[Row]:
    """Yield moves and delays of both, on few hosts and on the authors' number."""
    with Spool(forms.read(TraceFile(trace("adobe_sensei/adobe_17h5_reconstructed.csv")))) as spool:
        for hosts in HOSTS[:1] if short else HOSTS:
            for name, policy in WAYS.items():
                run = play(spool, any_way_named(policy), Plan(hosts=hosts))
                assert run.cells.delay_s is not None
                what = f"NotebookOS on {hosts} hosts, {name}"
                yield Row(PAPER, f"{what}: replicas moved", None, float(run.changes.migrations), "moves", WHY)
                yield Row(PAPER, f"{what}: delay p95", None, run.cells.delay_s.p95, "s", WHY)
                yield Row(PAPER, f"{what}: mean delay", None, run.cells.delay_s.mean, "s", WHY)
