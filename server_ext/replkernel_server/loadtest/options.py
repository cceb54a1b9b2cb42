"""The options of `replkernel loadtest`, and the help that teaches them.

Law: a value that makes no sense is refused here, with what would make sense.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from replkernel_scheduler.sim import forms

from replkernel_server.loadtest.plan import SESSIONS_MAX, Wanted
from replkernel_server.loadtest.playing import Manner

DESCRIPTION = """\
Play sessions of people who work in notebooks against a live Jupyter Server, through the API that JupyterLab
uses, and report what they feel (how long until a cell's code runs, until its reply, until what it changed is
safe) and what that costs (CPU and memory of each kernel, leases).
"""
EPILOG = """\
Each cell is light: it changes a list and a few bytes, sleeps for as long as the cell of the pattern ran
(divided by --speed), and checks that no earlier change is missing. Without --trace the pattern is made from
quantiles that are published of people who train models (as `replkernel workload` does); with it, sessions of
a file are played: any form that `replkernel simulate` reads and that has sessions (adobe-june, csv, journal).

Examples:
  replkernel loadtest --start --sessions 5 --minutes 1            a server of its own, ended afterwards
  jupyter server list                                             shows URL and token of your own
  export JUPYTER_TOKEN=…                                          so that `ps` does not show it to others
  replkernel loadtest http://127.0.0.1:8888/ --sessions 100 --trace june.csv --out build/load
  replkernel loadtest --start --gpus 2 --fake-gpus 4              cells ask for up to 2 of 4 pretended GPUs
  replkernel loadtest --start --sessions 5 --kernel python3       the stock kernel, to compare

What is told:
  interactivity delay   from submitting a cell until the page hears that its code runs
  TCT                   task completion time: from submitting a cell to its reply
  commit latency        from when what a cell changed was found, after its reply, until a majority has it
  durability lag        from a cell's reply until a majority has what it changed
  wait for a lease      from asking for GPUs until they are granted
  submitted late        how much later than planned: the cell before was not over (people wait as well)

CPU and memory are those of this machine's processes: a kernel's are its replicas and its router, in PSS
(pages that several share are divided among them). Ctrl-C ends all kernels of the test and reports what there
is; again, and kernels may be left to you: they are called replkernel-loadtest-…
The exit code is 1 if anything went wrong.
"""


def build_parser() -> argparse.ArgumentParser:
    """Build the parser."""
    parser = argparse.ArgumentParser(
        "replkernel loadtest", description=DESCRIPTION, epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    where = parser.add_argument_group("against which server")
    where.add_argument(
        "url", nargs="?", metavar="URL", help="of a running server; its token: JUPYTER_TOKEN, or ?token=…"
    )
    where.add_argument(
        "--start", action="store_true", help="start one in a temporary directory, end it after"
    )
    where.add_argument(
        "--replicas", type=_whole(1, 9), default=3, metavar="N", help="with --start: replicas a kernel (3)"
    )
    where.add_argument(
        "--fake-gpus", type=_whole(0, 64), default=0, metavar="N", help="with --start: so many pretended GPUs"
    )
    _add_pattern(parser.add_argument_group("what is played"))
    _add_manner(parser.add_argument_group("how"))
    return parser


def _add_pattern(what: argparse._ArgumentGroup) -> None:
    what.add_argument(
        "--sessions",
        type=_whole(1, SESSIONS_MAX),
        default=10,
        metavar="N",
        help="open at a time, at most (10)",
    )
    what.add_argument(
        "--trace", type=Path, metavar="FILE", help="its sessions, in the place of the built-in ones"
    )
    what.add_argument(
        "--form",
        choices=tuple(forms.FORMS),
        metavar="FORM",
        help="the trace's form, if it is not found by itself",
    )
    what.add_argument("--skip-bad", action="store_true", help="leave out rows of the trace that cannot be")
    what.add_argument(
        "--minutes", type=_number(0.05, 1440), default=2.0, metavar="X", help="how long it is played (2)"
    )
    what.add_argument(
        "--speed", type=_number(0.01, 1e6), default=60.0, metavar="X",
        help="so many seconds of the pattern in one: 60 plays an hour in a minute (60)",
    )  # fmt: skip
    what.add_argument(
        "--from", dest="begins_h", type=_number(0, 1e6), metavar="HOURS",
        help="where in the trace to begin (where it first has so many sessions)",
    )  # fmt: skip
    what.add_argument(
        "--cell-max",
        type=_number(0, 3600),
        default=30.0,
        metavar="S",
        help="the longest that a cell sleeps (30)",
    )
    what.add_argument(
        "--gpus", type=_whole(0, 64), default=0, metavar="N",
        help="cells ask for the GPUs of the pattern, for N at most (0: for none)",
    )  # fmt: skip
    what.add_argument(
        "--seed", type=_whole(0, 2**31), default=0, metavar="N", help="of the built-in pattern (0)"
    )


def _add_manner(how: argparse._ArgumentGroup) -> None:
    manner = Manner()
    how.add_argument(
        "--kernel", default=manner.kernel, metavar="NAME", help=f"the kernelspec ({manner.kernel})"
    )
    how.add_argument(
        "--starting", type=_whole(1, 64), default=manner.starting, metavar="N",
        help=f"so many kernels start at a time ({manner.starting})",
    )  # fmt: skip
    how.add_argument(
        "--state-kb", type=_whole(0, 1_000_000), default=1, metavar="N",
        help="so many KB are changed by each cell (1)",
    )  # fmt: skip
    how.add_argument(
        "--patience", type=_number(1, 3600), default=manner.patience_s, metavar="S",
        help=f"a cell that takes so much longer than its code is interrupted ({manner.patience_s:g})",
    )  # fmt: skip
    how.add_argument("--out", type=Path, metavar="DIR", help="write loadtest.json and cells.csv there")
    how.add_argument("--quiet", action="store_true", help="tell no progress")


def wanted(options: argparse.Namespace) -> Wanted:
    """Return what is to be played."""
    return Wanted(
        sessions=options.sessions,
        lasts_s=options.minutes * 60,
        speed=options.speed,
        begins_h=options.begins_h,
        cell_max_s=options.cell_max,
        gpus_max=options.gpus,
        seed=options.seed,
    )


def manner(options: argparse.Namespace) -> Manner:
    """Return how."""
    return Manner(
        kernel=options.kernel, starting=options.starting, state_bytes=options.state_kb * 1000,
        patience_s=options.patience,
    )  # fmt: skip


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) < 12 and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return read


def _number(least: float, most: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least:g} to {most:g}")
        return value

    return read
