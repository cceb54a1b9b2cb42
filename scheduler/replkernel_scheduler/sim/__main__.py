"""`replkernel simulate`: traces and policies in, a table, a document and a row for each task out.

Law: what is wrong with a file or an option ends with one sentence that says what to do, and exit code 1
(2 for an option that makes no sense); the table goes to stdout, everything else to stderr.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing import cpu_count
from pathlib import Path

import msgspec

from replkernel_scheduler.sim import forms, summary
from replkernel_scheduler.sim.cases import Case, cases
from replkernel_scheduler.sim.command_end import exit_code
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.faults import FaultModel
from replkernel_scheduler.sim.mix import remixed
from replkernel_scheduler.sim.options import DEFAULT_POLICIES, build_parser
from replkernel_scheduler.sim.oracle_simulation import OracleWay
from replkernel_scheduler.sim.output import Output
from replkernel_scheduler.sim.parquet_rows import can_be_written
from replkernel_scheduler.sim.picture import Picture
from replkernel_scheduler.sim.plan import Plan, Prices
from replkernel_scheduler.sim.playing import any_way_named, play
from replkernel_scheduler.sim.progress import Progress
from replkernel_scheduler.sim.reclamation import saved_gpu_hours
from replkernel_scheduler.sim.report import report
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.table import table, too_few
from replkernel_scheduler.sim.trace_file import TraceFile
from replkernel_scheduler.sim.workers import Shown, Source, play_case, play_side_by_side


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = build_parser().parse_args(argv)
    where = options.out or "the directory for temporary files (TMPDIR)"
    return exit_code(lambda: _simulate(options), where)


def _simulate(options: argparse.Namespace) -> int:
    made = cases(options.policy or DEFAULT_POLICIES, _plan(options), options.sweep)
    output = Output(options.out, _row_forms(options))
    source = Source(tuple(options.traces), options.form, options.skip_bad, options.gpu_mix)
    files = source.files()
    progress = Progress(sys.stderr, time.monotonic, quiet=options.quiet)
    output.spare(source.paths, made)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
    try:
        document = _play(options, made, source, files, output, progress)
    except BaseException:
        output.discard(made)
        raise
    progress.clear()
    for file in files:
        _tell_of_rows(file)
    print(table(document))
    _tell_of_replicas(made)
    if options.out is not None:
        rows = " and ".join(f"{options.out}/*.{form}" for form in output.forms)
        print(f"\n{options.out / 'summary.json'} has all figures, {rows} a row for each task.")
        print(f"{options.out / 'report.html'} shows them.")
        if others := output.others(made):
            print(f"In {options.out} there are rows of an earlier command too: {others}.", file=sys.stderr)
    return 0


def _play(
    options: argparse.Namespace,
    made: list[Case],
    source: Source,
    files: list[TraceFile],
    output: Output,
    progress: Progress,
) -> summary.Summary:
    """Play all cases, and write what they have shown."""
    records = remixed(forms.read_all(files, options.form), options.gpu_mix, options.seed)
    with Spool(progress.reading(records)) as spool:
        if not len(spool):
            raise SimulationError(
                f"{', '.join(map(str, options.traces))}: there is nothing in it that has work."
            )
        processes = min(options.jobs or (cpu_count() if options.sweep else 1), len(made))
        if processes == 1 and not _draws_anew(source, made):
            shown = [_run(spool, case, output, progress) for case in made]
        else:
            shown = list(_side_by_side(source, made, output, processes, progress))
        document = summary.Summary(
            tuple(path.name for path in options.traces),
            sum(file.bad for file in files),
            sum(file.empty for file in files),
            summary.of_trace(spool),
            made[0].plan if len(made) == 1 else _plan(options),
            tuple(case.summary for case in shown),
        )
        if options.out is not None:
            _write(options.out, spool, document, made, shown)
            output.finish(made)
    return document


def _write(out: Path, spool: Spool, document: summary.Summary, made: list[Case], shown: list[Shown]) -> None:
    """Write the report and the document; an oracle is played for the former."""
    text = msgspec.json.format(msgspec.json.encode(document), indent=2)
    pictures = {case.title: run.picture for case, run in zip(made, shown, strict=True) if run.picture}
    oracle: list[Picture] = []
    play(spool, OracleWay(), document.plan, pictured=oracle.append)
    page = report(document, pictures, oracle[0], saved_gpu_hours(spool))
    (out / "report.html").write_text(page, encoding="utf-8", newline="\n")
    (out / "summary.json").write_bytes(text + b"\n")


def _draws_anew(source: Source, made: list[Case]) -> bool:
    """Say whether the cases' seeds draw other GPUs for the sessions, so that one reading does not do."""
    return source.mix is not None and len({case.plan.seed for case in made}) > 1


def _row_forms(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the forms of rows; without a word of the user's those that can be written."""
    if options.out is None:
        return ()
    if options.rows is None and not can_be_written():
        print("Rows are written as CSV only: pip install 'replkernel[sim]' for Parquet.", file=sys.stderr)
        return ("csv",)
    return {"csv": ("csv",), "parquet": ("parquet",)}.get(options.rows, ("csv", "parquet"))


def _run(spool: Spool, case: Case, output: Output, progress: Progress) -> Shown:
    watch = progress.playing(case.title, len(spool))
    return play_case(spool, case, output, watch=watch, played=progress.played)


def _side_by_side(
    source: Source, made: list[Case], output: Output, processes: int, progress: Progress
) -> Iterator[Shown]:
    watch = progress.playing_all(len(made))
    for number, run in enumerate(play_side_by_side(source, made, output, processes, watch), 1):
        progress.one_of(made[number - 1].title, run.summary.events, number, len(made))
        yield run


def _plan(options: argparse.Namespace) -> Plan:
    hosts, gpus = options.hosts
    days = options.host_mtbf_days
    faults = FaultModel(
        host_mtbf_s=None if days is None else days * 86_400.0, replica_failure=options.replica_failure
    )
    return Plan(
        hosts=hosts,
        gpus_per_host=gpus,
        memory_gb=options.memory_gb,
        hosts_max=options.hosts_max,
        seed=options.seed,
        mix=options.gpu_mix,
        faults=faults,
        prices=Prices(options.host_hour),
    )


def _tell_of_rows(file: TraceFile) -> None:
    if file.bad:
        first = "; ".join(file.bad_rows)
        told = "1 row cannot be and is" if file.bad == 1 else f"{file.bad:,} rows cannot be and are"
        print(f"{file.path}: {told} left out: {first}", file=sys.stderr)
    if file.empty:
        told = "1 row has" if file.empty == 1 else f"{file.empty:,} rows have"
        print(f"{file.path}: {told} no work (no GPUs, or no run time).", file=sys.stderr)


def _tell_of_replicas(made: list[Case]) -> None:
    """Say where there are fewer hosts than a session has replicas."""
    for case in made:
        hosts, replicas = case.plan.hosts_max or case.plan.hosts, any_way_named(case.policy).replicas
        if hosts < replicas:
            print(f"\n{case.title}: {too_few(hosts, replicas)}.")


if __name__ == "__main__":
    raise SystemExit(main())
