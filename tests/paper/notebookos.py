"""NotebookOS and its baselines on Adobe's sessions: 17.5 h (reconstructed) and 30 days of June 2021.

The authors' window is not public. Ours was chosen from June for its sessions and trainings, so its load
agrees by construction; its GPU counts do not, so each is played with the trace's own and with those of the
paper's workload template, in which one session of seven wants none (its cells are always bound at once).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import accumulate

import msgspec
from replkernel_scheduler.sim import forms
from replkernel_scheduler.sim.mix import TEMPLATE, Mix, remixed
from replkernel_scheduler.sim.picture import Picture
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.playing import any_way_named, play
from replkernel_scheduler.sim.records import Record, Session
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.summary import RunSummary, Spread
from replkernel_scheduler.sim.trace_file import TraceFile

from tests.paper.report import Course, Row
from tests.paper.traces import trace

PAPER = "NotebookOS"
MIXES: dict[str, Mix | None] = {"GPUs of the trace": None, "GPUs of the template": TEMPLATE}
POLICIES = {
    "Reservation": "reservation,placement=bin-pack",
    "NotebookOS": "notebook,scaling=buffered",
    "LCP": "large-pool",
    "Batch": "fcfs-batch",
    "oracle": "oracle",
}
ROOMY = ("Reservation", "LCP", "Batch")
"""Played on HOSTS_ROOMY hosts, where next to nobody waits; what they need are the GPUs that they hold."""
HOSTS_ROOMY = 200
WINDOW_PLAN = Plan(hosts=30, hosts_max=48)
"""The authors' cluster: 30 hosts of 8 GPUs, up to 48."""
WINDOW_S = 63_000.0
JUNE_GPUS, JUNE_MONEY = "June, GPUs: ", "June, money: "
THOUSAND = 1000.0
JUNE_PLAN = Plan(hosts=30, hosts_max=60)
PUBLISHED_HOURS = {"Reservation": 3207.0, "NotebookOS": 2019.0, "LCP": 1544.0, "Batch": 1307.0}
"""Derived from the two savings and the two percentages that the paper gives."""
PUBLISHED_SAVED = {"NotebookOS": 1187.66, "LCP": 1662.53}
HOURS_WHY = {
    "Reservation": "the mix of GPUs decides: sessions hold what their widest cell wants till its end",
    "NotebookOS": "GPUs of hosts that are up, until the last cell ends after 22 h; follows the mix of GPUs",
    "LCP": "GPUs that cells hold until the last ends; warm processes of ours hold none while they wait",
    "Batch": "GPUs that cells hold until the last ends; starting and storing are short in our costs",
    "oracle": "GPUs of cells that run, and nothing else",
}
AT_ONCE_WHY = "follows the mix of GPUs (cells of 8 find a free host less often)"
SAME_WHY = "who finds no GPUs moves to another host, and stays there"
TCT_WHY = "paper: a curve like Reservation's, slightly above from p38 to p90"
DELAY_WHY = "paper: a curve without figures; ours follow from the costs of the simulator"


def rows(short: bool) -> Iterator[Row | Course]:
    """Yield all rows; with `short` those of the 17.5 h."""
    for mix_name, mix in MIXES.items():
        runs, pictures = _runs("adobe_sensei/adobe_17h5_reconstructed.csv", WINDOW_PLAN, mix, WINDOW_S)
        yield from _of_window(f"17.5 h, {mix_name}", runs)
        if mix is None:
            yield from _courses(pictures)
    for mix_name, mix in {} if short else MIXES.items():
        runs, pictures = _runs("adobe_sensei/sensei_june_60sec.csv", JUNE_PLAN, mix)
        yield from _of_june(f"June, {mix_name}", runs)
        if mix is None:
            yield from month_courses(pictures, JUNE_PLAN, JUNE_GPUS, JUNE_MONEY)


def _runs(
    path: str, plan: Plan, mix: Mix | None, open_until: float = 0.0
) -> tuple[dict[str, RunSummary], dict[str, Picture]]:
    """Play all policies on one trace with one mix."""
    records = staying(forms.read(TraceFile(trace(path))), open_until)
    runs: dict[str, RunSummary] = {}
    pictures: dict[str, Picture] = {}
    with Spool(remixed(records, mix, plan.seed)) as spool:
        for name, policy in POLICIES.items():
            pictured = partial(pictures.__setitem__, name)
            runs[name] = play(spool, any_way_named(policy), _cluster(plan, name), pictured=pictured)
    return runs, pictures


def _courses(pictures: dict[str, Picture]) -> Iterator[Course]:
    """Yield the GPUs that sessions reserve, those of NotebookOS's hosts, and those that cells compute on."""
    step_s = pictures["oracle"].step_s
    for what, of, values in (
        ("Reservation", "Reservation", pictures["Reservation"].reserved),
        ("NotebookOS", "NotebookOS", pictures["NotebookOS"].provisioned),
        ("cells that run", "oracle", pictures["oracle"].committed),
    ):
        assert pictures[of].step_s == step_s, "Runs of one trace end within a step of each other."
        yield Course(PAPER, what, step_s, tuple(values[: int(WINDOW_S / step_s)]))


