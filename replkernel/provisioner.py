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
from traitlets import Float, Int, List, Unicode, Union

from replkernel import protocol
from replkernel.agent.lookup import find_agent
from replkernel.config_file import read_config_files
from replkernel.errors import AgentUnavailable, SettingError
from replkernel.records import KernelId
from replkernel.router.parent import LAUNCHER_PID
from replkernel.settings import (
    CONFIG_FAULT,
    CONFIG_FILE,
    INLINE_BYTES_LIMIT,
    REPLICAS_MAX,
    host_name,
    read_settings,
)

END_LIMIT_S = 5.0
"""How long agents may take to confirm the end of a kernel whose router was killed."""
GRACEFUL_LIMIT_S = 5.0
"""How long an orderly shutdown takes at most, hosts included."""


def _number(default: float, variable: str, meaning: str) -> Union:
    """Return a trait for a number. The router knows its bounds, and explains them in the notebook."""
    kinds = [Int() if isinstance(default, int) else Float(), Unicode()]
    return Union(kinds, default_value=default, help=meaning).tag(config=True, variable=variable)


def _text(default: str, variable: str, meaning: str) -> Unicode[str, str | bytes]:
    return Unicode(default, help=meaning).tag(config=True, variable=variable)


def _names(variable: str, meaning: str) -> List[str]:
    return List(Unicode(), help=meaning).tag(config=True, variable=variable)


def _as_text(value: object) -> str:
    """Return a setting's value as its environment variable has it."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


class ReplkernelProvisioner(LocalProvisioner):
    """Launches the router of a replicated kernel; every setting of the kernel is a trait here.

    A trait counts wherever Jupyter reads its configuration, and in ``jupyter_replkernel_config.py`` also for
    clients that read none. It wins over the environment.
    """

    replicas = _number(
        3,
        "REPLKERNEL_REPLICAS",
        f"How many replicas a kernel has (1 to {REPLICAS_MAX}); 1 turns replication off.",
    )
    executor = _text(
        "sticky",
        "REPLKERNEL_EXECUTOR",
        "Who runs the next cell: sticky (the last executor), rotate (another replica each cell) or random.",
    )
    store = _text(
        "",
        "REPLKERNEL_STORE",
        "URL of the object store for large state; empty means a directory below Jupyter's data.",
    )
    scheduler_url = _text(
        "",
        "REPLKERNEL_SCHEDULER_URL",
        "Address of the scheduler; empty means that the replicas choose the executor themselves.",
    )
    durable = _text(
        "async",
        "REPLKERNEL_DURABLE",
        "Whether a cell's reply waits until its results are durable (async, before_reply).",
    )
    fake_gpus = _number(0, "REPLKERNEL_FAKE_GPUS", "How many pretended GPUs an agent offers.")
    inline_bytes_max = _number(
        16 * 1024,
        "REPLKERNEL_INLINE_BYTES_MAX",
        f"Captured variables up to this many bytes travel in the log itself (0 to {INLINE_BYTES_LIMIT}).",
    )
    hosts = _names(
        "REPLKERNEL_HOSTS", "Names of the agents that hold a kernel's replicas, in order of preference."
    )
    orphan_grace_s = _number(
        30.0,
        "REPLKERNEL_ORPHAN_GRACE_S",
        "Seconds that replicas outlive a router that vanished without a word.",
    )
    agent_idle_s = _number(
        300.0,
        "REPLKERNEL_AGENT_IDLE_S",
        "Seconds after which a host's agent that keeps no kernel ends itself.",
    )
    preload = _names("REPLKERNEL_PRELOAD", "Packages that new kernel processes share from the zygote.")
    launcher_grace_s = _number(
        43_200.0,
        "REPLKERNEL_LAUNCHER_GRACE_S",
        "Seconds that a kernel lives on without any client once the program that started it is gone.",
    )

    _env: Mapping[str, str] = os.environ

    def __init__(self, **kwargs: Any) -> None:
        """Take the traits that the kernelspec gives as well as those of the configuration."""
        self._given = frozenset(kwargs)
        super().__init__(**kwargs)

    def settings_env(self) -> dict[str, str]:
        """Return the environment variables of the traits that somebody has set.

        What the configuration file has wrong is said by the router, to whoever runs a cell.
        """
        variables = {
            name: trait.metadata["variable"]
            for name, trait in self.traits(variable=lambda variable: variable is not None).items()
        }
        chosen: dict[str, str] = {}
        try:
            for name, value in read_config_files()[type(self).__name__].items():
                if name in variables:
                    chosen[variables[name]] = _as_text(value)
                else:
                    self.log.warning("%s: there is no setting %r.", CONFIG_FILE, name)
        except SettingError as error:
            self.log.error("%s", error)
            chosen[CONFIG_FAULT] = f"{error.value}\n{error.problem}"
        configured = self._given | set(self._find_my_config(self.config))
        for name, variable in variables.items():
            value = getattr(self, name)
            if name in configured or (value and value != self.traits()[name].default_value):
                chosen[variable] = _as_text(value)
        return {variable: text for variable, text in chosen.items() if text}

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Put the kernel's id and settings into the router's environment."""
        kwargs = await super().pre_launch(**kwargs)
        env: dict[str, str] = kwargs["env"]
        env.update(self.settings_env())
        env["KERNEL_ID"] = str(self.kernel_id)
        self._env = dict(env)
        kwargs["independent"] = True
        env.pop("JPY_PARENT_PID", None)
        env[LAUNCHER_PID] = str(os.getpid())
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
