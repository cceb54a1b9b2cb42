"""A picture of the lines: what is free, what runs and since when, who waits where. Made of the core's nouns.

Law: it looks and changes nothing, and at most at WAITING_MAX requests and RUNNING_MAX leases. GPUs count in
thousandths, so that shares have their place: they are taken for parts of their host's GPUs, not of one card.
"""

from __future__ import annotations

from heapq import nsmallest
from itertools import islice
from typing import NamedTuple

from msgspec import UNSET

from replkernel_scheduler.asking import GIVEN_BACK_S
from replkernel_scheduler.expecting.durations import Draws, Durations, kinds_of
from replkernel_scheduler.hosts import LeaseRecord, Pool, Waiting
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.policies.protocol import Rank
from replkernel_scheduler.types import LeaseRequest, RequestId, Shape
from replkernel_scheduler.users import MILLI

WAITING_MAX = 256
"""So many of those who wait are looked at, first ones first; the others are told their place alone."""
RUNNING_MAX = 4096


class Running(NamedTuple):
    """A lease that computes: on which pool, how much of it, and how long it may last yet."""

    pool: int
    milli: int
    left: Draws


class Waits(NamedTuple):
    """One that waits: how much it wants, the pools of its own hosts, and those where it might go."""

    request: RequestId
    milli: int
    own: tuple[int, ...]
    elsewhere: tuple[int, ...]
    claim: int | None
    """The number of the host that it claims."""
    shape: Shape | None
    """What is asked for, of one that any host may serve: the first of a shape claims a host."""
    lasts: Draws


class Lines(NamedTuple):
    """All of it; pools are numbered through, `host_of` says whose each is."""

    free: list[int]
    host_of: list[int]
    running: list[Running]
    booked: list[Running]
    """What is set aside until the end of a booking."""
    back: list[Running]
    """What is asked back, of those who are late: until they have to give it back."""
    waiting: list[Waits]

    def why(self, pools: frozenset[int]) -> str:
        """Say in a clause what a request for any of these pools waits for, whoever has it."""
        computing = [run for run in self.running if run.pool in pools]
        if not pools or not computing:
            return ""
        gpus = sum([run.milli for run in computing]) / MILLI
        cells = "1 cell computes" if len(computing) == 1 else f"{len(computing)} cells compute"
        aside = sum([run.milli for run in self.booked if run.pool in pools]) // MILLI
        booked = "" if not aside else f", and {aside} {'is' if aside == 1 else 'are'} booked"
        return f"{cells} on {gpus:.3g} GPU{'' if gpus == 1 else 's'} of the hosts that may serve it{booked}"


class _Places:
    """The pools of the hosts that are up, numbered through, and which of them serve what is asked for."""

    def __init__(self, parts: Parts) -> None:
        up = [host for host in parts.hosts.by_name.values() if host.state == "up"]
        self.pools = [pool for host in up for pool in host.pools]
        self.number = {id(pool): at for at, pool in enumerate(self.pools)}
        self.hosts = {id(host): at for at, host in enumerate(up)}
        self.host_of = [self.hosts[id(pool.host)] for pool in self.pools]
        self._fits: dict[tuple[int, str, float], tuple[int, ...]] = {}

    def fits(self, wish: LeaseRequest) -> tuple[int, ...]:
        """Return the pools that could serve a request; many ask for the same."""
        kind = wish.gpus, wish.gpu_model, wish.vram_gb
        found = self._fits.get(kind)
        if found is None:
            found = self._fits[kind] = tuple(
                [
                    at
                    for at, pool in enumerate(self.pools)
                    if pool.suits(wish) and len(pool.uuids) >= wish.gpus
                ]
            )
        return found


def picture(parts: Parts, durations: Durations) -> Lines:
    """Return the lines as they stand."""
    places = _Places(parts)
    number, free = places.number, [len(pool.idle) * MILLI for pool in places.pools]
    running, back = list[Running](), list[Running]()
    for record in islice(parts.leases.by_id.values(), RUNNING_MAX):
        at = number.get(id(record.pool))
        if at is None or not record.lease.gpus:
            continue
        if record.phase in ("active", "bound"):
            running.append(Running(at, _milli(record), _left(record, parts, durations)))
        elif record.phase == "reclaiming" and record.wanted_at + GIVEN_BACK_S <= parts.now:
            due = parts.timers.at(("lease", record.lease.lease)) or parts.now
            back.append(Running(at, _milli(record), Draws([(1.0, [due], 0)], parts.now)))
        elif record.phase in ("lingering", "reclaiming") and not parts.policies.keeps and not record.kept:
            free[at] += _milli(record)
    _fill_cards(places.pools, free)
    waiting = [
        _waits(waiting, parts, durations, places)
        for waiting in nsmallest(WAITING_MAX, parts.queue.by_request.values(), key=_key)
        if waiting.wish.gpus
    ]
    booked = [
        Running(number[id(pool)], len(gpus) * MILLI, Draws([(1.0, [one.booking.until], 0)], parts.now))
        for one in parts.booked.values()
        for pool, gpus in one.aside.items()
        if id(pool) in number
    ]
    return Lines(free, places.host_of, running, booked, back, waiting)


def _key(waiting: Waiting) -> Rank:
    return waiting.key


def _fill_cards(pools: list[Pool], free: list[int]) -> None:
    """Count what is left of cards with shares on them."""
    for at, pool in enumerate(pools):
        for card in pool.cards.values():
            free[at] += max(0, MILLI - sum([share.milli for share in card.shares()]))


def _milli(record: LeaseRecord) -> int:
    share = record.lease.share
    return len(record.lease.gpus) * MILLI if share is UNSET else share.milli


def _left(record: LeaseRecord, parts: Parts, durations: Durations) -> Draws:
    wish, passed_s = record.wish, parts.now - record.granted_at if record.phase == "active" else 0.0
    return durations.draws_for(
        kinds_of(wish.kernel_id, wish.user, _milli(record) / MILLI), wish.expected_s, passed_s
    )


def _waits(waiting: Waiting, parts: Parts, durations: Durations, places: _Places) -> Waits:
    wish = waiting.wish
    milli = wish.gpus * MILLI if wish.share is UNSET else wish.share.milli
    fits, elsewhere = places.fits(wish), tuple[int, ...]()
    if waiting.hosts is None:
        own = fits
    else:
        host_of, on = places.host_of, {places.hosts.get(id(host)) for host in waiting.hosts}
        own = tuple([at for at in fits if host_of[at] in on])
        if _moves(waiting, parts):
            elsewhere = tuple([at for at in fits if host_of[at] not in on])
    claim = None if waiting.claim is None else places.hosts.get(id(waiting.claim))
    lasts = durations.draws_for(kinds_of(wish.kernel_id, wish.user, milli / MILLI), wish.expected_s)
    shape = waiting.shape if waiting.hosts is None else None
    return Waits(wish.request, milli, own, elsewhere, claim, shape, lasts)


def _moves(waiting: Waiting, parts: Parts) -> bool:
    """Say whether a request's kernel may take a replica to where there are GPUs."""
    kernel = parts.kernels.by_id.get(waiting.wish.kernel_id)
    if kernel is None or not kernel.hosts or waiting.wish.hosts or not parts.policies.migration.enabled:
        return False
    return kernel.movable or not kernel.reported
