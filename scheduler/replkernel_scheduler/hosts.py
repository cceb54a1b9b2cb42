"""Hosts that are known, their pools of equal GPUs, and what is committed and subscribed on them.

Law: what a host has committed is what its leases hold, what it has subscribed is what its replicas ask for;
every change of either goes through here, and is seen by whoever asks the index next. Only hosts that are up
are found.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET

from replkernel_scheduler.cards import Card, best_pool
from replkernel_scheduler.load_index import Load, LoadClass, LoadIndex, PoolName
from replkernel_scheduler.policies.protocol import Placement
from replkernel_scheduler.types import (
    Gpu,
    GpuUuid,
    HostName,
    HostState,
    KernelId,
    KernelSpec,
    LeaseId,
    LeaseRequest,
    MigrationId,
    UserName,
)

if TYPE_CHECKING:
    from replkernel_scheduler.leases import LeaseRecord
    from replkernel_scheduler.ledger import Ledger
    from replkernel_scheduler.migrations import Migration
    from replkernel_scheduler.queue import Line

MILLI = 1000
SOLD_AS = 0.975
"""A whole GPU is asked for by the size that it is sold with, of which its driver keeps up to a fortieth."""
ALIKE_GB = 0.5
"""Of one model, GPUs that differ by less are alike: a driver keeps more of one that has a screen."""
STALE_MAX = 64
"""So many pools may have changed since the index was brought up to date: no question waits for more."""


def least_gb(wish: LeaseRequest | KernelSpec) -> float:
    """Return the memory that each GPU must have for `wish`: of a part it is a bound, and holds to the MiB."""
    if not wish.vram_gb or (isinstance(wish, LeaseRequest) and wish.share is not UNSET):
        return wish.vram_gb
    return wish.vram_gb * SOLD_AS


class Room(NamedTuple):
    """So many GPUs of one model on one host."""

    gpus: int
    model: str


NO_ROOM = Room(0, "")


class Size(NamedTuple):
    """What a host has of cores and memory, and what of the memory is leased."""

    cores: int
    memory_gb: float
    leased_gb: float


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
        self.hoped: dict[MigrationId, Migration] = {}
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

    def pool_for(self, wish: LeaseRequest) -> Pool | None:
        """Return the same, or for a share the pool with the card where that fits best."""
        return self.pool_with(wish) if wish.share is UNSET else best_pool(self, wish)

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


class Hosts:
    """All hosts, by name; those that are up also by load and by shape."""

    def __init__(self, placement: Placement) -> None:
        """Start with none."""
        self.by_name: dict[HostName, Host] = {}
        self.away: dict[HostName, Host] = {}
        """Those that are out of sight, of all that are known."""
        self.owner: dict[GpuUuid, HostName] = {}
        self.gpus = self.subscribed = 0
        self.ledger: Ledger | None = None
        """Who counts what replicas cost, once there is one."""
        self._index = LoadIndex(placement)
        self._stale: dict[Pool, None] = {}
        """Those that may have another load than the index knows."""
        self.open: dict[Pool, None] = {}
        """Those with cards on which there are shares."""
        self._shapes: dict[tuple[str, float, int, int, int], int] = {}

    def named(self, name: str) -> Host:
        """Return the host of this name."""
        return self.by_name[HostName(name)]

    def shapes(self) -> list[tuple[str, float, int, int, int]]:
        """Return what hosts that are up have: model, memory, number of GPUs; cores and memory."""
        return list(self._shapes)

    def index(self, host: Host) -> None:
        """Let a host be found."""
        for pool in host.pools:
            pool.load_class = self._index.add(pool.name, pool.load())
            shape = (pool.model, pool.memory_gb, len(pool.uuids), host.cpu_milli, host.memory_milli)
            self._shapes[shape] = self._shapes.get(shape, 0) + 1
        self.gpus += host.gpus

    def hide(self, host: Host) -> None:
        """Let a host no longer be found."""
        found = False
        for pool in host.pools:
            if pool.load_class is None:
                continue
            found = True
            self._index.remove(pool.name, pool.load_class)
            pool.load_class = None
            shape = (pool.model, pool.memory_gb, len(pool.uuids), host.cpu_milli, host.memory_milli)
            self._shapes[shape] -= 1
            if not self._shapes[shape]:
                del self._shapes[shape]
        self.gpus -= host.gpus * found

    def order_shapes(self, shapes: tuple[tuple[str, float, int, int, int], ...]) -> None:
        """Have the shapes, which are these, in this order."""
        if set(shapes) != set(self._shapes):
            raise ValueError("the hosts that are up have other shapes")
        self._shapes = {shape: self._shapes[shape] for shape in shapes}

    def moved(self, pool: Pool) -> None:
        """Take notice of a change of the pool's load."""
        stale = self._stale
        stale[pool] = None
        if len(stale) > STALE_MAX:
            self._catch_up()

    def _catch_up(self) -> None:
        """Have the index know every pool's present load."""
        for pool in self._stale:
            where = pool.load_class
            if where is not None:
                load = pool.load()
                if load != where.load:
                    pool.load_class = self._index.move(pool.name, where, load)
        self._stale.clear()

    def take(self, pool: Pool, gpus: tuple[GpuUuid, ...] | None, count: int) -> tuple[GpuUuid, ...]:
        """Take `count` idle GPUs (those given, if any), first ones first, and return them."""
        idle = pool.idle
        if gpus is None:
            uuids = pool.uuids
            gpus = tuple([uuids[number] for number in idle[:count]])
            del idle[:count]
        else:
            for uuid in gpus:
                idle.remove(pool.number_of[uuid])
        self.moved(pool)
        return gpus

    def give(self, pool: Pool, gpus: tuple[GpuUuid, ...]) -> None:
        """Make GPUs idle."""
        number_of, idle = pool.number_of, pool.idle
        if len(gpus) == 1:
            insort(idle, number_of[gpus[0]])
        elif gpus:
            idle += [number_of[uuid] for uuid in gpus]
            idle.sort()
        self.moved(pool)

    def take_share(self, pool: Pool, number: int) -> Card:
        """Return the card on which a share is to be; an idle one is idle no more."""
        card = pool.cards.get(number)
        if card is None:
            pool.idle.remove(number)
            card = pool.cards[number] = Card(pool, number)
            self.open[pool] = None
            self.moved(pool)
        return card

    def shifted(self, card: Card) -> None:
        """Take notice of a change among the leases on a card; without any it is idle."""
        pool, before, now = card.pool, card.phase, card.phase_now()
        if before != now:
            card.phase = now
            pool.lingering += (now == "lingering") - (before == "lingering")
            pool.reclaiming += (now == "reclaiming") - (before == "reclaiming")
        if not card.records:
            del pool.cards[card.number]
            insort(pool.idle, card.number)
            if not pool.cards:
                del self.open[pool]
        self.moved(pool)

    def subscribe(self, host: Host, spec: KernelSpec, sign: int) -> None:
        """Put one replica's request onto the host's account (`sign` 1), or off it (-1)."""
        if sign > 0:
            host.replicas[spec.kernel_id] = spec
        else:
            del host.replicas[spec.kernel_id]
        host.cpu_subscribed += sign * round(spec.cpu * MILLI)
        host.memory_subscribed += sign * round(spec.memory_gb * MILLI)
        if spec.gpus:
            self.subscribed += sign * spec.gpus
            host.subscribed += sign * spec.gpus
            for pool in host.pools:
                self.moved(pool)
        if self.ledger is not None:
            self.ledger.look(host, spec.kernel_id)

    def find(self, passes: Callable[[Load], bool]) -> Iterator[Pool]:
        """Return pools whose load passes, in the placement policy's order."""
        if self._stale:
            self._catch_up()
        for name in self._index.pools(passes):
            yield self._named_pool(name)

    def find_idle(
        self, idle_min: int, claimed: bool, passes: Callable[[Load], bool] | None
    ) -> Iterator[Pool]:
        """Return, in the same order, pools with so many idle GPUs whose host is claimed, or is not."""
        if self._stale:
            self._catch_up()
        return map(self._named_pool, self._index.idle_pools(idle_min, claimed, passes))

    def _named_pool(self, name: PoolName) -> Pool:
        return self.by_name[HostName(name[0])].pools[name[1]]

    def loads(self) -> list[LoadClass]:
        """Return the classes of the index, for checks and for what looks at all loads."""
        self._catch_up()
        return self._index.classes()
