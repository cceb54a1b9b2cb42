"""Twelve notebooks of 1 to 4 GPUs share eight: every cell runs, whatever lingers, moves or waits."""

from __future__ import annotations

import random

import msgspec
import pytest
from replkernel_scheduler.effects import LeaseGranted, ReclaimLease, StartReplica
from replkernel_scheduler.events import Event, LeaseAsked, LeaseLingered, LeaseReleased, ReplicaReady
from replkernel_scheduler.policies.built_in import fcfs_batch, large_pool, notebook
from replkernel_scheduler.policies.migration_never import Never
from replkernel_scheduler.settings import Policies
from replkernel_scheduler.types import KernelId, Lease, LeaseRequest, RequestId, UserName

from tests.unit.scheduler.cluster import Cluster

NOTEBOOKS, CELLS = 12, 10
SETS = {
    "notebook": notebook(),
    "never moves": msgspec.structs.replace(notebook(), migration=Never()),
    "fcfs-batch": fcfs_batch(),
    "large-pool": large_pool(),
}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("seed", range(3))
def test_every_cell_runs(name: str, seed: int) -> None:
    ran = Workday(SETS[name], seed).work()
    assert ran == {f"k{number} {cell}" for number in range(NOTEBOOKS) for cell in range(CELLS)}


class Workday:
    """Notebooks that run one cell after the other; the laws are checked after every event."""

    def __init__(self, policies: Policies, seed: int) -> None:
        self.cluster = Cluster(policies, seed=seed)
        self.dice = random.Random(seed)
        self.running: list[Lease] = []
        self.answers: list[Event] = []
        self.ran: set[str] = set()
        for host in "ab":
            self.cluster.host(host, 4)
        for number in range(NOTEBOOKS):
            self.cluster.kernel(f"k{number}", gpus=1 + number % 4, replicas=2, user=f"u{number % 3}")

    def work(self) -> set[str]:
        for number in range(NOTEBOOKS):
            self._ask(number, 0)
        for _ in range(NOTEBOOKS * CELLS * 4):
            if self.answers and self.dice.random() < 0.7:
                self._feed(self.answers.pop(self.dice.randrange(len(self.answers))))
            elif self.running:
                self._end(self.running.pop(self.dice.randrange(len(self.running))))
            elif self.answers:
                self._feed(self.answers.pop())
        return self.ran

    def _ask(self, number: int, cell: int) -> None:
        request = RequestId(f"k{number} {cell}")
        kernel, user = KernelId(f"k{number}"), UserName(f"u{number % 3}")
        self._feed(LeaseAsked(LeaseRequest(request, kernel, 1 + number % 4, 1e5, (), user)))

    def _end(self, lease: Lease) -> None:
        self.ran.add(lease.request)
        change = LeaseLingered if self.dice.random() < 0.7 else LeaseReleased
        self._feed(change(lease.lease, lease.fence))
        number, cell = (int(part) for part in lease.request.removeprefix("k").split())
        if cell + 1 < CELLS:
            self._ask(number, cell + 1)

    def _feed(self, event: Event) -> None:
        for effect in self.cluster.feed(event):
            if isinstance(effect, LeaseGranted):
                self.running.append(effect.lease)
            elif isinstance(effect, StartReplica):
                self.answers.append(ReplicaReady(effect.migration))
            elif isinstance(effect, ReclaimLease):
                self.answers.append(LeaseReleased(effect.lease.lease, effect.lease.fence))
