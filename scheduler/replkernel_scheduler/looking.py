"""Migrations that wait for room: where hosts come by themselves, they are woken when something changes.

Laws: who looks for a host is tried as soon as one has the GPUs that nobody before it claims, in the
queue's order, and never by a timer. GPUs that merely linger are asked back for who looks; it *hopes* for
those, so that no others are asked back for it while they are on their way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from typing import TypeAlias

from msgspec import UNSET

from replkernel_scheduler.cards import pool_for
from replkernel_scheduler.choosing import claimed
from replkernel_scheduler.hosts import Host, Pool, Waiting
from replkernel_scheduler.kernels import Kernel
from replkernel_scheduler.migrations import Migration
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.policies.protocol import Rank
from replkernel_scheduler.serving import Serving
from replkernel_scheduler.targets import Targets

LINE_LOOKS = 64
"""So far a line is looked through for a kernel that can go to the host."""

Begin: TypeAlias = Callable[[Migration, Kernel, Host, Host, Pool | None], None]


class Looking:
    """Wakes those who look for a host."""

    def __init__(self, parts: Parts, targets: Targets, serving: Serving, begin: Begin) -> None:
        """Decide about `parts`; `begin` begins a move."""
        self._parts, self._targets, self._serving, self._begin = parts, targets, serving, begin

    def wait(self, migration: Migration, waiting: Waiting, kernel: Kernel) -> None:
        """Look on until something changes; GPUs that merely linger are asked back for it."""
        parts = self._parts
        parts.migrations.look(migration, waiting)
        parts.timers.cancel(("migration", migration.id))
        pool = self._targets.soon(waiting.wish, kernel)
        if pool is not None:
            self._serving.reclaim_from(pool, [waiting])
            if self._targets.coming(pool):
                parts.migrations.hope(migration, pool.host)

    def freed(self, host: Host) -> None:
        """Let who looks for a host have this one, in the queue's order, and ask back what lingers there."""
        while host.state == "up":
            migration = self._next_for(host)
            if migration is None:
                break
            self._try_on(migration, host)
        if not host.claims:
            for pool in host.pools:
                if pool.lingering:
                    self._ask_back(pool)
                if pool.cards:
                    self._ask_parts_back(pool)
        self.disappoint(host)

    def disappoint(self, host: Host) -> None:
        """Have those look elsewhere who hope for a host where nothing is on its way back."""
        if host.hoped and (host.state != "up" or not any(self._targets.coming(pool) for pool in host.pools)):
            parts = self._parts
            for migration in sorted(self._parts.migrations.hoping(host), key=_key):
                parts.migrations.hope(migration, None)
                parts.migrations.woken[migration.id] = migration

    def _try_on(self, migration: Migration, host: Host) -> None:
        """Begin to move to a host that has the GPUs."""
        parts, waiting = self._parts, migration.waiting
        kernel = parts.kernels.by_id[migration.kernel_id]
        source = self._targets.victim(kernel)
        pool = None if waiting is None else pool_for(host, waiting.wish)
        if source is not None and pool is not None:
            migration.tries += 1
            parts.migrations.stop_looking(migration)
            self._begin(migration, kernel, source, host, pool)

    def _next_for(self, host: Host) -> Migration | None:
        """Return the first whom this host can serve."""
        best: tuple[Rank, Migration] | None = None
        most = max([len(pool.idle) or bool(pool.cards) for pool in host.pools])
        if not most:
            return None
        for line in self._parts.migrations.looking.values():
            key, first = line[0]
            waiting = first.waiting
            if waiting is None or waiting.wish.gpus > most or (best is not None and best[0] < key):
                continue
            if claimed(host, key) or pool_for(host, waiting.wish) is None:
                continue
            for key, migration in line[:LINE_LOOKS]:
                if (best is not None and best[0] < key) or claimed(host, key):
                    break
                if self._goes(migration, host):
                    best = key, migration
                    break
        return None if best is None else best[1]

    def _goes(self, migration: Migration, host: Host) -> bool:
        """Say whether a replica of the kernel may go to the host, and another may leave."""
        if migration.kernel_id in host.replicas:
            return False
        kernel = self._parts.kernels.by_id[migration.kernel_id]
        return host.could_serve(kernel.spec) and bool(self._targets.leavable(kernel))

    def _ask_back(self, pool: Pool) -> None:
        """Ask back what lingers for those who look, and hope for nothing yet."""
        host, takers = pool.host, []
        left = len(pool.idle) + pool.lingering + self._targets.coming(pool)
        for migration in sorted(self._parts.migrations.hoping(host), key=_key):
            waiting = migration.waiting
            if waiting is not None and pool.suits(waiting.wish):
                takers.append(waiting)
                left -= waiting.wish.gpus
        if left <= 0:
            return
        before = len(takers)
        for migration in self._hopeless(left):
            waiting = migration.waiting
            if (
                waiting is not None
                and waiting.wish.gpus <= left
                and pool.suits(waiting.wish)
                and self._goes(migration, host)
            ):
                takers.append(waiting)
                left -= waiting.wish.gpus
                self._parts.migrations.hope(migration, host)
        if len(takers) > before:
            self._serving.reclaim_from(pool, takers)

    def _ask_parts_back(self, pool: Pool) -> None:
        """Ask back for those who look for parts what lingers on cards where others compute."""
        room = self._targets.without_resting(pool)
        takers = [
            waiting
            for migration in self._hopeless(1)
            if (waiting := migration.waiting) is not None
            and waiting.wish.share is not UNSET
            and pool.suits(waiting.wish)
            and self._goes(migration, pool.host)
            and room.take(waiting.wish)
        ]
        if takers:
            self._serving.reclaim_from(pool, takers)

    def _hopeless(self, gpus_max: int) -> Iterator[Migration]:
        """Yield those who look for so many GPUs at most and hope for none, first ones first."""
        lines = [
            line[:LINE_LOOKS]
            for line in self._parts.migrations.looking.values()
            if _gpus(line[0][1]) <= gpus_max
        ]
        for _, migration in merge(*lines, key=lambda place: place[0]):
            if migration.hopes is None:
                yield migration


def _gpus(migration: Migration) -> int:
    return 0 if migration.waiting is None else migration.waiting.wish.gpus


def _key(migration: Migration) -> Rank:
    return () if migration.waiting is None else migration.waiting.key
