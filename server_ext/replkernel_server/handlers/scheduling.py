"""The scheduler's REST resources: status, hosts, leases, requests.

Law: each effect has one HTTP status; nothing is answered before it is durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec import UNSET
from replkernel_scheduler.effects import (
    HostRefused,
    LeaseEnded,
    LeaseGranted,
    LeaseQueued,
    LeaseRefused,
    LeaseUnknown,
    ReclaimLease,
)
from replkernel_scheduler.events import (
    HostDown,
    HostUp,
    LeaseAsked,
    LeaseLingered,
    LeaseReleased,
    LeaseRenewed,
    LeaseWithdrawn,
)
from replkernel_scheduler.harvest.asking import is_of_job
from replkernel_scheduler.harvest.types import HarvestEffect
from replkernel_scheduler.types import (
    Fence,
    Gpu,
    GpuUuid,
    HostName,
    KernelId,
    Lease,
    LeaseId,
    LeaseRequest,
    RequestId,
    UserName,
)
from replkernel_scheduler.users import amount
from replkernel_scheduler.view import HostView, LeaseView, WaitingView, gpu_phases

from replkernel.leasing.models import model_name
from replkernel_server.errors import BadRequest
from replkernel_server.handlers.scheduler_base import Operation, Query, SchedulerHandler, paced
from replkernel_server.handlers.scheduler_bookings import booking_answer
from replkernel_server.launchers.engine_usage import USER
from replkernel_server.scheduling import access
from replkernel_server.scheduling.desk_words import HostFixed, HostTakenDown
from replkernel_server.scheduling.documents import (
    NUMBER_MAX,
    ComingAnswer,
    Empty,
    Ended,
    FenceBody,
    FenceNumber,
    GpuAnswer,
    GpuBody,
    Granted,
    HostAnswer,
    HostBody,
    LeaseAnswer,
    LeaseBody,
    LingerBody,
    Lingering,
    Queued,
    Status,
    WaitingAnswer,
    Wanted,
    Why,
    check_id,
)

ESTIMATED_MAX = 100
"""So many of those in line hear how long they may wait still: a guess looks at all who are before one."""


class EffectHandler(SchedulerHandler):
    """Answers with what followed from an event; `nothing` is said where nothing did."""

    nothing: ClassVar[object] = Empty()

    def answer_effects(self, effects: Sequence[HarvestEffect], subject: str) -> None:
        """Answer with the effect that concerns `subject` (a host, request or lease)."""
        for effect in reversed(effects):
            outcome = self._outcome(effect, subject)
            if outcome is not None:
                self.answer(*outcome)
                return
        self.answer(200, self.nothing)

    def _outcome(self, effect: HarvestEffect, subject: str) -> tuple[int, object] | None:
        """Return HTTP status and document of `effect` if it is about `subject`."""
        match effect:
            case LeaseGranted(lease) if subject in (lease.request, lease.lease):
                counting = self.channel.desk.counting
                if counting is not None and subject == lease.request and not counting.may_be_told(lease):
                    return 202, Queued(0, None)
                if subject == lease.request and not self.channel.desk.guards.may_be_told(lease):
                    return 202, Queued(0, None)
                return 201, Granted(self.lease_answer(lease))
            case LeaseQueued(request, position, estimate_s) if subject == request:
                return 202, Queued(position, estimate_s)
            case LeaseRefused(request, why) if subject == request:
                return 409, Why(why)
            case LeaseEnded(lease, why) if subject == lease.lease:
                return 200, Ended(why)
            case LeaseUnknown(lease_id, why) if subject == lease_id:
                return 410, Why(why)
            case ReclaimLease(lease, until) if subject == lease.lease:
                return self.wanted(lease, self.driver.clock.left_s(until))
            case HostRefused(host, why) if subject == host:
                return 409, Why(why)
        return None

    def wanted(self, lease: Lease, within_s: float) -> tuple[int, object]:
        """Return the answer about a lease that is asked back."""
        why = f"Somebody waits for the GPUs of lease {lease.lease}: move its state off and give it back."
        return 409, Wanted(why, within_s)

    def lease_of(self, text: str, *, to_end: bool = False) -> LeaseId:
        """Return the lease that an address names; raise NotYours if it is not for who asks."""
        name = LeaseId(check_id(text, "lease's id"))
        owner = self.channel.desk.owners.leases.get(name)
        self.for_owner(None if owner is None else owner.user, f"Lease {name}")
        if owner is not None and to_end:
            self.unless(access.why_not_end(self.identity, owner.kernel_id))
        elif owner is not None:
            self.unless(access.why_not_kernel(owner.kernel_id))
        return name

    def as_counted(self, lease: Lease) -> Lease:
        """Return a lease with the GPUs that an engine gave for it, if one counts them."""
        counting = self.channel.desk.counting
        return lease if counting is None else counting.translated(lease)

    def lease_answer(self, lease: Lease, granted_at: float | None = None) -> LeaseAnswer:
        """Write a lease with the seconds that are left instead of a time on our clock."""
        lease = self.as_counted(lease)
        left_s = self.driver.clock.left_s(lease.expires_at)
        return LeaseAnswer(
            lease.lease,
            lease.request,
            self._cells_kernel(lease.kernel_id),
            lease.host,
            lease.gpus,
            lease.fence,
            lease.ttl_s,
            left_s,
            lease.user,
            self.channel.desk.kernels.notebook_of(self._cells_kernel(lease.kernel_id)),
            lease.user == self.identity.user,
            0.0 if granted_at is None else self._ago_s(granted_at),
            *part_of(lease),
        )

    def _ago_s(self, at: float) -> float:
        return round(max(0.0, self.driver.clock.now() - at), 3)

    def _cells_kernel(self, kernel_id: KernelId) -> KernelId:
        """Return the kernel whose cell has a lease, also where it is one of several hosts'."""
        return self.driver.beside.gangs.kernel_of(kernel_id) or kernel_id


