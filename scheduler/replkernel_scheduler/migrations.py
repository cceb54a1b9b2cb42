"""Replicas on the move, or looking for a host to move to.

| phase | after | then |
|---|---|---|
| seeking | a target was found | moving: the target is bound, its replica starts |
| seeking | TRIES_MAX tries (and no host on its way), or the deadline | over: given up |
| moving | ReplicaReady | over: the source's replica stops, the lease is granted |
| moving | ReplicaFailed, target lost | seeking: rolled back |
| moving | the deadline | over: rolled back and given up |

Where hosts come by themselves, looking in vain counts for neither: one that has begun nothing looks on, until
room comes (looking.py).
Law: the source keeps its replica until the target's has the state. Ids are never used twice. (Spec 1.5.)
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Literal

from replkernel_scheduler.hosts import Host, LeaseRecord, Waiting
from replkernel_scheduler.policies.protocol import Dice, Rank
from replkernel_scheduler.types import HostName, KernelId, MigrationId, Shape

TRIES_MAX = 5
DEADLINE_S = 300.0
WAIT_FIRST, WAIT_FACTOR, WAIT_MAX = 0.5, 1.25, 1.5
JITTER_LOW, JITTER_HIGH = 1.0, 2.125


class Migration:
    """One replica's way; `waiting` is the request that it is for (None: its host is being drained).

    `wanted` is the host that its kernel's owner named, `tried` are those that a try has failed on.
    While it `looks` for one it `hopes` for that on which GPUs were asked back for it.
    """

    __slots__ = (
        "deadline_at",
        "hopes",
        "id",
        "kernel_id",
        "lease",
        "looks",
        "phase",
        "source",
        "target",
        "tried",
        "tries",
        "waiting",
        "wanted",
    )

    def __init__(self, number: int, kernel_id: KernelId, waiting: Waiting | None, deadline_at: float) -> None:
        """Start seeking."""
        self.id = MigrationId(f"migration-{number}")
        self.kernel_id, self.waiting, self.deadline_at = kernel_id, waiting, deadline_at
        self.phase: Literal["seeking", "moving"] = "seeking"
        self.tries = 0
        self.looks = False
        self.hopes: Host | None = None
        self.source: Host | None = None
        self.target: Host | None = None
        self.lease: LeaseRecord | None = None
        self.wanted: Host | None = None
        self.tried: set[HostName] = set()


class Migrations:
    """All that are not over; `looking` are the requests for which no host has the GPUs at present.

    They stand in the lines of their shapes, sorted by their keys. `woken` are those to be tried again before
    the event is over.
    """

    __slots__ = ("by_id", "by_kernel", "issued", "looking", "woken")

    def __init__(self) -> None:
        """Start with none."""
        self.by_id: dict[MigrationId, Migration] = {}
        self.by_kernel: dict[KernelId, Migration] = {}
        self.looking: dict[Shape, list[tuple[Rank, Migration]]] = {}
        self.woken: dict[MigrationId, Migration] = {}
        self.issued = 0

    def open(self, kernel_id: KernelId, waiting: Waiting | None, now: float) -> Migration:
        """Begin one; a kernel has at most one at a time."""
        self.issued += 1
        made = Migration(self.issued, kernel_id, waiting, now + DEADLINE_S)
        self.by_id[made.id] = self.by_kernel[kernel_id] = made
        return made

    def close(self, migration: Migration) -> None:
        """End one."""
        del self.by_id[migration.id]
        del self.by_kernel[migration.kernel_id]
        self.stop_looking(migration)

    def look(self, migration: Migration, waiting: Waiting) -> None:
        """Have a migration for `waiting` found when GPUs come free."""
        migration.looks = True
        line = self.looking.setdefault(waiting.shape, [])
        at = bisect_left(line, (waiting.key,))
        if line[at : at + 1] != [(waiting.key, migration)]:
            line.insert(at, (waiting.key, migration))

    def stop_looking(self, migration: Migration) -> None:
        """Have it found no more, if it was to be."""
        if not migration.looks:
            return
        migration.looks = False
        self.woken.pop(migration.id, None)
        self.hope(migration, None)
        waiting = migration.waiting
        line = None if waiting is None else self.looking.get(waiting.shape)
        if waiting is None or line is None:
            return
        at = bisect_left(line, (waiting.key,))
        if line[at : at + 1] == [(waiting.key, migration)]:
            del line[at]
            if not line:
                del self.looking[waiting.shape]

    def hope(self, migration: Migration, host: Host | None) -> None:
        """Let one that looks hope for GPUs that are asked back on `host` (None: for none)."""
        if migration.hopes is not None:
            del migration.hopes.hoped[migration.id]
        migration.hopes = host
        if host is not None:
            host.hoped[migration.id] = None

    def hoping(self, host: Host) -> list[Migration]:
        """Return those that hope for GPUs of this host."""
        return [self.by_id[name] for name in host.hoped]

    def wake(self, kernel_id: KernelId) -> None:
        """Have one that looks tried again: what its kernel has, or where it is, has changed."""
        if self.looking:
            migration = self.by_kernel.get(kernel_id)
            if migration is not None and migration.looks:
                self.woken[migration.id] = migration

    def was_issued(self, name: MigrationId) -> bool:
        """Say whether this id was ever given."""
        number = name.removeprefix("migration-")
        return number.isdecimal() and name == f"migration-{int(number)}" and 0 < int(number) <= self.issued


def wait_s(tries: int, boot_s: float, dice: Dice) -> float:
    """Return how long to wait after `tries` tries, when a host takes `boot_s` to come."""
    jitter = JITTER_LOW + (JITTER_HIGH - JITTER_LOW) * dice.random()
    return min(WAIT_MAX * boot_s, WAIT_FIRST * boot_s * WAIT_FACTOR ** (tries - 1) * jitter)
