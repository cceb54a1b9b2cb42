"""What tells one zygote from another, and how one is spawned: light, for the agent spawns the first at once.

Law: a kernel process is only ever forked from a zygote whose interpreter, import-relevant environment and
preloaded packages are the ones it would have had by itself.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Mapping
from typing import NamedTuple

from replkernel.launch.module_command import kernel_command

ZYGOTE_FD = 3
"""The descriptor on which a zygote finds its end of the socket pair."""

HASH_SEED = "1729"
"""The hash seed of all replicas: one value, so that sets iterate alike wherever a cell runs."""

ZYGOTE_IDLE_S = 2.0
"""When nobody has wanted anything of a zygote for so long, it imports the rest."""
DAY_S = 86_400.0

NVIDIA_DRIVER = "/dev/nvidiactl"

_PREFIXES = ("PYTHON", "LD_", "OMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "MALLOC_", "LC_", "MPL", "KMP_")
_NAMES = frozenset({"LANG", "LANGUAGE", "HOME", "VIRTUAL_ENV", "CONDA_PREFIX", "GLIBC_TUNABLES", "TZ"})


_DESCRIPTORS = resource.getrlimit(resource.RLIMIT_NOFILE)
"""The limit that the agent was started with: its own is raised, a kernel's must be what the user has."""


class ZygoteKey(NamedTuple):
    """Kernels with equal keys share a zygote."""

    python: str
    environment: tuple[tuple[str, str], ...]
    preload: tuple[str, ...]


class Spawned(NamedTuple):
    """A zygote that has been started: its process, our end of the socket pair, where it writes its errors."""

    pid: int
    link: socket.socket
    log: str


def import_environment(env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the variables of `env` that decide what importing a package yields, sorted."""
    return tuple(sorted((name, env[name]) for name in env if name in _NAMES or name.startswith(_PREFIXES)))


def zygote_key(python: str, env: Mapping[str, str], preload: tuple[str, ...]) -> ZygoteKey:
    """Return the key of the zygote that kernels of this python, environment and preload set fork from."""
    return ZygoteKey(python, import_environment(env), preload)


def preload_names(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the packages that REPLKERNEL_PRELOAD names (read here as well, before settings are imported)."""
    return tuple(part.strip() for part in env.get("REPLKERNEL_PRELOAD", "").split(",") if part.strip())


def zygote_idle_s(env: Mapping[str, str]) -> float:
    """Return what REPLKERNEL_ZYGOTE_IDLE_S says, or the default where that is nothing that routers take."""
    with contextlib.suppress(ValueError):
        if 0 <= (idle_s := float(env.get("REPLKERNEL_ZYGOTE_IDLE_S", "").strip() or ZYGOTE_IDLE_S)) <= DAY_S:
            return idle_s
    return ZYGOTE_IDLE_S


def interpreter_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a kernel's interpreter: no parent poller, a fixed hash seed, CUDA's door."""
    environment = {name: value for name, value in env.items() if name != "JPY_PARENT_PID"}
    environment.setdefault("PYTHONHASHSEED", HASH_SEED)
    return _with_cuda_door(environment)


def _with_cuda_door(env: dict[str, str]) -> dict[str, str]:
    """Have an interpreter's processes stopped before CUDA starts, on a machine that has NVIDIA's driver."""
    wanted = env.get("REPLKERNEL_CUDA_DOOR", "").strip() or "auto"
    if wanted == "off" or (wanted == "auto" and not os.path.exists(NVIDIA_DRIVER)):
        return env
    from replkernel.gpu.door_library import with_door

    return with_door(env)


def spawn_zygote(python: str, env: Mapping[str, str], preload: tuple[str, ...], log: str) -> Spawned:
    """Start a zygote and return at once, long before it is ready.

    Raises OSError when `python` cannot be executed.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 2, 1),
            (os.POSIX_SPAWN_DUP2, theirs.fileno(), ZYGOTE_FD),
        ]
        command = kernel_command("replkernel.agent.io.zygote", *preload, python=python)
        try:
            pid = os.posix_spawnp(python, command, interpreter_environment(env), file_actions=actions)
        except OSError:
            ours.close()
            raise
    keep_users_limits(pid)
    return Spawned(pid, ours, log)


def keep_users_limits(pid: int) -> None:
    """Give a new interpreter the limits that the agent was started with."""
    with contextlib.suppress(OSError):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, _DESCRIPTORS)