class StatusHandler(EffectHandler):
    """/api/v1/status."""

    operations: ClassVar = {
        "get": Operation(
            "Hosts with their GPUs; one's own leases in force and requests that wait (an admin: all).",
            {200: Status},
        )
    }

    async def get(self) -> None:
        """Answer with everything that the scheduler knows, and whoever asks may see."""
        view = await self.driver.view("hosts", "leases", "waiting")
        holder: dict[GpuUuid, LeaseView] = {}
        sharing: dict[GpuUuid, list[LeaseView]] = {}
        others: dict[HostName, list[LeaseView]] = {}
        async for piece in paced(view.leases):
            for entry in piece:
                if entry.lease.user == USER:  # The engine says how many GPUs its jobs use, not which.
                    others.setdefault(entry.lease.host, []).append(entry)
                elif entry.lease.share is UNSET:
                    holder.update(dict.fromkeys(self.as_counted(entry.lease).gpus, entry))
                else:
                    sharing.setdefault(entry.lease.gpus[0], []).append(entry)
        await self.answer_lists(
            hosts=(self._host(host, holder, sharing, others.get(host.name, [])) for host in view.hosts),
            leases=(
                self.lease_answer(held.lease, held.granted_at)
                for held in view.leases
                if self._may_see(held.lease.user)
            ),
            queue=(self._waits(entry) for entry in view.waiting if self._may_see(entry.request.user)),
            counts=self.past.newest(waiting=len(view.waiting)),
            bookings=(booking_answer(one, self.driver.clock.now()) for one in self.driver.core.bookings()),
            coming=(ComingAnswer(name, why) for name, why in sorted(self.channel.desk.coming.items())),
        )

    def _waits(self, entry: WaitingView) -> WaitingAnswer:
        wish = entry.request
        return WaitingAnswer(
            wish.request,
            self._cells_kernel(wish.kernel_id),
            amount(wish),
            _awaits(entry, self.channel.desk.why_waits(wish.request)),
            wish.user,
            self.channel.desk.kernels.notebook_of(self._cells_kernel(wish.kernel_id)),
            wish.user == self.identity.user,
            entry.position,
            self._ago_s(entry.asked_at),
            self._expects_s(wish.request, entry.position),
        )

    def _expects_s(self, request: RequestId, position: int) -> float | None:
        """Return how long a request is expected to wait yet."""
        guess_s = self.driver.core.estimate_s(request) if position <= ESTIMATED_MAX else None
        return self.channel.desk.wait_s(request, guess_s, self.driver.clock.now())

    def _foremost(self, entries: list[LeaseView]) -> LeaseView:
        """Return the lease that stands for all on a shared GPU: one that computes, one's own among equals."""
        phase = next(iter(gpu_phases(entries).values()))
        alike = [entry for entry in entries if entry.phase == phase]
        return next((entry for entry in alike if entry.lease.user == self.identity.user), alike[0])

    def _may_see(self, user: UserName) -> bool:
        return access.may_see(self.identity, user)

    def _host(
        self,
        host: HostView,
        holder: dict[GpuUuid, LeaseView],
        sharing: dict[GpuUuid, list[LeaseView]],
        others: list[LeaseView],
    ) -> HostAnswer:
        use, gpus = self.channel.desk.hosts.use_of(host.name), []
        for gpu in host.gpus:
            if gpu.uuid in sharing:
                holder[gpu.uuid] = self._foremost(sharing[gpu.uuid])
        free = [gpu.uuid for gpu in host.gpus if gpu.uuid not in holder]
        holder.update(zip(free, others, strict=False))
        for gpu in host.gpus:
            held, busy = holder.get(gpu.uuid), use.get(gpu.uuid)
            lease = held.lease.lease if held is not None and self._may_see(held.lease.user) else None
            state = "idle" if held is None else _phase(held)
            told = (None, None) if busy is None else (busy.utilisation, busy.memory_used_gb)
            whose = {
                entry.lease.kernel_id for entry in sharing.get(gpu.uuid, () if held is None else (held,))
            }
            unleased = 0 if busy is None else len(set(busy.kernels) - whose)
            answer = GpuAnswer(gpu.uuid, lease, gpu.model, gpu.memory_gb, state, *told)
            answer.unleased = unleased
            gpus.append(answer)
        return HostAnswer(host.name, host.state, gpus, _keeps(self.driver.core.draining_awaits(host.name)))


