"""What the scheduler's service wants of a launcher, and what a launcher tells it.

A launcher knows an engine's machines: it starts and stops agents there, has more machines come, gives them
back, and (where the engine counts GPUs) has them counted. Law: it decides nothing about leases or replicas;
what it cannot do is a LauncherFailed with one sentence, never silence; a word of it may come twice and
means the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

import msgspec

from replkernel.agent.io.lookup import agent_dir
from replkernel_server.errors import ServerError

HOSTS_ASKED_MAX = 1024
"""No launcher is asked for more hosts than this."""
WHY_CHARS_MAX = 500


class LauncherFailed(ServerError):
    """An engine did not do what was wanted of it; the sentence names the cause and the fix."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a launcher can do; what it cannot is never asked of it."""

    scales: bool = False
    """It has more hosts come (`ask_hosts`), and gives them back."""
    counts_gpus: bool = False
    """The engine counts GPUs itself: a lease is granted once `take_gpu` has had it counted there."""
    host_gpus: int = 0
    """How many GPUs a host has that was asked for."""
    hosts_max: int = 48
    """More hosts than this are never wanted."""
    tells_waiting: bool = False
    """It tells which jobs of the engine wait for GPUs (`JobsWaiting`), so that lingering ones give way."""
    host_prefix: str = ""
    """How the names of all of its hosts begin; needed where it counts GPUs."""


class HostJoined(msgspec.Struct, frozen=True, tag=True):
    """A machine is there on which an agent of this name may run; `gpus` is what the engine says it has."""

    host: str
    gpus: int = 0


class HostLost(msgspec.Struct, frozen=True, tag=True):
    """A machine is gone, with whatever ran there."""

    host: str
    why: str = ""


class HostComing(msgspec.Struct, frozen=True, tag=True):
    """A machine that is wanted is not there yet, and why, in the engine's words; `over`: it is not awaited.

    `coming` is what the engine calls its wait for it (a job, a pod).
    """

    coming: str
    why: str
    over: bool = False


class HostEnding(msgspec.Struct, frozen=True, tag=True):
    """The engine takes a machine back in so many seconds: what is on it is to be elsewhere by then."""

    host: str
    within_s: float
    why: str = ""


class GpusElsewhere(msgspec.Struct, frozen=True, tag=True):
    """So many GPUs of a host are used by jobs of the engine that are not ours."""

    host: str
    count: int


class GpusHeld(msgspec.Struct, frozen=True, tag=True):
    """What is counted for us on a host by now: for each GPU of a lease, which one the engine gave."""

    host: str
    given: dict[str, str]


class JobWaiting(msgspec.Struct, frozen=True):
    """`count` jobs of the engine that are not ours wait for `gpus` GPUs each, on one of `hosts`."""

    hosts: tuple[str, ...]
    gpus: int
    count: int = 1


class JobsWaiting(msgspec.Struct, frozen=True, tag=True):
    """All jobs that wait for GPUs which hosts of ours have; said when that changes, and of none as well."""

    jobs: tuple[JobWaiting, ...]


Word: TypeAlias = HostJoined | HostLost | HostComing | HostEnding | GpusElsewhere | GpusHeld | JobsWaiting
Tell: TypeAlias = Callable[[Word], None]


def kernels_kept(host: str, env: Mapping[str, str]) -> int:
    """Return how many kernels the agent of a host keeps, asked on its machine."""
    try:
        return sum(1 for _ in (agent_dir(host, env) / "kernels").iterdir())
    except OSError:
        return 0


def refuse_kept(host: str, count: int) -> None:
    """Raise LauncherFailed if a host to be given back keeps kernels."""
    if count:
        raise LauncherFailed(
            f"Host {host} keeps replicas of {count} kernel{'s' if count > 1 else ''} that asked for no GPUs: "
            "they end or hibernate by themselves, or stop the agent with `replkernel agent stop` there."
        )


class Launcher(Protocol):
    """One engine. Made by a function of its settings, opened once, closed once."""

    @property
    def capabilities(self) -> Capabilities:
        """Return what it can do."""
        ...

    async def open(self, tell: Tell) -> None:
        """Begin; `tell` is called on the running loop, for each host there is. Raises LauncherFailed."""
        ...

    async def close(self) -> None:
        """Let go of the engine; agents stay. Called twice it does nothing."""
        ...

    async def start_agent(self, host: str) -> None:
        """Have the agent of `host` run there; one that runs is left alone. Raises LauncherFailed."""
        ...

    async def stop_agent(self, host: str) -> None:
        """End the agent of `host` with its kernels; none is there is as good. Raises LauncherFailed."""
        ...

    async def ask_hosts(self, more: int) -> None:
        """Want so many hosts beyond those that are there; 0 wants none any more. Raises LauncherFailed."""
        ...

    async def give_back(self, host: str) -> None:
        """End the agent of `host`, and let the engine have the machine.

        Raises LauncherFailed, and does nothing, while the agent keeps kernels (`kernels_kept`): those that
        never asked for GPUs are not known to the scheduler.
        """
        ...

    async def take_gpu(self, host: str, gpu: str) -> str | None:
        """Have one GPU of `host` counted as ours, for the leased `gpu`; return the one that the engine gave.

        The engine may give another than `gpu`, by UUID or by number. None: none is free there.
        """
        ...

    async def leave_gpu(self, host: str, gpu: str) -> None:
        """Have what was taken for `gpu` counted as ours no longer; nothing taken is as good."""
        ...
