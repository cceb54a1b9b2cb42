"""`replkernel workload`: sessions of people who train models, or batch jobs, as a trace.

They are made from quantiles of your choice, or like a trace of yours.

Law: what was achieved stands in the file and is told; a plan that cannot be ends with one sentence.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from replkernel_scheduler.sim import alike, batch, forms
from replkernel_scheduler.sim.batch import BatchPlan
from replkernel_scheduler.sim.command_end import exit_code
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.options import read_at_least, read_columns, read_mix
from replkernel_scheduler.sim.progress import Progress, Terminal
from replkernel_scheduler.sim.workers import Source
from replkernel_scheduler.sim.workload import PLANS, Knots
from replkernel_scheduler.sim.workload_file import Achieved, lines, made, spare, write

ACTIVE = {"17.5h": 19.5, "92d": 67.63}
"""The published means of cells that run at a time."""
LIKE = "17.5h"
OF_JOBS = ("--per-hour", "--swing", "--widest")
OF_TRACES = ("--times", "--form", "--columns", "--skip-bad")
DRAWN = ("poisson", "diurnal")
OF_KINDS: dict[str, tuple[str, ...]] = {
    "--swing": ("diurnal",), "--widest": ("lublin",), "--gpu-mix": DRAWN, "--duration": DRAWN,
    "--duration-mean": DRAWN, "--longest": DRAWN,
}  # fmt: skip
KNOTS_MAX = 64
DESCRIPTION = """\
Make sessions of people who train models in notebooks: bouts of cells with breaks between, from the quantiles
that are published of Adobe's cluster or from yours; or sessions or batch jobs like those of a trace. The file
is a trace for `replkernel simulate`; its first lines say what it was made from, and what came of it.
"""
EPILOG = """\
Example:
  replkernel workload sessions.csv --like 17.5h --seed 1 --gpu-mix 1=50,4=30,8=20
  replkernel simulate sessions.csv --policy notebook,scaling=buffered --policy reservation --out build/sim

Like a trace of yours (arrivals, GPUs, run times, think times), with twice as many people, and no name in it:
  replkernel workload alike.csv --like cells.csv --times 2 --seed 1

Batch jobs, with --hours, --duration, --gpu-mix and these:
  replkernel workload jobs.csv --jobs diurnal --hours 168 --per-hour 200
  replkernel workload jobs.csv --jobs lublin --hours 720 --widest 512 --per-hour 20

Quantiles are SHARE=SECONDS from share 0 on, such as 0=15,0.5=120,0.75=300,0.9=1020,0.99=10920.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_args(argv)
    return exit_code(lambda: _make(options), options.out)


def _make_jobs(options: argparse.Namespace) -> int:
    fields = set(BatchPlan.__struct_fields__)
    given = {name: value for name, value in vars(options).items() if name in fields and value is not None}
    of_sessions = [(name, field) for name, (_, field, _) in OPTIONS.items() if field not in fields]
    foreign = [name for name, field in of_sessions if vars(options)[field] is not None]
    if options.active_mean is not None:
        foreign.append("--active-mean")
    if options.like is not None:
        foreign.append("--like")
    if foreign:
        raise SimulationError(f"{foreign[0]} is of sessions: leave it out with --jobs.")
    for name, kinds in OF_KINDS.items():
        if options.kind not in kinds and getattr(options, _field(name)) is not None:
            raise SimulationError(f"{name} is of --jobs {' and '.join(kinds)}: leave it out.")
    if "duration" in given:
        given.setdefault("duration_mean_s", None)
    plan = BatchPlan(**given)
    spare(options.out)
    jobs = batch.batch(plan, options.seed)
    write(options.out, batch.lines(jobs, plan, options.seed))
    print(f"{options.out}: {batch.told(jobs, plan)}")
    return 0


