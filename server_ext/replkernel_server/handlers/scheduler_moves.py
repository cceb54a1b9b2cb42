"""The scheduler's REST resources for where a kernel's replicas are to be: at first, and on another host.

Law: everybody places and moves his own kernels; what comes of a move is told by the kernel's own resource.
A kernel that was placed is its router's from when that has reported where it is.
"""

from __future__ import annotations

from typing import ClassVar

from replkernel_scheduler.effects import MoveRefused, StartReplica
from replkernel_scheduler.events import MoveAsked
from replkernel_scheduler.harvest.types import HarvestEffect
from replkernel_scheduler.types import HostName, KernelId

from replkernel_server.handlers.scheduler_base import Operation, SchedulerHandler
from replkernel_server.scheduling import access, placement
from replkernel_server.scheduling.desk_words import KernelAwaited
from replkernel_server.scheduling.documents import (
    HostsForKernel,
    KernelAwaits,
    KernelPlacement,
    MoveBody,
    Moving,
    PlacementBody,
    Why,
    check_id,
)
from replkernel_server.scheduling.identity import TooMuch

HOSTS_MAX = 64
REPLICAS = 3


class KernelHostsHandler(SchedulerHandler):
    """/api/v1/kernels/KERNEL/hosts."""

    operations: ClassVar = {
        "get": Operation(
            "Hosts for a kernel that wants nothing of them, the best first; none of them is draining.",
            {200: HostsForKernel},
        )
    }

    def get(self, kernel: str) -> None:
        """Answer with hosts, HOSTS_MAX at most."""
        name = KernelId(check_id(kernel, "kernel's id"))
        self.unless(access.why_not_lease(self.identity))
        hosts = self.driver.core.hosts_for(name, REPLICAS)
        self.answer(200, HostsForKernel([*hosts[:HOSTS_MAX]]))


class PlacementHandler(SchedulerHandler):
    """/api/v1/kernels/KERNEL/placement."""

    operations: ClassVar = {
        "post": Operation(
            "Place the replicas of a new kernel by its request; said again, tell how that stands.",
            {200: KernelPlacement, 202: KernelAwaits, 409: Why, 429: Why},
            takes=PlacementBody,
        ),
        "get": Operation(
            "Where a kernel's replicas begin, or what it waits for; it is kept while somebody asks.",
            {200: KernelPlacement, 202: KernelAwaits, 410: Why},
        ),
    }

    async def post(self, kernel: str) -> None:
        """Place a kernel."""
        name, desk = self._own(kernel), self.channel.desk
        spec = placement.spec_of(name, self.identity.user, self.body(PlacementBody))
        known, effects = self.driver.core.placement_of(name), list[HarvestEffect]()
        if known is None:
            unclaimed = desk.kernels.unclaimed_by(self.identity.user)
            if unclaimed >= placement.UNCLAIMED_MAX:
                raise TooMuch(
                    f"{unclaimed} kernels of {self.identity.user} are placed and have not begun: "
                    "wait until some have, or for a minute."
                )
        for event in placement.events(spec, known, is_here=desk.kernels.is_here(name)):
            effects += await self.driver.apply(event)
        await self._tell(name, effects)

    async def get(self, kernel: str) -> None:
        """Tell where a kernel stands."""
        await self._tell(self._own(kernel), [])

    def _own(self, kernel: str) -> KernelId:
        name = KernelId(check_id(kernel, "kernel's id"))
        owner = self.driver.core.owner_of_kernel(name)
        self.unless(access.why_not_route(self.identity, owner, name))
        return name

    async def _tell(self, name: KernelId, effects: list[HarvestEffect]) -> None:
        known = self.driver.core.placement_of(name)
        if known is not None:
            await self.channel.happened(KernelAwaited(name, self.identity.user))
        await self.driver.settled()
        self.answer(*placement.answer(known, effects))


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
