"""Makes the image of a core: everything that its next decisions depend on.

Law: it reads only, and between two events; the same state has the same image, byte for byte.
"""

from __future__ import annotations

from replkernel_scheduler.accounting import Sums
from replkernel_scheduler.errors import InvariantBroken
from replkernel_scheduler.hosts import Host, LeaseRecord, Waiting
from replkernel_scheduler.image import (
    BookingImage,
    CoreImage,
    DemandImage,
    HostImage,
    KernelImage,
    KernelSumsImage,
    LeaseImage,
    MigrationImage,
    NewcomerImage,
    PausesImage,
    ReservationImage,
    SumsImage,
    TimerImage,
    UserImage,
    WaitingImage,
    WatchImage,
)
from replkernel_scheduler.migrations import Migration
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.pauses import Pauses
from replkernel_scheduler.types import HostName


def take(parts: Parts) -> CoreImage:
    """Return the image."""
    queue, rate, users = parts.queue, parts.rate, parts.users
    return CoreImage(
        now=parts.now,
        asked=parts.asked,
        out=tuple(parts.out),
        fence=parts.leases.fence,
        hosts=tuple([_host(parts, host) for host in parts.hosts.by_name.values()]),
        shapes=tuple(parts.hosts.shapes()),
        leases=tuple([_lease(parts, record) for record in parts.leases.by_id.values()]),
        resting=tuple([(name, tuple(records)) for name, records in parts.leases.resting.items()]),
        waiting=tuple([_waiting(waiting) for waiting in queue.by_request.values()]),
        any_lines=tuple(queue.any_lines),
        kernels=_kernels(parts),
        short=tuple(parts.kernels.short),
        asks=tuple([(name, tuple(requests)) for name, requests in parts.kernels.asks.items()]),
        users=_users(parts),
        virtual=users.virtual,
        kernel_sums=_kernel_sums(parts),
        user_sums=tuple([(name, _sums(sums)) for name, sums in parts.accounts.users.items()]),
        mean_hold_s=parts.accounts.mean_hold_s,
        demand=_demand(parts),
        migrations=tuple([_migration(parts, move) for move in parts.migrations.by_id.values()]),
        migrations_issued=parts.migrations.issued,
        migrations_looking=tuple([move.id for line in parts.migrations.looking.values() for _, move in line]),
        reservations=_reservations(parts),
        reservations_issued=parts.reservations.issued,
        mean_boot_s=parts.reservations.mean_boot_s,
        rate=(rate.ready_s, rate.weight, rate.at),
        timers=tuple([TimerImage(*key, *due) for key, due in parts.timers.all()]),
        timers_set=parts.timers.number,
        history=tuple(parts.history.events()),
        prices=parts.ledger.prices,
        provider=(parts.ledger.provider.amount, parts.ledger.provider.since),
        bookings=tuple(
            [
                BookingImage(
                    one.booking,
                    tuple(one.users),
                    one.phase,
                    tuple([(*pool.name, gpus) for pool, gpus in one.aside.items()]),
                )
                for one in parts.booked.values()
            ]
        ),
        pauses=_pauses(parts.pauses),
        budgets=tuple(parts.ledger.budgets.items()),
        month=parts.ledger.month,
    )


def _host(parts: Parts, host: Host) -> HostImage:
    by_id = parts.kernels.by_id
    if any(by_id[name].spec is not spec and by_id[name].spec != spec for name, spec in host.replicas.items()):
        raise InvariantBroken("a replica asks for something else than its kernel")
    return HostImage(
        host.name,
        host.state,
        host.offered,
        host.released,
        host.watched,
        (host.cpu_milli, host.cpu_free, host.cpu_subscribed),
        (host.memory_milli, host.memory_free, host.memory_subscribed),
        host.subscribed,
        host.prewarmed,
        host.warming,
        host.moves,
        tuple(host.replicas),
    )


def _lease(parts: Parts, record: LeaseRecord) -> LeaseImage:
    return LeaseImage(
        record.lease,
        record.phase,
        record.pool.name[1],
        record.wish,
        record.asked_at,
        record.granted_at,
        record.estimate,
        record.home,
        record.warm,
        (record.rested_at, record.wanted_at, record.held_gb),
        record.kept,
        (record.paid, record.rated_at) if record.rate or record.paid else None,
        record.lease.lease in parts.pauses.pausable,
        record.pausing,
        record.told,
        record.again_at,
    )


