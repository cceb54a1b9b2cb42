"""`replkernel job`: jobs are submitted, shown and stopped through the scheduler.

Law: it only asks; what the scheduler refuses is told in its own words.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
import urllib.parse

import msgspec

from replkernel.agent.io import lookup
from replkernel.cli.job_verbs import MEMORY_GIB
from replkernel.errors import AgentUnavailable, ReplkernelError
from replkernel.hosts.places import own_host
from replkernel.jobs.answers import JobAnswer, JobsAnswer, LogAnswer
from replkernel.jobs.submitting import Wanted, asked, have_scheduler, new_name, parsed, submit
from replkernel.leasing.finding import URL

FOLLOW_S = 1.0
CHANGES_SHOWN = 10


class HostShown(msgspec.Struct):
    """A host of the scheduler's, with its GPUs."""

    gpus: list[object]


class HostsShown(msgspec.Struct):
    """All of them."""

    hosts: list[HostShown]


def run_job(options: argparse.Namespace) -> int:
    """Do what `replkernel job` was asked; return the exit code."""
    match options.act:
        case "run":
            return _run(options)
        case "list":
            return _list(as_json=options.json)
        case "show":
            return _show(options.job, as_json=options.json)
        case "logs":
            return _logs(options.job, follow=options.follow)
        case "stop":
            asked(_path(options.job), "DELETE")
            print(f"Job {options.job} is being stopped: it saves first.")
        case "hold":
            asked(_path(options.job, "/hold"), "POST")
            print(f"Job {options.job} saves, then waits until `replkernel job resume {options.job}`.")
        case "resume":
            asked(_path(options.job, "/hold"), "DELETE")
            print(f"Job {options.job} goes on when there is room.")
    return 0


def _run(options: argparse.Namespace) -> int:
    command = tuple(options.command[1:] if options.command[:1] == ["--"] else options.command)
    if not command:
        raise ReplkernelError("Name the command behind --, as in `replkernel job run -- python train.py`.")
    program = shutil.which(command[0])
    if program is None:
        raise ReplkernelError(f"There is no program {command[0]!r} here: name one that can be run.")
    command = (os.path.abspath(program), *command[1:])
    wanted = wanted_by(options)
    name = new_name(wanted, _title(command))
    _serve(on_cores=bool(wanted.cpus))
    submit(name, command, _here(), wanted, os.environ)
    print(f"Job {name} is submitted. `replkernel job logs -f {name}` shows what it writes.")
    return 0


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise ReplkernelError(
            "The directory in which you are is gone: change into one that is there, then run it again."
        ) from None


def wanted_by(options: argparse.Namespace) -> Wanted:
    """Return what the options of `replkernel job run`, or of `%%job`, say; raises ReplkernelError."""
    of_gpus = options.gpus is not None or options.gpu_model or options.vram_gb
    of_cores = options.memory is not None or options.hours is not None
    if options.cpus and of_gpus:
        raise ReplkernelError("A job runs on GPUs or on cores alone: name --gpus or --cpus, not both.")
    if of_cores and not options.cpus:
        raise ReplkernelError("--memory and --hours go with --cpus, for jobs that need no GPU.")
    hosts = options.hosts
    if options.cpus and hosts > 1:
        raise ReplkernelError("--hosts goes with --gpus: a job without GPUs runs on one host.")
    gpus = options.gpus or (hosts,)
    if any(count % hosts for count in gpus):
        raise ReplkernelError(
            f"A job on {hosts} hosts has as many GPUs on each: name multiples of {hosts} with --gpus."
        )
    plain = Wanted(gpus, options.name, options.epochs, options.gpu_model, options.vram_gb, hosts=hosts)
    if not options.cpus:
        return plain
    memory_gb = MEMORY_GIB if options.memory is None else options.memory
    on_cores = {"cpus": options.cpus, "memory_gb": memory_gb, "hours": options.hours or 0.0}
    return msgspec.structs.replace(plain, **on_cores)


def _serve(*, on_cores: bool) -> None:
    """Have a scheduler, and on one's own machine an agent that runs the job."""
    if os.environ.get(URL, "").strip():
        return
    have_scheduler(os.environ)
    hosts = parsed(asked("/api/v1/status"), HostsShown).hosts
    if on_cores or not any(host.gpus for host in hosts):  # Hosts of others may be for their jobs alone.
        try:
            lookup.find_or_start(own_host(os.environ), os.environ)
        except AgentUnavailable:
            if not (on_cores and hosts):
                raise


