"""A small world for property tests: numbers become events, and what the core wants done is answered, or not.

Law: a story is plain data, so that a failing one can be made smaller; what is drawn depends on it alone.
"""

from __future__ import annotations

import random
from typing import Any, TypeAlias

import msgspec
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import (
    DeferralAsked,
    Effect,
    LeaseGranted,
    PauseLease,
    Prewarm,
    ProvisionHost,
    ReclaimLease,
    StartReplica,
)
from replkernel_scheduler.events import (
    DeferralChosen,
    Event,
    GpusAwaited,
    GpusWanted,
    HolderGone,
    HostAway,
    HostDown,
    HostDrained,
    HostNotProvisioned,
    HostUndrained,
    HostUp,
    KernelEnded,
    KernelPinned,
    KernelReported,
    KernelStarted,
    LeaseAsked,
    LeaseLingered,
    LeaseReleased,
    LeaseRenewed,
    LeaseWithdrawn,
    MonthBegan,
    MoveAsked,
    PauseFailed,
    Prewarmed,
    PrewarmFailed,
    PricesSet,
    QuotaSet,
    ReplicaFailed,
    ReplicaLost,
    ReplicaReady,
    Resumed,
    TimeReached,
)
from replkernel_scheduler.settings import CoreSettings, Policies
from replkernel_scheduler.types import (
    Fence,
    Gpu,
    GpuUuid,
    HostName,
    HostShape,
    KernelId,
    KernelSpec,
    Lease,
    LeaseRequest,
    Paused,
    Prices,
    RequestId,
    Share,
    UserName,
    UserQuota,
)

Step: TypeAlias = tuple[int, int, int, int]
Awaited: TypeAlias = StartReplica | ProvisionHost | Prewarm | ReclaimLease | DeferralAsked | PauseLease
KINDS = (
    "up up ask ask ask ask ask kernel kernel release release linger linger renew time time answer answer "
    "answer answer withdraw down drain end lost pin quota month resumed report report mover mover wanted "
    "undrain jobs away gone ask linger linger"
).split()
SELDOM = ("up", "down", "away", "drain", "gone", "end", "lost", "withdraw", "quota", "resumed", "time")
"""What happens seldom in stories of shares, so that many of them come to lie beside each other."""
STEPS_S = (0.0, 0.0, 0.5, 3.0, 20.0, 400.0)
MODELS = ("A100", "H100")
PRICES = (Prices((("A100", 1.5), ("", 0.7)), 0.9), Prices(host_hour=10.0, standby=0.3, currency="EUR"), None)


