"""Whom to ask for lingering GPUs, for whom, and how long whoever waits is thought to wait.

Law: it looks and changes nothing. Holders are asked back by what it costs them: the least to move first, and
of equals whose state has lain there longest; nobody is asked whose GPUs are not needed beside the others'.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from replkernel_scheduler.cards import Room, holds
from replkernel_scheduler.hosts import Host, LeaseRecord, Pool, Waiting
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.passing import Passing

WAITING_MAX = 64
"""For no more of those who wait for a host GPUs are asked back at once."""
TOLD_MAX = 16
"""At most so many requests a line are told of a change."""
GIVEN_BACK_S = 2.0
"""Holders mostly give back within this; of one that has not, the deadline is told."""


class Asking:
    """Looks at who waits and at what lingers."""

    def __init__(self, parts: Parts) -> None:
        """Look at `parts`."""
        self._parts, self._passing = parts, Passing(parts)

    def waiting_for(self, host: Host) -> list[Waiting]:
        """Return who is to be served on a host, first ones first; for any host: all of the shape."""
        found = host.claims[:WAITING_MAX]
        heads = self._parts.queue.any_lines and [waiting for _, waiting in found if waiting.hosts is None]
        if heads:
            for head in heads:
                found += self._parts.queue.any_lines[head.shape][1:WAITING_MAX]
            found = sorted(found, key=lambda place: place[0])[:WAITING_MAX]
        return [waiting for _, waiting in found]

    def takers(self, host: Host) -> dict[Pool, list[Waiting]]:
        """Return all whom a host can serve beside what computes there, by the pool that serves them."""
        found: dict[Pool, list[Waiting]] = {}
        pools = host.pools
        waits = self.waiting_for(host)
        if waits and waits[0].wish.paused is not UNSET:
            waits = self._passing.takers(host, waits)
        if (self._parts.hosts.open or self._parts.queue.shares) and self._has_shares(host, waits):
            return self._takers_of_shares(host, waits)
        if len(pools) == 1:
            (pool,) = pools
            left_here, those = len(pool.idle) + pool.lingering + pool.reclaiming, []
            if pool.reclaiming:
                left_here -= self._kept(pool, waits)
            for waiting in waits:
                left_here -= waiting.wish.gpus
                if left_here < 0 or not pool.suits(waiting.wish):
                    break  # Nobody behind it is served before it.
                those.append(waiting)
            return {pool: those} if those else found
        left = [len(pool.idle) + pool.lingering + pool.reclaiming - self._kept(pool, waits) for pool in pools]
        for waiting in waits:
            gpus = waiting.wish.gpus
            for number, pool in enumerate(pools):
                if left[number] >= gpus and pool.suits(waiting.wish):
                    left[number] -= gpus
                    found.setdefault(pool, []).append(waiting)
                    break
            else:
                break  # Nobody behind it is served before it.
        return found

    def _kept(self, pool: Pool, waits: list[Waiting]) -> int:
        """Count GPUs that state cannot leave, of kernels that do not go on with them: nobody gets these."""
        kept = [r for r in pool.host.leases.values() if r.kept and r.pool is pool] if pool.reclaiming else ()
        if not kept:
            return 0
        own = {waiting.wish.kernel_id for waiting in waits}
        return sum([len(r.lease.gpus) for r in kept if r.card is None and r.lease.kernel_id not in own])

    def _has_shares(self, host: Host, waits: list[Waiting]) -> bool:
        """Say whether shares of a host's GPUs are leased, or wanted by any of these."""
        wanted = any(waiting.wish.share is not UNSET for waiting in waits)
        return wanted or any(pool.cards for pool in host.pools)

    def _takers_of_shares(self, host: Host, waits: list[Waiting]) -> dict[Pool, list[Waiting]]:
        """Return the same where shares of GPUs are wanted, or leased."""
        own = {waiting.wish.kernel_id for waiting in waits}
        rest = {
            id(record)
            for record in host.leases.values()
            if record.phase in ("lingering", "reclaiming")
            and (not record.kept or record.lease.kernel_id in own)
        }
        rooms = [Room(pool, rest, []) for pool in host.pools]
        found: dict[Pool, list[Waiting]] = {}
        for waiting in waits:
            for room in rooms:
                if room.pool.suits(waiting.wish) and room.take(waiting.wish):
                    found.setdefault(room.pool, []).append(waiting)
                    break
            else:
                break  # Nobody behind it is served before it.
        return found

    def holders(self, pool: Pool, takers: list[Waiting]) -> list[LeaseRecord]:
        """Return whom to ask for what these need beside what is idle, or is their own."""
        if (self._parts.hosts.open or self._parts.queue.shares) and self._has_shares(pool.host, takers):
            return [] if self._parts.policies.keeps else self._holders_of_shares(pool, takers)
        need = sum([waiting.wish.gpus for waiting in takers]) - len(pool.idle) - pool.reclaiming
        late = self.late(pool) if pool.reclaiming else 0
        leaving = _leaving(pool) if late and need <= 0 else ()
        need += late
        if need <= 0 or self._parts.policies.keeps:
            return []
        own = {id(record): record for waiting in takers for record in self._own(pool, waiting)}
        need -= sum([len(record.lease.gpus) for record in own.values()])
        if need <= 0:
            return []
        resting = [
            record
            for record in pool.host.leases.values()
            if record.pool is pool and record.phase == "lingering" and id(record) not in own
        ]
        if leaving:  # What is wanted of them they leave as a whole, however late.
            resting = [record for record in resting if _job_of(record) not in leaving]
        asked: list[LeaseRecord] = []
        for record in sorted(resting, key=cost):
            if need <= 0:
                break
            asked.append(record)
            need -= len(record.lease.gpus)
        for record in reversed(asked.copy()):
            if need + len(record.lease.gpus) <= 0:
                need += len(record.lease.gpus)
                asked.remove(record)
        return asked

    def _holders_of_shares(self, pool: Pool, takers: list[Waiting]) -> list[LeaseRecord]:
        """Return the same where shares of GPUs are wanted, or leased."""
        own = {id(record) for waiting in takers for record in self._own(pool, waiting)}
        gone, lingering, late = own.copy(), list[LeaseRecord](), set[int]()
        for record in pool.host.leases.values():
            if record.pool is pool and record.phase == "reclaiming" and not self._is_late(record):
                gone.add(id(record))
            elif record.pool is pool and record.phase == "reclaiming":
                late.add(id(record))
            elif record.pool is pool and record.phase == "lingering" and id(record) not in own:
                lingering.append(record)
        room, asked = Room(pool, gone, lingering), list[LeaseRecord]()
        for waiting in takers:
            if room.take(waiting.wish):
                continue
            more = room.ask(waiting.wish)
            if not more and late:  # Others are asked though somebody who is late has to give back as well.
                rest = [record for record in lingering if record not in asked]
                room = Room(pool, gone | late | {id(record) for record in asked}, rest)
                return asked if room.take(waiting.wish) else asked + room.ask(waiting.wish)
            asked += more
            room.take(waiting.wish)
        return asked

    def late(self, pool: Pool) -> int:
        """Count GPUs whose holders have not given back in the usual time: others are asked for as many."""
        now = self._parts.now
        late = [
            record
            for record in pool.host.leases.values()
            if record.phase == "reclaiming" and record.pool is pool and record.wanted_at + GIVEN_BACK_S <= now
        ]
        if not pool.cards:
            return sum([len(record.lease.gpus) for record in late]) if late else 0
        cards = {record.card.number for record in late if record.card and record.card.phase == "reclaiming"}
        return len(cards) + sum([len(record.lease.gpus) for record in late if record.card is None])

    def _is_late(self, record: LeaseRecord) -> bool:
        return record.wanted_at + GIVEN_BACK_S <= self._parts.now

    def _own(self, pool: Pool, waiting: Waiting) -> Iterator[LeaseRecord]:
        """Yield the lease that a request goes on with: its GPUs need not be given back first."""
        resting = self._parts.leases.resting.get(waiting.wish.kernel_id, {}).values()
        for record in resting:
            if record.pool is pool and record.phase == "lingering" and holds(record, waiting.wish):
                yield record
                return

    # -- how long that takes ------------------------------------------------------------------------

    def estimate_s(self, waiting: Waiting) -> float | None:
        """Guess the wait: until GPUs are given back, if that is enough, else until cells end as well."""
        back_s, enough = self._given_back_s(waiting)
        if enough:
            return None if back_s is None else round(back_s, 3)
        guess_s = self._by_mean_s(waiting)
        if guess_s is None or back_s is None:
            return guess_s
        return round(max(guess_s, back_s), 3)

    def _given_back_s(self, waiting: Waiting) -> tuple[float | None, bool]:
        """Return when the GPUs that are asked back come, and whether they suffice for `waiting`."""
        host = waiting.claim
        if host is None or not waiting.wish.gpus:
            return None, False
        if (self._parts.hosts.open or self._parts.queue.shares) and self._has_shares(host, [waiting]):
            return self._shares_given_back_s(waiting, host)
        for pool in host.pools:
            if pool.reclaiming and pool.suits(waiting.wish):
                break
        else:
            return None, False
        before = [each for each in self.waiting_for(host) if each.key <= waiting.key]
        need = sum([each.wish.gpus for each in before if pool.suits(each.wish)]) - len(pool.idle)
        coming = sorted(
            [
                (self._comes_s(record), len(record.lease.gpus))
                for record in host.leases.values()
                if record.phase == "reclaiming" and record.pool is pool
            ]
        )
        at_s = 0.0
        for comes_s, gpus in coming:
            at_s, need = comes_s, need - gpus
            if need <= 0:
                break
        return at_s, need <= 0

    def _shares_given_back_s(self, waiting: Waiting, host: Host) -> tuple[float | None, bool]:
        """Return the same where shares of GPUs are wanted, or leased: when all is back that is asked for."""
        coming = [
            self._comes_s(record)
            for record in host.leases.values()
            if record.phase == "reclaiming" and record.pool.suits(waiting.wish)
        ]
        if not coming:
            return None, False
        return max(coming), any(waiting in those for those in self.takers(host).values())

    def _comes_s(self, record: LeaseRecord) -> float:
        """Guess when a holder that was asked gives back: in a moment, or else at its deadline."""
        now = self._parts.now
        left_s = max(0.0, (self._parts.timers.at(("lease", record.lease.lease)) or now) - now)
        soon_s = GIVEN_BACK_S / 2
        return min(soon_s, left_s) if now < record.wanted_at + GIVEN_BACK_S else left_s

    def _by_mean_s(self, waiting: Waiting) -> float | None:
        """Guess by how long leases were held: its GPUs and those before it, over the GPUs there.

        Nothing is guessed from a few leases, nor where all holders have taken longer than usual already.
        """
        hold_s = self._parts.accounts.usual_hold_s
        if hold_s is None or self._outlasted(waiting.claim, hold_s):
            return None
        host = waiting.claim
        if waiting.hosts is None or host is None:
            ahead, gpus = waiting.told * waiting.wish.gpus, self._parts.hosts.gpus
            if ahead and gpus:
                return round(hold_s * ahead / gpus, 3)
        else:
            ahead, gpus = (
                sum([other.wish.gpus for _, other in host.claims[: min(waiting.told, TOLD_MAX)]]),
                host.gpus,
            )
        return round(hold_s * max(1, ahead) / max(1, gpus), 3)

    def _outlasted(self, host: Host | None, hold_s: float) -> bool:
        """Tell whether every cell that has GPUs of a host has had them for longer than that."""
        if host is None:
            return False
        now, computes = self._parts.now, False
        for record in reversed(host.leases.values()):
            if record.phase == "active":
                computes = True
                if now - record.granted_at <= hold_s:
                    return False  # Who came last is likely to be the first that tells it.
        return computes


def _leaving(pool: Pool) -> set[str]:
    """Return the jobs that are on their way off GPUs of a pool."""
    reclaiming = [record for record in pool.host.leases.values() if record.phase == "reclaiming"]
    return {job for record in reclaiming if (job := _job_of(record))}


def _job_of(record: LeaseRecord) -> str:
    """Return what the requests of one job have in common; nothing of a cell's."""
    return record.wish.request.rpartition(".")[0] if record.wish.holder == "job" else ""


def cost(record: LeaseRecord) -> tuple[float, float, int]:
    """Return what it costs to have a lease's GPUs back: smaller is better."""
    return record.held_gb, record.rested_at, record.lease.fence
