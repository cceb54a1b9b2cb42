"""The words of `replkernel job`, and its help."""

from __future__ import annotations

import argparse

SHAPES_MAX = HOSTS_MAX = 64
CPUS_MAX = 1024
MEMORY_GIB = 4.0
"""What a job on cores may take where nobody says."""
HOURS_MAX = 100_000.0
VERBS = "run | list | show | logs | stop | hold | resume"
ABOUT = """\
A job is a command that runs on GPUs which no notebook needs at the moment. When a cell wants them, the job is
asked to save, leaves within seconds, and goes on from there when there are GPUs again.
With --cpus it needs no GPU. It runs beside notebooks at the lowest priority, within the memory that it names.

Your program must do two things:
  * load its checkpoint when it starts, if there is one
  * save it when it is asked to: `job.should_checkpoint()` is true, or SIGUSR1 comes

    from replkernel import job

    if job.checkpoint_path.exists():
        state = torch.load(job.checkpoint_path)
    for epoch in range(state["epoch"], 90):
        ...
        job.progress(epoch + 1, loss)           # shown by `replkernel job list`
        if job.should_checkpoint():
            save(state, job.checkpoint_path)
"""
EXAMPLES = """\
examples:
  replkernel job run -- python train.py                     on one GPU
  replkernel job run --gpus 1,2,4 --name resnet -- torchrun train.py
                                                            on as many of 1, 2 or 4 as are free
  replkernel job run --gpus 8,16 --hosts 2 -- torchrun train.py
                                                            on two hosts at once, half of them on each
  replkernel job run --epochs 90 -- python train.py --gpus {gpus}
                                                            {gpus} becomes the number of this start
  replkernel job run --cpus 4 --memory 16 -- python prepare.py
                                                            on 4 cores and 16 GiB of a host, without GPUs
  replkernel job list                                       your jobs, and the last that are over
  replkernel job logs -f resnet-3f9a2c                      what it writes, until it is over
  replkernel job hold resnet-3f9a2c                         save it, keep it waiting until `resume`
"""


def add_verb(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `job` with its own words."""
    form = argparse.RawDescriptionHelpFormatter
    job = verbs.add_parser(
        "job",
        help="run training on GPUs that notebooks leave idle",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=form,
    )
    acts = job.add_subparsers(dest="act", metavar=VERBS, required=True)
    run = acts.add_parser(
        "run", help="submit a job", description=ABOUT, epilog=EXAMPLES, formatter_class=form
    )
    add_options(run)
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND …", help="what it runs")
    listed = acts.add_parser("list", help="list your jobs")
    listed.add_argument("--json", action="store_true", help="write JSON, for programs")
    for verb, what in (
        ("show", "tell all about a job"),
        ("logs", "print what a job has written on the host where it ran last"),
        ("stop", "have a job saved and ended"),
        ("hold", "have a job saved, and wait without GPUs"),
        ("resume", "let a job that is on hold go on"),
    ):
        act = acts.add_parser(verb, help=what, description=f"{what[:1].upper()}{what[1:]}.")
        act.add_argument("job", metavar="JOB", help="as `replkernel job list` shows it")
        if verb == "logs":
            act.add_argument("-f", "--follow", action="store_true", help="go on until the job is over")
        if verb == "show":
            act.add_argument("--json", action="store_true", help="write JSON, for programs")


def add_options(run: argparse.ArgumentParser) -> None:
    """Add what can be said of a job that is submitted, here and at the top of a cell."""
    run.add_argument("--gpus", type=_shapes, metavar="N,…", help="the numbers of GPUs it can run with (1)")
    run.add_argument(
        "--hosts",
        type=_hosts,
        default=1,
        metavar="N",
        help="have these GPUs on so many hosts at once, as many on each (1)",
    )
    run.add_argument(
        "--cpus", type=_cpus, default=0, metavar="N", help="run on so many cores of a host, without GPUs"
    )
    run.add_argument(
        "--memory",
        type=_memory,
        metavar="GiB",
        help=f"with --cpus: what it may take; with more it is ended ({MEMORY_GIB:g})",
    )
    run.add_argument(
        "--hours", type=_hours, metavar="N", help="with --cpus: how long it may take, for the queue (1)"
    )
    run.add_argument("--name", default="", help="what it is called (default: the program's name)")
    run.add_argument("--epochs", type=float, metavar="N", help="how many it has, for a guess of its end")
    run.add_argument("--gpu-model", default="", metavar="MODEL", help="only GPUs of this model, as `H100`")
    run.add_argument("--vram-gb", type=float, default=0.0, metavar="GB", help="each with so much memory")


def _shapes(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if all(word.isascii() and word.isdecimal() and len(word) < 4 for word in words):
        found = sorted({int(word) for word in words})
        if found[0] >= 1 and found[-1] <= SHAPES_MAX:
            return tuple(found)
    raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers from 1 to {SHAPES_MAX}, as 1,2,4 is")


def _hosts(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 3 and 1 <= int(text) <= HOSTS_MAX:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no whole number of hosts from 1 to {HOSTS_MAX}")


def _cpus(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 5 and 1 <= int(text) <= CPUS_MAX:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no whole number of cores from 1 to {CPUS_MAX}")


def _memory(text: str) -> float:
    from replkernel.leasing.request import memory_gib  # Other commands start without it.

    try:
        found = memory_gib(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} {error}") from None
    if not found:
        raise argparse.ArgumentTypeError("a job needs memory: leave --memory out, or name some")
    return found


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    if not 0.0 < hours <= HOURS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of hours, as 0.5 or 12 are")
    return hours
