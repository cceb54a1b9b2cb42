"""`replkernel capacity`: the fewest hosts with which users wait no longer than you want.

Law: every number of hosts that it tells was played. It doubles until one will do, and then halves the gap; so
it trusts that more hosts do not make users wait longer, which is nearly always so, and says what it saw.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from replkernel_scheduler.sim import forms
from replkernel_scheduler.sim.command_end import exit_code
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.options import HOSTS_MAX
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.playing import any_way_named, play
from replkernel_scheduler.sim.progress import Progress
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.summary import RunSummary
from replkernel_scheduler.sim.trace_file import TraceFile

UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
DESCRIPTION = """\
Find the fewest hosts with which 95 of 100 cells (until their code runs) and jobs (until they have GPUs) wait
no longer than you want, by playing a trace with one policy on more and on fewer hosts.
"""
EPILOG = """\
Example: replkernel capacity cells.csv --wait-p95 2s --policy notebook --gpus 8
"""


class Tried(NamedTuple):
    """A number of hosts that was played; `wait_s` is the 95th percentile, None if somebody was not served."""

    hosts: int
    wait_s: float | None
    gpu_hours: float


def fewest(enough: Callable[[int], bool], most: int) -> int | None:
    """Return the fewest hosts from 1 to `most` that are enough; None if even `most` are not."""
    low, high = 0, 1
    while not enough(high):
        if high == most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_args(argv)
    return exit_code(lambda: _capacity(options))


def _capacity(options: argparse.Namespace) -> int:
    progress = Progress(sys.stderr, time.monotonic, quiet=options.quiet)
    files = [TraceFile(path, skip_bad=options.skip_bad) for path in options.traces]
    tried: dict[int, Tried] = {}
    with Spool(progress.reading(forms.read_all(files))) as spool:
        if not len(spool):
            raise SimulationError(
                f"{', '.join(map(str, options.traces))}: there is nothing in it that has work."
            )

        def enough(hosts: int) -> bool:
            plan = Plan(hosts=hosts, gpus_per_host=options.gpus, seed=options.seed)
            watch = progress.playing(f"{hosts} hosts", len(spool))
            run = play(spool, any_way_named(options.policy), plan, watch=watch)
            tried[hosts] = Tried(hosts, _wait_s(run), run.cluster.provisioned_gpu_hours)
            wait_s = tried[hosts].wait_s
            return wait_s is not None and wait_s <= options.wait_p95

        found = fewest(enough, options.hosts_max)
    progress.clear()
    print(f"{options.policy}, hosts of {options.gpus} GPUs:")
    for hosts in sorted(tried):
        wait_s = tried[hosts].wait_s
        told = "some are never served" if wait_s is None else f"95 of 100 wait up to {wait_s:,.2f} s"
        print(f"  {hosts:>5} hosts: {told}; {tried[hosts].gpu_hours:,.0f} GPU-hours")
    if found is None:
        print(f"{options.hosts_max} hosts are not enough: allow more (--hosts-max), or a longer wait.")
        return 1
    print(f"{found} hosts are the fewest with which 95 of 100 wait {options.wait_p95:g} s or less.")
    return 0


def _wait_s(run: RunSummary) -> float | None:
    """Return the longer p95 of cells and jobs; None where some were not served."""
    if any(run.not_served.values()):
        return None
    spreads = [spread for spread in (run.cells.delay_s, run.jobs.wait_s) if spread is not None]
    return max([spread.p95 for spread in spreads], default=0.0)


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "replkernel capacity", description=DESCRIPTION, epilog=EPILOG, formatter_class=form
    )
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE", help="a file, as of simulate")
    parser.add_argument(
        "--wait-p95", type=_duration, required=True, metavar="TIME", help="such as 500ms, 2s, 5m, 1h"
    )
    parser.add_argument("--policy", default="notebook", metavar="SET", help="as of simulate (notebook)")
    parser.add_argument("--gpus", type=_whole(64), default=8, metavar="G", help="of a host (default: 8)")
    parser.add_argument(
        "--hosts-max", type=_whole(HOSTS_MAX), default=1024, metavar="N", help="try no more (1024)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of all dice (default: 0)")
    parser.add_argument("--skip-bad", action="store_true", help="leave out rows that cannot be")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    return parser


def _duration(text: str) -> float:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no time, such as 500ms, 2s, 5m or 1h")
    return float(found[1]) * UNITS_S[found[2]]


def _whole(most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {most}")
        return int(text)

    return read


if __name__ == "__main__":
    raise SystemExit(main())
