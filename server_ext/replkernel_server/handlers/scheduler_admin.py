"""The scheduler's REST resources for people who look after it: kernels, quotas, hosts that are emptied.

Law: everybody sees and ends his own kernels; the rest is for admins.
"""

from __future__ import annotations

from typing import ClassVar

from replkernel_scheduler.events import HostDrained, KernelEnded, QuotaSet
from replkernel_scheduler.types import HostName, KernelId, UserName, UserQuota

from replkernel_server.handlers.scheduler_base import Operation, SchedulerHandler
from replkernel_server.scheduling import access
from replkernel_server.scheduling.desk_words import KernelEmptied
from replkernel_server.scheduling.documents import (
    Empty,
    KernelAnswer,
    Kernels,
    QuotaAnswer,
    QuotaBody,
    Quotas,
    Why,
    check_id,
)

HOUR_S = 3600.0


class KernelsHandler(SchedulerHandler):
    """/api/v1/kernels."""

    operations: ClassVar = {
        "get": Operation(
            "One's own kernels (an admin: all), with what they hold and wait for.", {200: Kernels}
        )
    }

    async def get(self) -> None:
        """Answer with the kernels that are live."""
        view = await self.driver.view()
        leases: dict[str, list[str]] = {}
        for held in view.leases:
            leases.setdefault(held.lease.kernel_id, []).append(held.lease.lease)
        requests: dict[str, list[str]] = {}
        for waiting in view.waiting:
            requests.setdefault(waiting.request.kernel_id, []).append(waiting.request.request)
        moves = {move.kernel_id: move.target or "" for move in view.migrations}
        not_moved = self.channel.desk.moves.not_moved
        mine = [kernel for kernel in view.kernels if access.may_see(self.identity, kernel.user)]
        self.answer(
            200,
            Kernels(
                [
                    KernelAnswer(
                        kernel.kernel_id,
                        kernel.user,
                        list(kernel.hosts),
                        kernel.gpus,
                        self.channel.desk.kernels.is_here(kernel.kernel_id),
                        leases.get(kernel.kernel_id, []),
                        requests.get(kernel.kernel_id, []),
                        moves.get(kernel.kernel_id, ""),
                        not_moved.get(kernel.kernel_id, ""),
                    )
                    for kernel in mine
                ]
            ),
        )


class KernelHandler(SchedulerHandler):
    """/api/v1/kernels/KERNEL."""

    operations: ClassVar = {
        "delete": Operation(
            "Take back what a kernel holds, drop what it waits for. It lives on and may ask again.",
            {200: Empty},
        )
    }

    async def delete(self, kernel: str) -> None:
        """Give back all that a kernel has."""
        name = KernelId(check_id(kernel, "kernel's id"))
        self.for_owner(self.driver.core.owner_of_kernel(name), f"Kernel {name}")
        await self.driver.apply(KernelEnded(name))
        await self.channel.happened(KernelEmptied(name))
        self.answer(200, Empty())


class QuotasHandler(SchedulerHandler):
    """/api/v1/quotas."""

    operations: ClassVar = {
        "get": Operation("One's own quota and what is used of it (an admin's: everybody's).", {200: Quotas})
    }

    async def get(self) -> None:
        """Answer with the quotas of whoever was ever seen."""
        view = await self.driver.view()
        self.answer(
            200,
            Quotas(
                [
                    QuotaAnswer(
                        user.user,
                        user.quota.gpu_quota,
                        user.quota.gpu_hours_month,
                        user.quota.priority,
                        user.held,
                        user.waited,
                        round(user.month_gpu_s / HOUR_S, 9),
                    )
                    for user in view.users
                    if user.user and access.may_see(self.identity, user.user)
                ]
            ),
        )


class QuotaHandler(SchedulerHandler):
    """/api/v1/quotas/USER."""

    operations: ClassVar = {
        "put": Operation(
            "Set a user's quota. One that comes with an identity (a Hub's groups) counts all the same.",
            {200: Empty},
            takes=QuotaBody,
        )
    }

    async def put(self, user: str) -> None:
        """Set a quota."""
        self.for_admins()
        body, name = self.body(QuotaBody), UserName(check_id(user, "user's name"))
        quota = UserQuota(body.gpu_quota, body.gpu_hours_month, body.priority)
        self.channel.desk.quota_given(name, quota)
        await self.driver.apply(QuotaSet(name, quota))
        self.answer(200, Empty())


class DrainHandler(SchedulerHandler):
    """/api/v1/hosts/NAME/draining."""

    operations: ClassVar = {
        "post": Operation(
            "Empty a host: nothing new is leased there until it was taken down and came back.",
            {200: Empty, 409: Why},
        )
    }

    async def post(self, name: str) -> None:
        """Let a host become empty."""
        self.for_admins()
        host = HostName(check_id(name, "host's name"))
        if not self.channel.desk.hosts.is_up(host):
            self.answer(409, Why(f"No host {host} is up."))
            return
        await self.driver.apply(HostDrained(host))
        self.answer(200, Empty())
