"""All hosts that are known, and which of them have GPUs free.

Law: what a host has committed is what its leases hold, what it has subscribed is what its replicas ask for;
every change of either goes through here, and is seen by whoever asks the index next. Only hosts that are up
are found.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator

from replkernel_scheduler.hosts import MILLI, Card, Host, Pool
from replkernel_scheduler.load_index import Load, LoadClass, LoadIndex, PoolName
from replkernel_scheduler.policies.protocol import Placement
from replkernel_scheduler.types import GpuUuid, HostName, KernelId, KernelSpec

STALE_MAX = 64
"""So many pools may have changed since the index was brought up to date: no question waits for more."""


class Hosts:
    """All hosts, by name; those that are up also by load and by shape."""

    def __init__(self, placement: Placement) -> None:
        """Start with none."""
        self.by_name: dict[HostName, Host] = {}
        self.away: dict[HostName, Host] = {}
        """Those that are out of sight, of all that are known."""
        self.draining: set[HostName] = set()
        """Those that are being drained."""
        self.owner: dict[GpuUuid, HostName] = {}
        self.gpus = self.subscribed = 0
        self.counts: Callable[[Host, KernelId], None] | None = None
        """Who counts what replicas cost, once there is somebody."""
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
        if self.counts is not None:
            self.counts(host, spec.kernel_id)

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
