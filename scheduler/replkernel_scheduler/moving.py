"""Replicas move: to where a waiting request's GPUs are, or away from a host that is being drained.

The table of a migration's phases is in migrations.py. Laws: the target's GPUs are bound before anything
moves; the new replica has the state before the old one goes; whatever fails is rolled back, and the request
stands where it stood in the queue. A pinned replica, or one that runs a cell, is not moved. (Spec 1.5.)
"""

from __future__ import annotations

from replkernel_scheduler.choosing import Choice, Choosing
from replkernel_scheduler.effects import LeaseQueued, MigrationFailed, StartReplica, StopReplica
from replkernel_scheduler.events import ReplicaFailed, ReplicaReady
from replkernel_scheduler.granting import Granting
from replkernel_scheduler.hosts import Host, Pool
from replkernel_scheduler.kernels import Kernel
from replkernel_scheduler.lease_life import LeaseLife
from replkernel_scheduler.leases import LeaseRecord
from replkernel_scheduler.migrations import TRIES_MAX, Migration, wait_s
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.placing import Placing
from replkernel_scheduler.queue import Waiting
from replkernel_scheduler.types import KernelId, MigrationId

CLAIMS_MAX = 64


class Moving:
    """Migrations from beginning to end."""

    def __init__(
        self, parts: Parts, choosing: Choosing, granting: Granting, lease_life: LeaseLife, placing: Placing
    ) -> None:
        """Decide about `parts`."""
        self.parts, self.choosing, self.granting = parts, choosing, granting
        self.lease_life, self.placing = lease_life, placing

    # -- beginnings -------------------------------------------------------------------------------

    def consider(self, waiting: Waiting, kernel: Kernel | None) -> None:
        """Begin a migration for a request that none of its kernel's hosts can serve."""
        parts, wish = self.parts, waiting.wish
        if kernel is None or not parts.policies.migration.enabled or wish.hosts or not wish.gpus:
            return
        if kernel.reported:
            return
        if waiting.hosts is None or not kernel.hosts or wish.kernel_id in parts.migrations.by_kernel:
            return
        if parts.policies.reserve or self.granting.serving.reclaim(waiting):
            return
        migration = parts.migrations.open(wish.kernel_id, waiting, parts.now)
        waiting.migration = migration.id
        self._try(migration)

    def drain(self, kernel: Kernel, source: Host) -> None:
        """Begin to move an idle replica away from a host that is being drained."""
        busy = any(record.host is source for record in self._active(kernel))
        if self.parts.policies.reserve or kernel.reported:
            return  # What holds its GPUs to its end, or places itself, stays until it goes.
        if not busy and kernel.spec.kernel_id not in self.parts.migrations.by_kernel:
            migration = self.parts.migrations.open(kernel.spec.kernel_id, None, self.parts.now)
            migration.source = source
            source.moves += 1
            self._try(migration)

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
        source = migration.source if migration.waiting is None else self._victim(kernel)
        migration.tries += 1
        if source is None and kernel.hosts:
            self._give_up(migration, "every replica is pinned or runs a cell")
            return
        pool = self._target(migration, kernel)
        if pool is not None and source is not None:
            self._begin(migration, kernel, source, pool)
            return
        if migration.waiting is not None:
            self.placing.one_more_host()
        self._later(migration, "no other host has the GPUs")

    def _later(self, migration: Migration, why: str) -> None:
        parts = self.parts
        if migration.tries >= TRIES_MAX:
            self._give_up(migration, why)
            return
        at = parts.now + wait_s(migration.tries, parts.reservations.mean_boot_s, parts.dice)
        parts.timers.set(("migration", migration.id), min(at, migration.deadline_at))

    def _victim(self, kernel: Kernel) -> Host | None:
        busy = {record.host.name for record in self._active(kernel)}
        hosts = [host for host in kernel.hosts if host.name != kernel.pinned and host.name not in busy]
        if not hosts:
            return None
        name = self.parts.policies.migration.victim([host.name for host in hosts], self.parts.dice)
        return next(host for host in hosts if host.name == name)

    def _active(self, kernel: Kernel) -> list[LeaseRecord]:
        of_request = self.parts.leases.of_request
        asks = self.parts.kernels.asks_of(kernel.spec.kernel_id)
        return [of_request[request] for request in asks if request in of_request]

    def _target(self, migration: Migration, kernel: Kernel) -> Pool | None:
        if migration.waiting is None:
            return next(self.placing.candidates(kernel), None)
        kernel_id = migration.kernel_id
        waiting = migration.waiting
        for pool in self.choosing.idle_pools(waiting.wish, waiting.key, CLAIMS_MAX):
            if kernel_id not in pool.host.replicas and pool.host.could_serve(kernel.spec):
                return pool
        return None

    def _begin(self, migration: Migration, kernel: Kernel, source: Host, pool: Pool) -> None:
        """Bind the target and have the new replica started."""
        parts, target, waiting = self.parts, pool.host, migration.waiting
        if waiting is not None:
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
        parts.out.append(StartReplica(migration.id, migration.kernel_id, target.name, source.name, warm))

    # -- answers ----------------------------------------------------------------------------------

    def ready(self, event: ReplicaReady) -> None:
        """Complete a migration: the old replica goes, the request has its lease."""
        migration = self._moving(event)
        if migration is None:
            return
        parts = self.parts
        kernel = parts.kernels.by_id[migration.kernel_id]
        source, target, record = migration.source, migration.target, migration.lease
        self._close(migration)
        if target is not None:
            kernel.hosts.append(target)
        if source is not None and source in kernel.hosts:
            parts.kernels.leave(kernel, source)
            parts.out.append(StopReplica(migration.kernel_id, source.name))
        if record is not None:
            self.lease_life.activate(record)
            self.granting.start(record)
        self.placing.rehost(kernel)
        if source is not None:
            self.placing.emptied(source)
        self._go_on_seeking(kernel)
        self._go_on_draining(kernel)

    def failed(self, event: ReplicaFailed) -> None:
        """Roll back, and try another host after a while."""
        migration = self._moving(event)
        if migration is not None:
            self._roll_back(migration, stop=True)
            self._later(migration, event.why)

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
        self._later(self.parts.migrations.by_kernel[kernel_id], "the target's GPUs are gone")

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
                self._roll_back(migration, stop=False)
                self._later(migration, f"host {host.name} is gone")

    def _roll_back(self, migration: Migration, *, stop: bool) -> None:
        """Undo what a moving migration did; the request waits where it stood."""
        target, record, waiting = migration.target, migration.lease, migration.waiting
        if target is None:
            return
        parts = self.parts
        kernel = parts.kernels.by_id[migration.kernel_id]
        migration.phase, migration.target, migration.lease = "seeking", None, None
        target.moves -= 1
        if migration.source is None:  # Its host went meanwhile, so this replica would have replaced it.
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
            parts.users.get(waiting.wish.user).waited += waiting.wish.gpus
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
            waiting.migration = None
            if parts.policies.migration.gives_up or waiting.claim is None:
                self.granting.refuse(waiting, sentence)
            self._go_on_draining(parts.kernels.by_id[migration.kernel_id])
        elif source is not None:
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
                self.consider(waiting, kernel)

    def _go_on_draining(self, kernel: Kernel) -> None:
        """Move the kernel's other replicas on draining hosts, which had to wait for this migration."""
        for host in list(kernel.hosts):
            if host.state == "draining":
                self.drain(kernel, host)

    def _close(self, migration: Migration) -> None:
        for host in (migration.source, migration.target):
            if host is not None:
                host.moves -= 1
        self.parts.timers.cancel(("migration", migration.id))
        self.parts.migrations.close(migration)
