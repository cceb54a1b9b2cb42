"""`replkernel capacity`: the fewest hosts with which users wait no longer than you want.

Law: every number of hosts that it tells was played. It begins with as many as the work fills on average,
doubles until one will do, and then halves the gap; so it trusts that more hosts do not make users wait
longer, which is nearly always so, and says what it saw, each as soon as it is known.
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
from replkernel_scheduler.sim.nodes import HOSTS_MAX
from replkernel_scheduler.sim.options import read_at_least, read_mix
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.playing import any_way_named, play
from replkernel_scheduler.sim.progress import Progress, Terminal
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.summary import AnyWay, RunSummary
from replkernel_scheduler.sim.table import counted, too_few
from replkernel_scheduler.sim.way import Way
from replkernel_scheduler.sim.workers import Source

UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
DESCRIPTION = """\
Find the fewest hosts with which 95 of 100 cells (until their code runs), sessions (until hosts have room for
them) and jobs (until they have GPUs) wait no longer than you want, by playing a trace with one policy on more
and on fewer hosts. Each number of hosts is told as soon as it was played.
"""
EPILOG = """\
Example: replkernel capacity cells.csv --wait-p95 2s --policy notebook --gpus 8
"""


class Tried(NamedTuple):
    """A number of hosts that was played; `wait_s` is the 95th percentile, None if somebody was not served.

    `at_once`: nobody waited for GPUs or a place, so more hosts help nobody.
    """

    hosts: int
    wait_s: float | None
    gpu_hours: float
    at_once: bool

    def __str__(self) -> str:
        """Return it as a line."""
        told = (
            "some are never served" if self.wait_s is None else f"95 of 100 wait up to {self.wait_s:,.2f} s"
        )
        return (
            f"  {self.hosts:>5} host{'' if self.hosts == 1 else 's'}: {told}; {self.gpu_hours:,.0f} GPU-hours"
        )


class NobodyWaits(Exception):
    """More hosts help nobody, and still it takes longer than is wanted."""


def fewest(enough: Callable[[int], bool], most: int, first: int = 1) -> int | None:
    """Return the fewest hosts from 1 to `most` that are enough, `first` tried first; None if none are."""
    low, high = 0, max(1, min(first, most))
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
    return exit_code(lambda: _capacity(options), "the directory for temporary files (TMPDIR)")


def _capacity(options: argparse.Namespace) -> int:
    progress = Progress(Terminal(sys.stderr, quiet=options.quiet), time.monotonic)
    way = any_way_named(options.policy)
    source = Source(tuple(options.traces), options.form, options.skip_bad, options.gpu_mix)
    with source.spool(options.seed, reading=progress.reading) as spool:
        _check(options, spool, way)
        progress.clear()
        print(f"{options.policy}, hosts of {counted(options.gpus, 'GPU')}:", flush=True)
        tried: dict[int, Tried] = {}

        def enough(hosts: int) -> bool:
            tried[hosts] = made = _play(options, spool, way, hosts, progress)
            progress.clear()
            print(made, flush=True)
            if made.wait_s is None:
                return False
            if made.wait_s > options.wait_p95 and made.at_once:
                raise NobodyWaits
            return bool(made.wait_s <= options.wait_p95)

        try:
            found = fewest(enough, options.hosts_max, _filled(spool, options.gpus))
            why = "allow more (--hosts-max), or a longer wait"
        except NobodyWaits:
            found = None
            why = (
                "nobody waits for GPUs there, and what is left more hosts do not shorten: allow a longer wait"
            )
    if found is None:
        most = max(tried)
        print(f"{counted(most, 'host')} {'is' if most == 1 else 'are'} not enough: {why}.")
        return 1
    few = f"{counted(found, 'host')} {'is' if found == 1 else 'are'}"
    print(f"{few} the fewest with which 95 of 100 wait {options.wait_p95:g} s or less.")
    if found < way.replicas:
        print(f"But {too_few(found, way.replicas)}.")
    return 0


def _check(options: argparse.Namespace, spool: Spool, way: AnyWay) -> None:
    """Raise SimulationError if no number of hosts would do."""
    traces = ", ".join(map(str, options.traces))
    if not len(spool):
        raise SimulationError(f"{traces}: there is nothing in it that has work.")
    if isinstance(way, Way) and spool.widest > options.gpus:
        raise SimulationError(
            f"{traces}: somebody asks for {spool.widest} GPUs on one host, and hosts of "
            f"{counted(options.gpus, 'GPU')} never serve that: give --gpus {spool.widest} or more."
        )


def _filled(spool: Spool, gpus: int) -> int:
    """Return how many hosts of so many GPUs the work keeps busy on average: fewer are full all the time."""
    span_s = max(1.0, spool.last - spool.first)
    return max(1, int(spool.work_gpu_s / span_s / gpus))


def _play(options: argparse.Namespace, spool: Spool, way: AnyWay, hosts: int, progress: Progress) -> Tried:
    plan = Plan(hosts=hosts, gpus_per_host=options.gpus, seed=options.seed)
    watch = progress.playing(counted(hosts, "host"), len(spool))
    run = play(spool, way, plan, watch=watch)
    cells, jobs, places = run.cells, run.jobs, run.place_wait_s
    at_once = cells.immediate in (None, 1.0) and not jobs.waited and (places is None or not places.max)
    return Tried(hosts, _wait_s(run), run.cluster.provisioned_gpu_hours, at_once)


def _wait_s(run: RunSummary) -> float | None:
    """Return the longest p95 of cells, sessions and jobs; None where some were not served."""
    if any(run.not_served.values()):
        return None
    spreads = (run.cells.delay_s, run.place_wait_s, run.jobs.wait_s)
    return max([spread.p95 for spread in spreads if spread is not None], default=0.0)


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
    parser.add_argument(
        "--seed", type=read_at_least(0), default=0, metavar="N", help="seed of all dice (default: 0)"
    )
    parser.add_argument("--form", choices=tuple(forms.FORMS), help="the traces' form, where it is not found")
    parser.add_argument(
        "--gpu-mix", type=read_mix, metavar="MIX", help="draw the GPUs of each session, as simulate does"
    )
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
