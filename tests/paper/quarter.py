"""NotebookOS's 92 days: sessions and cells, GPUs, cost and revenue, on a made workload.

Of the authors' June to August only June is public. So the sessions are made from the quantiles that they
published, as `replkernel workload --like 92d` makes them: the load agrees by construction, the rest follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from replkernel_scheduler.sim.picture import Picture
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.playing import any_way_named, play
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.trace_picture import trace_picture
from replkernel_scheduler.sim.workload import LONG
from replkernel_scheduler.sim.workload_file import made

from tests.paper.notebookos import PAPER, POLICIES, gpu_hours, month_courses
from tests.paper.report import Course, Row

ACTIVE_MEAN = 67.63
LOAD, GPUS, MONEY = "92 days, load: ", "92 days, GPUs: ", "92 days, money: "
PLAN = Plan(hosts=30, hosts_max=200)
PLANS = {"Reservation": Plan(hosts=260), "NotebookOS": PLAN, "oracle": PLAN}
"""With 260 hosts next to no session waits for a place."""
MADE = "made from the published quantiles"


def rows(short: bool) -> Iterator[Row | Course]:
    """Yield all of it, which takes minutes; nothing with `short`."""
    if short:
        return
    records, achieved = made(LONG, 0, ACTIVE_MEAN)
    for what, published, ours in (
        ("sessions open: most", 433, achieved.sessions_open_max),
        ("sessions open: at the end", 397, achieved.sessions_open_last),
        ("cells that run: mean", ACTIVE_MEAN, achieved.active_mean),
        ("cells that run: most", 141, achieved.active_max),
    ):
        yield Row(PAPER, f"92 days, {what}", published, ours, "at a time", MADE)
    runs, pictures = {}, dict[str, Picture]()
    with Spool(records) as spool:
        load = trace_picture(spool, spool.first)
        yield Course(PAPER, f"{LOAD}sessions open", load.step_s, tuple(load.open))
        yield Course(PAPER, f"{LOAD}cells that run", load.step_s, tuple(load.running))
        for name, plan in PLANS.items():
            pictured = partial(pictures.__setitem__, name)
            runs[name] = play(spool, any_way_named(POLICIES[name]), plan, pictured=pictured)
    hours = {name: gpu_hours(name, run) for name, run in runs.items()}
    for name, value in hours.items():
        yield Row(PAPER, f"92 days, {name}: provisioned", None, value, "GPU-h", MADE)
    less = 100 * (1 - hours["NotebookOS"] / hours["Reservation"])
    why = f"paper: at most, over its 92 days; ours are {MADE}; both by GPU-hours"
    yield Row(PAPER, "92 days: provider's cost less than Reservation's", 69.87, less, "%", why)
    yield from month_courses(pictures, PLAN, GPUS, MONEY)