def part_of(lease: Lease) -> tuple[float, float]:
    """Return which part of its GPU a lease has, and how many GiB of its memory."""
    share = lease.share
    return (0.0, 0.0) if share is UNSET else (share.milli / 1000, share.vram_mib / 1024)


def _phase(held: LeaseView) -> str:
    """Return what a lease's GPUs do: a job's linger for the core, so that cells get them, and are used."""
    is_job = held.phase == "lingering" and is_of_job(held.lease.request)
    return "job" if is_job else held.phase


def _keeps(reasons: dict[str, int]) -> str:
    """Say in a clause what is still on a host that is being drained."""
    return "; ".join(
        f"{count} {what}{'s' * (count > 1)}: {why}"
        for (what, _, why), count in ((reason.partition(": "), count) for reason, count in reasons.items())
    )


def _awaits(entry: WaitingView, why: str) -> str:
    """Say in a clause what a request waits for."""
    if entry.migration is not None:
        return "its kernel's hosts have not so many free, and another host is looked for"
    where = "" if entry.claim is None else f" for GPUs of host {entry.claim}"
    paused = "" if entry.request.paused is UNSET else "its cell is paused for a shorter one; "
    return f"{paused}number {entry.position} in line{where}" + (f"; {why}" if why else "")


class HostsHandler(EffectHandler):
    """/api/v1/hosts."""

    operations: ClassVar = {
        "post": Operation(
            "Register a host without an agent, or replace what it offers.",
            {200: Empty, 409: Why},
            takes=HostBody,
        )
    }

    async def post(self) -> None:
        """Register a host without an agent, or replace what it offers."""
        self.for_admins()
        body = self.body(HostBody)
        name = HostName(body.name)
        if name in self.channel.desk.hosts.watched:
            why = f"Host {name} has an agent, which says what it offers: stop that agent first."
            self.answer(409, Why(why))
            return
        known = [gpu if isinstance(gpu, GpuBody) else GpuBody(gpu) for gpu in body.gpus]
        gpus = tuple(Gpu(GpuUuid(gpu.uuid), model_name(gpu.model), gpu.memory_gb) for gpu in known)
        effects = await self.driver.apply(HostUp(name, gpus, body.cpu, body.memory_gb))
        if not any(isinstance(effect, HostRefused) for effect in effects):
            await self.channel.happened(HostFixed(name))
        self.answer_effects(effects, name)


class HostHandler(EffectHandler):
    """/api/v1/hosts/NAME."""

    operations: ClassVar = {"delete": Operation("Take a host down: its leases end.", {200: Empty})}

    async def delete(self, name: str) -> None:
        """Take a host down: its leases end."""
        self.for_admins()
        host = HostName(check_id(name, "host's name"))
        await self.driver.apply(HostDown(host))
        await self.channel.happened(HostTakenDown(host))
        self.answer(200, Empty())


