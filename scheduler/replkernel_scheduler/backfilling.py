"""When the first that waits on a host is thought to be served, and who may be served before it.

Law: it looks and changes nothing. What is known of the future are the ends that holders of leases expect: a
lease without one is thought to last for ever, and where that leaves too few GPUs nobody passes. One that is
held longer than expected is thought to end now. Cores and memory are not looked ahead for: where the first
needs any, only those pass who are over before its GPUs come free.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice
from math import inf
from typing import NamedTuple

from msgspec import UNSET

from replkernel_scheduler.cards import pool_for
from replkernel_scheduler.choosing import Choice, Choosing, claimed
from replkernel_scheduler.hosts import Host, Line, Pool, Waiting
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.passing import Passing
from replkernel_scheduler.policies.protocol import Ahead, Rank
from replkernel_scheduler.queue import Lengths
from replkernel_scheduler.types import LeaseRequest, Shape


class Look(NamedTuple):
    """Which GPUs the first is thought to get, when, and how many are left beside them then.

    `room` is what is left once all have ended that are thought to end at that time: `spare` or more.
    """

    pool: Pool
    at: float
    spare: int
    room: int


class Backfilling:
    """Looks ahead for the first claim of a host."""

    def __init__(self, parts: Parts, choosing: Choosing) -> None:
        """Ask the policy of `parts`."""
        self._parts, self._choosing, self._passing = parts, choosing, Passing(parts)
        self.enabled = parts.policies.backfill.enabled

    def at_once(self, wish: LeaseRequest, hosts: list[Host] | None, key: Rank) -> Choice | None:
        """Return what a request that arrives can have before those that wait; `hosts` None is any host."""
        for pool in self._choosing.claimed_pools(wish) if hosts is None else _pools(hosts, wish):
            look = self._look(pool.host) if claimed(pool.host, key) else None
            if look is not None and self._passes(look, pool, wish):
                return Choice(pool, None)
        return None

    def on(self, host: Host) -> Iterator[tuple[Waiting, Pool]]:
        """Yield, in their order, those that pass the host's first claim; each is served before the next."""
        most = _most_idle(host)
        any_lines = self._parts.queue.any_lines
        shapes = [shape for shape in any_lines if shape[0] <= most]  # type: ignore[operator]
        look = self._look(host) if shapes or host.line else None
        after = host.claims[0][0]
        own = iter(list(host.line) if host.line else ())
        coming = next(own, None)
        while look is not None:
            found = self._first_of(shapes, host, look, after)
            while coming is not None and (found is None or coming[0] < found[0]):
                key, waiting = coming
                if key > after and waiting.wish.gpus <= most:
                    pool = pool_for(host, waiting.wish)
                    if pool is not None and self._passes(look, pool, waiting.wish):
                        found = key, waiting, pool
                        break
                coming = next(own, None)
            if found is None:
                return
            after, waiting, pool = found
            yield waiting, pool
            most = _most_idle(host)
            look = self._look(host)

    def _first_of(
        self, shapes: list[Shape], host: Host, look: Look, after: Rank
    ) -> tuple[Rank, Waiting, Pool] | None:
        """Return who passes first, behind `after`, of those of some shapes that wait for any host."""
        parts = self._parts
        queue, now, may_pass = parts.queue, parts.now, parts.policies.backfill.may_pass
        best: tuple[Rank, Waiting, Pool] | None = None
        beside, elsewhere = Ahead(look.at, look.spare), Ahead(look.at, 0)
        alone = len(host.pools) == 1
        for shape in shapes:
            line = queue.any_lines.get(shape)
            if line is None:
                continue
            wish, lengths = line[0][1].wish, queue.lengths[shape]
            soonest = now + lengths[0][0]  # Who ends sooner passes sooner: it is one look where nobody may.
            if alone and not may_pass(soonest, wish.gpus, beside):
                continue
            pool = pool_for(host, wish)
            if pool is None:
                continue
            ahead = beside if pool is look.pool else elsewhere
            if not alone and not may_pass(soonest, wish.gpus, ahead):
                continue
            found = self._first(line, lengths, ahead, after)
            if found is not None and (best is None or found[0] < best[0]):
                best = (*found, pool)
        return best

    def _first(self, line: Line, lengths: Lengths, ahead: Ahead, after: Rank) -> tuple[Rank, Waiting] | None:
        """Return who passes first of one line, behind `after`, of which the shortest would.

        Those that may are few, or one of them is near: of n, about the root of n are looked at, at most.
        """
        now, gpus, may_pass = self._parts.now, line[0][1].wish.gpus, self._parts.policies.backfill.may_pass
        count = bisect_left(lengths, True, key=lambda entry: not may_pass(now + entry[0], gpus, ahead))
        if count * count <= len(lengths):
            return min([entry[1:] for entry in lengths[:count] if entry[1] > after], default=None)
        for key, waiting in islice(line, bisect_right(line, after, key=_key), None):
            if may_pass(now + (waiting.wish.expected_s or inf), gpus, ahead):
                return key, waiting
        return None

    def _look(self, host: Host) -> Look | None:
        """Look ahead for the first claim of a host; None if nobody knows when it will be served."""
        first = host.claims[0][1].wish
        if first.share is not UNSET:
            return None  # Nobody knows when shares end.
        if self._parts.pauses.newcomers and self._passing.holds(host):
            return None  # What is being left is for whom it is left.
        look = ahead(host, first, self._parts.now)
        return look._replace(spare=0, room=0) if look and (first.cpu or first.memory_gb) else look

    def _passes(self, look: Look, pool: Pool, wish: LeaseRequest) -> bool:
        ends_at = self._parts.now + wish.expected_s if wish.expected_s else inf
        spare = look.spare if pool is look.pool else 0
        return self._parts.policies.backfill.may_pass(ends_at, wish.gpus, Ahead(look.at, spare))


def _key(place: tuple[Rank, Waiting]) -> Rank:
    return place[0]


def _most_idle(host: Host) -> int:
    pools = host.pools
    return len(pools[0].idle) if len(pools) == 1 else max([len(pool.idle) for pool in pools])


def _pools(hosts: list[Host], wish: LeaseRequest) -> Iterator[Pool]:
    """Return pools of these hosts that have what `wish` asks for."""
    for host in hosts:
        pool = pool_for(host, wish) if host.state == "up" else None
        if pool is not None:
            yield pool


def ahead(host: Host, first: LeaseRequest, now: float) -> Look | None:
    """Return what `first` is thought to get.

    None: nobody knows, or it wants none (and so waits for something else).
    """
    wanted = first.gpus
    best: Look | None = None
    for pool in host.pools:
        if not wanted or len(pool.uuids) < wanted or not pool.suits(first):
            continue
        room, at, spare = len(pool.idle) + pool.lingering + pool.reclaiming - wanted, now, -1
        for ends, _, gpus in pool.ends:
            if room >= 0:
                spare = room if spare < 0 else spare
                if ends > at:
                    break
            elif ends > at:
                at = ends
            room += gpus
        if room >= 0 and (best is None or at < best.at):
            best = Look(pool, at, room if spare < 0 else spare, room)
    return best
