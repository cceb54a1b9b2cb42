"""Requests come, are granted, wait, are refused or withdrawn.

Law: a request is in one of three places: a lease serves it, it waits, or nobody knows it. Its GPUs count
for its user from the moment that it is taken in until its cell is over.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import UNSET, UnsetType

from replkernel_scheduler import wishes
from replkernel_scheduler.cards import best_card, counted, share_on
from replkernel_scheduler.choosing import Choice, Choosing
from replkernel_scheduler.effects import LeaseChanged, LeaseEnded, LeaseGranted, LeaseQueued, LeaseRefused
from replkernel_scheduler.hosts import Card, LeaseRecord, Pool, Waiting
from replkernel_scheduler.kernels import Kernel
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.passing import FIRST
from replkernel_scheduler.pausing import may_pause, stood_still
from replkernel_scheduler.policies.protocol import Turn
from replkernel_scheduler.serving import Serving
from replkernel_scheduler.types import (
    NOBODY,
    GpuUuid,
    KernelId,
    Lease,
    LeaseId,
    LeasePhase,
    LeaseRequest,
    Price,
    RequestId,
)
from replkernel_scheduler.users import NO_QUOTA, User, amount
from replkernel_scheduler.warming import Warming

HOLD_S_GUESS = 5.0
"""Rather too little: a user whose first leases last longer is charged for that when they end."""


class Moves(Protocol):
    """Who moves replicas to where their kernels' requests can be served."""

    def consider(self, waiting: Waiting, *, asked_back: bool = False) -> None:
        """Begin a migration for a request that none of its kernel's hosts can serve."""

    def withdrawn(self, kernel_id: KernelId) -> None:
        """Undo what was begun for a request that is withdrawn."""

    def go_on_draining(self, kernel: Kernel) -> None:
        """Move the kernel's replicas away from hosts that are being drained."""


