"""The launcher of this machine: agents under names of their own, side by side; for trials and tests.

Law: it starts agents as everybody does (one per name, by lock) and stops those that it started or found by
name.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from replkernel.agent.io.lookup import find_or_start, stop_agent
from replkernel.agent.io.start import is_host_name
from replkernel.errors import AgentUnavailable
from replkernel_server.errors import ServiceSettingError
from replkernel_server.launchers.installed import refuse_unknown, whole
from replkernel_server.launchers.protocol import (
    Capabilities,
    HostJoined,
    HostLost,
    LauncherFailed,
    Tell,
    kernels_kept,
    refuse_kept,
)

HOSTS_MAX = 64
OPTIONS = ("hosts", "most", "gpus")


def make(options: Mapping[str, str]) -> LocalLauncher:
    """Make it: `hosts=N` agents at once (default 1), `most=N` at the most, `gpus=N` pretended ones each."""
    refuse_unknown("local", options, OPTIONS)
    hosts = whole("local", options, "hosts", 1, HOSTS_MAX)
    most = whole("local", options, "most", max(hosts, 1), HOSTS_MAX)
    if most < hosts:
        raise ServiceSettingError(f"The launcher local has hosts={hosts} and most={most}: make most={hosts}.")
    return LocalLauncher(hosts, most, whole("local", options, "gpus", 0, HOSTS_MAX))


class LocalLauncher:
    """Named agents on this machine."""

    def __init__(self, hosts: int, most: int, gpus: int, prefix: str = "local-") -> None:
        """Have `hosts` of them at once, and `most` when they are asked for."""
        if not is_host_name(f"{prefix}1"):
            raise ServiceSettingError(f"{prefix!r} cannot begin the name of a host.")
        self.capabilities = Capabilities(
            scales=most > hosts, host_gpus=gpus, hosts_max=most, host_prefix=prefix
        )
        self._hosts, self._most, self._gpus = hosts, most, gpus
        self._here: set[str] = set()
        self._tell: Tell | None = None

    async def open(self, tell: Tell) -> None:
        """Tell of the first hosts."""
        self._tell = tell
        for host in sorted(self._here):
            tell(HostJoined(host, self._gpus))
        for _ in range(self._hosts - len(self._here)):
            self._join()

    async def close(self) -> None:
        """Tell nothing any more."""
        self._tell = None

    async def start_agent(self, host: str) -> None:
        """Find the agent or start it."""
        env = {name: value for name, value in os.environ.items() if name != "REPLKERNEL_HOST_NAME"}
        if self._gpus:
            env["REPLKERNEL_FAKE_GPUS"] = str(self._gpus)
        try:
            await asyncio.to_thread(find_or_start, self._known(host), env)
        except AgentUnavailable as error:
            raise LauncherFailed(str(error)) from error

    async def stop_agent(self, host: str) -> None:
        """Stop it."""
        try:
            await asyncio.to_thread(stop_agent, self._known(host), os.environ)
        except AgentUnavailable as error:
            raise LauncherFailed(str(error)) from error

    async def ask_hosts(self, more: int) -> None:
        """Let so many more come, at once."""
        if len(self._here) + more > self._most:
            raise LauncherFailed(
                f"This machine is to have {self._most} agents at most: write --launcher-option "
                f"most={len(self._here) + more}, or use another launcher."
            )
        for _ in range(more):
            self._join()

    async def give_back(self, host: str) -> None:
        """Stop the agent, and have its name free."""
        refuse_kept(self._known(host), kernels_kept(host, os.environ))
        await self.stop_agent(host)
        self._here.discard(host)
        if self._tell is not None:
            self._tell(HostLost(host, "it was given back"))

    async def take_gpu(self, host: str, gpu: str) -> str | None:
        """Return the same: nobody else counts them here."""
        return gpu

    async def leave_gpu(self, host: str, gpu: str) -> None:
        """Do nothing."""

    def _join(self) -> None:
        numbers = range(1, self._most + 1)
        free = (name for n in numbers if (name := f"{self.capabilities.host_prefix}{n}") not in self._here)
        host = next(free)
        self._here.add(host)
        if self._tell is not None:
            self._tell(HostJoined(host, self._gpus))

    def _known(self, host: str) -> str:
        if host not in self._here:
            raise LauncherFailed(f"The launcher local has no host {host}: it has {sorted(self._here)}.")
        return host
