"""All cases on one trace, for the command and for Python: read, played, and kept as they come.

Law: a run that is over is kept at once, whatever becomes of those after it; how many processes there are
changes no byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from replkernel_scheduler.sim import forms, summary
from replkernel_scheduler.sim.cases import Case
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.mix import remixed
from replkernel_scheduler.sim.oracle_simulation import OracleWay
from replkernel_scheduler.sim.output import Output
from replkernel_scheduler.sim.picture import Picture
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.playing import play
from replkernel_scheduler.sim.progress import Progress
from replkernel_scheduler.sim.reclamation import saved_gpu_hours
from replkernel_scheduler.sim.report import report
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.summary import Summary
from replkernel_scheduler.sim.trace_file import TraceFile
from replkernel_scheduler.sim.workers import Shown, Source, play_case, play_side_by_side


class Played(NamedTuple):
    """What came of it: the files that were read, all figures, and what each case has shown."""

    files: list[TraceFile]
    document: Summary
    shown: list[Shown]


def play_all(
    source: Source, made: Sequence[Case], plan: Plan, output: Output, progress: Progress, processes: int = 1
) -> Played:
    """Play all cases; raise SimulationError. `plan` is what they have in common."""
    files = source.files()
    output.begin(source.paths, made)
    try:
        records = remixed(forms.read_all(files, source.form), source.mix, plan.seed)
        with Spool(progress.reading(records)) as spool:
            if not len(spool):
                traces = ", ".join(map(str, source.paths))
                raise SimulationError(f"{traces}: there is nothing in it that has work.")
            document = Summary(
                tuple(path.name for path in source.paths),
                sum(file.bad for file in files),
                sum(file.empty for file in files),
                summary.of_trace(spool),
                made[0].plan if len(made) == 1 else plan,
                (),
            )
            shown = _played(source, made, output, progress, processes, spool, document)
            document = document.with_runs(run.summary for run in shown)
            if output.directory is not None:
                output.write_report(_report(spool, document, made, shown))
    finally:
        progress.clear()
        output.discard(made)
    return Played(files, document, shown)


def _played(
    source: Source,
    made: Sequence[Case],
    output: Output,
    progress: Progress,
    processes: int,
    spool: Spool,
    document: Summary,
) -> list[Shown]:
    """Play the cases, and keep each as soon as it is over."""
    shown: list[Shown] = []
    for case, run in zip(made, _runs(source, made, output, progress, processes, spool), strict=True):
        shown.append(run)
        output.keep(case)
        output.write_summary(document.with_runs(one.summary for one in shown))
    return shown


def _runs(
    source: Source,
    made: Sequence[Case],
    output: Output,
    progress: Progress,
    processes: int,
    spool: Spool,
) -> Iterator[Shown]:
    if min(processes, len(made)) > 1 or _draws_anew(source, made):
        watch = progress.playing_all(len(made))
        together = play_side_by_side(source, made, output, min(processes, len(made)), watch)
        for number, run in enumerate(together, 1):
            progress.one_of(made[number - 1].title, run.summary.events, number, len(made))
            yield run
        return
    for case in made:
        watched = progress.playing(case.title, len(spool))
        yield play_case(spool, case, output, watch=watched, played=progress.played)


def _draws_anew(source: Source, made: Sequence[Case]) -> bool:
    """Say whether the cases' seeds draw other GPUs for the sessions, so that one reading does not do."""
    return source.mix is not None and len({case.plan.seed for case in made}) > 1


def _report(spool: Spool, document: Summary, made: Sequence[Case], shown: Sequence[Shown]) -> str:
    """Return the report; an oracle is played for it."""
    pictures = {case.title: run.picture for case, run in zip(made, shown, strict=True) if run.picture}
    oracle: list[Picture] = []
    play(spool, OracleWay(), document.plan, pictured=oracle.append)
    return report(document, pictures, oracle[0], saved_gpu_hours(spool))
