"""Jobs asked of the scheduler: one is submitted with its seal, and what is known of them is read.

Law: what the scheduler refuses is told in its own words. A command is sealed here, by the key that its user's
agents know, so that nobody else can have them run one.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.jobs.processes import meets_by_itself
from replkernel.jobs.words import is_job_name, key_of, seal_of
from replkernel.leasing.asking import Bounds, NoAnswer, ask, explained
from replkernel.leasing.finding import find_scheduler, token_for
from replkernel.leasing.starting import SchedulerNotStarted, find_or_start

BOUNDS = Bounds(10.0, 30.0, 16 * 1024 * 1024)
NAME_CHARS = 40
HOUR_S = 3600.0
Shape = TypeVar("Shape")


class Unanswered(ReplkernelError):
    """The scheduler has not answered; `refused`: it will not do what was asked, and knows so."""

    def __init__(self, told: str, *, refused: bool) -> None:
        super().__init__(told)
        self.refused = refused


class MaybeSubmitted(ReplkernelError):
    """A job may have been taken in: the answer got lost."""


class Wanted(msgspec.Struct, frozen=True):
    """What a job is to run with: `gpus` are the numbers of GPUs that it can use, one of them at a time.

    `cpus`: it wants no GPU, but so many cores of a host with `memory_gb` GiB; `hours`: so long it may take.
    `hosts`: the GPUs are on so many hosts, as many on each.
    """

    gpus: tuple[int, ...] = (1,)
    name: str = ""
    epochs: float | None = None
    gpu_model: str = ""
    vram_gb: float = 0.0
    cpus: int = 0
    memory_gb: float = 0.0
    hours: float = 0.0
    hosts: int = 1


def new_name(wanted: Wanted, title: str) -> str:
    """Return a name that no other job has: the wanted one, or else `title`, with something behind it."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", wanted.name or title).strip("-._")[:NAME_CHARS] or "job"
    name = f"{plain}-{secrets.token_hex(3)}"
    if not is_job_name(name):
        raise ReplkernelError(f"{wanted.name!r} names no job: begin with a letter or digit.")
    return name


def submit(
    name: str, command: tuple[str, ...], directory: str, wanted: Wanted, env: Mapping[str, str]
) -> None:
    """Submit a job; raises ReplkernelError where it is not taken in, MaybeSubmitted where nobody knows."""
    word = meets_by_itself(command) if wanted.hosts > 1 else ""
    if word:
        raise ReplkernelError(f"Leave {word} out: with --hosts torchrun is told where its hosts meet.")
    body: dict[str, object] = {
        "job": name,
        "command": command,
        "directory": directory,
        "seal": seal_of(key_of(env), name, command, directory),
        "epochs": wanted.epochs,
    }
    if wanted.cpus:
        body |= {"cpus": wanted.cpus, "memory_gb": wanted.memory_gb}
        body |= {"expected_s": wanted.hours * HOUR_S} if wanted.hours else {}
    else:
        body |= {"gpus": wanted.gpus, "gpu_model": wanted.gpu_model, "vram_gb": wanted.vram_gb}
    if wanted.hosts > 1:
        body["hosts"] = wanted.hosts
    try:
        asked("/api/v1/jobs", "POST", msgspec.json.encode(body), env)
    except Unanswered as error:
        if error.refused:
            raise
        raise MaybeSubmitted(
            f"{error} Job {name} may have been submitted: `replkernel job list` tells."
        ) from error


def have_scheduler(env: Mapping[str, str]) -> str:
    """Return the URL of a scheduler, one of the user's own that is started if there is none.

    Not to be called where an event loop runs.
    """
    try:
        url, _ = asyncio.run(find_or_start(env))
    except SchedulerNotStarted as error:
        raise ReplkernelError(f"There is no scheduler: {error}") from error
    return url


def asked(
    path: str, method: str = "GET", body: bytes | None = None, env: Mapping[str, str] = os.environ
) -> bytes:
    """Return what the scheduler answers; raises ReplkernelError."""
    url, _ = find_scheduler(env)
    if not url:  # Jobs may run all the same: one that is started hears of them.
        url = have_scheduler(env)
    try:
        return ask(url, token_for(url, env), path, BOUNDS, method, body)
    except NoAnswer as error:
        told = error.said if error.code != 401 else ""
        refused = not error.sent or 400 <= error.code < 500
        raise Unanswered(told or explained(url, env, error), refused=refused) from error


def parsed(told: bytes, shape: type[Shape]) -> Shape:
    """Return an answer; raises ReplkernelError for one of another version."""
    try:
        return msgspec.json.decode(told, type=shape)
    except UNREADABLE as error:
        raise ReplkernelError(
            "The answer is not understood: install the same replkernel here and where the scheduler runs."
        ) from error
