"""The scheduler's figures for Prometheus: totals from effects, the rest from the view at the time of asking.

Law: it changes nothing. Totals begin at 0 with the process, as Prometheus expects.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import UNSET
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from replkernel_scheduler import core_is_compiled
from replkernel_scheduler.effects import (
    LeaseEnded,
    LeaseGranted,
    LeaseRefused,
    MigrationFailed,
    ReplicaMoved,
    StartReplica,
)
from replkernel_scheduler.gangs.types import GangLeased, GangLeaseEnded, GangOver
from replkernel_scheduler.harvest.types import HarvestEffect
from replkernel_scheduler.types import LeaseId
from replkernel_scheduler.view import ClusterView, gpu_phases

from replkernel.leasing.wire import GpuUse

PREFIX = "replkernel_scheduler_"
CONTENT_TYPE = CONTENT_TYPE_LATEST
BUCKETS_S = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0)

MOVE_STEPS: dict[type[HarvestEffect], str] = {
    StartReplica: "begun",
    ReplicaMoved: "done",
    MigrationFailed: "given up",
}


class Clients(NamedTuple):
    """How many clients there are of each role, and what agents told of their GPUs last, by host and UUID."""

    roles: Mapping[str, int]
    uses: Mapping[str, Mapping[str, GpuUse]]


class JournalFigures(NamedTuple):
    """What there is to say of the journal; numbers are those of events."""

    events: int
    last: int
    snapshot: int = 0
    snapshot_made: float = 0.0
    failures: int = 0


class Metrics:
    """Counts what was decided; writes everything in Prometheus' text form."""

    def __init__(self, view: ClusterView) -> None:
        """Start from what is in force already."""
        self._registry = CollectorRegistry()
        self._granted: set[LeaseId] = {entry.lease.lease for entry in view.leases if entry.phase != "bound"}
        self._grants = Counter(PREFIX + "grants", "Leases granted.", registry=self._registry)
        self._refusals = Counter(PREFIX + "refusals", "Requests refused.", registry=self._registry)
        self._ends = Counter(
            PREFIX + "lease_ends", "Leases over, by reason.", ["why"], registry=self._registry
        )
        self._moves = Counter(
            PREFIX + "migrations", "Replicas' moves, by step.", ["step"], registry=self._registry
        )
        for step in MOVE_STEPS.values():
            self._moves.labels(step)
        self._decisions = Histogram(
            PREFIX + "decision_seconds",
            "How long the core took to decide about one event.",
            buckets=BUCKETS_S,
            registry=self._registry,
        )

    def observe(self, effects: list[HarvestEffect], took_s: float) -> None:
        """Count the effects of one event. A renewed lease is granted once."""
        self._decisions.observe(took_s)
        for effect in effects:
            if isinstance(effect, LeaseGranted | GangLeased):
                if effect.lease.lease not in self._granted:
                    self._granted.add(effect.lease.lease)
                    self._grants.inc()
            elif isinstance(effect, LeaseEnded | GangLeaseEnded):
                self._granted.discard(effect.lease.lease)
                self._ends.labels(effect.why).inc()
            elif isinstance(effect, LeaseRefused) or (isinstance(effect, GangOver) and effect.refused):
                self._refusals.inc()
            elif type(effect) in MOVE_STEPS:
                self._moves.labels(MOVE_STEPS[type(effect)]).inc()

    def write(self, view: ClusterView, journal: JournalFigures, clients: Clients) -> bytes:
        """Return all figures as text; it may be called in any thread."""
        now = CollectorRegistry()
        now.register(_Gauges(view, journal, clients))
        return bytes(generate_latest(self._registry) + generate_latest(now))


