"""Which GPUs a request would get: the kernel's own first, then its replicas' hosts, or any host.

Law: it looks and changes nothing. Nobody gets GPUs of a host that somebody before it claims, but a
kernel those that its state cannot leave: nobody else could use them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from msgspec import UNSET

from replkernel_scheduler.cards import MILLI, best_card, counted, goes_on, opens, pool_for
from replkernel_scheduler.hosts import Host, LeaseRecord, Pool, least_gb
from replkernel_scheduler.kernels import Kernel
from replkernel_scheduler.load_index import Load
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.policies.protocol import Rank, SeesRequests, Spot
from replkernel_scheduler.types import LeaseRequest


class Choice(NamedTuple):
    """GPUs of `pool`; `own` is a resting lease of the same kernel there, whose GPUs come first."""

    pool: Pool
    own: LeaseRecord | None


class Choosing:
    """Looks for GPUs."""

    def __init__(self, parts: Parts) -> None:
        """Look among the hosts of `parts`."""
        self._parts = parts
        placement = parts.policies.placement
        self._sees = placement if isinstance(placement, SeesRequests) else None

    def hosts_for(self, wish: LeaseRequest, kernel: Kernel | None) -> list[Host] | None:
        """Return the hosts that may serve a request now; None is any."""
        if wish.hosts:
            by_name = self._parts.hosts.by_name
            return [by_name[name] for name in dict.fromkeys(wish.hosts) if name in by_name]
        if kernel is not None and not self._parts.policies.executor.anywhere:
            return list(kernel.hosts)
        return None

    def at_once(
        self, wish: LeaseRequest, kernel: Kernel | None, hosts: list[Host] | None, key: Rank
    ) -> Choice | None:
        """Return what a request that arrives with this key can have now."""
        parts = self._parts
        resting = parts.leases.resting.get(wish.kernel_id) if wish.gpus else None
        if resting:
            rested = list(resting.values())
            if len(rested) > 1:
                rested.sort(key=_newest)
            for record in rested:
                host = record.host
                if (hosts is None or host in hosts) and (
                    record.phase == "reserved"
                    or record.kept
                    or parts.policies.keeps
                    or not claimed(host, key)
                ):
                    choice = self.own(record, wish)
                    if choice is not None:
                        return choice
        if parts.policies.reserve and wish.gpus:
            return None
        if hosts is None:
            best = next(self.idle_pools(wish, key), None)
            return None if best is None else Choice(best, None)
        found: list[Pool] = []
        gpus, whole = wish.gpus, wish.share is UNSET
        for host in hosts:
            claims, pools = host.claims, host.pools
            if whole and len(pools) == 1 and len(pools[0].idle) < gpus:
                continue  # Asked of every host for every request: this much without a call.
            if host.state == "up" and not (claims and claims[0][0] < key):
                pool = host.pool_with(wish) if whole else pool_for(host, wish)
                if pool is not None:
                    found.append(pool)
        if not found:
            return None
        return Choice(found[0] if len(found) == 1 else self._best(found, wish, kernel), None)

    def on(self, host: Host, wish: LeaseRequest) -> Choice | None:
        """Return what a request that waits can have on `host`, whatever is claimed there."""
        parts = self._parts
        if host.state != "up":
            return None
        resting = parts.leases.resting.get(wish.kernel_id) if wish.gpus else None
        if resting:
            for record in resting.values():
                choice = self.own(record, wish) if record.host is host else None
                if choice is not None:
                    return choice
        if parts.policies.reserve and wish.gpus:
            return None
        pool = host.pool_with(wish) if wish.share is UNSET else pool_for(host, wish)
        return None if pool is None else Choice(pool, None)

    def own(self, record: LeaseRecord, wish: LeaseRequest) -> Choice | None:
        """Return the GPUs on which the kernel's state lies, with idle ones beside them, if they will do."""
        pool, count = record.pool, len(record.lease.gpus)
        if record.phase == "reserved":
            return Choice(pool, record) if count >= wish.gpus else None
        if record.phase != "lingering" and not record.kept:
            return None
        if record.host.state != "up" or not pool.suits(wish):
            return None
        if (wish.share is not UNSET or record.card is not None) and not goes_on(record, wish):
            return None
        if count + len(pool.idle) < wish.gpus or not record.host.has_room(wish):
            return None
        return Choice(pool, record)

    def idle_pools(self, wish: LeaseRequest, key: Rank, claims_max: int | None = None) -> Iterator[Pool]:
        """Return pools of hosts that are up with enough idle GPUs, as placement prefers them.

        Hosts that nobody claims come first; of the others at most `claims_max` are looked at.
        """
        find, passes = self._parts.hosts.find_idle, _kind(wish)
        if self._sees is not None and wish.gpus:
            yield from self._ranked(wish, key, self._sees)
        else:
            if wish.share is not UNSET:
                yield from self._open_pools(wish, key)
            for pool in find(wish.gpus, False, passes):
                if pool.host.has_room(wish):
                    yield pool
        if not self._parts.queue.by_request:
            return  # Nobody waits, so nobody claims a host.
        for pool in islice(find(wish.gpus, True, passes), claims_max):
            if not claimed(pool.host, key) and pool.host.has_room(wish):
                yield pool

    def _ranked(self, wish: LeaseRequest, key: Rank, sees: SeesRequests) -> list[Pool]:
        """Return pools with room that nobody claims, as a placement ranks them that sees the request."""
        idle = self._parts.hosts.find_idle(wish.gpus, False, _kind(wish))
        found = [pool for pool in idle if pool.host.has_room(wish)]
        if wish.share is not UNSET:
            found = list(dict.fromkeys([*self._open_pools(wish, key), *found]))
        found.sort(key=lambda pool: sees.rank_for(_spot(pool), wish))
        return found

    def _open_pools(self, wish: LeaseRequest, key: Rank) -> Iterator[Pool]:
        """Return pools with open cards that have room for a share, the best fit first."""
        found = []
        for pool in self._parts.hosts.open:
            host = pool.host
            if host.state == "up" and pool.suits(wish) and not claimed(host, key) and host.has_room(wish):
                best = best_card(pool, wish)
                if best is not None and not best[0][0]:
                    found.append((best[0], pool.name, pool))
        found.sort(key=lambda entry: entry[:2])
        return iter([pool for _, _, pool in found])

    def claimed_pools(self, wish: LeaseRequest) -> Iterator[Pool]:
        """Return pools of claimed hosts that have room for a request, as placement prefers them."""
        for pool in self._parts.hosts.find_idle(wish.gpus, True, _kind(wish)):
            if pool.host.has_room(wish):
                yield pool

    def _best(self, pools: list[Pool], wish: LeaseRequest, kernel: Kernel | None) -> Pool:
        """Return the one whose host should run the cell; a share opens a card only if it must."""
        rank = self._parts.policies.executor.rank
        last = None if kernel is None else kernel.last
        if wish.share is not UNSET:
            pools = [pool for pool in pools if not opens(pool, wish)] or pools
        return min(pools, key=lambda pool: rank(pool.host, is_last=pool.host.name == last))