class World:
    """A core, its clock, and the answers that it awaits."""

    def __init__(
        self,
        policies: Policies,
        seed: int = 0,
        *,
        provisions: bool = True,
        shares: bool = False,
        pauses: bool = False,
    ) -> None:
        shape = HostShape(4, "A100", 40.0, 16.0, 64.0) if provisions else None
        self.settings = CoreSettings(host_shape=shape, hosts_min=1, hosts_buffer=1, hosts_max=8)
        self.core = SchedulerCore(random.Random(seed), policies, self.settings)
        self._reserves = policies.reserve
        self._shares = shares
        """Whether most cells ask for a share of a GPU only."""
        self._pauses = pauses
        """Whether most cells may be paused for shorter ones."""
        self.now = 0.0
        self.journal: list[tuple[float, Event]] = []
        self.told: list[list[Effect]] = []
        self.held: dict[str, Lease] = {}
        self.awaited: list[Awaited] = []

    def feed(self, event: Event, after_s: float = 0.0) -> list[Effect]:
        """Hand one event in, and check every law."""
        self.now += after_s
        self.journal.append((self.now, event))
        effects = self.core.handle(event, self.now)
        self.core.check_invariants()
        self.told.append(effects)
        for effect in effects:
            if isinstance(effect, LeaseGranted):
                self.held[effect.lease.lease] = effect.lease
            elif isinstance(effect, Awaited):
                self.awaited.append(effect)
        return effects

    def play(self, step: Step) -> None:
        """Make an event of four numbers."""
        kind, a, b, c = step
        name = KINDS[kind % len(KINDS)]
        if self._shares and name in SELDOM and (a + b) % 4 and len(self.journal) > 4:
            name = ("ask", "linger")[c % 2]
        event = self._event(name, a, b, c)
        if event is not None:
            self.feed(event, STEPS_S[c % len(STEPS_S)] / (20 if self._shares else 1))

    def _event(self, kind: str, a: int, b: int, c: int) -> Event | None:
        name = HostName("abcdef"[a % (2 if self._shares else 6)])
        kernel = KernelId(f"k{a % 7}")
        match kind:
            case "up":
                return _host(name, a, 1 + b % 2 if self._shares else b)
            case "down":
                return HostDown(name)
            case "away":
                return HostAway(name)
            case "gone":
                return self._gone(a, b)
            case "drain":
                return HostDrained(name)
            case "undrain":
                return HostUndrained(name)
            case "ask":
                wish = _wish(kernel, a, b, c, shares=self._shares)
                return LeaseAsked(_preemptible(wish, a, b, c) if self._pauses else wish)
            case "kernel":
                return self._start(kernel, a, b)
            case "report":
                return self._report(kernel, a, b)
            case "mover":
                return self._report(kernel, a, b, moves=True, executor=HostName("abcdef"[c % 6]))
            case "wanted":
                return MoveAsked(kernel, HostName("abcdef"[b % 6]))
            case "jobs":
                hosts = tuple(HostName(name) for name in "abcdef"[a % 6 :])
                return GpusWanted((GpusAwaited(hosts, 1 + b % 4, 1 + c % 3), GpusAwaited(hosts[:1], b % 2)))
            case "end":
                return KernelEnded(kernel)
            case "lost":
                return ReplicaLost(kernel, HostName("abcdef"[b % 6]))
            case "pin":
                hosts = self._hosts_of(kernel)
                return KernelPinned(kernel, hosts[b % len(hosts)] if hosts and b % 3 else None)
            case "quota":
                money: dict[str, Any] = {"budget_month": 0.5} if c % 5 == 4 else {}
                money |= {"group_budgets": (("g", 1.0),)} if c % 5 == 3 else {}
                quota = UserQuota((None, 2, 6)[b % 3], (None, 0.5)[c % 2], b % 2, **money)
                return QuotaSet(UserName(f"u{a % 3}"), quota)
            case "month":
                return MonthBegan() if b % 3 else PricesSet(PRICES[c % len(PRICES)])
            case "resumed":
                return Resumed((0.0, 5.0, 60.0)[b % 3])
            case "withdraw":
                waiting = self.core.view().waiting
                bound = [entry.lease.request for entry in self.core.view().leases if entry.phase == "bound"]
                names = [entry.request.request for entry in waiting] + bound
                return LeaseWithdrawn(names[a % len(names)] if names else RequestId("r0"))
            case "release" | "linger" | "renew":
                return self._change(kind, a, b)
            case "answer":
                return self._answer(a, b)
        return TimeReached()

    def _start(self, kernel: KernelId, a: int, b: int) -> Event | None:
        if any(known.kernel_id == kernel for known in self.core.view().kernels):
            return None
        return KernelStarted(KernelSpec(kernel, UserName(f"u{a % 3}"), b % 4, 1 + b % 3, cpu=float(b % 2)))

    def _report(
        self, kernel: KernelId, a: int, b: int, *, moves: bool = False, executor: HostName | None = None
    ) -> Event | None:
        user = UserName(f"u{a % 7 % 3}")
        known = [entry for entry in self.core.view().kernels if entry.kernel_id == kernel]
        if any(entry.user != user or (self._reserves and not entry.reported) for entry in known):
            return None  # Of those that were placed here, only the owner's router takes one over.
        hosts = tuple(HostName(name) for name in ("", "a", "ab", "bcd", "ef")[b % 5])
        spec = KernelSpec(kernel, user, b % 4, max(1, len(hosts)))
        return KernelReported(spec, hosts, moves, executor)

    def _hosts_of(self, kernel: KernelId) -> list[HostName]:
        return [
            host for known in self.core.view().kernels if known.kernel_id == kernel for host in known.hosts
        ]

    def _change(self, kind: str, a: int, b: int) -> Event | None:
        now = [entry.lease for entry in self.core.view().leases if entry.phase in ("active", "lingering")]
        leases = list(self.held.values())[-12:] if b % 5 == 0 else now
        if not leases:
            return None
        lease = leases[a % len(leases)]
        fence = Fence(lease.fence - (b % 7 == 0))
        if kind == "renew":
            return LeaseRenewed(lease.lease, fence)
        if kind == "linger":
            return LeaseLingered(lease.lease, fence, (None, 1.0)[b % 2], float(a % 3))
        return LeaseReleased(lease.lease, fence, (None, 1.0)[b % 2])

    def _gone(self, a: int, b: int) -> Event | None:
        leases = [
            entry.lease for entry in self.core.view().leases if entry.phase not in ("bound", "reserved")
        ]
        if not leases:
            return None
        lease = leases[a % len(leases)]
        return HolderGone(lease.lease, lease.fence, bool(b % 2))

    def _answer(self, a: int, b: int) -> Event | None:
        if not self.awaited:
            return None
        wanted = self.awaited.pop(a % len(self.awaited))
        match wanted:
            case StartReplica():
                if b % 3 == 0:
                    return ReplicaFailed(wanted.migration, "it did not start")
                return ReplicaReady(wanted.migration)
            case ProvisionHost():
                if b % 4 == 0:
                    return HostNotProvisioned(wanted.reservation)
                gpus = _gpus(f"new-{wanted.reservation}", 4, "A100", 40.0)
                return HostUp(HostName(f"new-{wanted.reservation}"), gpus, 16.0, 64.0, wanted.reservation)
            case Prewarm():
                hosts = {host.name: host.warming for host in self.core.view().hosts}
                if not hosts.get(wanted.host):
                    return None
                if wanted.count > 1:
                    self.awaited.append(Prewarm(wanted.host, wanted.count - 1))
                return (PrewarmFailed if b % 4 == 0 else Prewarmed)(wanted.host)
            case DeferralAsked():
                return DeferralChosen(wanted.request, (0.0, 0.0, 2.0, 15.0)[b % 4])
            case PauseLease():
                if b % 3 == 0:
                    return PauseFailed(wanted.lease.lease, wanted.lease.fence, "it cannot")
                return LeaseReleased(wanted.lease.lease, wanted.lease.fence)
            case ReclaimLease():
                return LeaseReleased(wanted.lease.lease, wanted.lease.fence)


