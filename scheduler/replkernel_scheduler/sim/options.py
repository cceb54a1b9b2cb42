"""The options of `replkernel simulate`, and the help that teaches them.

Law: a value that makes no sense is refused here, with what would make sense.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from replkernel_scheduler.sim import forms
from replkernel_scheduler.sim.cases import PLAN_KEYS, Sweep
from replkernel_scheduler.sim.cluster import ACROSS_MAX, Cluster
from replkernel_scheduler.sim.cost_files import costs_from, costs_of
from replkernel_scheduler.sim.costs import Costs
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.faults import FaultModel
from replkernel_scheduler.sim.loaders.own_csv import checked_columns
from replkernel_scheduler.sim.mix import Mix, mix_named
from replkernel_scheduler.sim.nodes import GPUS_MAX, HOSTS_MAX
from replkernel_scheduler.sim.parquet_rows import can_be_written
from replkernel_scheduler.sim.plan import Plan, Prices
from replkernel_scheduler.sim.window import Window
from replkernel_scheduler.sim.workers import Source

DEFAULT_POLICIES = ("notebook", "reservation", "fcfs-batch", "large-pool")
SWEPT_MAX = 100
UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}

DESCRIPTION = """\
Play recorded work on the scheduler's core, with the policies of your choice, and show what users would have
waited and what it would have cost. It is the core that runs live; only its clock jumps from event to event.
"""

EPILOG = """\
Traces, packed (.gz .xz .zst) or not; the form is found by itself:
  swf            Parallel Workloads Archive; a processor counts as a GPU
  helios         SenseTime Helios, cluster_log.csv or its shorter forms
  philly-log     Microsoft Philly, cluster_job_log (JSON); philly-table, philly-pollux: its table forms
  alibaba-pods   Alibaba 2023, with parts of GPUs and what pods want of their hosts
  adobe-june     cells of Adobe's research cluster, June 2021
  journal        a live scheduler's own (a file of SQLite): what really happened, then under other policies
  csv            your own: session,start_s,duration_s,num_gpu  or  job,arrival_s,duration_s,gpus

Policies are the installed sets, each with other policies in the place of its own if you like:
  notebook       replicated kernels, GPUs cell by cell      reservation  GPUs for whole sessions
  fcfs-batch     a process for each cell, in turn           large-pool   the same, from pre-warmed processes
  harvest        as notebook; jobs (a second trace) are reshaped into GPUs that idle notebooks leave
  harvest,jobs=none            the same without the jobs: what do cells wait then?
  easy-batch     jobs as a batch system serves them, EASY backfilling; a job takes what the trace says
  recorded       what really happened (a journal says it)
  oracle         the fewest GPUs at each moment; nobody waits, nothing costs time
  notebook,scaling=buffered    hosts come and go; also placement= limit= executor= order= migration= backfill=

Jobs that share processors (hosts of CORES; waits, slowdowns, interactive jobs apart):
  sq,m=4                       one queue, up to 4 processes a core (m=1: nobody shares)
  mq,r=2,mi=4,mb=1             2 percent of the hosts for interactive jobs, 4 a core; 1 on the others
  sq,m=4,discipline=fcfs       nobody passes the first of the queue (else: easy, backfilling)

Jobs on one pool of GPUs that may be stopped for shorter ones:
  sjf, srtf                    nobody is stopped; a shorter newcomer stops others at once
  periodic,every=60            all jobs are looked at each 60 s, and between nobody starts
  pool,preempt=NAME            with a policy of your own, which may rank jobs at each interval (every=60)
  lazer                        as srtf, after a deferral that is learned (pip install 'replkernel[sim]')

Training jobs whose GPUs change while they run, each on one host (column seconds_with of csv, or a guess):
  sidecar                      a newcomer gets GPUs of one that runs; idle GPUs make jobs grow
  termination, never-reshape   jobs grow by starting anew; GPU counts drawn once
  sidecar,efficiency=0.8,gain=any,costs=termination     as guessed; grow even at a loss (as printed)
  elastic,reshape=NAME         with a policy of your own

