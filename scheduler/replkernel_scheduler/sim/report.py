"""The report of a command: one HTML file that needs nothing from anywhere else.

Law: every text from outside is escaped; no script, no network. Without matplotlib it has the tables, and says
what to install for the plots. The same runs give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from replkernel_scheduler.sim import drawing
from replkernel_scheduler.sim.picture import Picture
from replkernel_scheduler.sim.seeds import against, figures_of, swept_keys
from replkernel_scheduler.sim.summary import RunSummary, Summary
from replkernel_scheduler.sim.table import is_priced, table, unequal
from replkernel_scheduler.sim.trace_picture import TracePicture

DRAWN_MAX = 10
"""More runs than this are in the table only: lines could not be told apart."""
SWEPT = {
    "cells.delay_s.p95": "delay p95 (s)",
    "jobs.wait_s.p95": "wait p95 (s)",
    "jobs.completion_s.p50": "JCT p50 (s)",
    "cluster.provisioned_gpu_hours": "GPU-hours of hosts",
}
"""What is drawn against what was swept."""
HEAD = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>replkernel simulate</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64em; margin: 2em auto; padding: 0 1em; }
pre { overflow-x: auto; width: max-content; max-width: 94vw; font-size: 12px; line-height: 1.4; }
.unequal { color: #b00020; font-weight: 600; }
svg { max-width: 100%; height: auto; }
</style></head><body>
"""


def report(
    document: Summary,
    pictures: Mapping[str, Picture],
    oracle: Picture,
    saved: Mapping[float, float],
    trace: TracePicture,
    tables: Sequence[str] = (),
) -> str:
    """Return the file; `pictures` are of the document's runs in their order, `saved` by idle interval.

    `tables` are others of the runs, as text.
    """
    parts = [HEAD, f"<h1>{escape(', '.join(document.traces))}</h1>"]
    parts += [f'<p class="unequal">{escape(line)}</p>' for line in unequal(document)]
    parts += [f"<pre>{escape(text)}</pre>" for text in (table(document), *tables)]
    missing = drawing.needs_matplotlib()
    if missing is not None:
        return "\n".join([*parts, f"<p>{escape(missing)}</p>", _savings(document), "</body></html>\n"])
    chosen = list(pictures)[:DRAWN_MAX]
    if len(chosen) < len(pictures):
        parts.append(f"<p>The plots have the first {DRAWN_MAX} of {len(pictures)} runs.</p>")
    short = drawing.short_names(chosen)
    drawn = {short[name]: pictures[name] for name in chosen}
    runs = dict(zip(drawn, document.runs, strict=False))
    parts += _swept(document.runs)
    parts += _sections(drawn, runs, oracle, saved, is_priced(document))
    parts += [_section(title, svg) for title, svg in drawing.of_trace(trace).items()]
    return "\n".join([*parts, _savings(document), "</body></html>\n"])


def _sections(
    drawn: Mapping[str, Picture],
    runs: Mapping[str, RunSummary],
    oracle: Picture,
    saved: Mapping[float, float],
    priced: bool,
) -> Iterator[str]:
    yield _section("GPUs over time", drawing.gpus_over_time(drawn, oracle))
    for title, name, what in (
        ("Cells: until code runs", "delay_s", "delay (s)"),
        ("Cells: until the reply", "completion_s", "task completion time (s)"),
        ("Jobs: until they have GPUs", "wait_s", "wait (s)"),
        ("Jobs: until they are over", "job_completion_s", "job completion time (s)"),
        ("Jobs: slowdown", "slowdown", "(waiting + run) / run alone"),
        ("Jobs: finish-time fairness", "fairness", "completion / that on an equal share (fair: up to 1)"),
    ):
        samples = {run: getattr(picture, name) for run, picture in drawn.items() if getattr(picture, name)}
        if samples:
            yield _section(title, drawing.distribution(samples, what))
    if any(max(picture.waiting, default=0.0) for picture in drawn.values()):
        yield _section("Cells and jobs that wait for GPUs", drawing.over_time(drawn, "waiting", "waiting"))
    subscribed = {run: picture for run, picture in drawn.items() if picture.subscription}
    if subscribed:
        yield _section("Subscription, moves, hosts", drawing.subscription_over_time(subscribed))
    if priced:
        yield _section("Cost and revenue", drawing.money({run: runs[run].money for run in drawn}))
        yield _section("Cost and margin over time", drawing.money_over_time(drawn))
    if any(saved.values()):
        why = "GPU-hours of earlier cells that run again where idle sessions are ended and no state is kept"
        yield _section(why, drawing.saved_by_interval(saved))


def _swept(runs: Sequence[RunSummary]) -> Iterator[str]:
    """Yield what the main figures are against each key that was swept."""
    told = [(run.policy, run.setting, figures_of(run)) for run in runs]
    for key in swept_keys(runs):
        found = {what: against(told, key, name) for name, what in SWEPT.items()}
        panels = {
            what: lines
            for what, lines in found.items()
            if len(lines) <= DRAWN_MAX and any(len(points) > 1 for points in lines.values())
        }
        if panels:
            yield _section(f"Against {key}", drawing.swept(panels, key))


def _section(title: str, svg: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{svg}"


def _savings(document: Summary) -> str:
    """Return what each run takes less than the first one that reserves GPUs for whole sessions."""
    reserving = next((run for run in document.runs if run.cluster.reserved_gpu_hours), None)
    if reserving is None:
        return ""
    reserved = reserving.cluster.reserved_gpu_hours
    lines = [
        f"<li>{escape(run.policy)}: {reserved - run.cluster.provisioned_gpu_hours:,.0f}</li>"
        for run in document.runs
        if not run.cluster.reserved_gpu_hours
    ]
    head = f"GPU-hours of hosts, less than the {reserved:,.0f} that sessions hold under {reserving.policy}"
    return f"<h2>{escape(head)}</h2>\n<ul>{''.join(lines)}</ul>" if lines else ""