class LeasesHandler(EffectHandler):
    """/api/v1/leases."""

    operations: ClassVar = {
        "post": Operation(
            "Ask for GPUs. Asking again with the same request id tells how it stands.",
            {201: Granted, 202: Queued, 409: Why, 429: Why},
            takes=LeaseBody,
        )
    }

    async def post(self) -> None:
        """Ask for a lease."""
        body = self.body(LeaseBody)
        for name in (body.request, body.kernel_id):
            if why := access.why_not_kernel(name):
                raise BadRequest(why)
        wish = LeaseRequest(
            request=RequestId(body.request),
            kernel_id=KernelId(body.kernel_id),
            gpus=body.gpus,
            ttl_s=body.ttl_s,
            hosts=tuple(HostName(host) for host in body.hosts),
            user=self.identity.user,
            gpu_model=model_name(body.gpu_model),
            vram_gb=body.vram_gb,
            cpu=body.cpu,
            memory_gb=body.memory_gb,
            expected_s=body.expected_s,
        )
        desk = self.channel.desk
        self.unless(access.why_not_lease(self.identity))
        self.for_owner(self.driver.core.owner_of_kernel(wish.kernel_id), f"Kernel {wish.kernel_id}")
        refusal = desk.guards.refusals.pop(wish.request, "")
        if refusal:
            self.answer(409, Why(refusal))
            return
        if wish.request not in desk.owners.requests:
            waiting, held = desk.owners.waiting_of(wish.user), desk.owners.held_by(wish.user)
            self.bounded(lambda bounds: bounds.asks(wish.user, waiting, held))
        if not desk.owners.asks(wish.request, wish.kernel_id, wish.user):
            owner = desk.owners.requests[wish.request]
            self.for_owner(owner.user, f"Request {wish.request}")
        self.answer_effects(await self.driver.apply(LeaseAsked(wish)), wish.request)


class LeaseHandler(EffectHandler):
    """/api/v1/leases/LEASE."""

    operations: ClassVar = {
        "delete": Operation(
            "Give a lease back.",
            {200: Ended, 410: Why},
            query=(Query("fence", FenceNumber, "The lease's fence, which its holder knows.", required=True),),
        )
    }

    async def delete(self, lease: str) -> None:
        """Give a lease back."""
        fence = self.get_query_argument("fence", "")
        if not (fence.isascii() and fence.isdecimal() and len(fence) <= 19 and int(fence) <= NUMBER_MAX):
            raise BadRequest("Say which lease you hold: add its fence to the address, as ?fence=N.")
        name = self.lease_of(lease, to_end=True)
        self.answer_effects(await self.driver.apply(LeaseReleased(name, Fence(int(fence)))), name)


class RenewalHandler(EffectHandler):
    """/api/v1/leases/LEASE/renewal."""

    operations: ClassVar = {
        "post": Operation(
            "Let a lease begin anew from now; one that lingers and is wanted back (409) does not.",
            {201: Granted, 409: Wanted, 410: Why},
            takes=FenceBody,
        )
    }

    async def post(self, lease: str) -> None:
        """Let a lease begin anew from now."""
        fence, name = Fence(self.body(FenceBody).fence), self.lease_of(lease)
        self.answer_effects(await self.driver.apply(LeaseRenewed(name, fence)), name)


class LingeringHandler(EffectHandler):
    """/api/v1/leases/LEASE/lingering."""

    operations: ClassVar = {
        "post": Operation(
            "The cell is over: its state stays on the GPUs until somebody wants them.",
            {200: Lingering, 410: Why},
            takes=LingerBody,
        )
    }

    nothing = Lingering()

    def wanted(self, lease: Lease, within_s: float) -> tuple[int, object]:
        """Tell that it lingers, and until when."""
        return 200, Lingering(within_s)

    async def post(self, lease: str) -> None:
        """Let a lease linger."""
        body, name = self.body(LingerBody), self.lease_of(lease)
        self.answer_effects(
            await self.driver.apply(LeaseLingered(name, Fence(body.fence), body.busy_s)), name
        )


class RequestHandler(EffectHandler):
    """/api/v1/requests/REQUEST."""

    operations: ClassVar = {"delete": Operation("Withdraw a request that waits.", {200: Empty})}

    async def delete(self, request: str) -> None:
        """Withdraw a request that waits."""
        name = RequestId(check_id(request, "request id"))
        owners = self.channel.desk.owners
        owner = owners.requests.get(name)
        self.for_owner(None if owner is None else owner.user, f"Request {name}")
        await self.driver.apply(LeaseWithdrawn(name))
        owners.withdrawn(name)
        self.answer(200, Empty())
