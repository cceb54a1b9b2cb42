"""Makes the view of a core, at once or in slices, between which the core may go on.

Law: it reads only. What is made at once is of one moment; of what is made in slices each record is of one
moment, and what went meanwhile may be missing. No slice takes long, however much there is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from heapq import merge
from math import inf
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from replkernel_scheduler.accounting import Sums
from replkernel_scheduler.hosts import Host, LeaseRecord, Waiting
from replkernel_scheduler.kernels import Kernel
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.types import HostName, KernelId, UserName
from replkernel_scheduler.view import (
    ClusterView,
    HostView,
    KernelUsage,
    KernelView,
    LeaseView,
    MigrationView,
    MoneyView,
    ReservationView,
    UserView,
    WaitingView,
)

TableName: TypeAlias = Literal["hosts", "kernels", "leases", "waiting", "users", "usage"]
TABLES: tuple[TableName, ...] = ("hosts", "kernels", "leases", "waiting", "users", "usage")
SLICE = 256
NOTHING = Sums()
Item = TypeVar("Item")
Made = TypeVar("Made")
Slices: TypeAlias = Generator[None, None, Made]
"""Goes on when asked for the next one, and returns what was made."""


def at_once(parts: Parts) -> ClusterView:
    """Return all that there is now."""
    making = in_slices(parts, TABLES)
    while True:
        try:
            next(making)
        except StopIteration as made:
            view: ClusterView = made.value
            return view


def in_slices(parts: Parts, tables: Collection[TableName]) -> Slices[ClusterView]:
    """Yield after each slice; return these tables, with the others empty. What is few is always there."""
    hosts = (yield from _hosts(parts)) if "hosts" in tables else ()
    leases = (yield from _leases(parts)) if "leases" in tables else ()
    waiting = (yield from _waiting(parts)) if "waiting" in tables else ()
    kernels = (yield from _kernels(parts)) if "kernels" in tables else ()
    users = (yield from _users(parts)) if "users" in tables else ()
    usage = (yield from _usage(parts)) if "usage" in tables else ()
    return ClusterView(
        now=parts.now,
        fence=parts.leases.fence,
        hosts=hosts,
        reservations=tuple(
            ReservationView(kind.id, kind.shape.gpus, kind.asked_at, tuple(sorted(kind.shares)))
            for kind in parts.reservations.by_id.values()
        ),
        kernels=kernels,
        leases=leases,
        waiting=waiting,
        migrations=_migrations(parts),
        users=users,
        usage=usage,
        subscription_limit_samples=tuple(parts.demand.samples),
        money=_money(parts),
    )


def _each(items: Iterable[Item], make: Callable[[Item], Made | None]) -> Slices[tuple[Made, ...]]:
    """Return what `make` makes of each; what has gone (None) is left out."""
    found: list[Made] = []
    for number, item in enumerate(items, 1):
        made = make(item)
        if made is not None:
            found.append(made)
        if not number % SLICE:
            yield
    return tuple(found)


def _sorted(items: Sequence[Item], key: Callable[[Item], Any] = lambda item: item) -> Slices[list[Item]]:
    """Return the items in order: runs are sorted, then merged."""
    runs: list[list[Item]] = []
    for begin in range(0, len(items), SLICE):
        runs.append(sorted(items[begin : begin + SLICE], key=key))
        if not len(runs) % 8:
            yield
    if len(runs) == 1:
        return runs[0]
    found: list[Item] = []
    for item in merge(*runs, key=key):
        found.append(item)
        if not len(found) % SLICE:
            yield
    return found


def _hosts(parts: Parts) -> Slices[tuple[HostView, ...]]:
    by_name = parts.hosts.by_name

    def view(name: HostName) -> HostView | None:
        host = by_name.get(name)
        return None if host is None else _host(host)

    return (yield from _each((yield from _sorted(list(by_name))), view))


def _host(host: Host) -> HostView:
    return HostView(
        host.name,
        host.state,
        host.offered,
        host.cpu_milli / 1000,
        host.memory_milli / 1000,
        host.committed,
        host.subscribed,
        tuple(sorted(host.replicas)),
        host.prewarmed,
        host.warming,
        host.watched,
    )


def _leases(parts: Parts) -> Slices[tuple[LeaseView, ...]]:
    """Return the leases as they lie in the table, which is in the order of their fences."""
    by_id = parts.leases.by_id

    def view(record: LeaseRecord) -> LeaseView | None:
        if by_id.get(record.lease.lease) is not record:
            return None
        queued_s = record.granted_at - record.asked_at
        return LeaseView(record.lease, record.phase, record.granted_at, queued_s)

    return (yield from _each(list(by_id.values()), view))


def _waiting(parts: Parts) -> Slices[tuple[WaitingView, ...]]:
    queue = parts.queue

    def view(waiting: Waiting) -> WaitingView | None:
        if queue.by_request.get(waiting.wish.request) is not waiting:
            return None
        claim = None if waiting.claim is None else waiting.claim.name
        return WaitingView(waiting.wish, queue.position(waiting), waiting.asked_at, claim, waiting.migration)

    everybody = yield from _sorted(list(queue.by_request.values()), lambda waiting: waiting.key)
    return (yield from _each(everybody, view))


def _kernels(parts: Parts) -> Slices[tuple[KernelView, ...]]:
    by_id = parts.kernels.by_id

    def view(name: KernelId) -> KernelView | None:
        kernel = by_id.get(name)
        return None if kernel is None else _kernel(kernel)

    return (yield from _each((yield from _sorted(list(by_id))), view))


def _kernel(kernel: Kernel) -> KernelView:
    return KernelView(
        kernel.spec.kernel_id,
        kernel.spec.user,
        kernel.spec.gpus,
        tuple([host.name for host in kernel.hosts]),
        kernel.missing,
        kernel.last,
        kernel.pinned,
        kernel.reported,
        kernel.movable,
    )


def _migrations(parts: Parts) -> tuple[MigrationView, ...]:
    return tuple(
        MigrationView(
            move.id,
            move.kernel_id,
            None if move.waiting is None else move.waiting.wish.request,
            move.phase,
            None if move.source is None else move.source.name,
            None if move.target is None else move.target.name,
            move.tries,
            move.deadline_at if move.deadline_at < inf else None,
        )
        for move in parts.migrations.by_id.values()
    )


def _users(parts: Parts) -> Slices[tuple[UserView, ...]]:
    running: dict[UserName, float] = {}
    for number, sums in enumerate(list(parts.accounts.kernels.values()), 1):
        if sums.live:
            running[sums.user] = running.get(sums.user, 0.0) + sums.reserving_s(parts.now)
        if not number % (8 * SLICE):
            yield

    def view(name: UserName) -> UserView:
        user = parts.users.by_name[name]
        usage = parts.accounts.users.get(name, NOTHING).usage(running.get(name, 0.0))
        view = UserView(name, user.quota, user.holds, user.waits, user.used_s(parts.now), usage)
        if parts.ledger.prices is None:
            return view
        money = user.money
        return msgspec.structs.replace(view, spent=money.until(parts.now), spent_month=money.month(parts.now))

    return (yield from _each((yield from _sorted(list(parts.users.by_name))), view))


def _money(parts: Parts) -> MoneyView | UnsetType:
    ledger, now = parts.ledger, parts.now
    if ledger.prices is None:
        return UNSET
    charged = sum(user.money.until(now) for user in parts.users.by_name.values())
    groups = tuple((name, ledger.spent_of(name)) for name in sorted(ledger.groups))
    budgets = tuple(sorted(ledger.budgets.items()))
    return MoneyView(ledger.prices, ledger.provider.until(now), charged, groups, budgets)


def _usage(parts: Parts) -> Slices[tuple[KernelUsage, ...]]:
    kernels = parts.accounts.kernels

    def view(name: KernelId) -> KernelUsage | None:
        sums = kernels.get(name)
        if sums is None:
            return None
        return KernelUsage(name, sums.user, sums.live, sums.usage(sums.reserving_s(parts.now)))

    return (yield from _each((yield from _sorted(list(kernels))), view))
