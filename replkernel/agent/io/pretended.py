"""How many GPUs a host pretends to have, also when the agent that was told so has died.

Law: what a person says to an agent holds for that one and for those that take over its kernels, which nobody
starts by hand; without kernels to take over there is nothing to go on with.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from replkernel.agent.io.early import Options
from replkernel.hosts.own_file import read_own, replace_own
from replkernel.jobs.shelf import jobs_are_left

FILE = "fake-gpus"
FILE_BYTES_MAX = 16


def pretended_gpus(directory: Path, options: Options, setting: int) -> int:
    """Return how many an agent offers that begins now: as it is told, else as its predecessor was."""
    if options.fake_gpus is not None:
        replace_own(directory / FILE, str(options.fake_gpus).encode())
        return options.fake_gpus
    if options.stay or not (_kernels_are_left(directory) or jobs_are_left(directory)):
        forget_pretended(directory)
        return setting
    try:
        said = read_own(directory / FILE, FILE_BYTES_MAX).decode("ascii")
    except (OSError, UnicodeDecodeError):
        return setting
    return int(said) if said.isdecimal() else setting


def forget_pretended(directory: Path) -> None:
    """Have the next agent begin with its own arguments: this one leaves nothing behind."""
    with contextlib.suppress(OSError):
        (directory / FILE).unlink()


def _kernels_are_left(directory: Path) -> bool:
    try:
        return any((directory / "kernels").iterdir())
    except OSError:
        return False
