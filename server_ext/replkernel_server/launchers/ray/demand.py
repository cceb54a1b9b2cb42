"""Jobs of a Ray cluster that wait for GPUs, out of what Ray tells its autoscaler. Pure, and knows no ray.

Laws: placement groups of ours are no jobs, and neither is one that nobody knows by name yet; a job counts
where its labels and all that it wants beside GPUs can be had now, so that no lease is given up in vain; and
it is told once two looks have seen it, for most jobs wait for a moment only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from math import ceil
from typing import Any

import msgspec

from replkernel_server.launchers.protocol import JobsWaiting, JobWaiting

GPU = "GPU"
IN, NOT_IN = 1, 2
TOGETHER = "STRICT_PACK"
TINY = 1e-6


class Wish(msgspec.Struct, frozen=True):
    """What one node is to have for a job; `labels` are (name, IN or NOT_IN, values)."""

    resources: tuple[tuple[str, float], ...]
    labels: tuple[tuple[str, int, tuple[str, ...]], ...] = ()

    @property
    def gpus(self) -> int:
        """Return how many whole GPUs that is."""
        return ceil(dict(self.resources).get(GPU, 0.0) - TINY)


class Room(msgspec.Struct, frozen=True):
    """A host: what its node has in all and free, and its labels."""

    host: str
    total: Mapping[str, float]
    free: Mapping[str, float]
    labels: Mapping[str, str]


def wishes(state: Any, ours: Collection[str], known: Collection[str]) -> Counter[Wish]:
    """Read Ray's ClusterResourceState; `ours` and `known` are ids of placement groups."""
    found: Counter[Wish] = Counter()
    for entry in state.pending_resource_requests:
        found[_wish(entry.request)] += int(entry.count)
    for gang in state.pending_gang_resource_requests:
        name, _, strategy = gang.details.partition("|")[0].partition(":")
        if name in ours or name not in known:
            continue
        selectors = [request for part in gang.bundle_selectors for request in part.resource_requests]
        bundles = [_wish(request) for request in selectors or gang.requests]
        found.update([_together(bundles)] if strategy == TOGETHER and bundles else bundles)
    return Counter({wish: count for wish, count in found.items() if wish.gpus > 0})


def jobs_waiting(found: Mapping[Wish, int], rooms: Iterable[Room]) -> JobsWaiting:
    """Return which jobs wait for GPUs that hosts have."""
    rooms = list(rooms)
    jobs = [
        JobWaiting(tuple(hosts), wish.gpus, count)
        for wish, count in sorted(found.items(), key=lambda item: item[0].resources)
        if (hosts := sorted(room.host for room in rooms if _fits(wish, room)))
    ]
    return JobsWaiting(tuple(jobs))


class Demand:
    """What the last look saw, and what was told."""

    def __init__(self) -> None:
        """Start with nobody who waits."""
        self._seen: Counter[Wish] = Counter()
        self._told = JobsWaiting(())

    def read(self, found: Counter[Wish], rooms: Iterable[Room]) -> JobsWaiting | None:
        """Take what a look saw; return what is to be told, if it is news."""
        both, self._seen = found & self._seen, found
        word = jobs_waiting(both, rooms)
        if word == self._told:
            return None
        self._told = word
        return word


def _wish(request: Any) -> Wish:
    labels = tuple(
        (rule.label_key, int(rule.operator), tuple(sorted(rule.label_values)))
        for selector in request.label_selectors[:1]  # What follows is what would do as well.
        for rule in selector.label_constraints
    )
    return Wish(tuple(sorted(request.resources_bundle.items())), labels)


def _together(bundles: list[Wish]) -> Wish:
    """Return what bundles want that have to be on one node."""
    total: Counter[str] = Counter()
    for bundle in bundles:
        total.update(dict(bundle.resources))
    rules = dict.fromkeys(rule for bundle in bundles for rule in bundle.labels)
    return Wish(tuple(sorted(total.items())), tuple(rules))


def _fits(wish: Wish, room: Room) -> bool:
    return room.total.get(GPU, 0.0) >= wish.gpus and all(_bears(wish, room))


def _bears(wish: Wish, room: Room) -> Iterator[bool]:
    for name, amount in wish.resources:
        if name != GPU:
            yield room.free.get(name, 0.0) >= amount - TINY
    for name, operator, values in wish.labels:
        yield (room.labels.get(name) in values) is (operator == IN)
