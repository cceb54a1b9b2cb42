"""Replicas move: to where a waiting request's GPUs are, or away from a host that is being drained.

The table of a migration's phases is in migrations.py. Laws: the target's GPUs are bound before anything
moves; the new replica has the state before the old one goes; whatever fails is rolled back, and the request
stands where it stood in the queue. A pinned replica, or one that runs a cell, is not moved. (Spec 1.5.)
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from replkernel_scheduler.asking import WAITING_MAX
from replkernel_scheduler.choosing import Choice, Choosing
from replkernel_scheduler.effects import (
    LeaseQueued,
    MigrationFailed,
    MoveRefused,
    ReplicaMoved,
    StartReplica,
    StopReplica,
)
from replkernel_scheduler.events import MoveAsked, ReplicaFailed, ReplicaReady
from replkernel_scheduler.granting import Granting
from replkernel_scheduler.hosts import Host, Pool, Waiting
from replkernel_scheduler.kernels import Kernel
from replkernel_scheduler.lease_life import LeaseLife
from replkernel_scheduler.looking import Looking
from replkernel_scheduler.migrations import DEADLINE_S, TRIES_MAX, Migration, wait_s
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.placing import Placing
from replkernel_scheduler.targets import Targets, counts_in_vain, may_move
from replkernel_scheduler.types import HostName, KernelId, MigrationId


class Moving:
    """Migrations from beginning to end."""

    def __init__(
        self, parts: Parts, choosing: Choosing, granting: Granting, lease_life: LeaseLife, placing: Placing
    ) -> None:
        """Decide about `parts`."""
        self.parts, self.choosing, self.granting = parts, choosing, granting
        self.lease_life, self.placing = lease_life, placing
        self.targets = Targets(parts, choosing, placing)
        self.looking = Looking(parts, self.targets, granting.serving, self._begin)

    # -- beginnings -------------------------------------------------------------------------------

    def consider(self, waiting: Waiting, *, asked_back: bool = False) -> None:
        """Begin a migration for a request that none of its kernel's hosts can serve.

        `asked_back`: what there is to ask back on its own hosts has been, and does not suffice.
        """
        parts, wish = self.parts, waiting.wish
        if not may_move(parts, waiting) or (not asked_back and self.granting.serving.reclaim(waiting)):
            return
        migration = parts.migrations.open(wish.kernel_id, waiting, parts.now)
        waiting.migration = migration.id
        defer_s: float = getattr(parts.policies.migration, "defer_s", 0.0)  # Older policies have none.
        if defer_s > 0:
            parts.timers.set(("migration", migration.id), min(parts.now + defer_s, migration.deadline_at))
            return
        self._try(migration)

    def consider_again(self, host: Host) -> None:
        """Consider those who claim a host that will not serve them soon, though it was thought to."""
        parts, asking, at_once = self.parts, self.targets.asking, self.choosing.at_once
        claims = [waiting for _, waiting in host.claims[:WAITING_MAX]]
        if any(waiting.migration is None and counts_in_vain(parts, waiting, []) for waiting in claims):
            takers = [waiting for those in asking.takers(host).values() for waiting in those]
            for waiting in claims:
                if waiting.claim is not host or not counts_in_vain(parts, waiting, takers):
                    continue
                wish = waiting.wish
                if at_once(wish, parts.kernels.by_id[wish.kernel_id], waiting.hosts, waiting.key) is None:
                    self.consider(waiting, asked_back=True)

    def asked(self, event: MoveAsked) -> None:
        """Begin to move a replica to the host that its kernel's owner named."""
        parts = self.parts
        kernel, host = parts.kernels.by_id.get(event.kernel_id), parts.hosts.by_name.get(event.host)
        why = self.targets.why_not(kernel, host, event.host)
        source = None if kernel is None else self.targets.victim(kernel)
        if why or kernel is None or host is None or source is None:
            why = why or "every replica is pinned or runs a cell; try again when none does"
            parts.out.append(MoveRefused(event.kernel_id, event.host, f"No replica moves: {why}."))
            return
        migration = parts.migrations.open(event.kernel_id, None, parts.now)
        migration.source, migration.wanted = source, host
        source.moves += 1
        migration.tries = 1
        self._begin(migration, kernel, source, host)

    def drain(self, kernel: Kernel, source: Host) -> None:
        """Begin to move an idle replica away from a host that is being drained."""
        busy = source.name in self.targets.busy(kernel)
        if self.parts.policies.reserve or (kernel.reported and not self._can_leave(kernel)):
            return  # What holds its GPUs to its end, or stays where it is, stays until it goes.
        if not busy and kernel.spec.kernel_id not in self.parts.migrations.by_kernel:
            migration = self.parts.migrations.open(kernel.spec.kernel_id, None, self.parts.now)
            migration.source = source
            source.moves += 1
            self._try(migration)

    def _can_leave(self, kernel: Kernel) -> bool:
        """Say whether a kernel that places itself can take a replica elsewhere."""
        movable = kernel.movable and self.parts.policies.migration.enabled
        return movable and next(self.placing.candidates(kernel), None) is not None

    def go_on_draining(self, kernel: Kernel) -> None:
        """Move the kernel's replicas away from draining hosts, which had to wait until they could leave."""
        for host in list(kernel.hosts):
            if host.state == "draining":
                self.drain(kernel, host)

    def awaits(self, kernel: Kernel, source: Host) -> str:
        """Say in a clause why a kernel still has a replica on a host that is being drained."""
        migration = self.parts.migrations.by_kernel.get(kernel.spec.kernel_id)
        if migration is not None and migration.source is source:
            target = migration.target
            return "another host is looked for" if target is None else f"on its way to {target.name}"
        if any(record.host is source for record in self.targets.active(kernel)):
            return "a cell runs on its GPUs"
        if source.name in self.targets.stand_still(kernel):
            return "a paused cell goes on there"
        if self.parts.policies.reserve or not self.parts.policies.migration.enabled:
            return "the policy moves no replicas: until its kernel ends"
        if kernel.reported and not kernel.movable:
            return "its kernel cannot move it: until that ends"
        if next(self.placing.candidates(kernel), None) is None:
            return "no other host that has none of its kernel's replicas has room"
        return "about to move"

    def stay(self, source: Host) -> None:
        """Seek no other host any more for the replicas of one that is not drained after all."""
        for migration in list(self.parts.migrations.by_id.values()):
            if migration.source is source and migration.waiting is None and migration.phase == "seeking":
                self._close(migration)

    # -- tries ------------------------------------------------------------------------------------

    def due(self, name: MigrationId) -> None:
        """Try again, or give up: the time for either has come."""
        migration = self.parts.migrations.by_id[name]
        if self.parts.now >= migration.deadline_at:
            self._roll_back(migration, stop=True)
            self._give_up(migration, "it took longer than its deadline")
        else:
            self._try(migration)

    def _try(self, migration: Migration) -> None:
        parts = self.parts
        kernel = parts.kernels.by_id[migration.kernel_id]
        source = migration.source if migration.waiting is None else self.targets.victim(kernel)
        migration.tries += 1
        parts.migrations.stop_looking(migration)
        if source is None and kernel.hosts and not self._looks_on(migration):
            self._give_up(migration, "every replica is pinned or runs a cell")
            return
        pool = self.targets.find(migration, kernel)
        if pool is not None and source is not None:
            self._begin(migration, kernel, source, pool.host, pool)
            return
        if migration.waiting is not None:
            if self._looks_on(migration):
                migration.tries -= 1  # Nothing was begun.
                migration.deadline_at = inf
                self.looking.wait(migration, migration.waiting, kernel)
                return
            self.placing.one_more_host()
            if parts.reservations.by_id and migration.tries >= TRIES_MAX:
                migration.tries -= 1  # A host is on its way: the deadline alone says when that is too late.
        self._later(migration, "no other host has the GPUs")

    def _looks_on(self, migration: Migration) -> bool:
        """Say whether a host may come, or become free, that nobody can be asked for."""
        return migration.waiting is not None and self.parts.settings.host_shape is None

    def look_again(self, migration: Migration) -> None:
        """Try one that looks for a host once more: something that it depends on has changed."""
        if migration.looks:
            self._try(migration)

    def _wait_again(self, migration: Migration, why: str) -> None:
        """Tell a request where it stands again, and try again after a while."""
        if migration.waiting is not None:
            self.granting.serving.tell(migration.waiting)
        self._later(migration, why)

    def _later(self, migration: Migration, why: str) -> None:
        parts = self.parts
        if migration.tries >= TRIES_MAX or migration.wanted is not None:
            self._give_up(migration, why)
            return
        at = parts.now + wait_s(migration.tries, parts.reservations.mean_boot_s, parts.dice)
        parts.timers.set(("migration", migration.id), min(at, migration.deadline_at))

    def _begin(
        self, migration: Migration, kernel: Kernel, source: Host, target: Host, pool: Pool | None = None
    ) -> None:
        """Bind the target and have the new replica started."""
        parts, waiting = self.parts, migration.waiting
        if migration.deadline_at == inf:
            migration.deadline_at = parts.now + DEADLINE_S
        if waiting is not None and pool is not None:
            waiting.migration = None
            self.granting.serving.leave(waiting)
            waiting.migration = migration.id
            migration.lease = self.granting.lease(waiting, Choice(pool, None), "bound")
            migration.source = source
            source.moves += 1
            parts.out.append(LeaseQueued(waiting.wish.request, 0))
        migration.phase, migration.target = "moving", target
        target.moves += 1
        parts.hosts.subscribe(target, kernel.spec, 1)
        warm = self.granting.warming.use(target)
        parts.timers.set(("migration", migration.id), migration.deadline_at)
        attempt = migration.tries
        parts.out.append(
            StartReplica(migration.id, migration.kernel_id, target.name, source.name, warm, attempt)
        )

    # -- answers ----------------------------------------------------------------------------------

    def ready(self, event: ReplicaReady) -> None:
        """Complete a migration: the old replica goes, the request has its lease."""
        migration = self._moving(event)
        if migration is not None:
            self._complete(migration)

    def told_where(self, kernel: Kernel, hosts: Collection[HostName]) -> None:
        """Complete a migration whose answer got lost: the kernel says that it is on the target."""
        migration = self.parts.migrations.by_kernel.get(kernel.spec.kernel_id)
        if migration is not None and migration.target is not None and migration.target.name in hosts:
            self._complete(migration)

    def _complete(self, migration: Migration) -> None:
        parts = self.parts
        kernel = parts.kernels.by_id[migration.kernel_id]
        source, target, record = migration.source, migration.target, migration.lease
        self._close(migration)
        if target is not None:
            kernel.hosts.append(target)
        if source is not None and source in kernel.hosts:
            parts.kernels.leave(kernel, source)
            parts.out.append(StopReplica(migration.kernel_id, source.name))
        if target is not None:
            parts.out.append(
                ReplicaMoved(
                    migration.id, migration.kernel_id, target.name, None if source is None else source.name
                )
            )
        if record is not None:
            self.lease_life.activate(record)
            self.granting.start(record)
        self.placing.rehost(kernel)
        if source is not None:
            self.placing.emptied(source)
        self._go_on_seeking(kernel)
        self.go_on_draining(kernel)

    def failed(self, event: ReplicaFailed) -> None:
        """Roll back, and try another host after a while."""
        migration = self._moving(event)
        if migration is not None:
            self._roll_back(migration, stop=True)
            self._wait_again(migration, event.why)

    def _moving(self, event: ReplicaReady | ReplicaFailed) -> Migration | None:
        """Return the migration an answer is about; None when it was given up before the answer came."""
        parts = self.parts
        migration = parts.migrations.by_id.get(event.migration)
        if migration is not None and migration.phase == "moving":
            return migration
        if not parts.migrations.was_issued(event.migration):
            raise parts.history.unexpected(
                event.migration, "a migration that began here", type(event).__name__
            )
        return None

    # -- ends that are not wanted -----------------------------------------------------------------

    def cancel(self, waiting: Waiting) -> None:
        """Stop seeking: the request leaves the queue another way."""
        migration = None if waiting.migration is None else self.parts.migrations.by_id.get(waiting.migration)
        waiting.migration = None
        if migration is not None:
            self._close(migration)

    def withdrawn(self, kernel_id: KernelId) -> None:
        """Roll a moving kernel back: nobody waits for it any more. Its request stands in the queue again."""
        migration = self.parts.migrations.by_kernel[kernel_id]
        self._roll_back(migration, stop=True)

    def later(self, kernel_id: KernelId) -> None:
        """Try again after a while."""
        self._wait_again(self.parts.migrations.by_kernel[kernel_id], "the target's GPUs are gone")

    def kernel_over(self, kernel_id: KernelId) -> None:
        """End what moves of a kernel that is over."""
        migration = self.parts.migrations.by_kernel.get(kernel_id)
        if migration is not None:
            self._roll_back(migration, stop=True)
            if migration.waiting is not None:
                migration.waiting.migration = None
            self._close(migration)

    def replaces(self, kernel_id: KernelId, source: Host) -> bool:
        """Say whether a new replica is on its way for the kernel's one on `source`."""
        migration = self.parts.migrations.by_kernel.get(kernel_id)
        return migration is not None and migration.phase == "moving" and migration.source is source

    def target_of(self, kernel_id: KernelId) -> Host | None:
        """Return the host that a replica of the kernel is on its way to."""
        migration = self.parts.migrations.by_kernel.get(kernel_id)
        return None if migration is None else migration.target

    def source_lost(self, kernel_id: KernelId, source: Host) -> None:
        """Take note that the replica that was to move is gone; one on its way replaces it."""
        migration = self.parts.migrations.by_kernel.get(kernel_id)
        if migration is not None and migration.source is source:
            source.moves -= 1
            migration.source = None
            if migration.phase == "seeking":
                self._close(migration)

    def host_gone(self, host: Host) -> None:
        """Roll back what moved to a host that is gone."""
        for migration in list(self.parts.migrations.by_id.values()):
            if migration.target is host:
                reported = self.parts.kernels.by_id[migration.kernel_id].reported
                self._roll_back(migration, stop=reported)  # Who moves by himself is to hear of it.
                self._wait_again(migration, f"host {host.name} is gone")

    def _roll_back(self, migration: Migration, *, stop: bool) -> None:
        """Undo what a moving migration did; the request waits where it stood."""
        target, record, waiting = migration.target, migration.lease, migration.waiting
        if target is None:
            return
        parts = self.parts
        kernel = parts.kernels.by_id[migration.kernel_id]
        migration.phase, migration.target, migration.lease = "seeking", None, None
        target.moves -= 1
        migration.tried.add(target.name)
        if migration.source is None and not kernel.reported:
            # Its host went meanwhile, so this replica would have replaced it.
            parts.kernels.wants(kernel, kernel.missing + 1)
        if record is not None:
            self.lease_life.unbind(record)
        parts.hosts.subscribe(target, kernel.spec, -1)
        if stop:
            parts.out.append(StopReplica(migration.kernel_id, target.name))
        if waiting is not None:
            if migration.source is not None:
                migration.source.moves -= 1
                migration.source = None
            parts.users.get(waiting.wish.user).wait(waiting.wish, 1)
            waiting.hosts = self.choosing.hosts_for(waiting.wish, kernel)
            self.granting.serving.wait(waiting)
            for host in kernel.hosts:
                self.granting.serving.touch(host)

    def _give_up(self, migration: Migration, why: str) -> None:
        parts, waiting = self.parts, migration.waiting
        source = migration.source
        self._close(migration)
        sentence = f"Kernel {migration.kernel_id} was not moved: {why}."
        parts.out.append(MigrationFailed(migration.id, migration.kernel_id, sentence))
        if waiting is not None:
            waiting.migration, waiting.gave_up = None, True
            if parts.policies.migration.gives_up or waiting.claim is None:
                self.granting.refuse(waiting, sentence)
            self.go_on_draining(parts.kernels.by_id[migration.kernel_id])
        elif source is not None and migration.wanted is None:
            if not parts.kernels.by_id[
                migration.kernel_id
            ].reported:  # Another router's "no" is no order to stay.
                self.placing.undrain(source)
            self._go_on_seeking(parts.kernels.by_id[migration.kernel_id])

    def _go_on_seeking(self, kernel: Kernel) -> None:
        """Move for the kernel's requests that came while this migration was on its way, and still wait."""
        parts = self.parts
        for request in parts.kernels.asks_of(kernel.spec.kernel_id):
            waiting = parts.queue.by_request.get(request)
            if waiting is None or waiting.migration is not None:
                continue
            if self.choosing.at_once(waiting.wish, kernel, waiting.hosts, waiting.key) is None:
                self.consider(waiting)

    def _close(self, migration: Migration) -> None:
        for host in (migration.source, migration.target):
            if host is not None:
                host.moves -= 1
        parts = self.parts
        parts.timers.cancel(("migration", migration.id))
        parts.migrations.close(migration)
        for request in parts.kernels.asks_of(migration.kernel_id):
            waiting = parts.queue.by_request.get(request)
            if waiting is not None and waiting.claim is not None and waiting.migration is None:
                self.granting.serving.touch(waiting.claim)  # It may be moved now, where no other was.
