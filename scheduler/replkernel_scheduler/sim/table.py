"""The runs of a command as a table for the terminal, and what its columns mean.

Law: it formats what the summary says, and leaves out columns that no run has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from replkernel_scheduler.sim.plan import Prices
from replkernel_scheduler.sim.summary import RunSummary, Spread, Summary

WHYS_SHOWN = 3
PLACED_SOON_S = 60.0
DAY_H = 24.0
ALONE = ",jobs=none"
"""The same policy without its jobs is called so."""
Column: TypeAlias = Callable[[RunSummary], str | None]


def table(document: Summary) -> str:
    """Return the text: what the trace has, a line for each run, what the columns are."""
    trace, plan = document.trace, document.plan
    counts = [(trace.sessions, "session"), (trace.cells, "cell"), (trace.jobs, "job")]
    what = ", ".join(counted(count, name) for count, name in counts if count)
    swept = {key for run in document.runs for key in run.setting}
    where = (
        ""
        if swept & {"hosts", "gpus"}
        else f", on {counted(plan.hosts, 'host')} "
        + (f"with {counted(plan.gpus, 'GPU')}" if plan.nodes else f"of {counted(plan.gpus_per_host, 'GPU')}")
    )
    head = (
        f"{what} in {trace.span_hours:,.1f} h{where}. "
        f"Computing alone takes {trace.oracle_gpu_hours:,.0f} GPU-hours (the oracle)."
    )
    names, rows = ["policy"], [[run.policy] for run in document.runs]
    for key in dict.fromkeys(key for run in document.runs for key in run.setting):
        names.append(key)
        for row, run in zip(rows, document.runs, strict=True):
            row.append(run.setting.get(key, "-"))
    for name, column in COLUMNS.items():
        if name in MONEY and not is_priced(document):
            continue
        texts = [column(run) for run in document.runs]
        if any(text is not None for text in texts):
            names.append(name)
            for row, text in zip(rows, texts, strict=True):
                row.append("-" if text is None else text)
    lines = aligned([names, *rows])
    rest = [LEGEND, *_harvested(document), *_not_served(document)]
    return "\n".join([head, *_warmed_up(document), *unequal(document), "", *lines, "", *rest])


def _warmed_up(document: Summary) -> list[str]:
    """Say what is not counted."""
    found = [run.warmup for run in document.runs if run.warmup is not None]
    if not found:
        return []
    least, most = min(one.tasks for one in found), max(one.tasks for one in found)
    told = counted(most, "task") if least == most else f"{least:,} to {most:,} tasks"
    span = _span(found[0].hours)
    return [f"The first {span} warm up: {told} that came then were played, and are not counted."]


def _span(hours: float) -> str:
    if hours >= 2:
        return f"{hours:,.4g} h"
    return f"{hours * 60:,.4g} min" if hours >= 1 / 30 else f"{hours * 3600:,.4g} s"


def is_priced(document: Summary) -> bool:
    """Say whether money means something: for notebooks, or if somebody says what a host costs."""
    swept = any("host-hour" in run.setting for run in document.runs)
    return bool(document.trace.sessions) or document.plan.prices != Prices() or swept


def unequal(document: Summary) -> list[str]:
    """Say which runs leave work undone that counts in others; nothing where all leave as much."""
    whole = document.trace.oracle_gpu_hours
    shares: list[tuple[str, float]] = []
    for run in document.runs:
        counted_h = whole - (run.warmup.gpu_hours if run.warmup else 0.0)
        if counted_h > 0:
            title = " ".join([run.policy, *(f"{key}={value}" for key, value in run.setting.items())])
            shares.append((title, run.unserved_gpu_hours / counted_h))
    if len({f"{share:.1%}" for _, share in shares}) < 2:
        return []
    told = ", ".join(f"{share:.1%} under {title}" for title, share in shares if share)
    return [f"Runs are not of the same work. Of the GPU-hours these are not served: {told}."]


def counted(count: int, name: str) -> str:
    """Return a number of things: 1 host, 2 hosts."""
    return f"{count:,} {name}" if count == 1 else f"{count:,} {name}s"


def too_few(hosts: int, replicas: int) -> str:
    """Say what fewer hosts mean than a session has replicas."""
    return (
        f"sessions have {counted(replicas, 'replica')} on different hosts, and {counted(hosts, 'host')} "
        f"hold{'s' if hosts == 1 else ''} {hosts} of them"
    )


def aligned(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Return rows as lines with columns below each other, the first `left` ones flush left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, widths, strict=True)
        texts = [
            text.ljust(width) if place < left else text.rjust(width)
            for place, (text, width) in enumerate(cells)
        ]
        lines.append("  ".join(texts).rstrip())
    return lines


def _harvested(document: Summary) -> list[str]:
    """Say what jobs had of what notebooks left idle, and what cells waited more for it."""
    alone = {(run.policy, *run.setting.items()): run.cells.delay_s for run in document.runs}
    lines = []
    for run in document.runs:
        had, jobs = run.harvest, run.jobs
        if had is None or run.policy.endswith(ALONE):
            continue
        share = had.harvested_gpu_hours / had.idle_gpu_hours if had.idle_gpu_hours else 0.0
        lines.append(
            f"{run.policy}: jobs had {had.job_gpu_hours:,.0f} GPU-hours, {had.harvested_gpu_hours:,.0f} of "
            f"them in the {had.idle_gpu_hours:,.0f} that open notebooks left idle ({share:.1%})."
        )
        counted_h = run.cluster.makespan_hours - (run.warmup.hours if run.warmup else 0.0)
        if jobs.served and counted_h > 0:
            a_day = jobs.served / (counted_h / DAY_H)
            lines.append(f"  {counted(jobs.served, 'job')} done, {a_day:,.1f} a day.")
        before = alone.get((run.policy + ALONE, *run.setting.items()))
        if before is not None and run.cells.delay_s is not None:
            lines.append(f"  Delays of cells: {_delays(run.cells.delay_s)}; without jobs {_delays(before)}.")
    return lines and ["", *lines]


def _delays(spread: Spread) -> str:
    return ", ".join([f"{name} {_seconds(spread, name)} s" for name in ("p50", "p95", "p99", "mean")])


def _not_served(document: Summary) -> list[str]:
    lines = []
    for run in document.runs:
        whys = sorted(run.whys.items(), key=lambda why: -why[1])
        lines += [f"{run.policy}: {count:,} not served: {why}" for why, count in whys[:WHYS_SHOWN]]
        if len(whys) > WHYS_SHOWN:
            lines.append(
                f"{run.policy}: and for {len(whys) - WHYS_SHOWN} more reasons, see summary.json (--out)"
            )
    return lines and ["", *lines]


def _seconds(spread: Spread | None, name: str) -> str | None:
    if spread is None:
        return None
    value: float = getattr(spread, name)
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value:.1%}"


def _kwh(value: float | None) -> str | None:
    return None if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _waited(run: RunSummary, kind: str) -> str | None:
    return _share(run.kinds[kind].waited) if kind in run.kinds else None


def _place(spread: Spread | None) -> str | None:
    """Return the longest wait for a place, where it is longer than hosts take to come."""
    return None if spread is None or spread.max <= PLACED_SOON_S else f"{spread.max:,.0f}"


def _positive(value: float) -> str | None:
    return f"{value:,.0f}" if value else None


COLUMNS: dict[str, Column] = {
    "delay p50": lambda run: _seconds(run.cells.delay_s, "p50"),
    "p95": lambda run: _seconds(run.cells.delay_s, "p95"),
    "p99": lambda run: _seconds(run.cells.delay_s, "p99"),
    "TCT p50": lambda run: _seconds(run.cells.completion_s, "p50"),
    "place max": lambda run: _place(run.place_wait_s),
    "at once": lambda run: _share(run.cells.immediate),
    "same host": lambda run: _share(run.cells.reused),
    "waited": lambda run: _share(run.jobs.waited),
    "interactive": lambda run: _waited(run, "interactive"),
    "wait p50": lambda run: _seconds(run.jobs.wait_s, "p50"),
    "wait p95": lambda run: _seconds(run.jobs.wait_s, "p95"),
    "JCT p50": lambda run: _seconds(run.jobs.completion_s, "p50"),
    "JCT p95": lambda run: _seconds(run.jobs.completion_s, "p95"),
    "slowdown p95": lambda run: _seconds(run.jobs.slowdown, "p95"),
    "max": lambda run: _seconds(run.jobs.slowdown, "max"),
    "FTF p95": lambda run: _seconds(run.jobs.finish_time_fairness, "p95"),
    "unfair": lambda run: _share(run.jobs.unfair),
    "stopped": lambda run: _positive(run.cluster.preemptions),
    "futile h": lambda run: _positive(run.cluster.futile_gpu_hours),
    "moves": lambda run: _positive(run.changes.migrations),
    "lost runs": lambda run: _positive(run.changes.runs_lost),
    "not served": lambda run: _positive(sum(run.not_served.values())),
    "GPU-h hosts": lambda run: f"{run.cluster.provisioned_gpu_hours:,.0f}",
    "reserved": lambda run: _positive(run.cluster.reserved_gpu_hours),
    "in cells": lambda run: f"{run.cluster.committed_gpu_hours:,.0f}",
    "in use": lambda run: _share(run.cluster.utilisation),
    "useless": lambda run: _share(run.cluster.fragmentation),
    "kWh": lambda run: _kwh(run.cluster.energy_kwh),
    "SR": lambda run: None if run.cluster.subscription is None else f"{run.cluster.subscription:.2f}",
    "makespan h": lambda run: f"{run.cluster.makespan_hours:,.1f}",
    "cost": lambda run: f"{run.money.cost:,.0f}",
    "margin": lambda run: _share(run.money.margin),
}
MONEY = ("cost", "margin")
LEGEND = """\
delay: from submitting a cell until its code runs; TCT: until its reply (s). place: the longest that a session
waited for hosts with room (s). at once: bound to GPUs without waiting or moving; same host: as the last one.
wait, JCT: a job's, until it has GPUs, until it is over (s); waited: share of jobs that did, and of the
interactive ones. slowdown: (waiting + run) / run alone. FTF: finish-time fairness, JCT / JCT on an equal
share of the GPUs; unfair: share of jobs that took longer than on that. stopped: how often jobs were for
others; futile: GPU-hours of loading that this was in vain for. GPU-h: of hosts that are up, of sessions that
hold GPUs, of cells and jobs. in use: the last one's share of the first. useless: of idle GPUs, those that a
task of the trace could not use, drawn at random, for too few were together. kWh: of GPUs. SR: subscribed /
(GPUs x R).\
"""