def _preemptible(wish: LeaseRequest, a: int, b: int, c: int) -> LeaseRequest:
    """Return a request of a cell that may be paused, or was."""
    allowed = True if (a + c) % 4 else msgspec.UNSET
    paused = Paused(float(b * 10), float(c * 600)) if (a + b + c) % 3 == 0 else msgspec.UNSET
    expected_s = (2.0, 20.0, 200.0, 2000.0, 0.0)[(b + c) % 5]
    plain = {"gpus": 1 + a % 5 // 3, "hosts": (), "gpu_model": "", "vram_gb": 0.0, "expected_s": expected_s}
    return msgspec.structs.replace(wish, preemptible=allowed, paused=paused, **plain)


def _gpus(name: str, count: int, model: str, memory_gb: float) -> tuple[Gpu, ...]:
    return tuple(Gpu(GpuUuid(f"GPU-{name}-{number}"), model, memory_gb) for number in range(count))


def _host(name: HostName, a: int, b: int) -> HostUp:
    model = MODELS[b % 2]
    gpus = _gpus(name, b % 5, model, 40.0)
    if b % 7 == 3:
        gpus = (*gpus, Gpu(GpuUuid(f"GPU-{name}-other"), "T4", 16.0))
    return HostUp(name, gpus, 16.0, 64.0)


def _wish(kernel: KernelId, a: int, b: int, c: int, *, shares: bool = False) -> LeaseRequest:
    hosts = tuple(HostName(name) for name in ("", "", "", "", "ab", "c", "def")[b % 7])
    wish = LeaseRequest(
        RequestId(f"r{a % 5}-{b}-{c}"),
        kernel,
        (1, 1, 2, 3, 4, 5, 0)[a % 7],
        (5.0, 50.0)[c % 2],
        hosts,
        UserName(f"u{b % 3}"),
        ("", "", "A100", "H100")[c % 4],
        (0.0, 0.0, 40.0)[b % 3],
        float(c % 3),
        float(b % 2),
        (0.0, 2.0, 30.0, 500.0)[(a + b) % 4],
    )
    if not shares or (a + c) % 5 == 0:
        return wish
    share = Share((500, 250, 1000, 300, 250)[b % 5], (1, 4, 4)[c % 3])
    vram_gb = (0.0, 5.0, 5.0, 16.0)[b % 4]
    return msgspec.structs.replace(wish, gpus=1, share=share, vram_gb=vram_gb, gpu_model="", hosts=())