Example: would 30 hosts of 8 GPUs do, and what would elastic hosts save? Try it with a trace of two sessions:
  printf 'session,start_s,duration_s,num_gpu\\na,0,600,4\\nb,60,300,8\\na,900,120,4\\n' > cells.csv
  replkernel simulate cells.csv --policy notebook --policy reservation --hosts 2x8 --out build/sim

Without the first 10 minutes, when the cluster was still empty, and by the GPUs that cells want:
  replkernel simulate cells.csv --policy notebook --warmup 10m --by gpus

How many hosts, and with which limit? Each value with each:
  replkernel simulate cells.csv --policy notebook --sweep hosts=10,20,30 --sweep limit=static,demand-busy

It writes DIR/report.html (plots), DIR/summary.json (all figures), and DIR/<policy>.csv and .parquet (a row
for each cell or job), each run's as soon as it is over: if you end it, --resume plays the others. The
same traces, options and seed give the same bytes.
"""


def build_parser() -> argparse.ArgumentParser:
    """Build the parser."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "replkernel simulate", description=DESCRIPTION, epilog=EPILOG, formatter_class=form
    )
    _add_cluster(parser)
    _add_window(parser)
    _add_shown(parser)
    _add_chances(parser)
    return parser


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is played, with which policies, on which hosts."""
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE", help="a file; several are merged")
    parser.add_argument(
        "--policy",
        action="append",
        metavar="SET[,KIND=NAME]",
        help=f"play it with this set; give it again for more (default: {', '.join(DEFAULT_POLICIES)})",
    )
    parser.add_argument("--hosts", type=_hosts, metavar="NxG", help="N hosts of G GPUs (default: 30x8)")
    parser.add_argument(
        "--nodes",
        type=Path,
        metavar="FILE",
        help="the hosts, in the place of --hosts: a CSV file with gpus (and count, gpu_model, gpu_memory_gb, "
        "cpus, memory_gb, gpu_busy_w, gpu_idle_w), or Alibaba's list",
    )
    parser.add_argument(
        "--speeds",
        metavar="TABLE",
        help="how fast models of GPUs are, with --nodes: a CSV file with model,speed (and type); gavel; sia",
    )
    parser.add_argument(
        "--across-hosts",
        type=_across,
        default=1.0,
        metavar="X",
        help="jobs on several hosts (sq, mq) take X times as long (default: 1)",
    )
    parser.add_argument(
        "--hosts-max",
        type=read_at_least(1),
        metavar="N",
        help="most hosts with scaling=buffered (default: as --hosts)",
    )
    parser.add_argument(
        "--seed", type=read_at_least(0), default=0, metavar="N", help="seed of all dice (default: 0)"
    )


def _add_window(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where it is written, and what of the traces is read."""
    parser.add_argument("--out", type=Path, metavar="DIR", help="write summary.json and rows of tasks there")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="play only what an earlier command with the same traces and options has not finished in DIR",
    )
    parser.add_argument("--form", choices=tuple(forms.FORMS), help="the traces' form, where it is not found")
    parser.add_argument(
        "--columns",
        type=read_columns,
        default=(),
        metavar="OURS=THEIRS,…",
        help="what columns of a CSV file are called there: "
        "job=pod,arrival_s=created,duration_s=deleted-created,gpus=num_gpu "
        "(- is a difference, # the number of the line)",
    )
    parser.add_argument(
        "--from", type=_time, default=0.0, dest="begin", metavar="TIME", help="leave out what is earlier: 2d"
    )
    parser.add_argument(
        "--until", type=_time, metavar="TIME", help="leave out what comes then or later: 90m, 12h, 7d"
    )
    parser.add_argument(
        "--load", type=_above_zero, default=1.0, metavar="X", help="have it come X times as fast (1.2)"
    )
    parser.add_argument(
        "--warmup",
        type=_time,
        default=0.0,
        metavar="TIME",
        help="play what comes in the first TIME, and do not count it: 12h",
    )
    parser.add_argument("--skip-bad", action="store_true", help="leave out and count rows that cannot be")
    parser.add_argument(
        "--sweep",
        type=_sweep,
        action="append",
        default=[],
        metavar="KEY=A,B,…",
        help=f"play each policy with each of these values: {', '.join(PLAN_KEYS)}, or a policy's own option "
        "(limit=static,demand-busy; m=1,2,4); several are combined, and played side by side",
    )