class _Gauges(Collector):
    """The figures of one view."""

    def __init__(self, view: ClusterView, journal: JournalFigures, clients: Clients) -> None:
        self.view, self.journal, self.clients = view, journal, clients

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Yield every figure."""
        view = self.view
        leases = Tally({"active": 0, "lingering": 0})
        leases.update(entry.phase for entry in view.leases)
        yield _labelled("leases", "Leases in force.", ["phase"], {(name,): n for name, n in leases.items()})
        yield _tallied("hosts", "Hosts.", ["state"], Tally((host.state,) for host in view.hosts))
        yield _tallied("gpus", "GPUs by what they do.", ["state", "model"], gpus_by_state(view))
        roles = Tally({"agent": 0, "router": 0})
        roles.update(self.clients.roles)
        yield _labelled("clients", "Agents and routers.", ["role"], {(name,): n for name, n in roles.items()})
        yield from self._busy()
        yield from self._plain()

    def _busy(self) -> Iterator[GaugeMetricFamily]:
        """Yield what agents told of their GPUs last."""
        share: dict[tuple[str, ...], float] = {}
        held: dict[tuple[str, ...], float] = {}
        for host in self.view.hosts:
            for uuid, use in self.clients.uses.get(host.name, {}).items():
                share[host.name, uuid], held[host.name, uuid] = use.utilisation, use.memory_used_gb
        labels = ["host", "gpu"]
        yield _labelled("gpu_utilisation", "How much a GPU computes, 0 to 1.", labels, share)
        yield _labelled("gpu_memory_used_gb", "GPU memory in use.", labels, held)

    def _plain(self) -> Iterator[GaugeMetricFamily]:
        view = self.view
        oldest = min((entry.asked_at for entry in view.waiting), default=view.now)
        yield _gauge("queue_length", "Requests that wait.", len(view.waiting))
        yield _gauge("queue_oldest_seconds", "How long the oldest of them has waited.", view.now - oldest)
        yield _gauge(
            "subscription_ratio", "GPUs that kernels subscribe to, for each GPU and replica.", ratio(view)
        )
        kind = "compiled" if core_is_compiled() else "interpreted"
        yield _labelled("core_info", "Which code decides; always 1.", ["kind"], {(kind,): 1})
        yield _gauge("kernels", "Kernels that are placed or wait for hosts.", len(view.kernels))
        yield _gauge("migrations_running", "Replicas that move, or look for a host.", len(view.migrations))
        yield from self._money()
        yield from self._journal()

    def _money(self) -> Iterator[GaugeMetricFamily]:
        money = self.view.money
        cost: dict[tuple[str, ...], float] = {}
        charged: dict[tuple[str, ...], float] = {}
        margin: dict[tuple[str, ...], float] = {}
        spent: dict[tuple[str, ...], float] = {}
        limits: dict[tuple[str, ...], float] = {}
        if money is not UNSET:
            currency = (money.prices.currency,)
            cost[currency], charged[currency] = money.cost, money.charged
            if money.margin is not None:
                margin[currency] = money.margin
            spent = {(name,): amount for name, amount in money.groups}
            limits = {(name,): limit for name, limit in money.budgets}
        label = ["currency"]
        yield _labelled("hosts_cost", "What hosts have cost since there are prices.", label, cost)
        yield _labelled("users_charged", "What users were charged for that time.", label, charged)
        yield _labelled("margin_ratio", "What is left of that after the hosts' cost.", label, margin)
        yield _labelled("group_spent_month", "Spent by a group with a budget, this month.", ["group"], spent)
        yield _labelled("group_budget_month", "What a group may spend in a month.", ["group"], limits)

    def _journal(self) -> Iterator[GaugeMetricFamily]:
        journal = self.journal
        yield _gauge("journal_events", "Events in the journal.", journal.events)
        yield _gauge("journal_last_event", "The number of the last event that was decided.", journal.last)
        yield _gauge("snapshot_event", "The last event in the newest snapshot; 0: none.", journal.snapshot)
        yield _gauge(
            "snapshot_timestamp_seconds", "When it was made, as Unix time; 0: none.", journal.snapshot_made
        )
        yield _gauge("snapshot_failures", "Snapshots that could not be made.", journal.failures)


def gpus_by_state(view: ClusterView) -> Tally[tuple[str, ...]]:
    """Count GPUs by the phase of their lease (idle: none) and their model."""
    phase = gpu_phases(view.leases)
    return Tally((phase.get(gpu.uuid, "idle"), gpu.model) for host in view.hosts for gpu in host.gpus)


def ratio(view: ClusterView) -> float:
    """Return S/(G·R) of the specification, with R the mean number of hosts of a kernel's replicas."""
    gpus = sum(len(host.gpus) for host in view.hosts)
    placed = [len(kernel.hosts) for kernel in view.kernels if kernel.hosts]
    if not gpus or not placed:
        return 0.0
    return sum(host.subscribed for host in view.hosts) / (gpus * sum(placed) / len(placed))


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, value=value)


def _tallied(name: str, text: str, labels: list[str], values: Tally[tuple[str, ...]]) -> GaugeMetricFamily:
    return _labelled(name, text, labels, dict(sorted(values.items())))


def _labelled(
    name: str, text: str, labels: list[str], values: Mapping[tuple[str, ...], float]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family
