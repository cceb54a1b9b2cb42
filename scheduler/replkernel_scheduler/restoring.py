"""Brings a core to the state that an image holds.

Law: only a core that nothing has happened to is brought anywhere. What does not fit together raises
ImageUnfit, and the core is of no use then.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from typing import Any

from msgspec import UNSET

from replkernel_scheduler.accounting import KernelSums, Sums
from replkernel_scheduler.errors import ImageUnfit
from replkernel_scheduler.hosts import Host, LeaseRecord, Waiting
from replkernel_scheduler.image import (
    CoreImage,
    HostImage,
    LeaseImage,
    MigrationImage,
    PausesImage,
    SumsImage,
    WaitingImage,
)
from replkernel_scheduler.kernels import Kernel
from replkernel_scheduler.migrations import Migration
from replkernel_scheduler.parts import Booked, Parts
from replkernel_scheduler.pauses import Newcomer, Pauses
from replkernel_scheduler.pool.arrivals import Watch
from replkernel_scheduler.reservations import Reservation


def restore(parts: Parts, image: CoreImage) -> None:
    """Bring `parts`, which are new, to the state of `image`."""
    try:
        _restore(parts, image)
    except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        raise ImageUnfit(f"its parts do not fit together ({type(error).__name__}: {error})") from error


def _restore(parts: Parts, image: CoreImage) -> None:
    parts.now, parts.asked, parts.out = image.now, image.asked, list(image.out)
    for entry in image.kernels:
        parts.kernels.by_id[entry.spec.kernel_id] = Kernel(entry.spec)
    for host in image.hosts:
        _host(parts, host)
    _kernels(parts, image)
    _leases(parts, image)
    _queue(parts, image)
    _accounts(parts, image)
    for move in image.migrations:
        _migration(parts, move)
    parts.migrations.issued = image.migrations_issued
    for name in image.migrations_looking:
        looking = parts.migrations.by_id[name]
        if looking.waiting is not None:
            parts.migrations.look(looking, looking.waiting)
    for move in image.migrations:
        if move.hopes is not None:
            looking = parts.migrations.by_kernel[move.kernel_id]
            parts.migrations.hope(looking, parts.hosts.by_name[move.hopes])
    for kept in image.reservations:
        made = Reservation(kept.number, kept.shape, kept.asked_at)
        made.shares.update(kept.shares)
        parts.reservations.by_id[made.id] = made
    parts.reservations.issued, parts.reservations.mean_boot_s = image.reservations_issued, image.mean_boot_s
    parts.rate.ready_s, parts.rate.weight, parts.rate.at = image.rate
    demand = parts.demand
    demand.requested, demand.committed = image.demand.requested, image.demand.committed
    demand.samples, demand.next_at = list(image.demand.samples), image.demand.next_at
    for kept_booking in image.bookings:
        booked = parts.booked[kept_booking.booking.booking] = Booked(kept_booking.booking)
        booked.users, booked.phase = dict.fromkeys(kept_booking.users), kept_booking.phase
        for on, number, gpus in kept_booking.aside:
            pool = parts.hosts.by_name[on].pools[number]
            booked.aside[pool] = parts.hosts.take(pool, gpus, len(gpus))
    parts.timers.restore(
        [((one.kind, one.name), one.at, one.number) for one in image.timers], image.timers_set
    )
    for event in image.history:
        parts.history.keep(event)
    for up in parts.hosts.by_name.values():
        if up.state == "up":
            parts.hosts.index(up)
    parts.hosts.order_shapes(image.shapes)
    _money(parts, image)
    _pauses(parts.pauses, image.pauses)


def _pauses(pauses: Pauses, image: PausesImage | None) -> None:
    if image is None:
        return
    for entry in image.newcomers:
        newcomer = Newcomer(entry.host, entry.victims, entry.context)
        newcomer.phase = entry.phase
        pauses.newcomers[entry.request] = newcomer
    pauses.owed.update(dict.fromkeys(image.owed))
    pauses.outlasted.update(image.outlasted)
    pauses.arrivals.times.extend(image.arrived)
    for kept in image.watched:
        watch = Watch(kept.context, kept.gpus, kept.chosen_s, kept.taken_at)
        watch.needed_s, watch.until = kept.needed_s, kept.until
        pauses.arrivals.watched.append(watch)
    pauses.judged.extend(image.judged)
    pauses.judged_count, pauses.pause_s = image.judged_count, image.pause_s


def _host(parts: Parts, image: HostImage) -> None:
    host = Host(image.name, image.offered, 0.0, 0.0)
    host.state, host.released, host.watched = image.state, image.released, image.watched
    host.cpu_milli, host.cpu_free, host.cpu_subscribed = image.cpu
    host.memory_milli, host.memory_free, host.memory_subscribed = image.memory
    host.subscribed, host.prewarmed = image.subscribed, image.prewarmed
    host.warming, host.moves = image.warming, image.moves
    for name in image.replicas:
        host.replicas[name] = parts.kernels.by_id[name].spec
    parts.hosts.by_name[host.name] = host
    if host.state == "draining":
        parts.hosts.draining.add(host.name)
    if host.state == "down":
        parts.hosts.away[host.name] = host
    parts.hosts.subscribed += host.subscribed
    for gpu in image.offered:
        parts.hosts.owner[gpu.uuid] = host.name


def _kernels(parts: Parts, image: CoreImage) -> None:
    by_name, kernels = parts.hosts.by_name, parts.kernels
    for entry in image.kernels:
        kernel = kernels.by_id[entry.spec.kernel_id]
        kernel.hosts = [by_name[name] for name in entry.hosts]
        kernel.last, kernel.pinned, kernel.missing = entry.last, entry.pinned, entry.missing
        kernel.placed, kernel.reported, kernel.told = entry.placed, entry.reported, entry.told
        kernel.movable = entry.movable
    kernels.short.update((name, kernels.by_id[name]) for name in image.short)
    for name, requests in image.asks:
        kernels.asks[name] = dict.fromkeys(requests)


def _leases(parts: Parts, image: CoreImage) -> None:
    leases = parts.leases
    leases.fence = image.fence
    for entry in image.leases:
        record = _lease(parts, entry)
        leases.by_id[record.lease.lease] = record.host.leases[record.lease.lease] = record
        if record.phase in ("active", "bound"):
            leases.of_request[record.lease.request] = record
            record.expect()
    for name, resting in image.resting:
        leases.resting[name] = {lease: leases.by_id[lease] for lease in resting}


def _lease(parts: Parts, image: LeaseImage) -> LeaseRecord:
    """Return a lease, whose GPUs are idle no more."""
    pool = parts.hosts.by_name[image.lease.host].pools[image.pool]
    record = LeaseRecord(image.lease, pool, image.wish, image.phase)
    if image.lease.share is not UNSET:
        record.card = parts.hosts.take_share(pool, pool.number_of[image.lease.gpus[0]])
    record.asked_at, record.granted_at, record.estimate = image.asked_at, image.granted_at, image.estimate
    record.home, record.warm = image.home, image.warm
    record.rested_at, record.wanted_at, record.held_gb = image.rested
    record.kept, record.pausing, record.told = image.kept, image.pausing, image.told
    record.again_at = image.again_at
    if image.pausable:
        parts.pauses.pausable[image.lease.lease] = record
    if record.card is not None:
        record.card.records[record.lease.lease] = record
        parts.hosts.shifted(record.card)
        return record
    for uuid in image.lease.gpus:
        pool.idle.remove(pool.number_of[uuid])
    if image.phase == "lingering":
        pool.lingering += len(image.lease.gpus)
    elif image.phase == "reclaiming":
        pool.reclaiming += len(image.lease.gpus)
    return record


def _queue(parts: Parts, image: CoreImage) -> None:
    queue = parts.queue
    for shape in image.any_lines:
        queue.any_lines[shape], queue.lengths[shape] = [], []
    for entry in image.waiting:
        waiting = _waiting(parts, entry)
        queue.add(waiting)
        if entry.claim is not None:
            waiting.claim = parts.hosts.by_name[entry.claim]
            insort(waiting.claim.claims, (waiting.key, waiting))


def _waiting(parts: Parts, image: WaitingImage) -> Waiting:
    by_name = parts.hosts.by_name
    hosts = None if image.hosts is None else [by_name[name] for name in image.hosts]
    waiting = Waiting(image.wish, _tuple(image.key), image.asked_at, hosts)
    waiting.migration, waiting.told, waiting.gave_up = image.migration, image.told, image.gave_up
    waiting.tag, waiting.estimate = image.tag, image.estimate
    return waiting


def _tuple(key: Iterable[Any]) -> tuple[Any, ...]:
    """Return a key as its policy made it: lists in it were tuples."""
    return tuple([_tuple(part) if isinstance(part, list) else part for part in key])


def _accounts(parts: Parts, image: CoreImage) -> None:
    for entry in image.users:
        user = parts.users.get(entry.name)
        user.quota, user.held, user.waited = entry.quota, entry.held, entry.waited
        user.milli_held, user.milli_waited = entry.shares
        user.gpu_s_month, user.since = entry.gpu_s_month, entry.since
        user.tag, user.last_tag = entry.tag, entry.last_tag
    parts.users.virtual = image.virtual
    accounts = parts.accounts
    for kept in image.kernel_sums:
        sums = accounts.kernels[kept.kernel_id] = KernelSums(kept.user)
        _sums(sums, kept.sums)
        sums.began, sums.since, sums.gpus, sums.live = kept.began, kept.since, kept.gpus, kept.live
    for name, used in image.user_sums:
        _sums(accounts.user(name), used)
    accounts.mean_hold_s = image.mean_hold_s


def _money(parts: Parts, image: CoreImage) -> None:
    """Bring the rates back, which follow from what there is, then what was counted."""
    for user in parts.users.by_name.values():
        parts.ledger.belongs(user)
    parts.ledger.budgets.update(image.budgets)
    parts.ledger.month = image.month
    parts.ledger.set_prices(image.prices)
    for kept in image.leases:
        record = parts.leases.by_id[kept.lease.lease]
        record.paid, record.rated_at = kept.paid or (0.0, kept.granted_at)
    for entry in image.users:
        meter = parts.users.get(entry.name).money
        meter.amount, meter.since, meter.before = entry.money
    parts.ledger.provider.amount, parts.ledger.provider.since = image.provider


def _sums(sums: Sums, image: SumsImage) -> None:
    sums.cells, sums.queued_s, sums.leased_s = image.cells, image.queued_s, image.leased_s
    sums.busy_s, sums.gpu_s, sums.reserved_gpu_s = image.busy_s, image.gpu_s, image.reserved_gpu_s
    sums.cost = image.cost


def _migration(parts: Parts, image: MigrationImage) -> None:
    by_name = parts.hosts.by_name
    waiting = None if image.waiting is None else parts.queue.by_request[image.waiting]
    if image.bound is not None:
        waiting = _waiting(parts, image.bound)
    move = Migration(image.number, image.kernel_id, waiting, image.deadline_at)
    move.phase, move.tries = image.phase, image.tries
    move.source = None if image.source is None else by_name[image.source]
    move.target = None if image.target is None else by_name[image.target]
    move.lease = None if image.lease is None else parts.leases.by_id[image.lease]
    move.wanted = None if image.wanted is None else by_name[image.wanted]
    move.tried = set(image.tried)
    parts.migrations.by_id[move.id] = parts.migrations.by_kernel[move.kernel_id] = move