def _spot(pool: Pool) -> Spot:
    """Return a pool as a placement sees it that looks at requests."""
    host = pool.host
    used = [
        sum([counted(share, pool) for share in card.shares()]) for card in pool.cards.values() if card.records
    ]
    shared = tuple(sorted([max(0, MILLI - milli) for milli in used]))
    return Spot(
        host.name,
        pool.model,
        pool.memory_gb,
        len(pool.uuids),
        len(pool.idle),
        host.subscribed,
        host.gpus,
        shared,
    )


def _newest(record: LeaseRecord) -> int:
    return -record.lease.fence


def claimed(host: Host, key: Rank) -> bool:
    """Say whether somebody before `key` claims the host."""
    claims = host.claims
    return bool(claims) and claims[0][0] < key


def suits(load: Load, gpus: int, model: str, vram_gb: float) -> bool:
    """Say whether a pool's GPUs are of the right kind."""
    return not gpus or ((not model or load.model == model) and load.memory_gb >= vram_gb)


def _kind(wish: LeaseRequest) -> Callable[[Load], bool] | None:
    """Return what says whether a pool's GPUs are of the kind that is wanted; None where any are."""
    gpus, model, vram_gb = wish.gpus, wish.gpu_model, least_gb(wish)
    if not gpus or not (model or vram_gb):
        return None
    return lambda load: suits(load, gpus, model, vram_gb)
