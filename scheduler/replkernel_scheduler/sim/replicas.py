"""Where sessions have their replicas, and those that move; what hosts are subscribed to follows from it.

Law: it knows only what effects said, so it is as a live driver would know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from replkernel_scheduler.effects import KernelPlaced, MigrationFailed, StartReplica, StopReplica
from replkernel_scheduler.events import FREES, Event, ReplicaFailed, ReplicaReady
from replkernel_scheduler.sim.costs import CostDice
from replkernel_scheduler.sim.event_queue import EventQueue
from replkernel_scheduler.sim.faults import Faults
from replkernel_scheduler.sim.figures import Figures
from replkernel_scheduler.types import HostName, KernelId

MADE_TO_FAIL = "it was made to fail"


class Replicas:
    """The hosts of each kernel's replicas, those on their way included."""

    def __init__(
        self,
        event_queue: EventQueue,
        feed: Callable[[Event, float], None],
        costs: CostDice,
        faults: Faults,
        figures: Figures,
        *,
        reserve: bool,
    ) -> None:
        """Start with none; `reserve`: a replica holds its GPUs for as long as it is there."""
        self._event_queue, self._feed, self._costs = event_queue, feed, costs
        self._faults, self._figures, self._reserve = faults, figures, reserve
        self._gpus: dict[KernelId, int] = {}
        self._of_kernel: dict[KernelId, dict[HostName, None]] = {}
        self._on_host: dict[HostName, dict[KernelId, None]] = {}

    def begin(self, kernel_id: KernelId, gpus: int) -> None:
        """Take note of a kernel that wants `gpus` for each of its replicas."""
        self._gpus[kernel_id] = gpus
        self._of_kernel[kernel_id] = {}

    def placed(self, effect: KernelPlaced, now: float) -> None:
        """Take note of where replicas are."""
        self.settle(effect.kernel_id, effect.hosts, now)

    def settle(self, kernel_id: KernelId, hosts: Iterable[HostName], now: float) -> None:
        """Put a kernel's replicas on hosts."""
        for host in hosts:
            self._add(kernel_id, host, now)

    def start(self, effect: StartReplica, now: float) -> None:
        """Have a replica come to its new host, or not."""
        self._add(effect.kernel_id, effect.host, now)
        self._figures.replica_moves(now)
        fails = self._faults.replica_fails()
        answer = ReplicaFailed(effect.migration, MADE_TO_FAIL) if fails else ReplicaReady(effect.migration)
        self._event_queue.post(now + self._costs.move(warm=effect.prewarmed), FREES, self._feed, answer)

    def stop(self, effect: StopReplica, now: float) -> None:
        """Take a replica off its host."""
        self._drop(effect.kernel_id, effect.host, now)

    def failed(self, effect: MigrationFailed, now: float) -> None:
        """Count a move that was given up."""
        self._figures.move_failed(now)

    def host_gone(self, host: HostName, now: float) -> None:
        """Forget the replicas of a host that is gone."""
        for kernel_id in list(self._on_host.get(host, ())):
            self._drop(kernel_id, host, now)

    def end(self, kernel_id: KernelId, now: float) -> None:
        """Forget a kernel that is over."""
        for host in list(self._of_kernel[kernel_id]):
            self._drop(kernel_id, host, now)
        del self._of_kernel[kernel_id], self._gpus[kernel_id]

    def _add(self, kernel_id: KernelId, host: HostName, now: float) -> None:
        hosts = self._of_kernel[kernel_id]
        if host not in hosts:
            hosts[host] = None
            self._on_host.setdefault(host, {})[kernel_id] = None
            self._count(kernel_id, 1, now)

    def _drop(self, kernel_id: KernelId, host: HostName, now: float) -> None:
        hosts = self._of_kernel.get(kernel_id, {})
        if host in hosts:
            del hosts[host], self._on_host[host][kernel_id]
            self._count(kernel_id, -1, now)

    def _count(self, kernel_id: KernelId, sign: int, now: float) -> None:
        gpus = sign * self._gpus[kernel_id]
        self._figures.replicas.add(sign, now)
        self._figures.subscribed.add(gpus, now)
        if self._reserve:
            self._figures.reserved.add(gpus, now)
