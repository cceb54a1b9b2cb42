"""When the first that waits on a host is thought to be served, and who may be served before it.

Law: it looks and changes nothing. What is known of the future are the ends that holders of leases expect: a
lease without one is thought to last for ever, and where that leaves too few GPUs nobody passes. One that is
held longer than expected is thought to end now. Cores and memory are not looked ahead for: where the first
needs any, only those pass who are over before its GPUs come free.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from heapq import merge
from math import inf
from typing import NamedTuple

from msgspec import UNSET

from replkernel_scheduler.choosing import Choice, Choosing, claimed
from replkernel_scheduler.hosts import Host, Pool
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.passing import Passing
from replkernel_scheduler.policies.protocol import Ahead, Rank
from replkernel_scheduler.queue import Line, Shape, Waiting
from replkernel_scheduler.types import LeaseRequest

LENGTHS_MIN = 16
"""In a shorter line everybody is looked at."""
SHARE_SORTED = 8
"""Where less than this part of a line may pass, those are sorted; else the line is, as it stands."""


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
        """Yield, in their order, those that pass the host's first claim; each is served before the next.

        Of those that wait for any host, who cannot pass as things stand at the beginning is not looked at:
        whoever passes makes the others no likelier to.
        """
        most = _most_idle(host)
        any_lines = self._parts.queue.any_lines
        shapes = [shape for shape, line in any_lines.items() if line[0][1].wish.gpus <= most]
        look = self._look(host) if shapes or host.line else None
        if look is None:
            return
        lines = [line for shape in shapes if (line := self._likely(shape, look))]
        if host.line:
            lines.append(list(host.line))
        if not lines:
            return
        first = host.claims[0][0]
        least = 0 if host.line else min([line[0][1].wish.gpus for line in lines])
        for key, waiting in merge(*lines) if len(lines) > 1 else lines[0]:
            if waiting.wish.gpus > most or key <= first:
                continue
            pool = host.pool_for(waiting.wish)
            if pool is not None and self._passes(look, pool, waiting.wish):
                yield waiting, pool
                most = _most_idle(host)
                look = self._look(host)
                if look is None or most < least:
                    return

    def _likely(self, shape: Shape, look: Look) -> Line:
        """Return a line for any host without (most of) those that cannot pass as things stand.

        Who ends sooner passes sooner, so that is one look where nobody may, and a few where some may.
        """
        lengths = self._parts.queue.lengths[shape]
        if len(lengths) < LENGTHS_MIN:
            return list(self._parts.queue.any_lines[shape])
        now, gpus, ahead = self._parts.now, lengths[0][2].wish.gpus, Ahead(look.at, look.room)
        may_pass = self._parts.policies.backfill.may_pass
        if not may_pass(now + lengths[0][0], gpus, ahead):
            return []
        middle = lengths[len(lengths) // SHARE_SORTED][0]
        if may_pass(now + middle, gpus, ahead):
            return list(self._parts.queue.any_lines[shape])
        count = bisect_left(lengths, True, key=lambda entry: not may_pass(now + entry[0], gpus, ahead))
        return sorted([entry[1:] for entry in lengths[:count]])

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


def _most_idle(host: Host) -> int:
    pools = host.pools
    return len(pools[0].idle) if len(pools) == 1 else max([len(pool.idle) for pool in pools])


def _pools(hosts: list[Host], wish: LeaseRequest) -> Iterator[Pool]:
    """Return pools of these hosts that have what `wish` asks for."""
    for host in hosts:
        pool = host.pool_for(wish) if host.state == "up" else None
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
