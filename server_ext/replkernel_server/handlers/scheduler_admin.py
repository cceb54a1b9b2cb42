"""The scheduler's REST resources for people who look after it: kernels, quotas, hosts that are emptied.

Law: everybody sees and ends his own kernels; the rest is for admins.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import UNSET, UnsetType
from replkernel_scheduler.events import HostDrained, HostUndrained, KernelEnded, QuotaSet
from replkernel_scheduler.types import HostName, UserName, UserQuota

from replkernel_server.errors import BadRequest, ServiceSettingError
from replkernel_server.handlers.scheduler_base import Operation, SchedulerHandler, paced
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
from replkernel_server.scheduling.underuse import read_rule, written

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
        view = await self.driver.view("kernels", "leases", "waiting")
        leases: dict[str, list[str]] = {}
        async for piece in paced(view.leases):
            for held in piece:
                leases.setdefault(held.lease.kernel_id, []).append(held.lease.lease)
        requests: dict[str, list[str]] = {}
        async for asked in paced(view.waiting):
            for waiting in asked:
                requests.setdefault(waiting.request.kernel_id, []).append(waiting.request.request)
        moves = {move.kernel_id: move.target or "" for move in view.migrations}
        not_moved = self.channel.desk.moves.not_moved
        await self.answer_lists(
            kernels=(
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
                    self.channel.desk.kernels.notebook_of(kernel.kernel_id),
                )
                for kernel in view.kernels
                if access.may_see(self.identity, kernel.user)
            )
        )


class KernelHandler(SchedulerHandler):
    """/api/v1/kernels/KERNEL."""

    operations: ClassVar = {
        "delete": Operation(
            "Take back what a kernel holds, drop what it waits for. It lives on and may ask again.",
            {200: Empty, 404: Why},
        )
    }

    async def delete(self, kernel: str) -> None:
        """Give back all that a kernel has."""
        name = self.own_kernel(kernel)
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
        view = await self.driver.view("users")
        currency = "" if view.money is UNSET else view.money.prices.currency
        await self.answer_lists(
            quotas=(
                QuotaAnswer(
                    user.user,
                    user.quota.gpu_quota,
                    user.quota.gpu_hours_month,
                    user.quota.priority,
                    user.held,
                    user.waited,
                    round(user.month_gpu_s / HOUR_S, 9),
                    None if user.quota.budget_month is UNSET else user.quota.budget_month,
                    None if user.spent_month is UNSET else round(user.spent_month, 6),
                    currency,
                    user.quota.preemptible is True,
                    None if user.quota.idle_gpus is UNSET else user.quota.idle_gpus,
                )
                for user in view.users
                if user.user and access.may_see(self.identity, user.user)
            )
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
        budget = UNSET if body.budget_month is None else body.budget_month
        pauses = True if body.preemptible else UNSET
        quota = UserQuota(
            body.gpu_quota,
            body.gpu_hours_month,
            body.priority,
            budget,
            preemptible=pauses,
            idle_gpus=self._idle_gpus(body.idle_gpus),
        )
        self.channel.desk.clients.quota_given(name, quota)
        await self.driver.apply(QuotaSet(name, quota))
        self.answer(200, Empty())

    def _idle_gpus(self, text: str | None) -> str | UnsetType:
        """Return what is kept of a rule that is stated."""
        if text is None or not text.strip():  # As the setting: whoever wants none says so.
            return UNSET
        try:
            return written(read_rule("idle_gpus", text))
        except ServiceSettingError as error:
            raise BadRequest(str(error)) from None


class DrainHandler(SchedulerHandler):
    """/api/v1/hosts/NAME/draining."""

    operations: ClassVar = {
        "post": Operation(
            "Empty a host: nothing new is leased there until draining ends, or it was down and came back.",
            {200: Empty, 409: Why},
        ),
        "delete": Operation("Use a host again that was to be emptied.", {200: Empty, 409: Why}),
    }

    async def post(self, name: str) -> None:
        """Let a host become empty."""
        await self._feed(HostDrained(self._host(name)))

    async def delete(self, name: str) -> None:
        """Let a host be used again."""
        await self._feed(HostUndrained(self._host(name)))

    def _host(self, name: str) -> HostName:
        self.for_admins()
        return HostName(check_id(name, "host's name"))

    async def _feed(self, event: HostDrained | HostUndrained) -> None:
        if not self.channel.desk.hosts.is_up(event.host):
            self.answer(409, Why(f"No host {event.host} is up."))
            return
        await self.driver.apply(event)
        self.answer(200, Empty())
