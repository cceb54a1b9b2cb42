"""The lines: who claims which host, who is served when GPUs come free, and who is told where it stands.

Laws: whoever waits is served as soon as a host that may serve it has the GPUs and no claim there stands
before it. GPUs that only hold a finished cell's state are asked back for all who can be served with them. So
a large request never starves, and hosts do not hold each other up. At most TOLD_MAX requests a line are
told of a change.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from math import inf
from typing import Protocol

from msgspec import UNSET

from replkernel_scheduler.asking import GIVEN_BACK_S, TOLD_MAX, Asking
from replkernel_scheduler.backfilling import Backfilling
from replkernel_scheduler.choosing import Choice, Choosing, suits
from replkernel_scheduler.effects import LeaseQueued, ReclaimLease
from replkernel_scheduler.hosts import Host, LeaseRecord, Pool, Waiting, least_gb
from replkernel_scheduler.migrations import Migration
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.passing import Passing
from replkernel_scheduler.pausing import Pausing
from replkernel_scheduler.types import LeaseId

CLAIM_LOOKS = 64

LEAVES_S_PER_GB = 1.0
"""So long state may take to leave its GPUs, whatever `reclaim_s` says: reports have 17 to 64 s for 70 GB."""
LEAVES_S_MAX = 600.0


class Grants(Protocol):
    """Who grants, and refuses."""

    def serve(self, waiting: Waiting, choice: Choice) -> None:
        """Grant a request that no longer stands in any line."""

    def refuse(self, waiting: Waiting, why: str) -> None:
        """Take a request out of the queue and say why."""


class Moves(Protocol):
    """Who moves replicas for those that wait."""

    def look_again(self, migration: Migration) -> None:
        """Try one again that looks for a host."""

    def consider_again(self, host: Host) -> None:
        """Consider those who claim a host that will not serve them soon, though it was thought to."""

    def cancel(self, waiting: Waiting) -> None:
        """Give up what was begun for a request."""


class Serving:
    """Lines and claims; `granting`, `moving` and `freed` are set by who wires the core."""

    granting: Grants
    moving: Moves
    freed: Callable[[Host], None]
    """Lets those who look for a host to move to have this one."""

    def __init__(self, parts: Parts, choosing: Choosing) -> None:
        """Decide about `parts`."""
        self.parts, self.choosing = parts, choosing
        self.backfilling = Backfilling(parts, choosing)
        self.asking = Asking(parts)
        self.pausing = Pausing(parts, self.asking, self.touch)
        self.passing = Passing(parts)
        self.touched: dict[str, Host] = {}
        self.any_shifted = False

    # -- who is served ----------------------------------------------------------------------------

    def touch(self, host: Host) -> None:
        """Have the host's lines looked at before the event is over."""
        if host.line or host.claims or self.parts.queue.any_lines or self.parts.migrations.looking:
            self.touched[host.name] = host

    def settle(self) -> None:
        """Serve whoever can be served on the hosts that changed, and tell who moved up."""
        woken = self.parts.migrations.woken
        while self.touched or woken:
            if not self.touched:
                self.moving.look_again(woken.pop(next(iter(woken))))
                continue
            host = self.touched.pop(next(iter(self.touched)))
            if self.parts.hosts.by_name.get(host.name) is not host:
                continue
            if host.state == "up":
                self._serve(host)
            elif host.state == "draining":
                self._finish(host)
        if self.any_shifted:
            self.any_shifted = False
            for place, (_, waiting) in enumerate(self.parts.queue.anybody[:TOLD_MAX], 1):
                if waiting.told != place:
                    self._tell_place(waiting, place)

    def _serve(self, host: Host) -> None:
        while (served := self._next(host)) is not None:
            waiting, choice = served
            self.give(waiting, choice)
        if host.claims:
            if self.backfilling.enabled:
                self._let_pass(host)
            if host.lingering or self.parts.hosts.open:
                self._reclaim_on(host)
            if host.line and self.parts.policies.migration.enabled:
                self.moving.consider_again(host)
            if host.line:
                for place, (_, waiting) in enumerate(host.claims[:TOLD_MAX], 1):
                    if waiting.told != place and waiting.hosts is not None:
                        self._tell_place(waiting, place)
        if self.parts.migrations.looking:
            self.freed(host)
        if self.parts.pauses.pausable:
            self.pausing.look(host)

    def _finish(self, host: Host) -> None:
        """Have cells go on that were paused on a host that is being drained: they end nowhere else."""
        for _, waiting in [*host.line]:
            pool = None if waiting.wish.paused is UNSET else host.pool_with(waiting.wish)
            if pool is not None:
                self.give(waiting, Choice(pool, None))

    def _let_pass(self, host: Host) -> None:
        """Serve those behind the first claim that are thought not to make it later."""
        for waiting, pool in self.backfilling.on(host):
            self.give(waiting, Choice(pool, None))

    def give(self, waiting: Waiting, choice: Choice) -> None:
        """Serve who waits no more; a budget may have been spent meanwhile."""
        wish = waiting.wish
        user = self.parts.users.get(wish.user)
        pays = wish.holder is UNSET and wish.paused is UNSET
        why = self.parts.ledger.problem(user, wish.gpus) if pays and self.parts.ledger.prices else None
        if why is not None:
            self.granting.refuse(waiting, why)
            return
        self.leave(waiting)
        self.granting.serve(waiting, choice)

    def _next(self, host: Host) -> tuple[Waiting, Choice] | None:
        """Return who is served next on the host: the first that fits, not behind a claim that does not."""
        if host.claims and host.claims[0][1].wish.paused is not UNSET:
            return self.passing.next(host, self.choosing)
        bound = host.claims[0][0] if host.claims else (inf,)
        for key, waiting in host.line:
            if key > bound:
                break
            choice = self.choosing.on(host, waiting.wish)
            if choice is not None:
                return self._better_any(host, key) or (waiting, choice)
        return self._better_any(host, bound) if self.parts.queue.anybody else None

    def _better_any(self, host: Host, bound: tuple[object, ...]) -> tuple[Waiting, Choice] | None:
        """Return the first request for any host that fits and is not behind `bound`."""
        best: tuple[Waiting, Choice] | None = None
        queue = self.parts.queue
        if not queue.anybody or queue.anybody[0][0] > bound:
            return None
        if len(queue.anybody) == 1 or queue.anybody[1][0] > bound:
            waiting = queue.anybody[0][1]
            choice = self.choosing.on(host, waiting.wish)
            return None if choice is None else (waiting, choice)
        for line in queue.any_lines.values():
            key, waiting = line[0]
            if key <= bound:
                choice = self.choosing.on(host, waiting.wish)
                if choice is not None:
                    best, bound = (waiting, choice), key
        return best

    # -- waiting and claiming ---------------------------------------------------------------------

    def wait(self, waiting: Waiting) -> None:
        """Put a request into its lines and let it claim a host."""
        self.parts.queue.add(waiting)
        if waiting.hosts is None and self.parts.queue.anybody[-1][1] is not waiting:
            self.any_shifted = True
        self.claim(waiting)
        if waiting.hosts is None:
            first = self.parts.queue.any_lines[waiting.shape][0][1]
            if first.claim is not None:
                self.touch(first.claim)

    def leave(self, waiting: Waiting) -> None:
        """Take a request out of its lines; whoever stood behind it is looked at."""
        claimed = waiting.claim
        if self.parts.pauses.newcomers:
            self.pausing.left(waiting)
        if waiting.migration is not None:
            self.moving.cancel(waiting)
        self.parts.queue.remove(waiting)
        if claimed is not None:
            self.touch(claimed)
        if waiting.hosts is None:
            self.any_shifted = True
            self._head_claims(waiting)

    def claim(self, waiting: Waiting) -> None:
        """Let a request claim the host that is likely to serve it first."""
        if waiting.hosts is None:
            self._head_claims(waiting)
            return
        before = waiting.claim
        best: Host | None = None
        least: tuple[int, int, str] | None = None
        for host in () if self.parts.policies.reserve else waiting.hosts:
            claims = len(host.claims) - (host is before)
            if least is not None and claims > least[0]:
                continue
            if host.state == "up" and host.could_serve(waiting.wish):
                rank = (claims, -_soon(host), host.name)
                if least is None or rank < least:
                    best, least = host, rank
        self.parts.queue.claim(waiting, best)
        if before is not None and best is not before:
            self.touch(before)
        if best is not None:
            self.touch(best)

    def stand_at(self, waiting: Waiting, hosts: list[Host]) -> None:
        """Let a request wait for other hosts than before."""
        if waiting.claim is not None:
            self.touch(waiting.claim)
        was_for_any = waiting.hosts is None
        self.parts.queue.stand_at(waiting, hosts)
        if was_for_any:
            self.any_shifted = True
            self._head_claims(waiting)
        self.claim(waiting)
        for host in hosts:
            self.touch(host)

    def _head_claims(self, of: Waiting) -> None:
        """See that the first request of a shape, and only that, claims a host."""
        queue = self.parts.queue
        line = queue.any_lines.get(of.shape)
        if not line:
            return
        head = line[0][1]
        if len(line) > 1 and line[1][1].claim is not None:
            left = line[1][1].claim
            queue.claim(line[1][1], None)
            self.touch(left)
        if head.claim is None:
            best = self._any_claim(head)
            queue.claim(head, best)
            if best is not None:
                self.touch(best)

    def _any_claim(self, waiting: Waiting) -> Host | None:
        """Return a host that may soon serve a request for any host, without claims if there is one near."""
        wish = waiting.wish
        found = [
            entry
            for entry in self.parts.hosts.loads()
            if entry.load.gpus >= wish.gpus and suits(entry.load, wish.gpus, wish.gpu_model, least_gb(wish))
        ]
        found.sort(key=lambda entry: (-entry.load.soft, entry.load))
        first: Host | None = None
        for name, _ in islice((name for entry in found for name in entry.names), CLAIM_LOOKS):
            host = self.parts.hosts.named(name)
            if host.could_serve(wish):
                if not host.claims:
                    return host
                first = first or host
        return first or self._any_claim_slowly(waiting)

    def _any_claim_slowly(self, waiting: Waiting) -> Host | None:
        wish = waiting.wish
        return next(
            (h for h in self.parts.hosts.by_name.values() if h.state == "up" and h.could_serve(wish)), None
        )

    # -- what lingers is asked back ---------------------------------------------------------------

    def reclaim(self, waiting: Waiting) -> bool:
        """Ask back what all who claim a host need; say whether that, or what is idle, serves `waiting`."""
        host = waiting.claim
        if host is None or not waiting.wish.gpus:
            return False
        return waiting in self._reclaim_on(host) and host.has_room(waiting.wish)

    def _reclaim_on(self, host: Host) -> list[Waiting]:
        """Ask GPUs back for all whom this host can serve beside what computes; return who they are."""
        takers = self.asking.takers(host)
        for pool, those in takers.items():
            if pool.lingering or pool.cards:
                self.reclaim_from(pool, those)
        return [waiting for those in takers.values() for waiting in those]

    def reclaim_from(self, pool: Pool, takers: list[Waiting]) -> None:
        """Ask so many lingering GPUs of a pool back as these need beside those that are idle."""
        for record in self.asking.holders(pool, takers):
            self.ask_back(record)
        while pool.cards and (more := self.asking.holders(pool, takers)):
            for record in more:  # Shares may fit better now elsewhere than where room was made for them.
                self.ask_back(record)

    def ask_back(self, record: LeaseRecord) -> None:
        """Have the holder of a lingering lease give its GPUs back."""
        parts = self.parts
        parts.leases.reclaim(record)
        record.wanted_at = parts.now
        until = min(record.lease.expires_at, parts.now + parts.settings.reclaim_s)
        until = max(until, parts.now + min(record.held_gb * LEAVES_S_PER_GB, LEAVES_S_MAX))
        parts.timers.set(("lease", record.lease.lease), until)
        if until > parts.now + GIVEN_BACK_S:
            parts.timers.set(("late", record.lease.lease), parts.now + GIVEN_BACK_S)
        parts.out.append(ReclaimLease(record.lease, until))

    def late(self, lease: LeaseId) -> None:
        """Tell who waits for a holder that it does not give back as soon as holders do; ask others."""
        host = self.parts.leases.by_id[lease].host
        self.touch(host)
        for waiting in islice(self.asking.waiting_for(host), TOLD_MAX):
            self.tell(waiting)

    # -- telling ----------------------------------------------------------------------------------

    def tell(self, waiting: Waiting) -> None:
        """Tell a request its place."""
        self._tell_place(waiting, self.parts.queue.position(waiting))

    def _tell_place(self, waiting: Waiting, place: int) -> None:
        waiting.told = place
        self.parts.out.append(LeaseQueued(waiting.wish.request, place, self.asking.estimate_s(waiting)))


def _soon(host: Host) -> int:
    if len(host.pools) == 1:
        pool = host.pools[0]
        return len(pool.idle) + pool.lingering + pool.reclaiming
    return sum([len(pool.idle) + pool.lingering + pool.reclaiming for pool in host.pools])
