"""The provisioner: starts a kernel's router for Jupyter in a session of its own, its settings as traits.

Law: a router that the user ends takes the kernel with it, even when it can no longer say so itself; a router
that merely crashed is replaced, and the kernel's state lives on at the agents meanwhile. A kernel that has a
record is taken up where it stands: its router is attached to, or one is started on the same ports and key.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from subprocess import Popen
from typing import TYPE_CHECKING, Any, cast

import zmq
from jupyter_client.connect import KernelConnectionInfo, LocalPortCache
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets import Float, Int, List, Unicode, Union

from replkernel.hosts.reach import PORT_FIRST, PORT_LAST
from replkernel.launch.attachment import (
    PORTS,
    AttachedRouter,
    ConnectedManager,
    attach,
    client_classes,
    load_connection,
    returning_launchers,
    taken_port,
)
from replkernel.launch.chosen_gpus import CHOSEN, chosen_text
from replkernel.launch.configured import as_text, configured_env
from replkernel.launch.given_ports import GIVEN_PORTS, HeldPorts
from replkernel.launch.kernel_end import end_at_hosts
from replkernel.launch.kernel_record import BadKernelId, KernelRecord, forget_kernel, kernel_dir, read_record
from replkernel.router.io.parent import LAUNCHER_PID, LAUNCHER_RETURNS
from replkernel.settings import (
    CONFIG_FAULT,
    CONFIG_FILE,
    INLINE_BYTES_LIMIT,
    REPLICAS_MAX,
    data_dir,
)

if TYPE_CHECKING:
    from jupyter_client.manager import KernelManager


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
        "Address of the scheduler; empty means this user's own here, which the first cell that asks starts.",
    )
    durable = _text(
        "async",
        "REPLKERNEL_DURABLE",
        "Whether a cell's reply waits until its results are durable (async, before_reply).",
    )
    fake_gpus = _number(0, "REPLKERNEL_FAKE_GPUS", "How many simulated GPUs an agent offers.")
    inline_bytes_max = _number(
        16 * 1024,
        "REPLKERNEL_INLINE_BYTES_MAX",
        f"Captured variables up to this many bytes travel in the log itself (0 to {INLINE_BYTES_LIMIT}).",
    )
    hosts = _names(
        "REPLKERNEL_HOSTS",
        "Agents that hold a kernel's replicas, in order of preference; auto: the scheduler chooses.",
    )
    request = _text(
        "",
        "REPLKERNEL_REQUEST",
        "What a new kernel asks for where its notebook does not say it: `1 --vram 20 --cpu 4 --memory 32`.",
    )
    place_wait_s = _number(
        40.0,
        "REPLKERNEL_PLACE_WAIT_S",
        "Seconds that a new kernel waits for hosts that are on their way to it.",
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
    zygote_idle_s = _number(
        2.0,
        "REPLKERNEL_ZYGOTE_IDLE_S",
        "Seconds without a start after which a zygote imports what later processes need (0: never).",
    )
    launcher_grace_s = _number(
        43_200.0,
        "REPLKERNEL_LAUNCHER_GRACE_S",
        "Seconds that a kernel lives on without any client once the program that started it is gone.",
    )
    hibernate_idle_s = _number(
        0.0,
        "REPLKERNEL_HIBERNATE_IDLE_S",
        "Seconds without a cell or a word of a client after which a kernel hibernates by itself (0: never).",
    )
    standby_idle_s = _number(
        600.0,
        "REPLKERNEL_STANDBY_IDLE_S",
        "Seconds without a cell or a word of a client after which standbys end their processes (0: never).",
    )
    bind = _text(
        "127.0.0.1",
        "REPLKERNEL_BIND",
        "IP address of its machine at which an agent that this kernel starts listens for other machines.",
    )
    advertise = _text(
        "",
        "REPLKERNEL_ADVERTISE",
        "IP address under which other machines reach such an agent, where it differs.",
    )
    ports = _text(
        f"{PORT_FIRST}-{PORT_LAST}",
        "REPLKERNEL_PORTS",
        "TCP ports at which such an agent, its Raft members and kernel processes may listen.",
    )
    agent_port = _number(
        0,
        "REPLKERNEL_AGENT_PORT",
        "TCP port at which such an agent listens for other machines (0: any of the ports).",
    )
    host_lost_s = _number(
        30.0,
        "REPLKERNEL_HOST_LOST_S",
        "Seconds without its agent after which a host counts as lost, and a spare one takes its place.",
    )
    unleased_gpus = _text(
        "auto",
        "REPLKERNEL_UNLEASED_GPUS",
        "What a cell without a lease sees beside a scheduler: none, all, or auto (none of a shared one's).",
    )
    cuda_door = _text(
        "auto",
        "REPLKERNEL_CUDA_DOOR",
        "Whether processes are stopped before CUDA starts, by a C library: on, off, or auto (with a driver).",
    )
    gpu_linger_s = _text(
        "",
        "REPLKERNEL_GPU_LINGER_S",
        "Seconds for which state stays on GPUs that nobody wants (none: until somebody does).",
    )
    gpu_linger_gb = _text(
        "", "REPLKERNEL_GPU_LINGER_GB", "More GiB than this leave the GPUs as soon as a cell ends."
    )
    gpu_host_gb = _text(
        "", "REPLKERNEL_GPU_HOST_GB", "GiB of host memory that a notebook's state off its GPUs may take."
    )
    vram = _text(
        "shown",
        "REPLKERNEL_VRAM",
        "Whether GPU memory above what a cell asked for is shown, or limited.",
    )
    versions = _text(
        "warn",
        "REPLKERNEL_VERSIONS",
        "What follows where a host has other versions than the first: warn, or refuse (no replica there).",
    )
    python = _text(
        "",
        "REPLKERNEL_PYTHON",
        "Python of kernel processes on an agent's host, where it is at another path than the launcher's.",
    )
    cache_gib = _number(
        20,
        "REPLKERNEL_CACHE_GIB",
        "GiB of an agent's disk that its cache of large state may take, for all of its replicas together.",
    )
    ship_percent = _number(
        10,
        "REPLKERNEL_SHIP_PERCENT",
        "Percent of the time that capturing and storing large state may take while cells change it in a row.",
    )
    disk_percent = _number(
        80,
        "REPLKERNEL_DISK_PERCENT",
        "Percent of the free disk that large state of all kernels may take in store and cache.",
    )
    history_points = _number(
        100,
        "REPLKERNEL_HISTORY_POINTS",
        "Earlier points of a notebook that are kept, beside those with names.",
    )
    history_hours = _number(
        168, "REPLKERNEL_HISTORY_HOURS", "Hours for which an earlier point of a notebook is kept."
    )
    history_mib = _number(
        256,
        "REPLKERNEL_HISTORY_MIB",
        "MiB that the earlier points of a notebook may take beyond its variables.",
    )

    _env: Mapping[str, str] = os.environ
    _attached: AttachedRouter | None = None
    _held: HeldPorts | None = None
    """The ports of a router that is about to start."""
    _end_wanted = False
    """Whether the user has asked for the end or the restart of what runs now."""
    _chosen = ""
    """What every cell of a kernel that is restarted gets."""

    def __init__(self, **kwargs: object) -> None:
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
        chosen, unknown = configured_env()
        for name in unknown:
            self.log.warning("%s: there is no setting %r.", CONFIG_FILE, name)
        if CONFIG_FAULT in chosen:
            self.log.error("%s: %s", *chosen[CONFIG_FAULT].split("\n", 1))
        configured = self._given | set(self._find_my_config(self.config))
        for name, variable in variables.items():
            value = getattr(self, name)
            if name in configured or (value and value != self.traits()[name].default_value):
                chosen[variable] = as_text(value)
        return {variable: text for variable, text in chosen.items() if text}

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Look for the kernel's record; put the kernel's id and settings into the router's environment."""
        self._end_wanted = False
        self._attached = None
        self._let_go()
        self._env = kwargs.get("env") or os.environ
        self._encrypt(self.parent)
        launcher = getattr(self.parent, "parent", None)
        if self.parent is not None and launcher in client_classes:
            self.parent.client_factory = client_classes[launcher]
        record = self._record()
        if record is not None and self.parent is not None:
            await self._take_up(self.parent, record, kwargs)
        if self.parent is not None and self.parent.cache_ports and not self.ports_cached:
            self._choose_ports(self.parent)
        try:
            kwargs = await super().pre_launch(**kwargs)
        except BaseException:
            self._let_go()
            raise
        self._hold_ports()
        env: dict[str, str] = kwargs["env"]
        env.update(self.settings_env())
        env["KERNEL_ID"] = str(self.kernel_id)
        self._env = dict(env)
        kwargs["independent"] = True
        env.pop("JPY_PARENT_PID", None)
        env.pop(GIVEN_PORTS, None)
        env.pop(CHOSEN, None)
        if self._chosen:
            env[CHOSEN], self._chosen = self._chosen, ""
        if self._held is not None:
            env[GIVEN_PORTS] = self._held.text
        env[LAUNCHER_PID] = str(os.getpid())
        if getattr(self.parent, "parent", None) in returning_launchers:
            env[LAUNCHER_RETURNS] = "1"
        return kwargs

    def _encrypt(self, manager: Any) -> None:
        """Have the manager give the kernel's ports a key, unless the site's configuration says otherwise.

        Whoever is on the machine can connect to loopback ports, and without a key read all output.
        """
        if manager is None or not zmq.has("curve") or manager.transport_encryption != "disabled":
            return
        if "transport_encryption" not in manager._find_my_config(manager.config):
            manager.transport_encryption = "auto"

    def _record(self) -> KernelRecord | None:
        return read_record(data_dir(self._env), str(self.kernel_id or ""))

    async def _take_up(self, manager: ConnectedManager, record: KernelRecord, kwargs: dict[str, Any]) -> None:
        """Have the kernel manager use the recorded connection, and take hold of the router if it lives.

        A router without encryption is replaced where encryption has become a must; the kernel goes on.
        """
        attached = attach(record)
        wanted = str(kwargs.get("transport_encryption") or getattr(manager, "transport_encryption", ""))
        if attached is not None and wanted == "required" and not record.connection.get("curve_publickey"):
            self.log.info("The router of kernel %s is replaced by one that encrypts.", record.kernel_id)
            attached.kill()
            await asyncio.to_thread(attached.wait, GRACEFUL_LIMIT_S)
            attached = None
        new = not any(record.connection.get(name) for name in PORTS)  # It was founded, and never served.
        taken = "" if attached is not None or new else taken_port(record)
        if taken:
            self.log.warning("Kernel %s gets new ports: %s was taken meanwhile.", record.kernel_id, taken)
        self.ports_cached = not taken and not new
        load_connection(manager, record, same_ports=self.ports_cached)
        if attached is not None:
            kwargs["transport_encryption"] = "disabled"
            self.log.info("Kernel %s goes on: its router, process %d, lives.", record.kernel_id, attached.pid)
        self._attached = attached

    def _choose_ports(self, manager: KernelManager) -> None:
        """Choose the kernel's ports and keep them; Jupyter's own choice stands where that cannot be done."""
        try:
            self._held = HeldPorts(manager.ip, dict.fromkeys(PORTS, 0))
        except OSError:
            return
        for name, number in self._held.numbers.items():
            setattr(manager, name, number)
            LocalPortCache.instance().currently_used_ports.add(number)
        self.ports_cached = True

    def _hold_ports(self) -> None:
        """Keep the ports that the connection names, unless that is done; a taken one the router waits for."""
        if self._held is not None or self._attached is not None or self.parent is None:
            return
        info = cast("dict[str, Any]", self.connection_info)
        if info.get("transport") == "tcp":
            with contextlib.suppress(OSError):
                self._held = HeldPorts(str(info["ip"]), {name: int(info[name]) for name in PORTS})

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start the router, unless there is one."""
        if self._attached is None:
            if self._held is not None:
                kwargs["pass_fds"] = (*kwargs.get("pass_fds", ()), *self._held.descriptors)
            try:
                return await super().launch_kernel(cmd, **kwargs)
            finally:
                self._let_go()
        self.process = cast("Popen[Any]", self._attached)
        self.pid = self._attached.pid
        self.pgid = None
        self.cwd = kwargs.get("cwd", os.getcwd())
        return self.connection_info

    @property
    def attached(self) -> bool:
        """Tell whether the router was there before, and so need not be waited for."""
        return self._attached is not None

    async def shutdown_requested(self, restart: bool = False) -> None:
        """Note that the user asks for the end, be it to restart: only the chosen GPUs outlive it."""
        self._end_wanted = True
        self._keep_choice()

    async def kill(self, restart: bool = False) -> None:
        """Kill the router and end its kernel.

        A router that is dead already has crashed by itself: its kernel is left to the next router, unless
        `cleanup` says that there will be none.
        """
        crashed = self.process is None or self.process.poll() is not None
        self._keep_choice()  # Jupyter does not say here whether a restart is meant.
        await super().kill(restart=restart)
        if not crashed:
            await self._end_for_good("the router was killed")

    def _keep_choice(self) -> None:
        self._chosen = chosen_text(self._record()) or self._chosen

    async def send_signal(self, signum: int) -> None:
        """Signal the router; it hands an interrupt on to the executor."""
        if self.process is not None and signum == signal.SIGINT:
            self.process.send_signal(signum)
            return
        await super().send_signal(signum)

    async def cleanup(self, restart: bool = False) -> None:
        """Make sure that nothing of a kernel that is gone for good stays behind, at its agents or on disk.

        Before a restart that is only needed when the router died before it could see to it.
        """
        if not restart:
            self._chosen = ""
            await self._end_for_good("the kernel was shut down")
        elif self._end_wanted and self._record() is not None:
            await self._end_for_good("the kernel was restarted")
        await super().cleanup(restart=restart)

    def get_shutdown_wait_time(self, recommended: float = 5.0) -> float:
        """Give an orderly shutdown the time that the hosts may take (Jupyter halves what it is told)."""
        return max(recommended, 2 * GRACEFUL_LIMIT_S)

    async def _end_for_good(self, reason: str) -> None:
        kernel_id = str(self.kernel_id or "")
        key = self.connection_info.get("key", b"")
        key = key if isinstance(key, bytes) else str(key).encode()
        for host in await end_at_hosts(self._env, kernel_id, key, reason):
            self.log.warning("The agent of host %s did not confirm that kernel %s ended.", host, kernel_id)
        with contextlib.suppress(BadKernelId):
            forget_kernel(kernel_dir(data_dir(self._env), kernel_id))
