"""How many events a second the scheduler's core takes, and how long one decision takes, by the size of the
cluster.

Cells come and go as on a busy day: kernels ask, renew, let their state linger or give GPUs back, start and
end. Nothing but the core runs, so there is no stock figure beside it.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator, Sequence

import msgspec
from replkernel_scheduler import core_is_compiled
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import LeaseEnded, LeaseGranted, LeaseRefused, ReclaimLease, StartReplica
from replkernel_scheduler.events import (
    Event,
    HostUp,
    KernelEnded,
    KernelStarted,
    LeaseAsked,
    LeaseLingered,
    LeaseReleased,
    LeaseRenewed,
    ReplicaReady,
)
from replkernel_scheduler.policies.built_in import notebook
from replkernel_scheduler.policies.limit_static import Static
from replkernel_scheduler.settings import Policies
from replkernel_scheduler.types import (
    Gpu,
    GpuUuid,
    HostName,
    KernelId,
    KernelSpec,
    Lease,
    LeaseRequest,
    RequestId,
    UserName,
)

from tests.bench.report import Result, quantile

GPUS = 8
LEASE_S = 600.0
EVENTS = 100_000
CELLS_PER_GPU = {"busy": 0.45, "full": 0.6}
"""Cells at the same time for each GPU; a cell has 1.8 on average, so that in a full cluster some wait."""


class Day:
    """A cluster full of kernels, and the events of its day."""

    def __init__(
        self, hosts: int, kernels: int, load: str, policies: Policies | None = None, seed: int = 5
    ) -> None:
        """Have all hosts up and all kernels placed; without policies, as a notebook cluster has them."""
        self.dice = random.Random(seed)
        self.policies = policies or msgspec.structs.replace(notebook(), limit=Static(1000.0))
        self.core = SchedulerCore(random.Random(6), self.policies)
        self.journal: list[tuple[Event, float]] = []
        self.now, self.asked = 0.0, 0
        self.kernels = [KernelId(f"kernel-{number:06}") for number in range(kernels)]
        self.sizes = {name: self.dice.choice((1, 1, 1, 2, 2, 4)) for name in self.kernels}
        self.active: dict[str, Lease] = {}
        self.answers: list[Event] = []
        self.cells, self.cells_max = 0, int(hosts * GPUS * CELLS_PER_GPU[load])
        self.placing_us: list[float] = []
        self.cpu_us: list[float] = []
        for number in range(hosts):
            self.feed(host_up(number))
        for kernel in self.kernels:
            self.placing_us.append(self.feed(self._start(kernel)))

    def feed(self, event: Event) -> float:
        """Hand one event in; return the microseconds that the decision took."""
        self.journal.append((event, self.now))
        began, began_cpu = time.perf_counter(), time.thread_time()
        effects = self.core.handle(event, self.now)
        self.cpu_us.append((time.thread_time() - began_cpu) * 1e6)
        took = time.perf_counter() - began
        for effect in effects:
            if isinstance(effect, LeaseGranted):
                self.active[effect.lease.lease] = effect.lease
            elif isinstance(effect, LeaseEnded):
                self.cells -= self.active.pop(effect.lease.lease, None) is not None
            elif isinstance(effect, LeaseRefused):
                self.cells -= 1
            elif isinstance(effect, ReclaimLease):
                self.answers.append(LeaseReleased(effect.lease.lease, effect.lease.fence))
            elif isinstance(effect, StartReplica):
                self.answers.append(ReplicaReady(effect.migration))
        return took * 1e6

    def events(self, count: int) -> Iterator[Event]:
        """Yield the next events: 40 in 100 ask, as many end, 19 renew, and kernels end and start anew."""
        for _ in range(count):
            self.now += 0.001
            if self.answers:
                yield self.answers.pop()
                continue
            drawn = self.dice.random()
            if drawn < 0.01:
                kernel = self.dice.choice(self.kernels)
                yield KernelEnded(kernel)
                yield self._start(kernel)
            elif drawn < 0.2 and self.active:
                lease = self._one()
                yield LeaseRenewed(lease.lease, lease.fence)
            elif self.cells < self.cells_max or not self.active:
                yield self._ask()
            else:
                lease = self._one()
                if self.dice.random() < 0.5:
                    yield LeaseReleased(lease.lease, lease.fence, 1.0)
                else:
                    self.active.pop(lease.lease)
                    self.cells -= 1
                    yield LeaseLingered(lease.lease, lease.fence, 1.0)

    def _one(self) -> Lease:
        """Draw a lease among the oldest and newest, without copying the table."""
        names = iter(self.active) if self.dice.random() < 0.5 else reversed(self.active)
        for _ in range(self.dice.randrange(min(4, len(self.active)))):
            next(names)
        return self.active[next(names)]

    def _ask(self) -> Event:
        self.asked += 1
        self.cells += 1
        kernel = self.dice.choice(self.kernels)
        user = UserName(f"user-{hash_of(kernel) % 997}")
        request = RequestId(f"cell-{self.asked}")
        return LeaseAsked(
            LeaseRequest(request, kernel, self.sizes[kernel], LEASE_S, (), user, "", 40.0, 2.0, 8.0)
        )

    def _start(self, kernel: KernelId) -> Event:
        user = UserName(f"user-{hash_of(kernel) % 997}")
        return KernelStarted(KernelSpec(kernel, user, self.sizes[kernel], 3, "", 40.0, 2.0, 8.0))


def host_up(number: int) -> HostUp:
    """Return the coming of one host."""
    gpus = tuple(Gpu(GpuUuid(f"GPU-{number:05}-{gpu}"), "H100", 80.0) for gpu in range(GPUS))
    return HostUp(HostName(f"host-{number:05}"), gpus, 128.0, 1024.0)


def hash_of(name: str) -> int:
    """Return a number that is the same in every process."""
    return int(name.rpartition("-")[2])


def measure_size(name: str, hosts: int, kernels: int, load: str, goal: str) -> Result:
    """Fill a cluster, warm up, then time every event by itself, and all of them together."""
    day = Day(hosts, kernels, load)
    for event in day.events(max(EVENTS // 4, 2 * day.cells_max)):
        day.feed(event)
    first = len(day.journal)
    gc.collect()
    gc.freeze()
    gc.disable()  # As the service does: it collects between decisions.
    samples = [day.feed(event) for event in day.events(EVENTS)]
    began = time.perf_counter()
    gc.collect()
    collection_ms = (time.perf_counter() - began) * 1e3
    gc.enable()
    gc.unfreeze()
    began = time.perf_counter()
    view = day.core.view()
    view_ms = (time.perf_counter() - began) * 1e3
    wall_s, cpu_s = replay(day, first)
    details = {
        "core": "compiled" if core_is_compiled() else "interpreted",
        "events_per_s": round(len(samples) / wall_s),
        "events_per_cpu_s": round(len(samples) / cpu_s),
        "decision_us": spread(samples),
        "decision_cpu_us": spread(day.cpu_us[first:]),
        "placing_us": spread(day.placing_us),
        "view_ms": view_ms,
        "collection_ms": collection_ms,
        "hosts": hosts,
        "kernels": kernels,
        "leases": len(view.leases),
        "waiting": len(view.waiting),
    }
    return Result(name, "us", samples, [], goal, details)


def spread(samples: Sequence[float]) -> dict[str, float | None]:
    """Return what to report of samples."""
    return {f"p{percent}": quantile(samples, percent) for percent in (50, 95, 99)} | {"max": max(samples)}


def replay(day: Day, first: int) -> tuple[float, float]:
    """Play the day again on a fresh core; return the wall and CPU seconds of the events from `first` on."""
    handle = SchedulerCore(random.Random(6), day.policies).handle
    for event, at in day.journal[:first]:
        handle(event, at)
    rest = day.journal[first:]
    gc.collect()
    gc.freeze()
    began, began_cpu = time.perf_counter(), time.process_time()
    for event, at in rest:
        handle(event, at)
    spent = time.perf_counter() - began, time.process_time() - began_cpu
    gc.unfreeze()
    return spent


def measure() -> Result:
    """30 hosts with 8 GPUs each, 400 kernels."""
    goal = "at least 50,000 events/s; p50 at most 1 ms, p99 at most 5 ms"
    return measure_size("scheduler_core", 30, 400, "busy", goal)


def measure_full() -> Result:
    """The same, with more cells than GPUs, so that requests wait, move and ask GPUs back."""
    return measure_size("scheduler_full", 30, 400, "full", "p50 at most 1 ms, p99 at most 5 ms")


def measure_large() -> Result:
    """10,000 hosts with 8 GPUs each, 100,000 kernels, more cells than GPUs."""
    return measure_size("scheduler_large", 10_000, 100_000, "full", "every decision at most 10 ms")
