"""A host, its pools of equal GPUs, and what hangs on them: leases, cards that some share, who waits there.

These know each other, so they stand together; who changes them is elsewhere: `host_index.py`, `leases.py`,
`cards.py`, `queue.py`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TypeAlias

from msgspec import UNSET

from replkernel_scheduler.load_index import Load, LoadClass
from replkernel_scheduler.policies.protocol import Rank
from replkernel_scheduler.types import (
    NO_ROOM,
    Gpu,
    GpuUuid,
    HostName,
    HostState,
    KernelId,
    KernelSpec,
    Lease,
    LeaseId,
    LeasePhase,
    LeaseRequest,
    MigrationId,
    RequestId,
    Room,
    Shape,
    Share,
    UserName,
)

MILLI = 1000
SOLD_AS = 0.975
"""A whole GPU is asked for by the size that it is sold with, of which its driver keeps up to a fortieth."""
ALIKE_GB = 0.5
"""Of one model, GPUs that differ by less are alike: a driver keeps more of one that has a screen."""


def least_gb(wish: LeaseRequest | KernelSpec) -> float:
    """Return the memory that each GPU must have for `wish`: of a part it is a bound, and holds to the MiB."""
    if not wish.vram_gb or (isinstance(wish, LeaseRequest) and wish.share is not UNSET):
        return wish.vram_gb
    return wish.vram_gb * SOLD_AS


class Pool:
    """The GPUs of one host that have the same model and memory; `idle` are their numbers, sorted.

    `cards` are those on which leases of shares are: each counts as one GPU, by what all of these do.
    """

    __slots__ = (
        "cards",
        "ends",
        "host",
        "idle",
        "lingering",
        "load_class",
        "memory_gb",
        "model",
        "name",
        "number_of",
        "reclaiming",
        "uuids",
    )

    def __init__(
        self, host: Host, number: int, model: str, memory_gb: float, uuids: tuple[GpuUuid, ...]
    ) -> None:
        """Start with every GPU idle."""
        self.host = host
        self.name = (host.name, number)
        self.model, self.memory_gb, self.uuids = model, memory_gb, uuids
        self.number_of = {uuid: index for index, uuid in enumerate(uuids)}
        self.idle = list(range(len(uuids)))
        self.cards: dict[int, Card] = {}
        self.lingering = self.reclaiming = 0
        self.load_class: LoadClass | None = None
        self.ends: list[tuple[float, int, int]] = []
        """When leases are expected to end, of which that is known: with fence and GPUs, sorted."""

    def load(self) -> Load:
        """Return what policies see."""
        host, idle = self.host, len(self.idle)
        return Load(
            self.model,
            self.memory_gb,
            len(self.uuids),
            idle,
            idle + self.lingering,
            host.subscribed,
            host.gpus,
            bool(host.claims),
        )

    def sold_with(self, vram_gb: float) -> bool:
        """Say whether these GPUs, each as a whole, count as ones of so much memory."""
        return self.memory_gb >= vram_gb * SOLD_AS

    def suits(self, wish: LeaseRequest | KernelSpec) -> bool:
        """Say whether these GPUs are what `wish` asks for, however many."""
        return not wish.gpus or (
            (not wish.gpu_model or wish.gpu_model == self.model) and self.memory_gb >= least_gb(wish)
        )


class Host:
    """One host."""

    __slots__ = (
        "claims",
        "cpu_free",
        "cpu_milli",
        "cpu_subscribed",
        "gpus",
        "hoped",
        "leases",
        "line",
        "memory_free",
        "memory_milli",
        "memory_subscribed",
        "moves",
        "name",
        "offered",
        "pools",
        "prewarmed",
        "rate",
        "released",
        "replicas",
        "standing",
        "state",
        "subscribed",
        "warming",
        "watched",
    )

    def __init__(self, name: HostName, offered: tuple[Gpu, ...], cpu: float, memory_gb: float) -> None:
        """Start up, empty."""
        self.name = name
        self.state: HostState = "up"
        self.released = self.watched = False
        self.subscribed = self.cpu_subscribed = self.memory_subscribed = 0
        self.prewarmed = self.warming = self.moves = 0
        self.leases: dict[LeaseId, LeaseRecord] = {}
        self.replicas: dict[KernelId, KernelSpec] = {}
        self.hoped: dict[MigrationId, None] = {}
        """Those who look for a host, and for whom GPUs of this one are asked back."""
        self.standing: dict[KernelId, tuple[UserName, int]] = {}
        """The replicas that are charged for as standing by, whom, and how much; `rate` is the host's own."""
        self.rate = 0
        self.line: Line = []
        self.claims: Line = []
        self.cpu_milli = self.memory_milli = self.cpu_free = self.memory_free = 0
        self.offer(offered, cpu, memory_gb)

    def offer(self, offered: tuple[Gpu, ...], cpu: float, memory_gb: float) -> None:
        """Replace what the host has; the caller has ended the leases on what is gone."""
        cpu_milli, memory_milli = round(cpu * MILLI), round(memory_gb * MILLI)
        self.cpu_free += cpu_milli - self.cpu_milli
        self.memory_free += memory_milli - self.memory_milli
        self.cpu_milli, self.memory_milli = cpu_milli, memory_milli
        self.offered, self.gpus = offered, len(offered)
        self.pools = [
            Pool(self, number, kind.model, kind.memory_gb, tuple(kind.uuids))
            for number, kind in enumerate(kinds(offered))
        ] or [Pool(self, 0, "", 0.0, ())]

    @property
    def idle(self) -> int:
        """Return how many GPUs are in no lease."""
        pools = self.pools
        if len(pools) == 1:
            return len(pools[0].idle)
        return sum([len(pool.idle) for pool in pools])

    @property
    def committed(self) -> int:
        """Return how many GPUs are in leases, of shares too, that are not lingering or being reclaimed."""
        return self.gpus - sum(len(pool.idle) + pool.lingering + pool.reclaiming for pool in self.pools)

    @property
    def lingering(self) -> int:
        """Return how many GPUs are in leases that linger."""
        pools = self.pools
        if len(pools) == 1:
            return pools[0].lingering
        return sum([pool.lingering for pool in pools])

    def room(self, gpu_model: str, vram_gb: float) -> Room:
        """Return the most idle GPUs of one model, of which nobody who waits has a claim on any."""
        best = NO_ROOM
        if self.state == "up" and not self.claims:
            for pool in self.pools:
                fits = pool.sold_with(vram_gb) and gpu_model in ("", pool.model)
                if fits and len(pool.idle) > best.gpus:
                    best = Room(len(pool.idle), pool.model)
        return best

    def offers(self, gpu_model: str, vram_gb: float) -> bool:
        """Say whether it has GPUs of this model, and nobody who waits has a claim on any here."""
        if self.state != "up" or self.claims:
            return False
        return any(pool.model == gpu_model and pool.sold_with(vram_gb) for pool in self.pools)

    def has_room(self, wish: LeaseRequest) -> bool:
        """Say whether processors and memory suffice for `wish` now."""
        cpu, memory = wish.cpu, wish.memory_gb
        # What is far from the limit need not be rounded: this is asked several times an event.
        if cpu and self.cpu_free < cpu * MILLI + 1 and self.cpu_free < round(cpu * MILLI):
            return False
        if not memory or self.memory_free >= memory * MILLI + 1:
            return True
        return self.memory_free >= round(memory * MILLI)

    def pool_with(self, wish: LeaseRequest, count: int | None = None) -> Pool | None:
        """Return the first pool with enough idle GPUs that suit, if there is room for the rest of `wish`."""
        gpus = wish.gpus
        wanted = gpus if count is None else count
        for pool in self.pools:
            if len(pool.idle) >= wanted and (not gpus or pool.suits(wish)):
                return pool if self.has_room(wish) else None
        return None

    def gpus_for(self, wish: LeaseRequest) -> int:
        """Return the most GPUs of one model that suit `wish`, if the host has its cores and memory at all."""
        if round(wish.cpu * MILLI) > self.cpu_milli or round(wish.memory_gb * MILLI) > self.memory_milli:
            return 0
        return max([len(pool.uuids) for pool in self.pools if pool.suits(wish)], default=0)

    def models_for(self, wish: LeaseRequest) -> dict[str, int]:
        """Return the most GPUs of each model that suit `wish`, as it would have them alone."""
        found: dict[str, int] = {}
        for pool in self.pools:
            if pool.suits(wish):
                found[pool.model] = max(len(pool.uuids), found.get(pool.model, 0))
        return found

    def could_serve(self, wish: LeaseRequest | KernelSpec) -> bool:
        """Say whether the host, with nothing else on it, has what `wish` asks for."""
        cpu, memory = wish.cpu * MILLI, wish.memory_gb * MILLI
        if cpu + 1 > self.cpu_milli and round(cpu) > self.cpu_milli and cpu:
            return False
        if memory + 1 > self.memory_milli and round(memory) > self.memory_milli and memory:
            return False
        gpus = wish.gpus
        for pool in self.pools:  # noqa: SIM110 - asked for every request: a generator costs as much again
            if len(pool.uuids) >= gpus and (not gpus or pool.suits(wish)):
                return True
        return False


