"""`replkernel simulate`: traces and policies in, a table, a document and a row for each task out.

Law: what is wrong with a file or an option ends with one sentence that says what to do, and exit code 1
(2 for an option that makes no sense); the table goes to stdout, everything else to stderr. `experiment.py`
plays.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from multiprocessing import cpu_count

from replkernel_scheduler.sim.cases import Case, cases
from replkernel_scheduler.sim.command_end import exit_code
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.experiment import grouped_runs, play_all
from replkernel_scheduler.sim.groups import checked, told
from replkernel_scheduler.sim.options import DEFAULT_POLICIES, build_parser, plan_of, row_forms, source_of
from replkernel_scheduler.sim.output import Output
from replkernel_scheduler.sim.playing import any_way_named
from replkernel_scheduler.sim.progress import Progress, Terminal
from replkernel_scheduler.sim.table import table, too_few
from replkernel_scheduler.sim.trace_file import TraceFile


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = build_parser().parse_args(argv)
    where = options.out or "the directory for temporary files (TMPDIR)"
    return exit_code(lambda: _simulate(options), where)


def _simulate(options: argparse.Namespace) -> int:
    plan = plan_of(options)
    made = cases(options.policy or DEFAULT_POLICIES, plan, options.sweep)
    output = _output(options)
    source = source_of(options)
    progress = Progress(Terminal(sys.stderr, quiet=options.quiet), time.monotonic)
    processes = options.jobs or (cpu_count() if options.sweep else 1)
    played = play_all(source, made, plan, output, progress, processes)
    for file in played.files:
        _tell_of_rows(file)
    print(table(played.document))
    for name in output.by:
        print(f"\n{told(grouped_runs(played.shown), name)}")
    _tell_of_replicas(made)
    if output.directory is not None:
        _tell_of_files(output, made)
    return 0


def _output(options: argparse.Namespace) -> Output:
    by = checked(options.by)
    if options.out is None:
        if options.resume:
            raise SimulationError("--resume goes on with what is in a directory: name it with --out.")
        return Output(None, (), by=by)
    forms = row_forms(options.rows)
    if options.rows is None and forms == ("csv",):
        print("Rows are written as CSV only: pip install 'replkernel[sim]' for Parquet.", file=sys.stderr)
    return Output(options.out, forms, resume=options.resume, by=by)


def _tell_of_files(output: Output, made: list[Case]) -> None:
    out = output.directory
    assert out is not None
    rows = " and ".join(f"{out}/*.{form}" for form in output.forms)
    print(f"\n{out / 'summary.json'} has all figures, {rows} a row for each task.")
    print(f"{out / 'report.html'} shows them.")
    if others := output.others(made):
        print(f"In {out} there are rows of an earlier command too: {others}.", file=sys.stderr)


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