def _add_shown(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how runs are told apart, played and written down."""
    parser.add_argument(
        "--by",
        action="append",
        default=[],
        metavar="COLUMN",
        help="also tell runs apart by user, gpus, queue or another column of the rows; may be given again",
    )
    parser.add_argument(
        "--jobs",
        type=read_at_least(1),
        metavar="N",
        help="processes side by side (default: with --sweep as many as cores, else 1)",
    )
    parser.add_argument(
        "--rows",
        choices=("csv", "parquet", "both"),
        help="form of the rows of tasks (default: both; csv where pyarrow is not installed)",
    )


def _add_chances(parser: argparse.ArgumentParser) -> None:
    """Add the options that say failures, prices and costs."""
    parser.add_argument(
        "--host-mtbf-days",
        type=_above_zero,
        metavar="D",
        help="a host fails once in D days (default: never)",
    )
    parser.add_argument(
        "--replica-failure", type=_share, default=0.0, metavar="P", help="share of moving replicas that fail"
    )
    parser.add_argument(
        "--host-hour",
        type=_above_zero,
        default=10.0,
        metavar="PRICE",
        help="of a host (default: 10); without it money is shown for notebooks only",
    )
    parser.add_argument(
        "--memory-gb",
        type=_above_zero,
        default=0.0,
        metavar="GB",
        help="of a host, for jobs that share it (default: as much as they want)",
    )
    parser.add_argument(
        "--gpu-mix",
        type=read_mix,
        metavar="MIX",
        help="draw the GPUs of each session from these shares, such as 1=50,4=30,8=20, or 'template' "
        "(NotebookOS's: 0=13.6,1=47.5,4=18.6,8=20.3); default: as the trace says",
    )
    parser.add_argument(
        "--costs", type=Path, metavar="FILE", help="what things cost: a TOML file, [state_read] p50_s=…"
    )
    parser.add_argument(
        "--costs-from",
        type=Path,
        metavar="JOURNAL",
        help="what a live scheduler's journal shows that cells cost beside their runs",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def plan_of(options: argparse.Namespace) -> Plan:
    """Return what the options say of hosts, seed, faults and prices."""
    days = options.host_mtbf_days
    faults = FaultModel(
        host_mtbf_s=None if days is None else days * 86_400.0, replica_failure=options.replica_failure
    )
    cluster = _cluster_of(options)
    return Plan(
        hosts=cluster.hosts,
        gpus_per_host=cluster.gpus_per_host,
        nodes=cluster.nodes,
        speeds=cluster.speeds,
        across_hosts=options.across_hosts,
        memory_gb=options.memory_gb,
        hosts_max=options.hosts_max,
        warmup_s=options.warmup,
        seed=options.seed,
        mix=options.gpu_mix,
        costs=_costs_of(options),
        faults=faults,
        prices=Prices(options.host_hour),
    )


def _cluster_of(options: argparse.Namespace) -> Cluster:
    """Return the hosts; raise SimulationError."""
    if options.nodes is None:
        if options.speeds is not None:
            raise SimulationError("--speeds is for hosts whose models are known: list them with --nodes.")
        return options.hosts or Cluster()
    if options.hosts is not None or options.hosts_max is not None:
        raise SimulationError("--nodes lists all hosts: leave out --hosts and --hosts-max.")
    return Cluster.of_file(options.nodes, speeds=options.speeds or "")


def _costs_of(options: argparse.Namespace) -> Costs:
    if options.costs is not None and options.costs_from is not None:
        raise SimulationError("Costs are of --costs or of --costs-from: leave out one of them.")
    if options.costs is not None:
        return costs_of(options.costs)
    return Costs() if options.costs_from is None else costs_from(options.costs_from)


def source_of(options: argparse.Namespace) -> Source:
    """Return what the options say of the traces."""
    if options.until is not None and options.until <= options.begin:
        raise SimulationError("--until is not after --from: nothing would be left.")
    window = Window(options.begin, options.until, options.load)
    return Source(
        tuple(options.traces), options.form, options.skip_bad, options.gpu_mix, window, options.columns
    )


def row_forms(wanted: str | None) -> tuple[str, ...]:
    """Return the forms of rows; without a word of the user's those that can be written."""
    if wanted is None and not can_be_written():
        return ("csv",)
    return {"csv": ("csv",), "parquet": ("parquet",)}.get(wanted or "both", ("csv", "parquet"))


def _hosts(text: str) -> Cluster:
    try:
        return Cluster.named(text)
    except SimulationError as error:
        raise argparse.ArgumentTypeError(str(error).removesuffix(".")) from error


def read_at_least(low: int) -> Callable[[str], int]:
    """Return who reads a whole number from `low` to a billion."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) >= low):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} on")
        return int(text)

    return read


def read_columns(text: str) -> tuple[tuple[str, str], ...]:
    """Return what columns are called in a file: OURS=THEIRS,…."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    try:
        return checked_columns((ours, theirs) for ours, _, theirs in pairs)
    except SimulationError as error:
        raise argparse.ArgumentTypeError(str(error).removesuffix(".")) from error


def _time(text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]+)?)([smhd])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time from the trace's beginning: 90m, 12h or 7d")
    return float(found[1]) * UNITS_S[found[2]]