def _make_alike(options: argparse.Namespace) -> int:
    """Make a workload like the trace that `--like` names."""
    given = [name for name, (_, field, _) in OPTIONS.items() if vars(options)[field] is not None]
    given += [name for name in (*OF_JOBS, "--active-mean") if getattr(options, _field(name)) is not None]
    if options.kind is not None:
        given.append("--jobs")
    if given:
        raise SimulationError(f"With --like TRACE all is as in the trace but --times: leave out {given[0]}.")
    trace = Path(options.like)
    if not trace.exists():
        raise SimulationError(
            f"--like {options.like} is neither {' nor '.join(PLANS)}, nor is there such a file."
        )
    spare(options.out)
    progress = Progress(Terminal(sys.stderr, quiet=options.quiet), time.monotonic)
    source = Source((trace,), options.form, options.skip_bad, None, columns=options.columns)
    files = source.files()
    with source.spool(0, files=files, reading=progress.reading) as spool:
        try:
            made = alike.alike(spool, options.seed, 1.0 if options.times is None else options.times)
        except SimulationError as error:
            raise SimulationError(f"{trace}: {error}") from None
    write(options.out, alike.lines(made))
    progress.clear()
    left_out = f" ({files[0].bad:,} rows that cannot be are left out)" if files[0].bad else ""
    print(f"{options.out}: like {trace}{left_out}.\n{alike.told(made.resemblance)}")
    return 0


def _make(options: argparse.Namespace) -> int:
    if options.like is not None and options.like not in PLANS:
        return _make_alike(options)
    for name in OF_TRACES:
        if getattr(options, _field(name)):
            raise SimulationError(f"{name} is of --like TRACE: leave it out.")
    if options.kind is not None:
        return _make_jobs(options)
    for name in OF_JOBS:
        if getattr(options, _field(name)) is not None:
            raise SimulationError(f"{name} is of batch jobs: name their kind with --jobs.")
    like = options.like or LIKE
    given = {name: value for name, value in vars(options).items() if name in FIELDS and value is not None}
    plan = msgspec.structs.replace(PLANS[like], **given)
    wanted = options.active_mean
    if wanted is None and not set(given) - {"mix"}:
        wanted = ACTIVE[like]
    spare(options.out)
    progress = Progress(Terminal(sys.stderr, quiet=options.quiet), time.monotonic)
    made_so_far = partial(progress.reading, doing="making")
    records, achieved = made(plan, options.seed, wanted or None, made_so_far)
    write(options.out, lines(records, plan, achieved))
    progress.clear()
    print(_told(options.out, achieved))
    return 0


def _field(name: str) -> str:
    """Return where the parser keeps an option."""
    return OPTIONS[name][1] if name in OPTIONS else name.removeprefix("--").replace("-", "_")


