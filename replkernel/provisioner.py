"""The provisioner: starts a kernel's router for Jupyter in a session of its own, its settings as traits.

Law: a router that the user ends takes the kernel with it, even when it can no longer say so itself; a router
that merely crashed is replaced, and the kernel's state lives on at the agents meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from collections.abc import Mapping
from typing import Any

import zmq
import zmq.asyncio
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets import CaselessStrEnum, Float, Int, List, Unicode

from replkernel import protocol
from replkernel.agent.lookup import find_agent
from replkernel.errors import AgentUnavailable, SettingError
from replkernel.records import KernelId
from replkernel.settings import (
    DURABILITIES,
    EXECUTOR_POLICIES,
    INLINE_BYTES_LIMIT,
    REPLICAS_MAX,
    host_name,
    read_settings,
)

END_LIMIT_S = 5.0
"""How long agents may take to confirm the end of a kernel whose router was killed."""
GRACEFUL_LIMIT_S = 5.0
"""How long an orderly shutdown takes at most, hosts included."""


class ReplkernelProvisioner(LocalProvisioner):
    """Launches the router of a replicated kernel; every setting of the kernel is a trait here."""

    replicas = Int(
        3, min=1, max=REPLICAS_MAX, help="How many replicas a kernel has; 1 turns replication off."
    ).tag(config=True, variable="REPLKERNEL_REPLICAS")
    executor = CaselessStrEnum(
        EXECUTOR_POLICIES,
        "sticky",
        help="Who runs the next cell: the last executor, another replica each cell, or any.",
    ).tag(config=True, variable="REPLKERNEL_EXECUTOR")
    store = Unicode(
        "",
        help="URL of the object store for large state; empty means a directory below Jupyter's data.",
    ).tag(config=True, variable="REPLKERNEL_STORE")
    scheduler_url = Unicode(
        "", help="Address of the scheduler; empty means that the replicas choose the executor themselves."
    ).tag(config=True, variable="REPLKERNEL_SCHEDULER_URL")
    durable = CaselessStrEnum(
        DURABILITIES, "async", help="Whether a cell's reply waits until its results are durable."
    ).tag(config=True, variable="REPLKERNEL_DURABLE")
    fake_gpus = Int(0, min=0, max=64, help="How many pretended GPUs an agent offers.").tag(
        config=True, variable="REPLKERNEL_FAKE_GPUS"
    )
    inline_bytes_max = Int(
        16 * 1024,
        min=0,
        max=INLINE_BYTES_LIMIT,
        help="Captured variables up to this many bytes travel in the log itself.",
    ).tag(config=True, variable="REPLKERNEL_INLINE_BYTES_MAX")
    hosts = List(
        Unicode(), help="Names of the agents that hold a kernel's replicas, in order of preference."
    ).tag(config=True, variable="REPLKERNEL_HOSTS")
    orphan_grace_s = Float(
        30.0, min=0.0, help="Seconds that replicas outlive a router that vanished without a word."
    ).tag(config=True, variable="REPLKERNEL_ORPHAN_GRACE_S")
    agent_idle_s = Float(
        300.0, min=0.0, help="Seconds after which a host's agent that keeps no kernel ends itself."
    ).tag(config=True, variable="REPLKERNEL_AGENT_IDLE_S")
    preload = List(Unicode(), help="Packages that new kernel processes share from the zygote.").tag(
        config=True, variable="REPLKERNEL_PRELOAD"
    )

    _env: Mapping[str, str] = os.environ

    def settings_env(self) -> dict[str, str]:
        """Return the environment variables of the traits that differ from their defaults."""
        chosen: dict[str, str] = {}
        for name, trait in self.traits(variable=lambda variable: variable is not None).items():
            value = getattr(self, name)
            text = ",".join(value) if isinstance(value, list) else str(value)
            if text and value != trait.default_value:
                chosen[trait.metadata["variable"]] = text
        return chosen

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Put the kernel's id and settings into the router's environment."""
        kwargs = await super().pre_launch(**kwargs)
        env: dict[str, str] = kwargs["env"]
        env.update(self.settings_env())
        env["KERNEL_ID"] = str(self.kernel_id)
        self._env = dict(env)
        kwargs["independent"] = True
        env.pop("JPY_PARENT_PID", None)
        return kwargs

    async def kill(self, restart: bool = False) -> None:
        """Kill the router and end its kernel.

        A router that is dead already has crashed by itself: its kernel is left to the next router, unless
        `cleanup` says that there will be none.
        """
        crashed = self.process is None or self.process.poll() is not None
        await super().kill(restart=restart)
        if not crashed:
            await self._end_kernel("the router was killed")

    async def send_signal(self, signum: int) -> None:
        """Signal the router; it hands an interrupt on to the executor."""
        if self.process is not None and signum == signal.SIGINT:
            self.process.send_signal(signum)
            return
        await super().send_signal(signum)

    async def cleanup(self, restart: bool = False) -> None:
        """Make sure that nothing of a kernel that is gone for good stays behind at its agents."""
        if not restart:
            await self._end_kernel("the kernel was shut down")
        await super().cleanup(restart=restart)

    def get_shutdown_wait_time(self, recommended: float = 5.0) -> float:
        """Give an orderly shutdown the time that the hosts may take (Jupyter halves what it is told)."""
        return max(recommended, 2 * GRACEFUL_LIMIT_S)

    async def _end_kernel(self, reason: str) -> None:
        try:
            names = read_settings(self._env).hosts or (host_name(self._env),)
        except SettingError:
            return
        await asyncio.gather(*(self._end_at(name, reason) for name in dict.fromkeys(names)))

    async def _end_at(self, host: str, reason: str) -> None:
        """Tell one host's agent, if it lives, that the kernel has ended, and wait until it has."""
        try:
            address = find_agent(host, self._env)
        except AgentUnavailable:
            return
        if address is None or self.kernel_id is None:
            return
        kernel_id = KernelId(str(self.kernel_id))
        key = self.connection_info.get("key", b"")
        digest = hashlib.sha256(key if isinstance(key, bytes) else str(key).encode()).hexdigest()
        hello = protocol.RouterHello(
            token=address.token, kernel_id=kernel_id, key_digest=digest, pid=os.getpid()
        )
        with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as link:
            link.linger = 500
            link.connect(address.endpoint)
            await link.send(protocol.encode(hello))
            await link.send(protocol.encode(protocol.EndKernel(kernel_id=kernel_id, reason=reason)))
            try:
                await asyncio.wait_for(_until_ended(link), END_LIMIT_S)
            except TimeoutError:
                self.log.warning(
                    "The agent of host %s did not confirm that kernel %s ended.", host, kernel_id
                )


async def _until_ended(link: zmq.asyncio.Socket) -> None:
    decode = protocol.decoder(protocol.AgentToRouter)
    while True:
        message = decode.decode(await link.recv())
        if isinstance(message, protocol.KernelEnded | protocol.AgentRefuses):
            return
