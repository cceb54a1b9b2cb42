"""Leases after they were granted: renewed, lingering, given back, expired.

| phase | event | then |
|---|---|---|
| active | LeaseRenewed | active, its time begins anew |
| active | LeaseLingered | lingering: accounted for, reclaimable |
| active, lingering, reclaiming | LeaseReleased | over: GPUs idle |
| lingering, reclaiming | HolderGone | over: GPUs idle |
| active | HolderGone, ended | over: GPUs idle |
| lingering | LeaseRenewed | lingering, its time begins anew |
| lingering | the same kernel asks | over: reused by the new lease |
| lingering | another request claims the host | reclaiming |
| reclaiming | LeaseRenewed | reclaiming, nothing is put off |
| reclaiming | LeaseRenewed, its state cannot leave | reclaiming, its time begins anew |
| reclaiming | LeaseRenewed, its state has not all left yet | reclaiming, its time begins anew |
| reclaiming, its state cannot leave | the same kernel asks | over: reused by the new lease, before others |
| active, lingering | not renewed in time | over: expired |
| reclaiming | not given back in time | over: not given back |
| active, lingering, reclaiming | Resumed | as before, for `grace_s` more at least |
| bound | its replica is ready | active |
| bound | its migration fails | over: the request waits again |

Law: a lease is changed by whoever knows its fence, or by its time. What it cost is accounted for once.
"""

from __future__ import annotations

from collections.abc import Callable

from replkernel_scheduler.cards import counted, holds
from replkernel_scheduler.effects import (
    EndReason,
    LeaseEnded,
    LeaseGranted,
    LeaseUnknown,
    ReclaimLease,
    UsageRecorded,
)
from replkernel_scheduler.events import HolderGone, LeaseLingered, LeaseReleased, LeaseRenewed, Resumed
from replkernel_scheduler.hosts import Host, LeaseRecord, share_of
from replkernel_scheduler.leases import until, with_gpus
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.serving import Serving
from replkernel_scheduler.timers import TimerKey
from replkernel_scheduler.types import LeaseId
from replkernel_scheduler.warming import Warming

HELD = ("active", "lingering", "reclaiming")
"""The phases of leases that somebody was told of."""