def _told(path: Path, achieved: Achieved) -> str:
    head = (
        f"{path}: {achieved.sessions:,} sessions (at most {achieved.sessions_open_max:,} at a time), "
        f"{achieved.cells:,} cells, {achieved.gpu_hours:,.0f} GPU-hours; {achieved.active_mean:.1f} cells "
        f"run at a time in the mean, {achieved.active_max} at most."
    )
    rows = [("cells run for", achieved.duration_s), ("from one to the next", achieved.between_s)]
    texts = [
        f"{name} (s): p50 {one.p50:,.0f}, p75 {one.p75:,.0f}, p90 {one.p90:,.0f}, p95 {one.p95:,.0f}, "
        f"p99 {one.p99:,.0f}, mean {one.mean:,.0f}"
        for name, one in rows
        if one is not None
    ]
    return "\n".join([head, *texts])


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "replkernel workload", description=DESCRIPTION, epilog=EPILOG, formatter_class=form
    )
    parser.add_argument(
        "out", type=Path, metavar="OUT", help="the CSV file to write, packed if it ends in .gz, .xz or .zst"
    )
    parser.add_argument(
        "--like",
        metavar="{" + ",".join([*PLANS, "TRACE"]) + "}",
        help=f"the published excerpt to begin with ({LIKE}), or a trace of any form to be like",
    )
    parser.add_argument(
        "--times", type=_positive, metavar="X", help="X times as many as in the trace to be like (1)"
    )
    parser.add_argument("--form", choices=tuple(forms.FORMS), help="its form, where it is not found")
    parser.add_argument(
        "--columns",
        type=read_columns,
        default=(),
        metavar="OURS=THEIRS,…",
        help="what its columns are called, as with simulate",
    )
    parser.add_argument("--skip-bad", action="store_true", help="leave out and count its rows that cannot be")
    parser.add_argument(
        "--seed", type=read_at_least(0), default=0, metavar="N", help="of all dice (default: 0)"
    )
    parser.add_argument(
        "--jobs",
        choices=batch.KINDS,
        dest="kind",
        help="make batch jobs instead of sessions: at random, by "
        "the hour of the day, or as Lublin and Feitelson model them",
    )
    parser.add_argument("--per-hour", type=_positive, metavar="X", help="jobs an hour (60; lublin: 4.3)")
    parser.add_argument("--swing", type=_share, metavar="SHARE", help="what the hour of the day makes (0.8)")
    parser.add_argument(
        "--widest", type=read_at_least(1), metavar="N", help="most GPUs of a job, lublin (128)"
    )
    for name, (kind, field, text) in OPTIONS.items():
        parser.add_argument(name, type=kind, dest=field, metavar=METAVARS[kind], help=text)
    parser.add_argument(
        "--active-mean",
        type=_number,
        metavar="X",
        help="draw until so many cells run at a time in the mean, to 10 percent (0: take the first draw; "
        "default: as published, where nothing but the seed and the mix is changed)",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    return parser


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to a billion")
    return value


def _positive(text: str) -> float:
    value = _number(text)
    if value < 0.01:
        raise argparse.ArgumentTypeError(f"{text!r} is less than 0.01")
    return value


def _from_one(text: str) -> float:
    value = _number(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is less than 1")
    return value


def _share(text: str) -> float:
    value = _number(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share from 0 to 1")
    return value


def _knots(text: str) -> Knots:
    pairs = [part.partition("=") for part in text.split(",")]
    if len(pairs) > KNOTS_MAX or not all(sign for _, sign, _ in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not A=B,C=D,… (up to {KNOTS_MAX})")
    knots = tuple((_number(place), _number(value)) for place, _, value in pairs)
    if list(dict(knots)) != sorted(dict(knots)) or len(dict(knots)) < len(knots):
        raise argparse.ArgumentTypeError(f"{text!r} does not rise from left to right")
    return knots


OPTIONS: dict[str, tuple[Callable[[str], Any], str, str]] = {
    "--hours": (_positive, "hours", "how long it lasts"),
    "--sessions": (_knots, "sessions", "sessions that are open, by hour"),
    "--duration": (_knots, "duration", "quantiles of how long cells run (s)"),
    "--duration-mean": (
        _positive,
        "duration_mean_s",
        "its mean (s), met by the tail above the last quantile",
    ),
    "--longest": (_positive, "longest_s", "the longest cell (s)"),
    "--between": (_knots, "between", "quantiles from the beginning of a cell to that of the next (s)"),
    "--together": (_share, "together", "correlation of the two"),
    "--bout": (_from_one, "bout", "cells of a bout, in the mean"),
    "--duty": (_knots, "duty", "share of its life for which a session trains, by share of sessions"),
    "--idle-share": (
        _share,
        "idle_share",
        "share of sessions that hardly train, those with the shortest lives",
    ),
    "--life-mean-days": (_positive, "life_mean_days", "how long sessions are open"),
    "--gpu-mix": (read_mix, "mix", "GPUs of sessions, such as 1=50,4=30,8=20 (default: template)"),
}
FIELDS = {field for _, field, _ in OPTIONS.values()}
METAVARS: dict[Callable[[str], Any], str] = {
    _positive: "X", _from_one: "X", _share: "SHARE", _knots: "A=B,C=D,…", read_mix: "MIX",
}  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
