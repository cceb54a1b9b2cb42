"""What the scheduler's core decides on some days, as digests: `python -m tests.support.decisions [EVENTS]`.

The first line says which core it was; every other line is a day under a set of policies. Two cores that print
the same lines have had the same effects, timers and tables, byte for byte.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from hashlib import blake2b

import msgspec
from replkernel_scheduler import core_is_compiled
from replkernel_scheduler.events import Event, HostDown, LeaseAsked
from replkernel_scheduler.policies import built_in
from replkernel_scheduler.policies.limit_static import Static
from replkernel_scheduler.policies.placement_least_loaded import LeastLoaded
from replkernel_scheduler.policies.protocol import PoolLoad, Rank
from replkernel_scheduler.settings import Policies
from replkernel_scheduler.types import HostName

from tests.bench.scheduler_core import Day, host_up

HOSTS, KERNELS = 6, 80
CHECKED_EVERY = 200
"""After so many events the laws are checked, and a host goes and comes back."""


class Fullest(LeastLoaded):
    """Somebody's own policy, as he writes it: a subclass in plain Python."""

    def rank(self, load: PoolLoad) -> Rank:
        """Rank the other way round."""
        idle, *others = super().rank(load)
        return (-idle, *others)


def sets() -> Iterator[tuple[str, Policies]]:
    """Yield the sets of policies that run live, and one with a policy of somebody's own."""
    replace = msgspec.structs.replace
    for make in (built_in.notebook, built_in.reservation, built_in.fcfs_batch, built_in.large_pool):
        yield make.__name__, make()
    yield "easy_batch", built_in.easy_batch()
    yield "roomy", replace(built_in.notebook(), limit=Static(1000.0))
    yield "own", replace(built_in.notebook(), limit=Static(1000.0), placement=Fullest())


def digest(policies: Policies, load: str, seed: int, events: int) -> str:
    """Return what a day comes to."""
    day, sums = Day(HOSTS, KERNELS, load, policies, seed), blake2b(digest_size=16)
    handle, encode = day.core.handle, msgspec.json.Encoder().encode

    def noted(event: Event) -> None:
        day.journal.clear()
        day.feed(event)
        sums.update(encode((day.answers, day.core.deadline())))

    def remembered(event: Event, now: float) -> object:
        effects = handle(event, now)
        sums.update(encode(effects))
        return effects

    day.core = Told(remembered, day.core)  # type: ignore[assignment]
    for number, event in enumerate(day.events(events)):
        noted(expecting(event, number) if policies.backfill.enabled else event)
        if number % CHECKED_EVERY == CHECKED_EVERY - 1:
            day.core.check_invariants()
            gone = number // CHECKED_EVERY % HOSTS
            noted(HostDown(HostName(f"host-{gone:05}")))
            noted(host_up(gone))
    sums.update(encode(day.core.image()) + encode(day.core.view()))
    return sums.hexdigest()


def expecting(event: Event, number: int) -> Event:
    """Return a request with a guess of how long it holds its GPUs, and any other event as it is."""
    if not isinstance(event, LeaseAsked):
        return event
    return LeaseAsked(msgspec.structs.replace(event.request, expected_s=1.0 + number % 60))


class Told:
    """A core whose effects are told on the way."""

    def __init__(self, handle: object, core: object) -> None:
        """Tell what `handle` returns; all else is the core's."""
        self.handle, self._core = handle, core

    def __getattr__(self, name: str) -> object:
        """Return what the core has of this name."""
        return getattr(self._core, name)


def main() -> None:
    """Print the lines."""
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 1500
    print("compiled" if core_is_compiled() else "interpreted")
    for name, policies in sets():
        for load in ("busy", "full"):
            for seed in (1, 2):
                print(name, load, seed, digest(policies, load, seed, events))


if __name__ == "__main__":
    main()