class Card:
    """One GPU that leases of shares have in common; `phase` is what it counts as among whole GPUs.

    Empty: a lease on it computes. lingering: none does, not all are asked back. reclaiming: all are.
    """

    __slots__ = ("number", "phase", "pool", "records")

    def __init__(self, pool: Pool, number: int) -> None:
        """Start without leases."""
        self.pool, self.number = pool, number
        self.records: dict[LeaseId, LeaseRecord] = {}
        self.phase = ""

    def computing(self) -> int:
        """Return how many leases on it compute, or are bound for a replica that will."""
        return len([1 for record in self.records.values() if record.phase in ("active", "bound")])

    def phase_now(self) -> str:
        """Return the phase that follows from the leases."""
        phases = {record.phase for record in self.records.values()}
        if not phases or "active" in phases or "bound" in phases:
            return ""
        return "lingering" if "lingering" in phases else "reclaiming"

    def shares(self, but: LeaseRecord | None = None) -> list[Share]:
        """Return the shares on it, `but` one lease's."""
        return [share_of(record) for record in self.records.values() if record is not but]


def share_of(record: LeaseRecord) -> Share:
    """Return the share that a lease of one has."""
    share = record.lease.share
    assert share is not UNSET
    return share


class LeaseRecord:
    """One lease with what only the scheduler needs to know of it."""

    __slots__ = (
        "again_at",
        "asked_at",
        "card",
        "cpu_milli",
        "estimate",
        "granted_at",
        "held_gb",
        "home",
        "host",
        "kept",
        "lease",
        "memory_milli",
        "paid",
        "pausing",
        "phase",
        "pool",
        "rate",
        "rated_at",
        "rested_at",
        "told",
        "wanted_at",
        "warm",
        "wish",
    )

    def __init__(
        self, lease: Lease, pool: Pool, wish: LeaseRequest, phase: LeasePhase, card: Card | None = None
    ) -> None:
        """Keep what is given; the times are set by who grants. `card` is that of a share."""
        self.card = card
        self.lease, self.pool, self.host, self.wish = lease, pool, pool.host, wish
        self.phase: LeasePhase = phase
        self.cpu_milli = round(wish.cpu * MILLI) if wish.cpu else 0
        self.memory_milli = round(wish.memory_gb * MILLI) if wish.memory_gb else 0
        """What its cell has of the host's cores and memory, while it runs."""
        self.asked_at = self.granted_at = self.estimate = 0.0
        self.rested_at = self.wanted_at = self.held_gb = 0.0
        self.home: LeaseId | None = None
        self.rate = 0
        """What its user is charged while a cell uses it, since `rated_at`; `paid` is what it cost before."""
        self.paid = self.rated_at = 0.0
        self.warm = False
        self.pausing: RequestId | None = None
        """For whom its cell is being paused."""
        self.told = False
        """Whether its cell was ever told to stand still, and may ask to go on."""
        self.again_at = 0.0
        """Before that its cell is not told to stand still; 0 where it has not refused to."""
        self.kept = False
        """Whether its kernel's state cannot leave its GPUs; told anew with each renewal."""

    def expect(self) -> None:
        """Note when its holder thinks to be done, if that is known; a share's end frees no whole GPU."""
        if self.wish.expected_s and self.lease.gpus and self.card is None:
            insort(self.pool.ends, self._end())

    def forget(self) -> None:
        """Expect no end any more."""
        if self.wish.expected_s and self.lease.gpus and self.card is None:
            ends, end = self.pool.ends, self._end()
            del ends[bisect_left(ends, end)]

    def _end(self) -> tuple[float, int, int]:
        return (self.granted_at + self.wish.expected_s, self.lease.fence, len(self.lease.gpus))


