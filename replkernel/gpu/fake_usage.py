"""How much lies on pretended GPUs, for the agent that offers them and whoever looks from outside.

Each process has a file a GPU with a number of bytes. Law: what a dead process left counts for nothing;
nobody's work depends on these files.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from replkernel.hosts.places import data_place

PREFIX = "GPU-fake-"
"""How the UUIDs of pretended GPUs begin."""
MEMORY_BYTES = 16 * 2**30
FILES_MAX = 1000
TEXT_MAX = 24


def _folder(gpu: str, env: Mapping[str, str]) -> Path:
    return Path(data_place(env), "fake-gpus", gpu.replace(os.sep, "_"))


def write_usage(gpu: str, count: int, env: Mapping[str, str]) -> None:
    """Say how many bytes of this process lie on a GPU."""
    path = _folder(gpu, env) / str(os.getpid())
    with contextlib.suppress(OSError):
        if not count:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = path.with_suffix(".new")
        fresh.write_text(str(count))
        fresh.replace(path)


def read_usage(gpu: str, env: Mapping[str, str]) -> dict[int, int]:
    """Return the bytes that lie on a GPU, by the processes that live."""
    found: dict[int, int] = {}
    try:
        paths = sorted(_folder(gpu, env).iterdir())[:FILES_MAX]
    except OSError:
        return found
    for path in paths:
        if not path.name.isdecimal() or not Path("/proc", path.name).exists():
            continue
        with contextlib.suppress(OSError, ValueError):
            found[int(path.name)] = int(path.read_text()[:TEXT_MAX])
    return found
