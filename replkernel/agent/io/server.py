"""The agent's parts put together: its kernels, its zygotes and its two listeners, until it is time to go.

Law: it ends by itself only when no kernel and no router needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
from collections.abc import Callable
from pathlib import Path

from replkernel.agent.core.gpu_users import Use, with_owners
from replkernel.agent.io.admission import Admission
from replkernel.agent.io.cell_limits import CellLimits
from replkernel.agent.io.death import parent_of
from replkernel.agent.io.host_kernel import HostKernel
from replkernel.agent.io.process_listener import ProcessListener
from replkernel.agent.io.report import describe_kernel, with_others
from replkernel.agent.io.router_listener import RouterListener
from replkernel.agent.io.spawner import Spawner
from replkernel.agent.io.start import STOPPED
from replkernel.hosts.far_sockets import Keys
from replkernel.hosts.reach import Reach
from replkernel.protocol.agent_to_process import AgentToKernel
from replkernel.protocol.agent_to_router import AgentToRouter
from replkernel.protocol.status import GpuStatus, HostStatus, StatusDocument, merge, to_json
from replkernel.records import KernelId

log = logging.getLogger(__name__)


class AgentServer:
    """Everything an agent serves, until `finished` is set."""

    def __init__(
        self, name: str, token: str, directory: Path, sockets: Path, idle_s: float, reach: Reach
    ) -> None:
        self.finished = asyncio.Event()
        self.on_kernel_left: Callable[[KernelId], None] = lambda kernel_id: None
        """Told of a kernel of which no process is left here."""
        self.is_governed: Callable[[], bool] = lambda: False
        """Tells whether a scheduler grants the GPUs here."""
        self.on_gpus_left: Callable[[], None] = lambda: None
        """Told that the GPUs are worth a look."""
        self.has_jobs: Callable[[], bool] = lambda: False
        """Tells whether jobs need the agent."""
        self.runs_jobs: Callable[[], bool] = lambda: False
        """Tells whether jobs run here."""
        self.stop_jobs: Callable[[], float] = lambda: 0.0
        """Has jobs saved and stopped; tells in how many seconds that is over."""
        self._directory = directory
        self._gpus: tuple[GpuStatus, ...] = ()
        self._use: Use = {}
        self.spawner = Spawner(directory)
        self._name = name
        self._idle_s = idle_s
        self._idle_timer: asyncio.TimerHandle | None = None
        self._ending_all = False
        self.kernels = Admission(name, directory, sockets, reach, self.spawner, self)
        self._routers = RouterListener(
            name, token, sockets / "agent.sock", self.kernels, self.document, self.consider_idle
        )
        self._processes = ProcessListener(
            name, sockets / "kernels.sock", self.kernels, self.notebook_document
        )
        self._reach = reach
        self.consider_idle()

    @property
    def endpoint(self) -> str:
        """Return the address at which routers find this agent."""
        return self._routers.endpoint

    def listen_far(self, port: int, keys: Keys) -> str:
        """Serve routers of other machines too; return the address at which they find this agent."""
        return self._routers.listen_far(self._reach, port, keys)

    def take_limits(self, limits: CellLimits) -> None:
        """Hold cells to the cores and memory that they ask for, as far as may be."""
        self._routers.limits = limits

    def restore(self) -> None:
        """Go on with the replicas that an earlier agent kept."""
        self.kernels.restore()
        self.consider_idle()

    # -- what kernels send out -------------------------------------------------------------------------

    def send_router(self, identity: bytes, message: AgentToRouter) -> None:
        """Send to a router."""
        self._routers.send(identity, message)

    def send_process(self, token: str, message: AgentToKernel) -> None:
        """Send to the kernel process that was born with `token`, if it has greeted us."""
        self._processes.send(token, message)

    def process_ended(self, token: str) -> None:
        """Forget the process that was born with `token`."""
        self._processes.forget(token)

    def kernel_ended(self, kernel: HostKernel) -> None:
        """Tell whoever waits for the end of a kernel, and see whether anything is left to do."""
        self._routers.kernel_ended(kernel)
        self.on_kernel_left(kernel.spec.kernel_id)
        self.consider_idle()

    def kernel_left(self, kernel: HostKernel) -> None:
        """Have the scheduler told that nobody computes here for a kernel whose router cannot say so."""
        self.on_kernel_left(kernel.spec.kernel_id)

    def kernel_alone(self, kernel: HostKernel) -> None:
        """Have a kernel whose router does not come back leave GPUs that are granted to others as well."""
        if self.is_governed():
            kernel.leave_gpus()

    def gpus_left(self) -> None:
        """Have the scheduler told at once that GPUs are empty."""
        self.on_gpus_left()

    # -- status, idling, the end -----------------------------------------------------------------------

    def take_gpus(self, gpus: tuple[GpuStatus, ...]) -> tuple[GpuStatus, ...]:
        """Show these as the host's GPUs, with whose processes use them; tell the kernels' routers."""
        drivers = {
            (name, replica): driver
            for name, kernel in self.kernels.alive().items()
            for replica, driver in kernel.drivers.items()
            if driver.core.life.pid
        }
        owners = {driver.core.life.pid: whose for whose, driver in drivers.items()}
        self._gpus, use = with_owners(gpus, owners, parent_of)
        for whose in use.keys() | self._use.keys():
            if whose in drivers:
                drivers[whose].tell_gpus(tuple(use.get(whose, {}).items()))
        self._use = use
        return self._gpus

    def document(self, kernel_id: KernelId | None) -> bytes:
        """Return this host's status document: all kernels, or one."""
        kernels = [
            describe_kernel(kernel, os.getpid())
            for name, kernel in self.kernels.alive().items()
            if kernel_id in (None, name)
        ]
        host = HostStatus(self._name, "up", self._gpus, unlimited=self._routers.limits.why)
        return to_json(StatusDocument(hosts=(host,), kernels=tuple(kernels)))

    def notebook_document(self, kernel_id: KernelId) -> bytes:
        """Return the status document for a notebook: its kernel alone, with its replicas on other hosts."""
        host = HostStatus(self._name, "up", self._gpus, unlimited=self._routers.limits.why)
        kernel = self.kernels.alive().get(kernel_id)
        kernels = () if kernel is None else (with_others(describe_kernel(kernel, os.getpid()), kernel),)
        return to_json(merge([StatusDocument(hosts=(host,), kernels=kernels)]))

    def consider_idle(self) -> None:
        """Begin to count down when there is nothing left to serve, and stop when there is."""
        if self._ending_all and not self.kernels.any() and not self.runs_jobs():
            self.finished.set()
        idle = not self.kernels.any() and not self._routers.peers and not self.has_jobs()
        if not idle and self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if idle and self._idle_timer is None and math.isfinite(self._idle_s):
            self._idle_timer = asyncio.get_running_loop().call_later(self._idle_s, self._on_idle)

    def _on_idle(self) -> None:
        log.info("no kernels and no routers for %g s", self._idle_s)
        self.finished.set()

    def end_everything(self) -> None:
        """End every kernel and have jobs leave, then end the agent, which only a person starts again."""
        with contextlib.suppress(OSError):
            (self._directory / STOPPED).touch(mode=0o600)
        self._ending_all = True
        asyncio.get_running_loop().call_later(self.stop_jobs(), self._jobs_had_their_time)
        for kernel in list(self.kernels.alive().values()):
            self.kernels.end(kernel, "the host agent was told to stop")
        self.consider_idle()

    def _jobs_had_their_time(self) -> None:
        self.runs_jobs = lambda: False
        self.consider_idle()

    async def close(self) -> None:
        """Close listeners, Raft members and zygotes; kernel processes and files stay."""
        await self.kernels.leave()
        self.spawner.close()
        self._routers.close()
        self._processes.close()
