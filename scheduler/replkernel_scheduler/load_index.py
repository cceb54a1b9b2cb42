"""Which hosts are alike: pools of GPUs with the same load form one class, so nobody looks at every host.

A placement policy ranks classes, not hosts. Law: a pool is in the class of the load that the index was told
last, or in none while its host is not up; the names in a class are sorted. Costs: a change is O(log hosts),
a question O(classes that have the idle GPUs); there are at most as many classes as there are different loads.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, merge
from typing import NamedTuple, TypeAlias

from replkernel_scheduler.policies.protocol import Placement, Rank

PoolName: TypeAlias = tuple[str, int]
"""A host's name and the number of the pool on it."""


class Load(NamedTuple):
    """What a placement policy may know of a host, seen through one of its pools of equal GPUs.

    `idle` GPUs are in no lease, `soft` ones are idle or merely hold the state of a cell that is over.
    `subscribed` and `host_gpus` are the whole host's; `claimed`: somebody who waits goes first there.
    """

    model: str
    memory_gb: float
    gpus: int
    idle: int
    soft: int
    subscribed: int
    host_gpus: int
    claimed: bool


class LoadClass:
    """The pools of one load."""

    __slots__ = ("load", "names", "rank")

    def __init__(self, load: Load, rank: Rank) -> None:
        """Start without pools."""
        self.load = load
        self.rank = rank
        self.names: list[PoolName] = []


class LoadIndex:
    """All classes that have pools."""

    __slots__ = ("_by_idle", "_classes", "_placement")

    def __init__(self, placement: Placement) -> None:
        """Start without pools; `placement` ranks."""
        self._placement = placement
        self._classes: dict[Load, LoadClass] = {}
        self._by_idle: dict[tuple[bool, int], dict[LoadClass, None]] = {}
        """The same classes, by whether they are claimed and how many of their GPUs are idle."""

    def add(self, name: PoolName, load: Load) -> LoadClass:
        """Put a pool into the class of `load`, and return that."""
        found = self._classes.get(load)
        if found is None:
            found = LoadClass(load, self._placement.rank(load))
            found.names.append(name)
            self._list(found, load)
        else:
            insort(found.names, name)
        return found

    def remove(self, name: PoolName, where: LoadClass) -> None:
        """Take a pool out of its class."""
        names = where.names
        if len(names) == 1:
            self._unlist(where)
        del names[bisect_left(names, name)]

    def move(self, name: PoolName, where: LoadClass, load: Load) -> LoadClass:
        """Put a pool that is in one class into that of another load, and return that."""
        if len(where.names) > 1 or load in self._classes:
            self.remove(name, where)
            return self.add(name, load)
        self._unlist(where)
        where.load, where.rank = load, self._placement.rank(load)
        self._list(where, load)
        return where

    def _list(self, entry: LoadClass, load: Load) -> None:
        self._classes[load] = entry
        kind = (load.claimed, load.idle)
        alike = self._by_idle.get(kind)
        if alike is None:
            self._by_idle[kind] = {entry: None}
        else:
            alike[entry] = None

    def _unlist(self, entry: LoadClass) -> None:
        load = entry.load
        del self._classes[load]
        kind = (load.claimed, load.idle)
        alike = self._by_idle[kind]
        if len(alike) == 1:
            del self._by_idle[kind]
        else:
            del alike[entry]

    def pools(self, passes: Callable[[Load], bool]) -> Iterator[PoolName]:
        """Return the pools whose load passes, best rank first, by name within a rank."""
        return self._ranked([(entry.rank, load) for load, entry in self._classes.items() if passes(load)])

    def idle_pools(
        self, idle_min: int, claimed: bool, passes: Callable[[Load], bool] | None
    ) -> Iterable[PoolName]:
        """Return, in the same order, pools that pass with so many idle GPUs, claimed or unclaimed ones."""
        found = [
            (entry.rank, entry.load)
            for (is_claimed, idle), alike in self._by_idle.items()
            if is_claimed == claimed and idle >= idle_min
            for entry in alike
            if passes is None or passes(entry.load)
        ]
        if len(found) > 1:
            return self._ranked(found)
        return self._classes[found[0][1]].names if found else ()

    def _ranked(self, found: list[tuple[Rank, Load]]) -> Iterator[PoolName]:
        """Yield the names of these classes; who asks mostly takes the first few, so only those are sorted."""
        heapify(found)
        while found:
            rank, load = heappop(found)
            lists = [self._classes[load].names]
            while found and found[0][0] == rank:
                lists.append(self._classes[heappop(found)[1]].names)
            yield from lists[0] if len(lists) == 1 else merge(*lists)

    def classes(self) -> list[LoadClass]:
        """Return all classes."""
        return list(self._classes.values())
