"""NotebookOS's load: sessions and trainings, run times, times between cells, and what kept state saves.

It is of the traces alone; no policy is in it. The authors' 17.5 h are not public; ours are those that were
chosen from June for their sessions and trainings, and stay open until the window ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TypeAlias

from replkernel_scheduler.sim import forms
from replkernel_scheduler.sim.reclamation import saved_gpu_hours
from replkernel_scheduler.sim.records import Cell, Record, Session
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.trace_file import TraceFile
from replkernel_scheduler.sim.trace_picture import TracePicture, trace_picture

from tests.paper.notebookos import WINDOW_S, staying
from tests.paper.report import Course, Curve, Row
from tests.paper.traces import trace

PAPER = "NotebookOS"
Span: TypeAlias = tuple[float, float]
WINDOW = "adobe_sensei/adobe_17h5_reconstructed.csv"
PHILLY = "philly/philly_rfold_111k.csv"
JUNE = "adobe_sensei/sensei_june_60sec.csv"
DUTY = "share of its life that a session computes"
CHOSEN = "the window was chosen for it"
PUBLISHED_RUNS = {50: 120.0, 75: 300.0, 90: 1020.0, 95: 2160.0, 99: 10_920.0}
PUBLISHED_BETWEEN = {50: 300.0, 75: 480.0}
FORM = "published: the trace whose cells are looked at every 15 s; public is the one of 60 s"
JUNE_NAME = "June, "
INTERVALS_S = (900.0, 1800.0, 3600.0, 5400.0, 7200.0)
"""Ours: the five of the paper's figure are not named; 30 and 90 minutes are presets of the authors' code."""


def rows(short: bool) -> Iterator[Row | Course | Curve]:
    """Yield all of it; it takes seconds."""
    with Spool(staying(forms.read(TraceFile(trace(WINDOW))), WINDOW_S)) as spool:
        window, records = trace_picture(spool, spool.first), list(spool)
    yield from _of_window(records)
    yield Course(PAPER, "sessions open", window.step_s, tuple(window.open))
    yield Course(PAPER, "cells that run", window.step_s, tuple(window.running))
    with Spool(forms.read(TraceFile(trace(JUNE)))) as spool:
        june = trace_picture(spool, spool.first)
        saved = saved_gpu_hours(spool, INTERVALS_S)
    yield Course(PAPER, f"{JUNE_NAME}sessions open", june.step_s, tuple(june.open))
    yield Course(PAPER, f"{JUNE_NAME}cells that run", june.step_s, tuple(june.running))
    yield from _of_june(june)
    if not short:
        with Spool(forms.read(TraceFile(trace(PHILLY)))) as spool:
            yield Curve(PAPER, "run times, Philly", tuple(trace_picture(spool, spool.first).duration_s))
    for interval_s, hours in saved.items():
        why = "where no state is kept; the paper draws it without figures"
        yield Row(PAPER, rerun(interval_s), None, float(f"{hours:.6g}"), "GPU-h", why)


def rerun(interval_s: float) -> str:
    """Return what a row says of an interval."""
    return f"June, sessions ended after {interval_s / 60:g} min: GPU-hours of cells that run again"


def _of_window(records: Iterable[Record]) -> Iterator[Row]:
    sessions: list[Span] = []
    cells: list[Span] = []
    ended: dict[str, float] = {}
    for record in records:
        if isinstance(record, Session):
            sessions.append((record.at, record.ends))
        elif isinstance(record, Cell):
            begins = max(record.at, ended.get(record.session, record.at))
            ended[record.session] = begins + record.duration_s
            cells.append((begins, ended[record.session]))
    for what, spans, published in (
        ("sessions open", sessions, (90, 87)),
        ("cells that run", cells, (34, 26)),
    ):
        yield Row(PAPER, f"17.5 h, {what}: most", published[0], most(spans), "at a time", CHOSEN)
        at_end = sum(begins < WINDOW_S <= ends for begins, ends in spans)
        yield Row(PAPER, f"17.5 h, {what}: at the end", published[1], at_end, "at a time", CHOSEN)
    mean = sum(min(ends, WINDOW_S) - begins for begins, ends in cells if begins < WINDOW_S) / WINDOW_S
    yield Row(PAPER, "17.5 h, cells that run: mean", 19.5, mean, "at a time", CHOSEN)


def most(spans: Iterable[Span]) -> int:
    """Return how many there are at most at a time; what ends goes before what begins."""
    changes = sorted(change for begins, ends in spans for change in ((begins, 1), (ends, -1)))
    return max(accumulate(step for _, step in changes))


def _of_june(june: TracePicture) -> Iterator[Row | Curve]:
    for what, quantiles, published in (
        ("run times", june.duration_s, PUBLISHED_RUNS),
        ("from a cell to the next", june.between_s, PUBLISHED_BETWEEN),
    ):
        last = len(quantiles) - 1
        for percent, seconds in published.items():
            ours = quantiles[round(last * percent / 100)]
            yield Row(PAPER, f"June, {what}: p{percent}", seconds, ours, "s", FORM)
        yield Curve(PAPER, what, tuple(quantiles))
    yield Curve(PAPER, "thinking", tuple(june.think_s))
    yield Curve(PAPER, DUTY, tuple(june.duty))
    hardly = sum(share <= 5 for share in june.duty) / len(june.duty)
    why = "public are only sessions that train, and a session of ours ends with its last cell"
    yield Row(PAPER, "June, sessions that train for up to 5 % of their lives", 75, 100 * hardly, "%", why)
