"""A core with a clock that the test turns; its laws are checked after every event."""

from __future__ import annotations

import random
from typing import TypeVar

from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import Effect, LeaseGranted
from replkernel_scheduler.events import Event, HostUp, KernelStarted, LeaseAsked, LeaseLingered, LeaseReleased
from replkernel_scheduler.policies.built_in import notebook
from replkernel_scheduler.settings import CoreSettings, Policies
from replkernel_scheduler.types import (
    Fence,
    Gpu,
    GpuUuid,
    HostName,
    KernelId,
    KernelSpec,
    Lease,
    LeaseRequest,
    RequestId,
    ReservationId,
    UserName,
)

Kind = TypeVar("Kind")


class Cluster:
    """One core, told of hosts, kernels and requests by short names."""

    def __init__(
        self,
        policies: Policies | None = None,
        settings: CoreSettings | None = None,
        fence: int = 0,
        seed: int = 0,
    ) -> None:
        self.core = SchedulerCore(random.Random(seed), policies or notebook(), settings, Fence(fence))
        self.now = 0.0

    def feed(self, event: Event, *, after_s: float = 1.0) -> list[Effect]:
        self.now += after_s
        effects = self.core.handle(event, self.now)
        self.core.check_invariants()
        return effects

    def host(
        self,
        name: str,
        gpus: int,
        model: str = "",
        vram_gb: float = 0.0,
        *,
        cpu: float = 0.0,
        memory_gb: float = 0.0,
        reservation: str | None = None,
    ) -> list[Effect]:
        offered = tuple(Gpu(GpuUuid(f"GPU-{name}-{i}"), model, vram_gb) for i in range(gpus))
        made = None if reservation is None else ReservationId(reservation)
        return self.feed(HostUp(HostName(name), offered, cpu, memory_gb, made))

    def kernel(
        self, name: str, gpus: int = 1, replicas: int = 3, hosts: str = "", user: str = ""
    ) -> list[Effect]:
        spec = KernelSpec(KernelId(name), UserName(user), gpus, replicas)
        return self.feed(KernelStarted(spec, tuple(HostName(host) for host in hosts.split())))

    def ask(
        self,
        request: str,
        gpus: int = 1,
        ttl_s: float = 100.0,
        hosts: str = "",
        *,
        kernel: str = "",
        user: str = "",
        model: str = "",
        vram_gb: float = 0.0,
        cpu: float = 0.0,
        memory_gb: float = 0.0,
        expected_s: float = 0.0,
        after_s: float = 1.0,
    ) -> list[Effect]:
        wish = LeaseRequest(
            RequestId(request),
            KernelId(kernel or f"kernel-{request}"),
            gpus,
            ttl_s,
            tuple(HostName(host) for host in hosts.split()),
            UserName(user),
            model,
            vram_gb,
            cpu,
            memory_gb,
            expected_s,
        )
        return self.feed(LeaseAsked(wish), after_s=after_s)

    def release(self, lease: Lease, *, after_s: float = 1.0, busy_s: float | None = None) -> list[Effect]:
        return self.feed(LeaseReleased(lease.lease, lease.fence, busy_s), after_s=after_s)

    def linger(self, lease: Lease) -> list[Effect]:
        return self.feed(LeaseLingered(lease.lease, lease.fence))

    def leases(self) -> list[Lease]:
        return [entry.lease for entry in self.core.view().leases]

    def phases(self) -> list[str]:
        return [entry.phase for entry in self.core.view().leases]

    def waiting(self) -> list[str]:
        return [entry.request.request for entry in self.core.view().waiting]


def of(kind: type[Kind], effects: list[Effect]) -> list[Kind]:
    return [effect for effect in effects if isinstance(effect, kind)]


def granted(effects: list[Effect]) -> Lease:
    leases = [effect.lease for effect in of(LeaseGranted, effects)]
    assert len(leases) == 1, effects
    return leases[0]