class Waiting:
    """One request that waits; `key` is its place in the order, smaller ones are served first."""

    __slots__ = (
        "asked_at",
        "claim",
        "estimate",
        "gave_up",
        "hosts",
        "key",
        "migration",
        "shape",
        "tag",
        "told",
        "wish",
    )

    def __init__(self, wish: LeaseRequest, key: Rank, asked_at: float, hosts: list[Host] | None) -> None:
        """Keep what is given; `hosts` None is any host."""
        self.wish, self.key, self.asked_at, self.hosts = wish, key, asked_at, hosts
        self.shape: Shape = (wish.gpus, wish.gpu_model, wish.vram_gb, wish.cpu, wish.memory_gb)
        if wish.share is not UNSET:
            self.shape += (wish.share.milli, wish.share.multiplicity)
        self.claim: Host | None = None
        self.migration: MigrationId | None = None
        self.gave_up = False
        """Whether its kernel was to be moved for it, in vain; when a host comes, it is tried again."""
        self.tag = self.estimate = 0.0
        self.told = -1


Line: TypeAlias = list[tuple[Rank, Waiting]]
"""Sorted by key; keys differ, so that two requests are never compared."""


class Kind:
    """GPUs of one host that are as good as each other: each has `memory_gb` at least."""

    __slots__ = ("memory_gb", "model", "offered_gb", "uuids")

    def __init__(self, model: str, memory_gb: float) -> None:
        """Start without GPUs; those that come are close to this memory."""
        self.model, self.memory_gb, self.offered_gb = model, memory_gb, memory_gb
        self.uuids: list[GpuUuid] = []


def kinds(offered: tuple[Gpu, ...]) -> list[Kind]:
    """Return the kinds of what a host offers, in the order of their first GPUs."""
    found: list[Kind] = []
    for gpu in offered:
        for kind in found:
            if kind.model == gpu.model and abs(kind.offered_gb - gpu.memory_gb) < ALIKE_GB:
                break
        else:
            kind = Kind(gpu.model, gpu.memory_gb)
            found.append(kind)
        kind.uuids.append(gpu.uuid)
        kind.memory_gb = min(kind.memory_gb, gpu.memory_gb)
    return found
