"""The scheduler's REST resources for where a kernel's replicas are to be: at first, and on another host.

Law: everybody moves his own kernels; what comes of it is told by the kernel's own resource. A new kernel
takes of the hosts what it can reach, and reports where it is.
"""

from __future__ import annotations

from typing import ClassVar

from replkernel_scheduler.effects import MoveRefused, StartReplica
from replkernel_scheduler.events import MoveAsked
from replkernel_scheduler.types import HostName, KernelId

from replkernel_server.handlers.scheduler_base import Operation, SchedulerHandler
from replkernel_server.scheduling import access
from replkernel_server.scheduling.documents import HostsForKernel, MoveBody, Moving, Why, check_id

HOSTS_MAX = 64
REPLICAS = 3


class KernelHostsHandler(SchedulerHandler):
    """/api/v1/kernels/KERNEL/hosts."""

    operations: ClassVar = {
        "get": Operation(
            "Hosts for the replicas of a new kernel, the best first; none of them is draining.",
            {200: HostsForKernel},
        )
    }

    def get(self, kernel: str) -> None:
        """Answer with hosts, HOSTS_MAX at most."""
        name = KernelId(check_id(kernel, "kernel's id"))
        self.unless(access.why_not_lease(self.identity))
        hosts = self.driver.core.hosts_for(name, REPLICAS)
        self.answer(200, HostsForKernel([*hosts[:HOSTS_MAX]]))


class MigrationHandler(SchedulerHandler):
    """/api/v1/kernels/KERNEL/migration."""

    operations: ClassVar = {
        "post": Operation(
            "Move one of a kernel's replicas to a host; its `moving_to` and `not_moved` tell the rest.",
            {202: Moving, 404: Why, 409: Why},
            takes=MoveBody,
        )
    }

    async def post(self, kernel: str) -> None:
        """Begin to move a replica."""
        host = HostName(self.body(MoveBody).host)
        self.unless(access.why_not_lease(self.identity))
        name = self.own_kernel(kernel)
        effects = await self.driver.apply(MoveAsked(name, host))
        for effect in effects:
            if isinstance(effect, StartReplica) and effect.kernel_id == name:
                self.answer(202, Moving(effect.migration, effect.source, effect.host))
                return
        whys = [effect.why for effect in effects if isinstance(effect, MoveRefused)]
        self.answer(409, Why(whys[0] if whys else f"Kernel {name} was not moved."))
