"""What the agent does before it imports anything heavy: its arguments, its lock, the first zygote."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Mapping, MutableMapping
from typing import NamedTuple

from replkernel.agent.io.spawning_place import Spawned, ZygoteKey, preload_names, spawn_zygote, zygote_key
from replkernel.agent.io.start import LOCK_HELD, TAKEN, is_host_name
from replkernel.hosts.places import agent_place

LOCK_TRIES = 20
LOCK_PAUSE_S = 0.05

USAGE = "usage: python -m replkernel.agent --name NAME [--fake-gpus N] [--ready-fd FD] [--stay]"


class Options(NamedTuple):
    """The agent's arguments: `ready_fd` is where it says that it listens; with `stay` it never idles out."""

    name: str
    fake_gpus: int | None
    ready_fd: int | None
    stay: bool = False


class First(NamedTuple):
    """The agent's lock (a descriptor held for life), and its first zygote, None if that has no python."""

    lock: int
    zygote: tuple[ZygoteKey, Spawned] | None


def parse(arguments: list[str]) -> Options:
    """Read the arguments; exit with the usage when they do not fit."""
    stay = "--stay" in arguments[-1:]
    if stay:
        arguments = arguments[:-1]
    given = dict(zip(arguments[::2], arguments[1::2], strict=False))
    unknown = set(given) - {"--name", "--fake-gpus", "--ready-fd"}
    numbers = [given[name] for name in ("--fake-gpus", "--ready-fd") if name in given]
    if len(arguments) % 2 or unknown or "--name" not in given or not all(map(str.isdigit, numbers)):
        sys.exit(USAGE)
    ready_fd = int(given["--ready-fd"]) if "--ready-fd" in given else None
    if ready_fd is not None:
        os.set_inheritable(ready_fd, False)
    fake_gpus = int(given["--fake-gpus"]) if "--fake-gpus" in given else None
    return Options(given["--name"], fake_gpus, ready_fd, stay)


def name_places_absolutely(env: MutableMapping[str, str]) -> None:
    """Make places that the environment names relative to the present directory findable from any."""
    for name in ("JUPYTER_DATA_DIR", "XDG_DATA_HOME", "REPLKERNEL_SOCKET_DIR", "XDG_RUNTIME_DIR", "TMPDIR"):
        if env.get(name):
            env[name] = os.path.abspath(env[name])


def be_nobodys_child() -> None:
    """Step out of the process that was spawned: whoever ends a starter's descendants spares all kernels."""
    if os.fork():
        os._exit(0)
    os.setsid()


def spawn_first(options: Options, env: Mapping[str, str]) -> First:
    """Take the host's lock and spawn the zygote of our own python; exit when there is an agent."""
    if not is_host_name(options.name):
        sys.exit(
            f"The agent cannot start: the host name {options.name!r} cannot be used; take 1 to 64 letters, "
            "digits, '.', '_' or '-'."
        )
    directory = agent_place(options.name, env)
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        os.chdir(directory)
        lock = os.open(os.path.join(directory, "agent.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        sys.exit(f"The agent cannot start: {error}")
    if not _locked(lock):
        held = f"An agent of host {options.name} runs already: it holds {directory}/agent.lock."
        print(held, file=sys.stderr)  # noqa: T201 - the log is not set up yet
        if options.ready_fd is not None:
            os.write(options.ready_fd, TAKEN)
        sys.exit(LOCK_HELD)
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    preload = preload_names(env)
    key = zygote_key(sys.executable, env, preload)
    try:
        return First(lock, (key, spawn_zygote(key.python, env, preload, f"{directory}/zygote-0.log")))
    except OSError as error:
        print(f"No zygote: {error}", file=sys.stderr)  # noqa: T201 - the log is not set up yet
        return First(lock, None)


def _locked(lock: int) -> bool:
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_PAUSE_S)
        else:
            return True
    return False