class Granting:
    """Asks, withdrawals and grants; `moving` and `warming` are set by who wires the core."""

    moving: Moves
    warming: Warming

    def __init__(self, parts: Parts, choosing: Choosing, serving: Serving) -> None:
        """Decide about `parts`."""
        self.parts, self.choosing, self.serving = parts, choosing, serving
        self.backfilling = serving.backfilling

    def ask(self, wish: LeaseRequest) -> None:
        """Serve a request at once, let it wait, or refuse it."""
        parts, request = self.parts, wish.request
        if request in parts.leases.of_request or request in parts.queue.by_request:
            self._tell_again(request)
            return
        if wish.paused is not UNSET or parts.pauses.owed:
            wish = self.serving.pausing.goes_on(wish)
        kernel = parts.kernels.by_id.get(wish.kernel_id)
        why = wishes.problem(parts, wish, kernel)
        user = parts.users.get(wish.user if why is None else NOBODY)
        limited = user.quota is not NO_QUOTA or parts.ledger.prices is not None
        if limited and why is None and wish.paused is UNSET:
            why = self._beyond(user, wish)
        if why is not None:
            parts.out.append(LeaseRefused(wish.request, why))
            return
        parts.asked += 1
        if parts.pauses.pausable:
            self.serving.pausing.came(wish)
        cost = 0.0
        if wish.holder != "job":
            parts.accounts.asked(wish.kernel_id, wish.user, wish.gpus, parts.now)
            count = wish.gpus if wish.share is UNSET else amount(wish)
            cost = count * (parts.accounts.hold_s_of(wish.user) or HOLD_S_GUESS)
        tag = parts.users.tag(user, cost)
        turn = Turn(user.quota.priority, tag, parts.asked, wish.gpus, wish.user, parts.now, wish.expected_s)
        stood = wish.paused is not UNSET  # It stands where it ran: before everybody.
        key = (FIRST, parts.asked) if stood else parts.policies.order.key(turn)
        parts.kernels.asked(wish.kernel_id, wish.request)
        hosts = self.choosing.hosts_for(wish, kernel)
        waits = stood and bool(parts.queue.by_request)  # Whoever passes it is to be looked at.
        choice = None if waits else self.choosing.at_once(wish, kernel, hosts, key)
        if (
            choice is None
            and not stood
            and self.backfilling.enabled
            and parts.queue.by_request
            and not parts.policies.reserve
        ):
            choice = self.backfilling.at_once(wish, hosts, key)
        waiting = Waiting(wish, key, parts.now, hosts)
        waiting.tag, waiting.estimate = tag, cost
        if wish.share is UNSET:
            user.waited += wish.gpus
        else:
            user.milli_waited += wish.share.milli
        if choice is not None:
            self.serve(waiting, choice)
            if choice.pool.host.claims:  # Who waits there had counted on these GPUs, and needs others back.
                self.serving.touch(choice.pool.host)
            return
        self.serving.wait(waiting)
        for host in hosts or () if stood else ():
            self.serving.touch(host)
        comes = self.serving.reclaim(waiting)
        self.serving.tell(waiting)
        if not comes and not stood:
            self.moving.consider(waiting, asked_back=True)

    def serve(self, waiting: Waiting, choice: Choice) -> None:
        """Grant a request that no longer stands in any line."""
        self.lease(waiting, choice, "active")

    def lease(self, waiting: Waiting, choice: Choice, phase: LeasePhase) -> LeaseRecord:
        """Take GPUs for a request; tell its asker, unless they are only bound for its replica."""
        parts, wish = self.parts, waiting.wish
        user = parts.users.by_name[wish.user]
        pool, own = choice
        card, share = None, wish.share
        if share is UNSET:
            gpus = None if own is None or not wish.gpus else self._reuse(pool, own, wish.gpus)
            taken = parts.hosts.take(pool, gpus, wish.gpus)
        else:
            card, share = self._card(choice, wish), share_on(pool, wish)
            taken = (pool.uuids[card.number],)
        fence = parts.leases.next_fence()
        lease = Lease(
            LeaseId(f"lease-{fence}"),
            wish.request,
            wish.kernel_id,
            pool.host.name,
            taken,
            fence,
            wish.ttl_s,
            parts.now + wish.ttl_s,
            wish.user,
            self._price_of(pool, wish),
            share,
        )
        record = LeaseRecord(lease, pool, wish, phase, card)
        record.asked_at, record.granted_at, record.estimate = waiting.asked_at, parts.now, waiting.estimate
        if own is not None and own.phase == "reserved":
            record.home = own.lease.lease
        parts.leases.open(record)
        if wish.share is UNSET:
            user.waited -= wish.gpus
        else:
            user.milli_waited -= wish.share.milli
        user.hold(wish, 1, parts.now, 0 if share is UNSET else counted(share, pool))
        if waiting.tag > parts.users.virtual and wish.holder != "job":
            parts.users.virtual = waiting.tag
        parts.demand.committed += wish.gpus if card is None else card.computing() == 1
        if phase == "active":
            self.start(record)
        return record

    def start(self, record: LeaseRecord) -> None:
        """Let a lease's time begin, and tell the asker."""
        parts, lease = self.parts, record.lease
        kernel = parts.kernels.by_id.get(lease.kernel_id)
        if kernel is not None and lease.gpus:
            kernel.last = lease.host
        if parts.ledger.prices is not None:
            parts.ledger.started(record)
        if record.wish.paused is not UNSET:
            record.wish = stood_still(record.wish, record.granted_at - record.asked_at)
        if record.wish.preemptible is not UNSET and lease.gpus and may_pause(record.wish):
            parts.pauses.pausable[lease.lease] = record
        if parts.policies.executor.anywhere:
            record.warm = self.warming.use(record.host)
        parts.timers.set(("lease", lease.lease), lease.expires_at)
        parts.out.append(LeaseGranted(lease, record.warm))

    def withdraw(self, request: RequestId) -> None:
        """Let a request leave the queue; one that is on its way to another host comes back first."""
        held = self.parts.leases.of_request.get(request)
        if held is not None and held.phase == "bound":
            self.moving.withdrawn(held.lease.kernel_id)
        waiting = self.parts.queue.by_request.get(request)
        if waiting is not None:
            self.drop(waiting)

    def refuse(self, waiting: Waiting, why: str) -> None:
        """Take a request out of the queue and say why."""
        self.drop(waiting)
        self.parts.out.append(LeaseRefused(waiting.wish.request, why))

    def drop(self, waiting: Waiting) -> None:
        """Forget a request that waits."""
        parts = self.parts
        user = parts.users.get(waiting.wish.user)
        user.tag -= waiting.estimate
        user.wait(waiting.wish, -1)
        self.serving.leave(waiting)
        parts.kernels.answered(waiting.wish.kernel_id, waiting.wish.request)
        kernel = parts.kernels.by_id.get(waiting.wish.kernel_id)
        if waiting.wish.paused is not UNSET and kernel is not None:
            self.moving.go_on_draining(kernel)

    def _beyond(self, user: User, wish: LeaseRequest) -> str | None:
        """Say which quota or budget a request would break."""
        parts = self.parts
        why = user.problem(wish, parts.now, wishes.counts_as(parts, wish))
        if why is None and wish.holder is UNSET:
            why = parts.ledger.problem(user, wish.gpus)
        return why

    def _tell_again(self, request: RequestId) -> None:
        """Say how a request stands that was asked for before."""
        held = self.parts.leases.of_request.get(request)
        if held is not None:
            bound = held.phase == "bound"
            self.parts.out.append(LeaseQueued(request, 0) if bound else LeaseGranted(held.lease, held.warm))
        else:
            self.serving.tell(self.parts.queue.by_request[request])

    def _price_of(self, pool: Pool, wish: LeaseRequest) -> Price | UnsetType:
        """Return what a lease costs its user, where there are prices and a cell asks."""
        if self.parts.ledger.prices is None or wish.holder is not UNSET:
            return UNSET
        return self.parts.ledger.price_of(pool, wish) or UNSET

    def _card(self, choice: Choice, wish: LeaseRequest) -> Card:
        """Return the card on which a share is to be: its kernel's own, else where it fits best."""
        pool, own = choice
        if own is not None:
            number = pool.number_of[self._reuse(pool, own, 1)[0]]
        else:
            best = best_card(pool, wish)
            assert best is not None
            number = best[1]
        return self.parts.hosts.take_share(pool, number)

    def _reuse(self, pool: Pool, own: LeaseRecord, count: int) -> tuple[GpuUuid, ...]:
        """Make a resting lease's GPUs idle, as many as are wanted, and return what to take: those first."""
        parts = self.parts
        reused = own.lease.gpus[:count]
        missing = count - len(reused)
        others = tuple([pool.uuids[number] for number in pool.idle[:missing]])
        before = own.lease
        parts.leases.cut(own, reused)
        if before.lease not in parts.leases.by_id:
            parts.timers.cancel(("lease", before.lease))
            parts.timers.cancel(("late", before.lease))
            parts.out.append(LeaseEnded(before, "reused"))
        elif own.phase != "reserved":
            parts.out.append(LeaseChanged(own.lease))
        return reused + others