def month_courses(pictures: dict[str, Picture], plan: Plan, gpus_of: str, money_of: str) -> Iterator[Course]:
    """Yield GPUs, and what they cost and bring so far: Reservation pays for the GPUs that it reserves."""
    prices = plan.prices
    for name, values in (
        ("Reservation", pictures["Reservation"].reserved),
        ("NotebookOS", pictures["NotebookOS"].provisioned),
        ("cells that run", pictures["oracle"].committed),
    ):
        yield Course(PAPER, f"{gpus_of}{name}", pictures["oracle"].step_s, tuple(values))
    for name, values in (
        ("Reservation", pictures["Reservation"].reserved),
        ("NotebookOS", pictures["NotebookOS"].provisioned),
    ):
        step_s, revenue = pictures[name].step_s, pictures[name].revenue
        a_step = prices.host_hour / plan.gpus_per_host * step_s / 3600.0 / THOUSAND
        cost = accumulate(gpus * a_step for gpus in values)
        yield Course(PAPER, f"{money_of}{name}: cost", step_s, tuple(cost))
        earned = tuple([money / THOUSAND for money in revenue])
        yield Course(PAPER, f"{money_of}{name}: revenue", step_s, earned)


def staying(records: Iterable[Record], until: float) -> Iterator[Record]:
    """Yield `records` with sessions that stay open until then: a window cuts off what comes after it.

    The paper's sessions grow from none to 87, and hardly one ends.
    """
    for record in records:
        stays = isinstance(record, Session) and record.ends < until
        yield msgspec.structs.replace(record, ends=until) if stays else record


def _cluster(plan: Plan, name: str) -> Plan:
    return msgspec.structs.replace(plan, hosts=HOSTS_ROOMY, hosts_max=None) if name in ROOMY else plan


def gpu_hours(name: str, run: RunSummary) -> float:
    """Return what a baseline provisions: whole hosts, GPUs of whole sessions, or GPUs that cells hold."""
    if name == "Reservation":
        return run.cluster.reserved_gpu_hours
    return (
        run.cluster.provisioned_gpu_hours
        if name in ("NotebookOS", "oracle")
        else run.cluster.committed_gpu_hours
    )


def _of_window(what: str, runs: dict[str, RunSummary]) -> Iterator[Row]:
    hours = {name: gpu_hours(name, run) for name, run in runs.items()}
    for name, value in hours.items():
        published = PUBLISHED_HOURS.get(name)
        yield Row(PAPER, f"{what}, {name}: provisioned", published, value, "GPU-h", HOURS_WHY[name])
    for name, published in PUBLISHED_SAVED.items():
        less, why = hours["Reservation"] - hours[name], "follows from the rows above"
        yield Row(PAPER, f"{what}, {name}: saved over Reservation", published, less, "GPU-h", why)
    for other, published in (("NotebookOS", -23.52), ("Batch", 18.18)):
        more = 100 * (hours["LCP"] / hours[other] - 1)
        yield Row(PAPER, f"{what}: LCP provisions more than {other}", published, more, "%", HOURS_WHY["LCP"])
    yield from _of_cells(what, runs)


def _of_june(what: str, runs: dict[str, RunSummary]) -> Iterator[Row]:
    hours = {name: gpu_hours(name, run) for name, run in runs.items()}
    for name, value in hours.items():
        yield Row(PAPER, f"{what}, {name}: provisioned", None, value, "GPU-h", "the paper has no June alone")
    less = 100 * (1 - hours["NotebookOS"] / hours["Reservation"])
    why = "paper: at most, over June to August (July and August are not public); both by GPU-hours"
    yield Row(PAPER, f"{what}: provider's cost less than Reservation's", 69.87, less, "%", why)
    yield from _of_cells(what, runs)


def _of_cells(what: str, runs: dict[str, RunSummary]) -> Iterator[Row]:
    ours = runs["NotebookOS"].cells
    at_once, same = 100 * (ours.immediate or 0.0), 100 * (ours.reused or 0.0)
    yield Row(PAPER, f"{what}, NotebookOS: cells bound at once", 89.6, at_once, "%", AT_ONCE_WHY)
    yield Row(PAPER, f"{what}, NotebookOS: cells on the same host", 89.45, same, "%", SAME_WHY)
    least = _spread(runs["Reservation"].cells.completion_s)
    for name, run in runs.items():
        lost = sum(run.not_served.values())
        if lost:
            yield Row(PAPER, f"{what}, {name}: cells not served", None, lost, "cells", "; ".join(run.whys))
        delay, took = _spread(run.cells.delay_s), _spread(run.cells.completion_s)
        yield Row(PAPER, f"{what}, {name}: delay p50", None, delay.p50, "s", DELAY_WHY)
        yield Row(PAPER, f"{what}, {name}: delay p95", None, delay.p95, "s", DELAY_WHY)
        if name != "Reservation":
            p50, p90 = took.p50 / least.p50, took.p90 / least.p90
            yield Row(PAPER, f"{what}, {name}: TCT p50 over Reservation's", None, p50, "x", TCT_WHY)
            yield Row(PAPER, f"{what}, {name}: TCT p90 over Reservation's", None, p90, "x", TCT_WHY)


def _spread(spread: Spread | None) -> Spread:
    assert spread is not None, "A window without cells is no window."
    return spread