def _above_zero(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number between 0 and a million")
    return value


def _across(text: str) -> float:
    value = _above_zero(text)
    if not 1 <= value <= ACROSS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 1 to {ACROSS_MAX}")
    return value


def _sweep(text: str) -> Sweep:
    key, _, given = text.partition("=")
    return read_sweep(key, given.split(","))


def read_sweep(key: str, given: Sequence[str]) -> Sweep:
    """Return the key with its values, each once, as the options of their numbers are read."""
    values = tuple(dict.fromkeys(given))
    if not re.fullmatch("[a-z][a-z-]*", key) or not values or not all(values) or len(values) > SWEPT_MAX:
        text = f"{key}={','.join(given)}" if any(given) else key
        raise argparse.ArgumentTypeError(
            f"{text!r} is not KEY=A,B,…, such as hosts=10,20,30 (up to {SWEPT_MAX} values)"
        )
    for value in values:
        if key in SWEPT:
            SWEPT[key](value)
    return Sweep(key, values)


def _up_to(most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = read_at_least(1)(text)
        if value > most:
            raise argparse.ArgumentTypeError(f"{text!r} is more than {most:,}")
        return value

    return read


def read_mix(text: str) -> Mix:
    """Return a mix of GPUs."""
    mix = mix_named(text)
    if mix is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no mix, such as 1=50,4=30,8=20, or template")
    return mix


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0 to 1")
    return value


SWEPT: dict[str, Callable[[str], object]] = {
    "hosts": _up_to(HOSTS_MAX),
    "hosts-max": read_at_least(1),
    "gpus": _up_to(GPUS_MAX),
    "seed": read_at_least(0),
    "memory-gb": _above_zero,
    "host-hour": _above_zero,
    "host-mtbf-days": _above_zero,
    "replica-failure": _share,
}
"""Who reads the values of the swept numbers, as their options are read."""
