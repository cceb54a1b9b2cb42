"""Kernels begin, lose replicas, are pinned, and end.

Law: what a kernel had ends with it: its replicas' subscriptions, its leases, its requests, its migration.
"""

from __future__ import annotations

from collections.abc import Callable

from replkernel_scheduler import wishes
from replkernel_scheduler.effects import KernelPending, KernelPlaced, KernelRefused
from replkernel_scheduler.events import (
    KernelEnded,
    KernelPinned,
    KernelReported,
    KernelStarted,
    ReplicaLost,
)
from replkernel_scheduler.granting import Granting
from replkernel_scheduler.hosts import Host
from replkernel_scheduler.kernels import Kernel
from replkernel_scheduler.lease_life import LeaseLife
from replkernel_scheduler.moving import Moving
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.placing import Placing
from replkernel_scheduler.types import HostName, KernelSpec


class KernelLife:
    """What happens to kernels; `go_on_draining` is called where there may be room again (set by the core)."""

    go_on_draining: Callable[[], None]

    def __init__(
        self, parts: Parts, granting: Granting, lease_life: LeaseLife, moving: Moving, placing: Placing
    ) -> None:
        """Decide about `parts`."""
        self.parts, self.granting, self.lease_life = parts, granting, lease_life
        self.moving, self.placing = moving, placing

    def start(self, event: KernelStarted) -> None:
        """Place a kernel, or take note of where it is."""
        parts, spec = self.parts, event.kernel
        known = parts.kernels.by_id.get(spec.kernel_id)
        if known is not None:
            self._again(known, event)
            return
        hosts = [self._host(spec.kernel_id, name) for name in dict.fromkeys(event.hosts)]
        kernel = self._begin(spec, placed=bool(hosts))
        if kernel is None:
            return
        if hosts:
            for host in hosts:
                parts.kernels.settle(kernel, host)
            kernel.missing, kernel.placed = 0, True
            self.placing.rehost(kernel)
        else:
            self.placing.place(kernel)

    def report(self, event: KernelReported) -> None:
        """Take note of what a kernel asks for that sees to its replicas itself, and of the hosts it is on."""
        parts, spec = self.parts, event.kernel
        kernel = parts.kernels.by_id.get(spec.kernel_id)
        if kernel is None:
            kernel = self._begin(spec, placed=True)
            if kernel is None:
                return
            kernel.missing, kernel.placed, kernel.reported = 0, True, True
        elif kernel.spec.user != spec.user or (parts.policies.reserve and not kernel.reported):
            expected = f"a kernel of {spec.user or 'nobody'} that may place itself"
            raise parts.history.unexpected(spec.kernel_id, expected, f"KernelReported with {spec}")
        else:
            if not kernel.reported:
                self._takes_over(kernel)
            if kernel.spec != spec and not self._changed(kernel, event):
                return
        moved = kernel.movable
        kernel.movable = event.moves or spec.kernel_id in parts.migrations.by_kernel
        self.moving.told_where(kernel, event.hosts)
        by_name = parts.hosts.by_name
        hosts = [by_name[name] for name in dict.fromkeys(event.hosts) if name in by_name]
        if event.executor is not None and event.executor in by_name:
            kernel.last = event.executor
        left = [host for host in kernel.hosts if event.hosts and host.name not in event.hosts]
        for host in [host for host in hosts if host not in kernel.hosts]:
            parts.kernels.settle(kernel, host)
        for host in left:
            self.lose(kernel, host)
            self.placing.emptied(host)
        self.placing.rehost(kernel)
        if kernel.movable and not moved:
            self.moving.go_on_draining(kernel)

    def _takes_over(self, kernel: Kernel) -> None:
        """Leave a kernel that was placed here, or waits for that, to its router: it has begun somewhere."""
        kernel_id = kernel.spec.kernel_id
        self.moving.kernel_over(kernel_id)
        self.parts.kernels.wants(kernel, 0)
        self.parts.reservations.forget(kernel_id)
        kernel.placed = kernel.reported = True

    def _begin(self, spec: KernelSpec, *, placed: bool) -> Kernel | None:
        """Take a new kernel in, or refuse it."""
        parts = self.parts
        why = wishes.kernel_problem(parts, spec, placed=placed)
        if why is not None:
            parts.out.append(KernelRefused(spec.kernel_id, why))
            return None
        kernel = parts.kernels.by_id[spec.kernel_id] = Kernel(spec)
        parts.demand.requested += spec.gpus
        parts.users.get(spec.user)
        parts.accounts.started(spec.kernel_id, spec.user, spec.gpus, parts.now)
        return kernel

    def _changed(self, kernel: Kernel, event: KernelReported) -> bool:
        """Let a kernel ask for something else from now on; say whether it may."""
        parts, spec = self.parts, event.kernel
        why = wishes.sizes_problem(spec)
        if why is not None:
            parts.out.append(KernelRefused(spec.kernel_id, why))
            return False
        hosts, pinned = list(kernel.hosts), kernel.pinned
        target = self.moving.target_of(spec.kernel_id)
        for host in hosts:
            parts.kernels.leave(kernel, host)
        if target is not None:
            parts.hosts.subscribe(target, kernel.spec, -1)
            parts.hosts.subscribe(target, spec, 1)
        parts.demand.requested += spec.gpus - kernel.spec.gpus
        parts.accounts.started(spec.kernel_id, spec.user, spec.gpus, parts.now)
        kernel.spec, kernel.pinned = spec, pinned
        for host in hosts:
            parts.kernels.settle(kernel, host)
        return True

    def end(self, event: KernelEnded) -> None:
        """Forget a kernel with all that it had, also one that was never started here."""
        parts, kernel_id = self.parts, event.kernel_id
        self.moving.kernel_over(kernel_id)
        kernel = parts.kernels.by_id.pop(kernel_id, None)
        hosts = [] if kernel is None else self._leave_all(kernel)
        asks, of_request = parts.kernels.asks_of(kernel_id), parts.leases.of_request
        for waiting in [parts.queue.by_request[name] for name in asks if name in parts.queue.by_request]:
            self.granting.refuse(waiting, f"Kernel {kernel_id} has ended.")
        for record in [of_request[name] for name in asks if name in of_request]:
            self.lease_life.end(record, "kernel ended")
        for record in list(parts.leases.resting.get(kernel_id, {}).values()):
            self.lease_life.end(record, "kernel ended")
        parts.accounts.ended(kernel_id, parts.now)
        parts.pauses.owed.pop(kernel_id, None)
        parts.pauses.outlasted.pop(kernel_id, None)
        for host in hosts:
            self.placing.emptied(host)
        if kernel is not None:
            self.placing.top_up()
            self.go_on_draining()

    def _leave_all(self, kernel: Kernel) -> list[Host]:
        """Take a kernel's replicas off their hosts, and return those."""
        parts, hosts = self.parts, list(kernel.hosts)
        parts.kernels.wants(kernel, 0)
        parts.reservations.forget(kernel.spec.kernel_id)
        parts.demand.requested -= kernel.spec.gpus
        for host in hosts:
            parts.kernels.leave(kernel, host)
        return hosts

    def pin(self, event: KernelPinned) -> None:
        """Note which replica must stay where it is."""
        kernel = self.parts.kernels.by_id.get(event.kernel_id)
        if kernel is None:
            return
        if event.host is not None and event.host not in {host.name for host in kernel.hosts}:
            came = f"KernelPinned to {event.host}"
            raise self.parts.history.unexpected(event.kernel_id, "one of its replicas' hosts", came)
        kernel.pinned = event.host
        self.parts.migrations.wake(event.kernel_id)

    def replica_lost(self, event: ReplicaLost) -> None:
        """Place another replica for one that is gone. One that is not known was replaced already."""
        kernel = self.parts.kernels.by_id.get(event.kernel_id)
        host = self.parts.hosts.by_name.get(event.host)
        if kernel is not None and host is not None and host in kernel.hosts:
            self.lose(kernel, host)
            if kernel.missing:
                self.placing.place(kernel, avoid=host)
            self.placing.emptied(host)

    def lose(self, kernel: Kernel, host: Host) -> None:
        """Take a lost replica off its host: its leases end, its requests stand elsewhere."""
        parts = self.parts
        for record in [
            r
            for r in host.leases.values()
            if r.lease.kernel_id == kernel.spec.kernel_id and r.phase != "bound"
        ]:
            self.lease_life.end(record, "replica lost")
        replaced = self.moving.replaces(kernel.spec.kernel_id, host)
        self.moving.source_lost(kernel.spec.kernel_id, host)
        parts.kernels.leave(kernel, host)
        if not replaced and not kernel.reported:
            parts.kernels.wants(kernel, kernel.missing + 1)
        self.placing.rehost(kernel)

    def _again(self, known: Kernel, event: KernelStarted) -> None:
        if known.spec != event.kernel or known.reported:
            raise self.parts.history.unexpected(
                known.spec.kernel_id,
                f"the kernel as it was started: {known.spec}",
                f"KernelStarted with {event.kernel}",
            )
        if known.placed:
            names = tuple(host.name for host in known.hosts)
            self.parts.out.append(KernelPlaced(known.spec.kernel_id, names))
        else:
            self.parts.out.append(KernelPending(known.spec.kernel_id, known.missing))

    def _host(self, about: str, name: HostName) -> Host:
        host = self.parts.hosts.by_name.get(name)
        if host is not None:
            return host
        raise self.parts.history.unexpected(about, "hosts that are up", f"KernelStarted on {name}")
