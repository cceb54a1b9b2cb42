"""Replicas on the move: which router was told to move one, and what its answer is about.

Law: pure; only the answer to the order in force counts, and a router speaks of its own kernel's alone. An
order is said again to a router that comes back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from replkernel_scheduler.effects import MigrationFailed, ReplicaMoved, StartReplica, StopReplica
from replkernel_scheduler.events import Event
from replkernel_scheduler.events import ReplicaFailed as Failed
from replkernel_scheduler.events import ReplicaReady as Ready
from replkernel_scheduler.harvest.types import HarvestEffect
from replkernel_scheduler.types import KernelId, MigrationId
from replkernel_scheduler.view import ClusterView

from replkernel.leasing import wire
from replkernel.records import HostName
from replkernel_server.scheduling.messages import order_of

WHYS_MAX = 10_000


class Order(NamedTuple):
    """A replica's move: the migration, and what the kernel's router was told."""

    migration: MigrationId
    said: wire.MoveReplica


class MoveDesk:
    """The orders in force, by kernel; `not_moved` is why the last one of a kernel came to nothing."""

    def __init__(self, view: ClusterView) -> None:
        """Begin with what moves."""
        self.orders: dict[KernelId, Order] = {}
        self.not_moved: dict[KernelId, str] = {}
        for move in view.migrations:
            if move.phase == "moving" and move.target is not None:
                source = HostName(move.source or move.target)
                order = order_of(move.migration, move.tries)
                said = wire.MoveReplica(order, HostName(move.target), source)
                self.orders[move.kernel_id] = Order(move.migration, said)

    def told(self, effects: Iterable[HarvestEffect]) -> None:
        """Take note of what was decided."""
        for effect in effects:
            match effect:
                case StartReplica(migration, kernel_id, host, source, _, attempt):
                    order = order_of(migration, attempt)
                    said = wire.MoveReplica(order, HostName(host), HostName(source))
                    self.orders[kernel_id] = Order(migration, said)
                    self.not_moved.pop(kernel_id, None)
                case StopReplica(kernel_id, host):
                    order_now = self.orders.get(kernel_id)
                    if order_now is not None and order_now.said.host == str(host):
                        del self.orders[kernel_id]
                case MigrationFailed(_, kernel_id, why):
                    self.orders.pop(kernel_id, None)
                    self._note(kernel_id, why)
                case ReplicaMoved(_, kernel_id):
                    self.orders.pop(kernel_id, None)
                    self.not_moved.pop(kernel_id, None)

    def answered(self, kernel_id: KernelId, answer: wire.ReplicaMoved | wire.MoveFailed) -> Event | None:
        """Return the event of a router's answer; None: nobody waits for that any more."""
        order = self.orders.get(kernel_id)
        if order is None or order.said.order != answer.order:
            return None
        if isinstance(answer, wire.ReplicaMoved):
            return Ready(order.migration)
        self._note(kernel_id, answer.why)
        return Failed(order.migration, answer.why)

    def _note(self, kernel_id: KernelId, why: str) -> None:
        self.not_moved.pop(kernel_id, None)
        self.not_moved[kernel_id] = why
        while len(self.not_moved) > WHYS_MAX:
            del self.not_moved[next(iter(self.not_moved))]
