"""The directory of all jobs on a host: what may come into it, what lives in it, what is only kept."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from replkernel.errors import ReplkernelError
from replkernel.jobs.words import (
    ARGUMENTS_MAX,
    COMMAND_BYTES_MAX,
    FINAL,
    WAKE,
    JobPlace,
    check_seal,
    is_job_name,
    key_of,
)
from replkernel.leasing.wire import StartJob


def check_start(wanted: StartJob, host: str, env: Mapping[str, str]) -> None:
    """Raise unless a job may run here."""
    command, size = wanted.command, sum(len(word) for word in wanted.command)
    if not is_job_name(wanted.job) or not command:
        raise ReplkernelError(f"{wanted.job!r} names no job: use letters, digits, '.', '_' and '-'.")
    if len(command) > ARGUMENTS_MAX or size > COMMAND_BYTES_MAX:
        raise ReplkernelError(f"The command of job {wanted.job} is too long: put it into a script.")
    check_seal(key_of(env), wanted.seal, wanted.job, command, wanted.directory)
    if not os.path.isdir(wanted.directory):
        raise ReplkernelError(
            f"Host {host} has no directory {wanted.directory}, so job {wanted.job} cannot run there: "
            "mount it under this path, or submit the job from a directory that all hosts have."
        )


def places_in(root: Path) -> dict[str, JobPlace]:
    """Make the directory of all jobs, with its FIFO, and return what is there; raises OSError."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(OSError):  # Some file systems have none.
        os.mkfifo(root / WAKE, 0o600)
    return {place.name: JobPlace(place) for place in root.iterdir() if place.is_dir()}


def is_live(place: JobPlace) -> bool:
    """Tell whether something of a job runs here, or is to."""
    order, record = place.order(), place.record()
    if order is None:
        return False
    return record.number < order.number or record.state not in FINAL


def jobs_are_left(directory: Path) -> bool:
    """Tell whether an agent that is gone has left jobs that run."""
    try:
        return any(is_live(JobPlace(place)) for place in (directory / "jobs").iterdir() if place.is_dir())
    except OSError:
        return False


def superfluous(left: Mapping[str, JobPlace], most: int) -> list[str]:
    """Return which of the jobs that do not run here are to go: the oldest, but for `most`.

    Those stay whose end the scheduler may not have heard of.
    """
    ages = []
    for name, place in left.items():
        if place.record().state not in ("done", "failed") or place.is_gone():
            with contextlib.suppress(OSError):
                ages.append((place.directory.stat().st_mtime, name))
    return [name for _, name in sorted(ages)[:-most]]
