"""All cases on one trace, for the command and for Python: read, played, and kept as they come.

Law: a run that is over is kept at once, whatever becomes of those after it; how many processes there are
changes no byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import msgspec

from replkernel_scheduler.sim import summary
from replkernel_scheduler.sim.cases import Case
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.groups import Run, together, told
from replkernel_scheduler.sim.output import Kept, Output
from replkernel_scheduler.sim.picture import Picture
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.playing import play
from replkernel_scheduler.sim.progress import Progress
from replkernel_scheduler.sim.reclamation import saved_gpu_hours
from replkernel_scheduler.sim.report import report
from replkernel_scheduler.sim.seeds import tables_of
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.summary import HOUR_S, Summary
from replkernel_scheduler.sim.trace_file import TraceFile
from replkernel_scheduler.sim.trace_picture import trace_picture
from replkernel_scheduler.sim.way import ORACLE
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
    return _Experiment(source, made, output, progress).play(plan, processes)


def grouped_runs(shown: Sequence[Shown]) -> list[Run]:
    """Return what runs have by columns, with their policies and settings."""
    return [(run.summary.policy, run.summary.setting, run.grouped) for run in shown]


class _Experiment:
    """The cases on one trace; `shown` has what was played so far, by the cases' places."""

    def __init__(self, source: Source, made: Sequence[Case], output: Output, progress: Progress) -> None:
        self.source, self.made, self.output, self.progress = source, made, output, progress
        self.shown: dict[int, Shown] = {}

    def play(self, plan: Plan, processes: int) -> Played:
        source, made, output = self.source, self.made, self.output
        files = source.files()
        output.begin(source.paths, made)
        try:
            seed = plan.seed if len(_seeds(made)) > 1 else made[0].plan.seed
            with source.spool(seed, files=files, reading=self.progress.reading) as spool:
                document = _without_runs(source, files, spool, made[0].plan if len(made) == 1 else plan)
                self._play_each(spool, document, processes)
                runs = [self.shown[place] for place in range(len(made))]
                document = document.with_runs(run.summary for run in runs)
                if output.directory is not None:
                    output.write_summary(document)
                    output.write_tables(tables_of(document.runs) if len(made) > 1 else {})
                    groups = grouped_runs(runs)
                    output.write_tables({f"by-{name}.csv": together(groups, name) for name in output.by})
                    tables = [told(groups, name) for name in output.by]
                    output.write_report(_report(spool, document, made, runs, tables))
        except BaseException:
            if output.directory is not None and self.shown:
                self.progress.stopped(len(self.shown), len(made), str(output.directory))
            raise
        finally:
            self.progress.clear()
            output.discard(made)
        return Played(files, document, runs)

    def _play_each(self, spool: Spool, document: Summary, processes: int) -> None:
        """Play the cases that no earlier command has, and keep each as soon as it is over."""
        made, output, shown = self.made, self.output, self.shown
        marks = [] if output.directory is None else _marks(self.source, made)
        for place, mark in enumerate(marks):
            if (kept := output.kept_of(made[place], mark)) is not None:
                shown[place] = Shown(kept.run, kept.picture, grouped=kept.grouped)
        left = [place for place in range(len(made)) if place not in shown]
        for place, run in self._runs(spool, left, processes):
            shown[place] = run
            if marks:
                assert run.picture is not None
                output.keep(made[place], Kept(marks[place], run.summary, run.picture, run.grouped))
                output.write_summary(document.with_runs(shown[one].summary for one in sorted(shown)))

    def _runs(self, spool: Spool, left: Sequence[int], processes: int) -> Iterator[tuple[int, Shown]]:
        """Play those that are left, and yield their places and runs as they come."""
        output, progress = self.output, self.progress
        cases = [self.made[place] for place in left]
        beside = min(processes, len(left))
        if beside > 1:
            watch = progress.playing_all(len(left))
            together = play_side_by_side(self.source, cases, output, beside, watch)
            for number, (place, run) in enumerate(together, 1):
                progress.one_of(cases[place].title, run.summary.events, number, len(left))
                yield left[place], run
            return
        anew = _draws_anew(self.source, self.made)
        for place, case in zip(left, cases, strict=True):
            watched = progress.playing(case.title, len(spool))
            with self.source.spool(case.plan.seed) if anew else nullcontext(spool) as drawn:
                yield place, play_case(drawn, case, output, watch=watched, played=progress.played)


def _without_runs(source: Source, files: Sequence[TraceFile], spool: Spool, plan: Plan) -> Summary:
    """Return what is known before anything is played; raise SimulationError if there is nothing to play."""
    if not len(spool):
        traces = ", ".join(map(str, source.paths))
        cut = source.window.from_s or source.window.until_s is not None
        where = "in the part that --from and --until name" if cut else "in it"
        raise SimulationError(f"{traces}: there is nothing {where} that has work.")
    longest = max(0.0, spool.last - spool.first)
    if plan.warmup_s and plan.warmup_s >= longest:
        raise SimulationError(
            f"A warm-up of {plan.warmup_s / HOUR_S:,.1f} h leaves nothing to count: what is played comes in "
            f"{longest / HOUR_S:,.1f} h."
        )
    return Summary(
        tuple(path.name for path in source.paths),
        sum(file.bad for file in files),
        sum(file.empty for file in files),
        summary.of_trace(spool),
        plan,
        (),
    )


def _marks(source: Source, made: Sequence[Case]) -> list[str]:
    """Return, for each case, a digest of all that its run hangs on: traces, policy, plan."""
    digests = []
    for path in source.paths:
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    about = (digests, msgspec.structs.replace(source, paths=()))
    return [hashlib.sha256(msgspec.json.encode((about, case))).hexdigest() for case in made]


def _draws_anew(source: Source, made: Sequence[Case]) -> bool:
    """Say whether the cases' seeds draw other GPUs for the sessions, so that one reading does not do."""
    return source.mix is not None and len(_seeds(made)) > 1


def _seeds(made: Sequence[Case]) -> set[int]:
    return {case.plan.seed for case in made}


def _report(
    spool: Spool, document: Summary, made: Sequence[Case], shown: Sequence[Shown], tables: Sequence[str]
) -> str:
    """Return the report; an oracle is played for it."""
    pictures = {case.title: run.picture for case, run in zip(made, shown, strict=True) if run.picture}
    oracle: list[Picture] = []
    play(spool, ORACLE, document.plan, pictured=oracle.append)
    trace = trace_picture(spool, spool.first)
    return report(document, pictures, oracle[0], saved_gpu_hours(spool), trace, tables)
