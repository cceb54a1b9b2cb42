"""`replkernel simulate`: traces and policies in, a table, a document and a row for each task out.

Law: what is wrong with a file or an option ends with one sentence that says what to do, and exit code 1
(2 for an option that makes no sense); the table goes to stdout, everything else to stderr.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from replkernel_scheduler.sim import forms, summary
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.faults import FaultModel
from replkernel_scheduler.sim.mix import remixed
from replkernel_scheduler.sim.options import DEFAULT_POLICIES, build_parser
from replkernel_scheduler.sim.plan import Plan, Prices
from replkernel_scheduler.sim.playing import any_way_named, play
from replkernel_scheduler.sim.progress import Progress
from replkernel_scheduler.sim.rows import Rows
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.table import table
from replkernel_scheduler.sim.trace_file import TraceFile


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = build_parser().parse_args(argv)
    try:
        code = _simulate(options)
        sys.stdout.flush()
        return code
    except SimulationError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stdout = io.StringIO()  # The reader (`| head`) has gone: what is left is for nobody.
        return 0
    except OSError as error:
        where = options.out or "the directory for temporary files (TMPDIR)"
        print(f"{where} cannot be written: {error}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _simulate(options: argparse.Namespace) -> int:
    ways = [any_way_named(text) for text in dict.fromkeys(options.policy or DEFAULT_POLICIES)]
    plan = _plan(options)
    files = [TraceFile(path, skip_bad=options.skip_bad) for path in options.traces]
    progress = Progress(sys.stderr, time.monotonic, quiet=options.quiet)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
    records = remixed(forms.read_all(files, options.form), options.gpu_mix, options.seed)
    with Spool(progress.reading(records)) as spool:
        if not len(spool):
            raise SimulationError(
                f"{', '.join(map(str, options.traces))}: there is nothing in it that has work."
            )
        runs = tuple(_run(spool, way, plan, options.out, progress) for way in ways)
        document = summary.Summary(
            tuple(path.name for path in options.traces),
            sum(file.bad for file in files),
            sum(file.empty for file in files),
            summary.of_trace(spool),
            plan,
            runs,
        )
    progress.clear()
    for file in files:
        _tell_of_rows(file)
    print(table(document))
    if options.out is not None:
        text = msgspec.json.format(msgspec.json.encode(document), indent=2)
        (options.out / "summary.json").write_bytes(text + b"\n")
        print(f"\n{options.out / 'summary.json'} has all figures, {options.out}/*.csv a row for each task.")
    return 0


def _run(
    spool: Spool, way: summary.AnyWay, plan: Plan, out: Path | None, progress: Progress
) -> summary.RunSummary:
    with ExitStack() as stack:
        rows = None
        if out is not None:
            rows = stack.enter_context(Rows(out / f"{re.sub('[^a-z0-9.=-]+', '-', way.name)}.csv"))
        watch = progress.playing(way.name, len(spool))
        return play(spool, way, plan, rows=rows, watch=watch, played=progress.played)


def _plan(options: argparse.Namespace) -> Plan:
    hosts, gpus = options.hosts
    if options.hosts_max is not None and options.hosts_max < hosts:
        raise SimulationError(f"--hosts-max {options.hosts_max} is less than the {hosts} hosts of --hosts.")
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
        print(f"{file.path}: {file.bad} rows cannot be and are left out: {first}", file=sys.stderr)
    if file.empty:
        print(f"{file.path}: {file.empty} rows have no work (no GPUs, or no run time).", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