def _title(command: tuple[str, ...]) -> str:
    """Return what a command runs: the first script that it names, else the program."""
    words = [word for word in command[1:] if word.endswith((".py", ".sh"))]
    return os.path.splitext(os.path.basename(words[0] if words else command[0]))[0]


def _list(*, as_json: bool) -> int:
    told = asked("/api/v1/jobs")
    if as_json:
        print(told.decode())
        return 0
    jobs = parsed(told, JobsAnswer).jobs
    if not jobs:
        print("No jobs. `replkernel job run -- python train.py` submits one.")
        return 0
    rows = [("JOB", "STATE", "RUNS ON", "HOST", "EPOCH", "LOSS", "ENDS IN", "HOURS")]
    rows += [
        (
            job.job,
            job.state,
            _size(job),
            ",".join(job.on_hosts) or job.host or "-",
            _epoch(job),
            "-" if job.loss is None else f"{job.loss:.4g}",
            "-" if job.ends_in_s is None else _duration(job.ends_in_s),
            f"{job.cpu_hours:.2f} CPU" if job.cpus else f"{job.gpu_hours:.2f} GPU",
        )
        for job in jobs
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _size(job: JobAnswer) -> str:
    if job.cpus:
        return _cores(job.cpus)
    return f"{len(job.gpus)} of {','.join(map(str, job.shapes))} GPUs"


def _cores(count: int) -> str:
    return f"{count} core{'' if count == 1 else 's'}"


def _show(name: str, *, as_json: bool) -> int:
    told = asked(_path(name))
    if as_json:
        print(told.decode())
        return 0
    job = parsed(told, JobAnswer)
    lines = {
        "job": job.job,
        "state": job.state + (f" ({job.said})" if job.said else ""),
        "host": ", ".join(job.on_hosts) or job.host or "-",
        **_has(job),
        "command": " ".join(job.command),
        "directory": job.directory,
        "starts": str(job.starts),
        "epoch": _epoch(job),
        "loss": "-" if job.loss is None else f"{job.loss:.6g}",
        "ends in": _ends_in(job),
        "CPU-hours" if job.cpus else "GPU-hours": f"{job.cpu_hours if job.cpus else job.gpu_hours:.3f}",
    }
    for what, said in lines.items():
        print(f"{what:<10} {said}")
    for change in job.reshapes[-CHANGES_SHOWN:]:
        had = _cores(change.gpus) if job.cpus else f"{change.gpus} GPU{'' if change.gpus == 1 else 's'}"
        had = had if change.gpus else "none"
        print(f"{'':<10} {_duration(change.ago_s)} ago: {had}, because {change.why}")
    return 0


def _has(job: JobAnswer) -> dict[str, str]:
    if job.cpus:
        return {"cores": str(job.cpus), "memory": f"{job.memory_gb:g} GiB at most"}
    return {"GPUs": ", ".join(job.gpus) or f"none now; it can run with {','.join(map(str, job.shapes))}"}


def _ends_in(job: JobAnswer) -> str:
    """Write `about 40 min on 2 GPUs, 25 min on 4`."""
    if not job.ends_in:
        return "-" if job.ends_in_s is None else f"about {_duration(job.ends_in_s)}"
    first, *others = job.ends_in
    parts = [f"{_duration(first.seconds)} on {first.gpus} GPU{'' if first.gpus == 1 else 's'}"]
    return "about " + ", ".join([*parts, *(f"{_duration(each.seconds)} on {each.gpus}" for each in others)])


def _logs(name: str, *, follow: bool) -> int:
    """Print a job's log; one that is followed is begun anew on each host that the job comes to."""
    at: dict[str | None, int] = {}
    while True:
        try:
            host = parsed(asked(_path(name)), JobAnswer).host
            piece = parsed(asked(_path(name, f"/log?at={at.get(host, 0)}")), LogAnswer)
        except ReplkernelError:
            if not follow or not at:
                raise
            time.sleep(FOLLOW_S)  # Its agent, or the scheduler, is on its way back.
            continue
        sys.stdout.write(piece.text)
        sys.stdout.flush()
        went_on = piece.next > max(at.get(host, 0), piece.at)
        at[host] = piece.next
        if went_on:
            continue
        if piece.over or not follow:
            return 0
        time.sleep(FOLLOW_S)


def _epoch(job: JobAnswer) -> str:
    if job.epoch is None:
        return "-"
    return f"{job.epoch:g}" + ("" if job.epochs is None else f" of {job.epochs:g}")


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _path(name: str, rest: str = "") -> str:
    if not name:
        raise ReplkernelError("Name the job as `replkernel job list` shows it.")
    return f"/api/v1/jobs/{urllib.parse.quote(name, safe='')}{rest}"
