"""`replkernel job`: jobs are submitted, shown and stopped through the scheduler.

Law: it only asks; what the scheduler refuses is told in its own words. A command is sealed here, by the key
that its user's agents know, so that nobody else can have them run one.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import secrets
import shutil
import sys
import time
import urllib.parse
from typing import TypeVar

import msgspec

from replkernel.agent.io import lookup
from replkernel.agent.io.start import outside_jobs
from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.hosts.places import own_host
from replkernel.jobs.answers import JobAnswer, JobsAnswer, LogAnswer
from replkernel.jobs.words import is_job_name, key_of, seal_of
from replkernel.leasing.asking import Bounds, NoAnswer, ask, explained
from replkernel.leasing.finding import URL, find_scheduler, token_for
from replkernel.leasing.starting import SchedulerNotStarted, find_or_start

BOUNDS = Bounds(10.0, 30.0, 16 * 1024 * 1024)
FOLLOW_S = 1.0
NAME_CHARS = 40
Shape = TypeVar("Shape")


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
            _asked(_path(options.job), "DELETE")
            print(f"Job {options.job} is being stopped: it saves first.")
        case "hold":
            _asked(_path(options.job, "/hold"), "POST")
            print(f"Job {options.job} saves, then waits until `replkernel job resume {options.job}`.")
        case "resume":
            _asked(_path(options.job, "/hold"), "DELETE")
            print(f"Job {options.job} goes on when there are GPUs.")
    return 0


def _run(options: argparse.Namespace) -> int:
    command = tuple(options.command[1:] if options.command[:1] == ["--"] else options.command)
    if not command:
        raise ReplkernelError("Name the command behind --, as in `replkernel job run -- python train.py`.")
    program = shutil.which(command[0])
    if program is None:
        raise ReplkernelError(f"There is no program {command[0]!r} here: name one that can be run.")
    command = (os.path.abspath(program), *command[1:])
    directory = os.getcwd()
    name = f"{_plain(options.name or _title(command))}-{secrets.token_hex(3)}"
    if not is_job_name(name):
        raise ReplkernelError(f"{options.name!r} names no job: begin with a letter or digit.")
    _serve()
    body = {
        "job": name,
        "command": command,
        "directory": directory,
        "seal": seal_of(key_of(os.environ), name, command, directory),
        "gpus": options.gpus,
        "gpu_model": options.gpu_model,
        "vram_gb": options.vram_gb,
        "epochs": options.epochs,
    }
    _asked("/api/v1/jobs", "POST", msgspec.json.encode(body))
    print(f"Job {name} is submitted. `replkernel job logs -f {name}` shows what it writes.")
    return 0


def _serve() -> None:
    """Have a scheduler, and on one's own machine an agent that runs the job."""
    if os.environ.get(URL, "").strip():
        return
    _have_scheduler()
    hosts = _parsed(_asked("/api/v1/status"), HostsShown).hosts
    if not any(host.gpus for host in hosts):
        lookup.find_or_start(own_host(os.environ), os.environ)


def _have_scheduler() -> str:
    """Return the URL of a scheduler, one of the user's own that is started if there is none."""
    try:
        url, _ = asyncio.run(find_or_start(outside_jobs(os.environ)))
    except SchedulerNotStarted as error:
        raise ReplkernelError(f"There is no scheduler: {error}") from error
    return url


def _title(command: tuple[str, ...]) -> str:
    """Return what a command runs: the first script that it names, else the program."""
    words = [word for word in command[1:] if word.endswith((".py", ".sh"))]
    return os.path.splitext(os.path.basename(words[0] if words else command[0]))[0]


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:NAME_CHARS] or "job"


def _list(*, as_json: bool) -> int:
    told = _asked("/api/v1/jobs")
    if as_json:
        print(told.decode())
        return 0
    jobs = _parsed(told, JobsAnswer).jobs
    if not jobs:
        print("No jobs. `replkernel job run -- python train.py` submits one.")
        return 0
    rows = [("JOB", "STATE", "GPUS", "HOST", "EPOCH", "LOSS", "ENDS IN", "GPU-HOURS")]
    rows += [
        (
            job.job,
            job.state,
            f"{len(job.gpus)} of {','.join(map(str, job.shapes))}",
            job.host or "-",
            _epoch(job),
            "-" if job.loss is None else f"{job.loss:.4g}",
            "-" if job.ends_in_s is None else _duration(job.ends_in_s),
            f"{job.gpu_hours:.2f}",
        )
        for job in jobs
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _show(name: str, *, as_json: bool) -> int:
    told = _asked(_path(name))
    if as_json:
        print(told.decode())
        return 0
    job = _parsed(told, JobAnswer)
    lines = {
        "job": job.job,
        "state": job.state + (f" ({job.said})" if job.said else ""),
        "host": job.host or "-",
        "GPUs": ", ".join(job.gpus) or f"none now; it can run with {','.join(map(str, job.shapes))}",
        "command": " ".join(job.command),
        "directory": job.directory,
        "starts": str(job.starts),
        "epoch": _epoch(job),
        "loss": "-" if job.loss is None else f"{job.loss:.6g}",
        "ends in": "-" if job.ends_in_s is None else f"about {_duration(job.ends_in_s)}",
        "GPU-hours": f"{job.gpu_hours:.3f}",
    }
    for what, said in lines.items():
        print(f"{what:<10} {said}")
    return 0


def _logs(name: str, *, follow: bool) -> int:
    """Print a job's log; one that is followed is begun anew on each host that the job comes to."""
    at: dict[str | None, int] = {}
    while True:
        try:
            host = _parsed(_asked(_path(name)), JobAnswer).host
            piece = _parsed(_asked(_path(name, f"/log?at={at.get(host, 0)}")), LogAnswer)
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


def _asked(path: str, method: str = "GET", body: bytes | None = None) -> bytes:
    url, _ = find_scheduler(os.environ)
    if not url:  # Jobs may run all the same: one that is started hears of them.
        url = _have_scheduler()
    try:
        return ask(url, token_for(url, os.environ), path, BOUNDS, method, body)
    except NoAnswer as error:
        told = error.said if error.code != 401 else ""
        raise ReplkernelError(told or explained(url, os.environ, error)) from error


def _parsed(told: bytes, shape: type[Shape]) -> Shape:
    try:
        return msgspec.json.decode(told, type=shape)
    except UNREADABLE as error:
        raise ReplkernelError(
            "The answer is not understood: install the same replkernel here and where the scheduler runs."
        ) from error