def _pauses(pauses: Pauses) -> PausesImage | None:
    """Return what is known of pauses; None where there never was one to be."""
    if pauses.unused:
        return None
    arrivals = pauses.arrivals
    return PausesImage(
        tuple(
            [
                NewcomerImage(request, one.host, one.victims, one.context, one.phase)
                for request, one in pauses.newcomers.items()
            ]
        ),
        tuple(pauses.owed),
        tuple(arrivals.times),
        tuple(
            [
                WatchImage(w.context, w.gpus, w.chosen_s, w.needed_s, w.taken_at, w.until)
                for w in arrivals.watched
            ]
        ),
        tuple(pauses.judged),
        pauses.judged_count,
        pauses.pause_s,
        tuple(pauses.outlasted.items()),
    )


def _waiting(waiting: Waiting) -> WaitingImage:
    return WaitingImage(
        waiting.wish,
        waiting.key,
        waiting.asked_at,
        None if waiting.hosts is None else tuple([host.name for host in waiting.hosts]),
        _name(waiting.claim),
        waiting.migration,
        waiting.tag,
        waiting.estimate,
        waiting.told,
        waiting.gave_up,
    )


def _kernels(parts: Parts) -> tuple[KernelImage, ...]:
    return tuple(
        [
            KernelImage(
                kernel.spec,
                tuple([host.name for host in kernel.hosts]),
                kernel.last,
                kernel.pinned,
                kernel.missing,
                kernel.placed,
                kernel.reported,
                kernel.movable,
                kernel.told,
            )
            for kernel in parts.kernels.by_id.values()
        ]
    )


def _users(parts: Parts) -> tuple[UserImage, ...]:
    return tuple(
        [
            UserImage(
                user.name,
                user.quota,
                user.held,
                user.waited,
                user.gpu_s_month,
                user.since,
                user.tag,
                user.last_tag,
                (user.money.amount, user.money.since, user.money.before),
                (user.milli_held, user.milli_waited),
            )
            for user in parts.users.by_name.values()
        ]
    )


def _kernel_sums(parts: Parts) -> tuple[KernelSumsImage, ...]:
    return tuple(
        [
            KernelSumsImage(name, sums.user, _sums(sums), sums.began, sums.since, sums.gpus, sums.live)
            for name, sums in parts.accounts.kernels.items()
        ]
    )


def _sums(sums: Sums) -> SumsImage:
    return SumsImage(
        sums.cells, sums.queued_s, sums.leased_s, sums.busy_s, sums.gpu_s, sums.reserved_gpu_s, sums.cost
    )


def _demand(parts: Parts) -> DemandImage:
    demand = parts.demand
    return DemandImage(demand.requested, demand.committed, tuple(demand.samples), demand.next_at)


def _migration(parts: Parts, move: Migration) -> MigrationImage:
    """Return a migration; what its moving request thinks of hosts is forgotten when it waits again."""
    waiting, request, bound = move.waiting, None, None
    if waiting is not None and waiting.wish.request in parts.queue.by_request:
        request = waiting.wish.request
    elif waiting is not None:
        bound = _waiting(waiting)
        bound = WaitingImage(
            bound.wish,
            bound.key,
            bound.asked_at,
            (),
            None,
            bound.migration,
            bound.tag,
            bound.estimate,
            bound.told,
            bound.gave_up,
        )
    return MigrationImage(
        int(move.id.removeprefix("migration-")),
        move.kernel_id,
        move.deadline_at,
        move.phase,
        move.tries,
        _name(move.source),
        _name(move.target),
        None if move.lease is None else move.lease.lease.lease,
        request,
        bound,
        _name(move.wanted),
        tuple(sorted(move.tried)),
        _name(move.hopes),
    )


def _reservations(parts: Parts) -> tuple[ReservationImage, ...]:
    return tuple(
        [
            ReservationImage(
                int(made.id.removeprefix("host-")), made.shape, made.asked_at, tuple(made.shares.items())
            )
            for made in parts.reservations.by_id.values()
        ]
    )


def _name(host: Host | None) -> HostName | None:
    return None if host is None else host.name