class LeaseLife:
    """Renewals and ends; `draining` is told of hosts that may have become empty (set by the core)."""

    draining: Callable[[Host], None]

    def __init__(self, parts: Parts, serving: Serving, warming: Warming) -> None:
        """Decide about `parts`."""
        self.parts, self.serving, self.warming = parts, serving, warming

    def renew(self, event: LeaseRenewed) -> None:
        """Let a lease's time begin anew."""
        record = self._named(event)
        if record is None:
            return
        parts, lease = self.parts, record.lease
        if record.phase == "reclaiming" and event.stays:
            if not record.kept:
                self.serving.touch(record.host)  # Who had counted on its GPUs is to look elsewhere.
            record.kept = True
            parts.timers.set(("lease", lease.lease), parts.now + lease.ttl_s)
            self._serve_own(record)
            return
        if record.kept:
            self.serving.touch(record.host)
        record.kept = False
        if record.phase == "reclaiming" and event.leaves:
            until_then = parts.timers.at(("lease", lease.lease)) or parts.now
            parts.timers.set(("lease", lease.lease), max(until_then, parts.now + lease.ttl_s))
            return
        if record.phase == "reclaiming":
            parts.out.append(ReclaimLease(lease, parts.timers.at(("lease", lease.lease)) or parts.now))
            return
        if record.pausing is not None:
            self.serving.pausing.tell(record)
        elif lease.lease in parts.pauses.pausable:  # It may have outlasted what was thought of it.
            self.serving.touch(record.host)
        record.lease = until(lease, parts.now + lease.ttl_s)
        parts.timers.set(("lease", lease.lease), record.lease.expires_at)
        parts.out.append(LeaseGranted(record.lease, record.warm))

    def _serve_own(self, record: LeaseRecord) -> None:
        """Serve a cell of a kernel whose state cannot leave: it would wait for those who wait for it."""
        parts = self.parts
        for request in parts.kernels.asks.get(record.lease.kernel_id, ()):
            waiting = parts.queue.by_request.get(request)
            if waiting is None or not waiting.wish.gpus:
                continue
            if waiting.hosts is not None and record.host not in waiting.hosts:
                continue
            choice = self.serving.choosing.own(record, waiting.wish)
            if choice is not None:
                self.serving.give(waiting, choice)
                return
            if not holds(record, waiting.wish):
                self.serving.granting.refuse(waiting, _too_small(record))
                return

    def release(self, event: LeaseReleased) -> None:
        """End a lease."""
        record = self._named(event)
        if record is not None:
            if record.pausing is not None:
                self.serving.pausing.given_back(record)
            self.end(record, "released", event.busy_s)

    def linger(self, event: LeaseLingered) -> None:
        """Keep a finished cell's state on its GPUs until somebody wants them."""
        record = self._named(event)
        if record is None or record.phase != "active":
            return
        record.told = False  # Its cell is over: it does not go on.
        if not record.lease.gpus or record.home is not None or record.host.state == "draining":
            self.end(record, "released", event.busy_s)
            return
        self._account(record, event.busy_s)
        record.rested_at, record.held_gb = self.parts.now, event.held_gb
        self.parts.leases.rest(record)
        self.serving.touch(record.host)

    def holder_gone(self, event: HolderGone) -> None:
        """End a lease that nobody speaks for any more; a cell may compute under it unseen."""
        record = self._named(event)
        if record is not None and (event.ended or record.phase != "active"):
            self.end(record, "holder gone")

    def end(self, record: LeaseRecord, why: EndReason, busy_s: float | None = None) -> None:
        """End a lease, tell, and serve those who wait for its GPUs."""
        parts = self.parts
        if record.phase == "active":
            self._account(record, busy_s)
        parts.timers.cancel(("lease", record.lease.lease))
        if record.phase == "reclaiming":
            parts.timers.cancel(("late", record.lease.lease))
        parts.leases.close(record)
        if record.home is not None:
            self._return(record)
        parts.out.append(LeaseEnded(record.lease, why))
        self.serving.touch(record.host)
        if record.host.state == "draining":
            self.draining(record.host)

    def activate(self, record: LeaseRecord) -> None:
        """Let a bound lease serve its request from now on."""
        record.phase = "active"
        record.forget()
        record.granted_at = self.parts.now
        record.expect()
        record.lease = until(record.lease, self.parts.now + record.lease.ttl_s)

    def unbind(self, record: LeaseRecord) -> None:
        """Take a bound lease back, of which nobody was told."""
        self._uncount(record)
        self.parts.leases.close(record)
        self.serving.touch(record.host)

    def resume(self, event: Resumed) -> None:
        """Let nothing end before `grace_s` from now: nobody could be told while the driver was away."""
        timers, soonest = self.parts.timers, self.parts.now + event.grace_s
        for record in self.parts.leases.by_id.values():
            key: TimerKey = ("lease", record.lease.lease)
            at = timers.at(key)
            if at is not None and at < soonest:
                timers.set(key, soonest)
                if record.phase != "reclaiming":
                    record.lease = until(record.lease, soonest)

    def due(self, lease: LeaseId) -> None:
        """End a lease whose time is over."""
        record = self.parts.leases.by_id[lease]
        self.end(record, "not given back" if record.phase == "reclaiming" else "expired")

    def _account(self, record: LeaseRecord, busy_s: float | None) -> None:
        parts, wish = self.parts, record.wish
        if wish.expected_s and not parts.pauses.unused:
            self.serving.pausing.ended(record)
        cost, row = None if parts.ledger.prices is None else parts.ledger.closed(record), None
        if wish.holder != "job":
            row = parts.accounts.close(record, busy_s, parts.now, cost)
            parts.users.by_name[row.user].tag += row.leased_s * row.gpus - record.estimate
        self._uncount(record)
        parts.kernels.answered(wish.kernel_id, wish.request)
        if record.warm:
            self.warming.give_back(record.host)
        if row is not None:
            parts.out.append(UsageRecorded(row))

    def _uncount(self, record: LeaseRecord) -> None:
        parts, card = self.parts, record.card
        if record.told or record.lease.lease in parts.pauses.pausable:
            self.serving.pausing.over(record)
        milli = 0 if card is None else counted(share_of(record), record.pool)
        parts.users.by_name[record.lease.user].hold(record.wish, -1, parts.now, milli)
        parts.demand.committed -= record.wish.gpus if card is None else card.computing() == 1
        if parts.migrations.looking:
            parts.migrations.wake(record.lease.kernel_id)

    def _return(self, record: LeaseRecord) -> None:
        """Give a cell's GPUs back to the lease that holds them for the kernel's whole life."""
        leases = self.parts.leases
        home = None if record.home is None else leases.by_id.get(record.home)
        if home is not None:
            taken = self.parts.hosts.take(record.pool, record.lease.gpus, len(record.lease.gpus))
            home.lease = with_gpus(home.lease, home.lease.gpus + taken)

    def _named(self, event: LeaseRenewed | LeaseReleased | LeaseLingered | HolderGone) -> LeaseRecord | None:
        record = self.parts.leases.by_id.get(event.lease)
        if record is not None and record.lease.fence == event.fence and record.phase in HELD:
            return record
        why = f"No lease {event.lease} with fence {event.fence} is in force; ask for a new one."
        self.parts.out.append(LeaseUnknown(event.lease, why))
        return None


def _too_small(record: LeaseRecord) -> str:
    """Say why a kernel that asks for a part of a GPU would wait for itself."""
    return (
        f"{record.held_gb:.3g} GiB of this kernel's state cannot leave {', '.join(record.lease.gpus)}, and "
        "do not fit into this part of a GPU: ask for a larger part, or for a whole GPU."
    )
