"""The scheduler's REST resource for a kernel's owner who wants one of its replicas on another host.

Law: everybody moves his own kernels; what comes of it is told by the kernel's own resource.
"""

from __future__ import annotations

from typing import ClassVar

from replkernel_scheduler.effects import MoveRefused, StartReplica
from replkernel_scheduler.events import MoveAsked
from replkernel_scheduler.types import HostName, KernelId

from replkernel_server.handlers.scheduler_base import Operation, SchedulerHandler
from replkernel_server.scheduling import access
from replkernel_server.scheduling.documents import MoveBody, Moving, Why, check_id


class MigrationHandler(SchedulerHandler):
    """/api/v1/kernels/KERNEL/migration."""

    operations: ClassVar = {
        "post": Operation(
            "Move one of a kernel's replicas to a host; its `moving_to` and `not_moved` tell the rest.",
            {202: Moving, 409: Why},
            takes=MoveBody,
        )
    }

    async def post(self, kernel: str) -> None:
        """Begin to move a replica."""
        name, host = KernelId(check_id(kernel, "kernel's id")), HostName(self.body(MoveBody).host)
        self.unless(access.why_not_lease(self.identity))
        self.for_owner(self.driver.core.owner_of_kernel(name), f"Kernel {name}")
        effects = await self.driver.apply(MoveAsked(name, host))
        for effect in effects:
            if isinstance(effect, StartReplica) and effect.kernel_id == name:
                self.answer(202, Moving(effect.migration, effect.source, effect.host))
                return
        whys = [effect.why for effect in effects if isinstance(effect, MoveRefused)]
        self.answer(409, Why(whys[0] if whys else f"Kernel {name} was not moved."))
