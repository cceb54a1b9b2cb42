"""GPUs that are booked for a while ahead: who made them, which are set aside, and who may have these.

Laws: what is set aside is idle and nobody's but the members'; a booking never has more set aside than it
lacks beside what its members hold. From `at` on idle GPUs are set aside before anybody who waits is served,
and what lingers is asked back. For a few usual leases before that they are set aside for whoever says
(`expected_s`) that he is done by then. No cell is ended for a booking. Without one nothing is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest

from msgspec import UNSET

from replkernel_scheduler.cards import cost
from replkernel_scheduler.effects import BookingRefused
from replkernel_scheduler.events import (
    BookingCancelled,
    BookingJoined,
    BookingMade,
    Event,
    HostAway,
    HostDown,
    HostDrained,
    HostUndrained,
    HostUp,
    LeaseAsked,
)
from replkernel_scheduler.hosts import Host, LeaseRecord, Pool, Waiting
from replkernel_scheduler.parts import Booked, Parts
from replkernel_scheduler.serving import Serving
from replkernel_scheduler.types import Booking, BookingId, LeaseRequest

BOOKINGS_MAX = 256
USERS_MAX = 10_000
AHEAD_S_MAX = 90 * 86_400.0
LASTS_S_MAX = 14 * 86_400.0
GATHERS_S_MIN, GATHERS_S_MAX = 60.0, 3600.0
GATHERS_TIMES = 3.0
"""It is begun to set GPUs aside so many usual leases before."""
USUAL_S = 300.0
LOOKS = 64
OF_HOSTS = (HostUp, HostDown, HostAway, HostDrained, HostUndrained)


class Bookings:
    """All that are not over, by when they begin."""

    def __init__(self, parts: Parts, serving: Serving) -> None:
        """Decide about `parts`."""
        self._parts, self._serving = parts, serving
        self.by_id = parts.booked

    # -- made and over ------------------------------------------------------------------------------

    def made(self, event: BookingMade) -> None:
        """Take a booking in, or give one that is known other times and sizes."""
        booking, parts = event.booking, self._parts
        why = self._problem(booking)
        if why is not None:
            parts.out.append(BookingRefused(booking.booking, why))
            return
        before = self.by_id.pop(booking.booking, None)
        if before is not None:
            self._let_go(before)
        booked = Booked(booking)
        booked.users |= before.users if before is not None else {}
        ordered = sorted(
            [*self.by_id.values(), booked], key=lambda one: (one.booking.at, one.booking.booking)
        )
        self.by_id.clear()
        self.by_id.update((one.booking.booking, one) for one in ordered)
        begins = booking.at - self._gathers_s()
        if begins > parts.now:
            parts.timers.set(("booking", booking.booking), begins)
        else:
            self.due(booking.booking)
            self.after()

    def joined(self, event: BookingJoined) -> None:
        """Count somebody among those who may have what is booked."""
        booked = self.by_id.get(event.booking)
        if booked is not None and len(booked.users) < USERS_MAX:
            booked.users[event.user] = None
            self._let_go(booked)  # Set aside again, once those of its requests are served that wait.

    def cancelled(self, event: BookingCancelled) -> None:
        """Forget a booking; what was set aside is everybody's again."""
        booked = self.by_id.pop(event.booking, None)
        if booked is not None:
            self._parts.timers.cancel(("booking", event.booking))
            self._let_go(booked)

    def due(self, name: BookingId) -> None:
        """Begin to set aside, open, or end a booking."""
        booked, timers = self.by_id[name], self._parts.timers
        booking = booked.booking
        if self._parts.now >= booking.until:
            del self.by_id[name]
            self._let_go(booked)
        elif self._parts.now >= booking.at:
            booked.phase = "open"
            timers.set(("booking", name), booking.until)
        else:
            booked.phase = "gathering"
            timers.set(("booking", name), booking.at)

    # -- around each event --------------------------------------------------------------------------

    def before(self, event: Event) -> None:
        """Have what is set aside be idle for the time of an event of a member's, or of a host's."""
        wish = event.request if isinstance(event, LeaseAsked) else None
        if wish is None and not isinstance(event, OF_HOSTS):
            return
        for booked in self.by_id.values():
            if booked.aside and (wish is None or self._may_have(booked, wish)):
                self._let_go(booked)

    def after(self) -> None:
        """Set aside what bookings lack, before anybody who waits is served."""
        taken: set[str] = set()
        for booked in self.by_id.values():
            if booked.phase == "planned":
                continue
            lacks = self._lacks(booked, taken)
            if booked.phase == "open" and (lacks > 0 or booked.aside) and self._parts.queue.by_request:
                members = self._waiting_members(booked)
                if any(self._would_do(booked, waiting) for waiting in members):
                    self._let_go(booked)
                    self._serve_members(members)
                    lacks = self._lacks(booked, taken)
            if lacks > 0:
                self._gather(booked, lacks)
            elif lacks < 0:
                self._let_go(booked, -lacks)
            taken.update(self._held(booked, taken))

    # -- inside -------------------------------------------------------------------------------------

    def ready(self, booked: Booked) -> int:
        """Return how many of its GPUs are set aside, or held by its members."""
        taken: set[str] = set()
        for other in self.by_id.values():
            held = {} if other.phase == "planned" else self._held(other, taken)
            if other is booked:
                return min(booked.booking.gpus, booked.count + sum(held.values()))
            taken.update(held)
        return 0

    def _problem(self, booking: Booking) -> str | None:
        now = self._parts.now
        if not 0 < booking.until - booking.at <= LASTS_S_MAX:
            return f"A booking lasts up to {LASTS_S_MAX / 86_400:.0f} days."
        if booking.until <= now or booking.at > now + AHEAD_S_MAX:
            return f"A booking begins within {AHEAD_S_MAX / 86_400:.0f} days, and ends later than now."
        others = [one.booking for one in self.by_id.values() if one.booking.booking != booking.booking]
        if len(others) >= BOOKINGS_MAX:
            return f"There are {BOOKINGS_MAX} bookings already; cancel one first."
        pools = [pool for host in self._parts.hosts.by_name.values() for pool in host.pools]
        there = sum([len(pool.uuids) for pool in pools if booking.gpu_model in ("", pool.model)])
        beside = sum(
            [one.gpus for one in others if one.at < booking.until and booking.at < one.until
             and (not booking.gpu_model or one.gpu_model in ("", booking.gpu_model))]
        )  # fmt: skip
        if not 0 < booking.gpus <= there - beside:
            return f"{max(0, there - beside)} GPUs can be booked for that time, not {booking.gpus}."
        return None

    def _gathers_s(self) -> float:
        """Return how long before it begins GPUs are set aside for a booking."""
        usual_s = self._parts.accounts.mean_hold_s or USUAL_S
        return max(GATHERS_S_MIN, min(GATHERS_S_MAX, GATHERS_TIMES * usual_s))

    def _may_have(self, booked: Booked, wish: LeaseRequest) -> bool:
        """Say whether a request may have what is set aside; jobs take what nobody needs."""
        if wish.holder is not UNSET:
            return False
        if booked.phase == "open":
            return wish.user in booked.users
        return 0 < wish.expected_s <= booked.booking.at - self._parts.now

    def _lacks(self, booked: Booked, taken: set[str]) -> int:
        """Return how many GPUs are missing beside what is set aside, and what members hold; or too many."""
        return booked.booking.gpus - booked.count - sum(self._held(booked, taken).values())

    def _held(self, booked: Booked, taken: set[str]) -> dict[str, int]:
        """Count the GPUs that members hold, by lease: each for one booking, and not those that are `taken`.

        A card on which they have parts is one GPU, however many parts these are. Their jobs' do not count.
        """
        if booked.phase != "open":
            return {}
        held: dict[str, int] = {}
        model = booked.booking.gpu_model
        for record in self._parts.leases.by_id.values():
            lease = record.lease
            if _is_members(record, booked) and model in ("", record.pool.model):
                name = lease.lease if record.card is None else lease.gpus[0]
                if name not in taken:
                    held[name] = len(lease.gpus)
        return held

    def _let_go(self, booked: Booked, count: int | None = None) -> None:
        """Make what is set aside idle again: all of it, or so many."""
        for pool, gpus in list(booked.aside.items()):
            part = gpus if count is None else gpus[:count]
            if not part:
                return
            count = None if count is None else count - len(part)
            self._parts.hosts.give(pool, part)
            self._serving.touch(pool.host)
            if len(part) == len(gpus):
                del booked.aside[pool]
            else:
                booked.aside[pool] = gpus[len(part) :]

    def _gather(self, booked: Booked, lacks: int) -> None:
        """Set so many idle GPUs aside, on few hosts; then what lingers is asked back."""
        model = booked.booking.gpu_model
        pools = [
            pool
            for host in self._parts.hosts.by_name.values() if host.state == "up"
            for pool in host.pools if model in ("", pool.model)
        ]  # fmt: skip
        for pool in sorted(pools, key=lambda pool: (pool not in booked.aside, -len(pool.idle), pool.name)):
            count = min(lacks, len(pool.idle))
            if count > 0:
                taken = self._parts.hosts.take(pool, None, count)
                booked.aside[pool] = booked.aside.get(pool, ()) + taken
                self._serving.touch(pool.host)  # Who had counted on them is to look elsewhere.
                lacks -= count
        if booked.phase == "open" and lacks > 0 and not self._parts.policies.keeps:
            self._ask_back(booked, pools, lacks)

    def _waiting_members(self, booked: Booked) -> list[Waiting]:
        """Return the first of its members that wait for GPUs."""
        found = [
            waiting
            for waiting in self._parts.queue.by_request.values()
            if waiting.wish.user in booked.users and waiting.wish.gpus and waiting.wish.holder is UNSET
        ]
        return nsmallest(LOOKS, found, key=lambda waiting: waiting.key)

    def _hosts_of(self, waiting: Waiting) -> Iterable[Host]:
        """Return the hosts that may serve a request."""
        return self._parts.hosts.by_name.values() if waiting.hosts is None else waiting.hosts

    def _would_do(self, booked: Booked, waiting: Waiting) -> bool:
        """Say whether a member would be served with what is idle or set aside, beside his kernel's own."""
        wish, own = waiting.wish, self._parts.leases.resting.get(waiting.wish.kernel_id, {}).values()
        for host in self._hosts_of(waiting):
            for pool in host.pools if host.state == "up" else ():
                gpus = len(pool.idle) + len(booked.aside.get(pool, ()))
                gpus += sum([len(record.lease.gpus) for record in own if record.pool is pool])
                if gpus >= wish.gpus and pool.suits(wish):
                    return True
        return False

    def _serve_members(self, members: list[Waiting]) -> None:
        """Serve members that wait with what is idle."""
        for waiting in members:
            for host in list(self._hosts_of(waiting)):
                choice = self._serving.choosing.on(host, waiting.wish)
                if choice is not None:
                    self._serving.give(waiting, choice)
                    break

    def _ask_back(self, booked: Booked, pools: list[Pool], lacks: int) -> None:
        """Ask back what others have left on GPUs, the least to move first, beside what is on its way."""
        lacks -= sum([pool.reclaiming for pool in pools])
        wanted = {id(pool) for pool in pools}
        resting = [
            [record]
            for record in self._parts.leases.by_id.values()
            if record.phase == "lingering"
            and id(record.pool) in wanted
            and record.card is None
            and not _is_members(record, booked)
        ]
        for card in [card for pool in pools for card in pool.cards.values() if card.phase == "lingering"]:
            records = list(card.records.values())
            if not any(_is_members(record, booked) for record in records):
                resting.append(records)
        for records in sorted(resting, key=cost):
            if lacks <= 0:
                return
            lacks -= len(records[0].lease.gpus)
            for record in records:
                if record.phase == "lingering":
                    self._serving.ask_back(record)


def _is_members(record: LeaseRecord, booked: Booked) -> bool:
    """Say whether a lease is a member's own, and not one of his jobs'."""
    return record.lease.user in booked.users and record.wish.holder is UNSET
