"""The laws that hold after every event, checked from the tables that everything else is kept in.

Law: it reads only. It may look at everything, so it is for tests and for a driver that wants to be sure.
"""

from __future__ import annotations

from msgspec import UNSET

from replkernel_scheduler.asking import WAITING_MAX, Asking
from replkernel_scheduler.backfilling import Backfilling
from replkernel_scheduler.cards import counted, memory_mib, pool_for
from replkernel_scheduler.choosing import Choosing, claimed
from replkernel_scheduler.errors import InvariantBroken
from replkernel_scheduler.hosts import Card, Host, LeaseRecord, share_of
from replkernel_scheduler.looking import LINE_LOOKS
from replkernel_scheduler.migrations import Migration
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.passing import FIRST, Passing
from replkernel_scheduler.targets import counts_in_vain
from replkernel_scheduler.wishes import QUEUE_MAX


def check(parts: Parts) -> None:
    """Raise InvariantBroken if a law does not hold."""
    _leases(parts)
    _cards(parts)
    _hosts(parts)
    _index(parts)
    _kernels(parts)
    _queue(parts)
    _users(parts)
    _migrations(parts)
    _money(parts)
    _pauses(parts)


def _require(holds: bool, law: str) -> None:
    if not holds:
        raise InvariantBroken(law)


def _leases(parts: Parts) -> None:
    leases = parts.leases
    records = list(leases.by_id.values())
    held = [gpu for record in records if record.card is None for gpu in record.lease.gpus]
    _require(len(held) == len(set(held)), "a GPU is in two leases")
    shared = {gpu for record in records if record.card is not None for gpu in record.lease.gpus}
    _require(not shared & set(held), "a GPU is in a lease of its own, and one of a share")
    fences = [record.lease.fence for record in records]
    _require(len(fences) == len(set(fences)), "two leases share a fence")
    _require(fences == sorted(fences), "the leases do not lie in the order of their fences")
    _require(all(0 < fence <= leases.fence for fence in fences), "a fence was not given here")
    _require(
        {name: record.lease.lease for name, record in leases.by_id.items()} == {n: n for n in leases.by_id},
        "a lease has another name",
    )
    serving = [record for record in records if record.phase in ("active", "bound")]
    _require(len(serving) == len(leases.of_request), "a request lost its lease")
    for record in records:
        lease = record.lease
        host = parts.hosts.by_name.get(lease.host)
        _require(
            host is record.host and host.leases.get(lease.lease) is record, "a lease lies on no such host"
        )
        _require(
            record.pool in record.host.pools and set(lease.gpus) <= set(record.pool.uuids),
            "a lease lies on no such GPU",
        )
        rests = lease.lease in leases.resting.get(lease.kernel_id, {})
        _require(rests == (record.phase not in ("active", "bound")), "a resting lease is lost")
        due = parts.timers.at(("lease", lease.lease))
        if record.phase in ("active", "lingering"):
            _require(due == lease.expires_at, "a lease's timer is not at its end")
        _require(
            (due is None) == (record.phase in ("bound", "reserved")), "a lease has no timer, or one too many"
        )
        _require(
            record.phase in ("reserved", "active", "bound") or bool(lease.gpus), "a lease lingers on nothing"
        )


def _cards(parts: Parts) -> None:
    """The shares and the memory on a card never exceed it, whatever came before."""
    everybody = [record for record in parts.leases.by_id.values() if record.card is not None]
    seen = 0
    for host in parts.hosts.by_name.values():
        for pool in host.pools:
            _require((pool in parts.hosts.open) == bool(pool.cards), "a pool with shares is not known as one")
            for number, card in pool.cards.items():
                _require(card.pool is pool and card.number == number, "a card lies elsewhere")
                seen += len(card.records)
                _card(card)
    _require(seen == len(everybody), "a share is on no card")
    pools = [pool for host in parts.hosts.by_name.values() for pool in host.pools]
    _require(all(pool in pools for pool in parts.hosts.open), "a pool with shares is no host's")
    for record in parts.leases.by_id.values():
        sized = record.lease.share is not UNSET and record.wish.share is not UNSET
        _require(sized == (record.card is not None), "a share without its size, or its card")


def _card(card: Card) -> None:
    records = list(card.records.values())
    _require(bool(records), "an empty card is not idle")
    _require(card.phase == card.phase_now(), "a card counts as what it is not")
    shares = [share_of(record) for record in records]
    most = min(share.multiplicity for share in shares)
    _require(sum(share.milli for share in shares) <= 1000 * most, "more of a card is leased than there is")
    mib = memory_mib(card.pool)
    _require(
        not mib or sum(share.vram_mib for share in shares) <= mib, "more memory is leased than a card has"
    )
    _require(not mib or all(share.vram_mib > 0 for share in shares), "nothing bounds a share's memory")
    for record in records:
        _require(record.card is card, "a share is on another card")
        _require(record.lease.gpus == (card.pool.uuids[card.number],), "a share is of another GPU")


def _hosts(parts: Parts) -> None:
    for name, host in parts.hosts.by_name.items():
        _require(name == host.name, "a host has another name")
        records = list(host.leases.values())
        for pool in host.pools:
            held = [uuid for r in records if r.pool is pool and r.card is None for uuid in r.lease.gpus]
            held += [pool.uuids[number] for number in pool.cards]
            idle = [pool.uuids[number] for number in pool.idle]
            aside = [uuid for booked in parts.booked.values() for uuid in booked.aside.get(pool, ())]
            _require(
                sorted(held + idle + aside) == sorted(pool.uuids), "the idle GPUs are not those in no lease"
            )
            _require(
                idle == [uuid for uuid in pool.uuids if uuid in set(idle)], "the idle GPUs are not in order"
            )
            _require(pool.lingering == _count(records, pool, "lingering"), "lingering GPUs are miscounted")
            _require(pool.reclaiming == _count(records, pool, "reclaiming"), "reclaiming GPUs are miscounted")
        _require(host.committed <= host.gpus, "more GPUs are committed than there are")
        _require(
            host.subscribed == sum(spec.gpus for spec in host.replicas.values()),
            "subscriptions are miscounted",
        )
        using = [r for r in records if r.phase in ("active", "bound", "reserved")]
        cpu = host.cpu_milli - sum(round(r.wish.cpu * 1000) for r in using)
        _require(host.cpu_free == cpu, "the free cores are miscounted")
        memory = host.memory_milli - sum(round(r.wish.memory_gb * 1000) for r in using)
        _require(host.memory_free == memory, "the free memory is miscounted")
        _require(host.prewarmed >= 0 and host.warming >= 0, "fewer than no processes are pre-warmed")
    offered = {gpu.uuid: name for name, host in parts.hosts.by_name.items() for gpu in host.offered}
    _require(offered == parts.hosts.owner, "a GPU's owner is another")
    _require(
        sum(len(host.offered) for host in parts.hosts.by_name.values()) == len(offered),
        "two hosts offer one GPU",
    )
    draining = {name for name, host in parts.hosts.by_name.items() if host.state == "draining"}
    _require(parts.hosts.draining == draining, "the hosts that are being drained are others")
    subscribed = sum(host.subscribed for host in parts.hosts.by_name.values())
    _require(parts.hosts.subscribed == subscribed, "the cluster's subscription is miscounted")


def _count(records: list[LeaseRecord], pool: object, phase: str) -> int:
    whole = [r for r in records if r.pool is pool and r.phase == phase and r.card is None]
    cards = {
        r.card.number for r in records if r.pool is pool and r.card is not None and r.card.phase == phase
    }
    return len(cards) + sum(len(record.lease.gpus) for record in whole)


def _index(parts: Parts) -> None:
    up = [host for host in parts.hosts.by_name.values() if host.state == "up"]
    names = sorted(pool.name for host in up for pool in host.pools)
    found = [name for entry in parts.hosts.loads() for name in entry.names]
    _require(sorted(found) == names, "the index has not the hosts that are up")
    for host in up:
        for pool in host.pools:
            where = pool.load_class
            _require(where is not None and where.load == pool.load(), "a pool is in another load's class")
    for entry in parts.hosts.loads():
        _require(entry.names == sorted(entry.names), "a class is not sorted")
    _require(parts.hosts.gpus == sum(host.gpus for host in up), "the GPUs that are up are miscounted")


def _kernels(parts: Parts) -> None:
    for name, kernel in parts.kernels.by_id.items():
        hosts = [host.name for host in kernel.hosts]
        _require(len(hosts) == len(set(hosts)), "a kernel has two replicas on one host")
        move = parts.migrations.by_kernel.get(name)
        target = move.target if move is not None else None
        on = {host.name for host in parts.hosts.by_name.values() if name in host.replicas}
        _require(
            on == set(hosts) | ({target.name} if target is not None else set()), "a replica is on no account"
        )
        _require(bool(kernel.missing) == (name in parts.kernels.short), "a kernel waits for hosts unseen")
        _require(
            not kernel.reported or not (kernel.missing or (move and not kernel.movable)),
            "a kernel that places itself is placed or moved",
        )
    requested = sum(kernel.spec.gpus for kernel in parts.kernels.by_id.values())
    _require(parts.demand.requested == requested, "the kernels' demand is miscounted")
    for host in parts.hosts.by_name.values():
        _require(set(host.replicas) <= set(parts.kernels.by_id), "a replica's kernel is over")


def _queue(parts: Parts) -> None:
    queue = parts.queue
    shares = sum(waiting.wish.share is not UNSET for waiting in queue.by_request.values())
    _require(queue.shares == shares, "those who wait for shares are miscounted")
    _require(not set(queue.by_request) & set(parts.leases.of_request), "a served request still waits")
    _require(len(queue.by_request) <= QUEUE_MAX, "the queue is over its limit")
    asks = {request for requests in parts.kernels.asks.values() for request in requests}
    _require(
        asks == set(queue.by_request) | set(parts.leases.of_request), "a kernel's requests are miscounted"
    )
    standing = sum(len(host.line) for host in parts.hosts.by_name.values())
    expected = sum(len(waiting.hosts or ()) for waiting in queue.by_request.values())
    _require(standing == expected, "a request stands in the wrong lines")
    claims = {id(w): h for h in parts.hosts.by_name.values() for _, w in h.claims}
    for waiting in queue.by_request.values():
        _require(claims.pop(id(waiting), None) is waiting.claim, "a claim is not where its request says")
        could = not parts.policies.reserve and any(
            host.state == "up" and host.could_serve(waiting.wish) for host in waiting.hosts or ()
        )
        _require(waiting.claim is not None or not could, "somebody claims none of the hosts it waits for")
    _require(not claims, "somebody who does not wait claims a host")
    for line in queue.any_lines.values():
        _require(
            [entry for entry in queue.anybody if entry[1].shape == line[0][1].shape] == line, "two lines"
        )
        _require(bool(line) and all(waiting.claim is None for _, waiting in line[1:]), "a shape claims twice")
    for shape, lengths in queue.lengths.items():
        _require(
            sorted(entry[1:] for entry in lengths) == queue.any_lines.get(shape), "lengths of another line"
        )
        _require(lengths == sorted(lengths), "a line's lengths are not sorted")
    _require(queue.lengths.keys() == queue.any_lines.keys(), "a line without lengths")
    lined = sum(map(len, queue.any_lines.values()))
    _require(len(queue.anybody) == lined, "the line of all that are for any host is another")
    for booked in parts.booked.values():
        for waiting in queue.by_request.values() if booked.phase == "open" and booked.aside else ():
            wish = waiting.wish
            theirs = wish.user in booked.users and wish.gpus and wish.holder is UNSET
            would_do = theirs and any(
                len(gpus) >= wish.gpus
                and pool.suits(wish)
                and (waiting.hosts is None or pool.host in waiting.hosts)
                and pool.host.has_room(wish)
                for pool, gpus in booked.aside.items()
            )
            _require(not would_do, "a member waits for what is set aside for him")
    for host in parts.hosts.by_name.values():
        _require(host.state == "up" or not host.claims, "a host is claimed that is not up")
        _nobody_is_overlooked(parts, host)


def _nobody_is_overlooked(parts: Parts, host: Host) -> None:
    choosing = Choosing(parts)
    heads = [line[0] for line in parts.queue.any_lines.values()]
    leaving = Passing(parts).holds(host)
    for key, waiting in [*host.line, *heads]:
        paused = waiting.wish.paused is not UNSET
        behind = bool(host.claims) and host.claims[0][0] < key
        _require(
            behind or (paused and leaving) or choosing.on(host, waiting.wish) is None,
            "somebody waits for nothing",
        )
        _require(
            paused == (key[0] == FIRST), "a paused cell stands behind one that waits, or one as if paused"
        )
        stuck = paused and host.state == "draining" and host.pool_with(waiting.wish) is not None
        _require(not stuck, "a paused cell keeps its host from being drained")
    backfilling = Backfilling(parts, choosing)
    if backfilling.enabled and host.claims and host.state == "up":
        _require(next(backfilling.on(host), None) is None, "somebody who may pass waits")
    asking = Asking(parts)
    found = asking.takers(host) if host.state == "up" else {}
    for pool, takers in found.items():
        _require(not asking.holders(pool, takers), "somebody waits, and who could give way was not asked")
    soon = [waiting for takers in found.values() for waiting in takers]
    for _, waiting in host.claims[:WAITING_MAX]:
        _require(not counts_in_vain(parts, waiting, soon), "somebody waits for its own hosts alone, in vain")
    for pool in host.pools:
        known = [r for r in host.leases.values() if r.pool is pool and r.phase in ("active", "bound")]
        ends = [
            (r.granted_at + r.wish.expected_s, r.lease.fence, len(r.lease.gpus))
            for r in known
            if r.wish.expected_s and r.lease.gpus and r.card is None
        ]
        _require(pool.ends == sorted(ends), "the ends that are expected are not those of the leases")


def _users(parts: Parts) -> None:
    records = [r for r in parts.leases.by_id.values() if r.phase in ("active", "bound")]
    for name, user in parts.users.by_name.items():
        held = sum(len(r.lease.gpus) for r in records if r.lease.user == name and r.card is None)
        _require(user.held == held, "a user's GPUs are miscounted")
        shares = sum(
            counted(share_of(r), r.pool) for r in records if r.lease.user == name and r.card is not None
        )
        _require(user.milli_held == shares, "a user's shares are miscounted")
        wishes = [w.wish for w in parts.queue.by_request.values() if w.wish.user == name]
        waited = sum(wish.gpus for wish in wishes if wish.share is UNSET)
        _require(user.waited == waited, "what a user waits for is miscounted")
        shares = sum(wish.share.milli for wish in wishes if wish.share is not UNSET)
        _require(user.milli_waited == shares, "the shares that a user waits for are miscounted")
    committed = sum(len(record.lease.gpus) for record in records if record.card is None)
    committed += len({id(record.card) for record in records if record.card is not None})
    _require(parts.demand.committed == committed, "the GPUs that compute are miscounted")


def _money(parts: Parts) -> None:
    """What is charged a second follows from what there is, whatever came before."""
    ledger = parts.ledger
    owed: dict[str, int] = {}
    for host in parts.hosts.by_name.values():
        active = [record for record in host.leases.values() if record.phase == "active"]
        for record in host.leases.values():
            due = ledger.due_of(record) if record in active else 0
            _require(record.rate == due, "a lease is charged at another price")
            owed[record.lease.user] = owed.get(record.lease.user, 0) + due
        idle = set(host.replicas) - {record.lease.kernel_id for record in active}
        _require(set(host.standing) == (idle if ledger.prices else set()), "a standby is not charged as one")
        for charged, fee in host.standing.values():
            owed[charged] = owed.get(charged, 0) + fee
    for name, user in parts.users.by_name.items():
        _require(user.money.rate == owed.get(name, 0), "a user is charged for what there is not")
    rates = sum(host.rate for host in parts.hosts.by_name.values())
    _require(ledger.provider.rate == rates, "hosts cost what they do not")


def _looking(parts: Parts) -> None:
    for shape, line in parts.migrations.looking.items():
        keys = [key for key, _ in line]
        _require(bool(line) and keys == sorted(keys), "who looks for a host is not in the queue's order")
        for place, (key, migration) in enumerate(line):
            waiting = migration.waiting
            _require(parts.migrations.by_id.get(migration.id) is migration, "what is over looks for a host")
            _require(migration.phase == "seeking", "what moves looks for a host")
            _require(
                waiting is not None and (waiting.shape, waiting.key) == (shape, key),
                "who looks for a host is in another's line",
            )
            _require(migration.looks, "who stands in a line does not look")
            _require(place >= LINE_LOOKS or not _could_move(parts, migration), "who looks overlooks a host")
    _require(not parts.migrations.woken, "somebody was woken and not tried")
    for host in parts.hosts.by_name.values():
        for migration in parts.migrations.hoping(host):
            _require(migration.looks and migration.hopes is host, "who does not look hopes for a host")


def _could_move(parts: Parts, migration: Migration) -> bool:
    """Say whether a host has room for one that looks, which may leave where it is."""
    waiting, kernel = migration.waiting, parts.kernels.by_id[migration.kernel_id]
    of_request, asks = parts.leases.of_request, parts.kernels.asks_of(migration.kernel_id)
    busy = {of_request[name].host.name for name in asks if name in of_request}
    if waiting is None or not any(host.name not in busy | {kernel.pinned} for host in kernel.hosts):
        return False
    return any(
        host.state == "up"
        and not claimed(host, waiting.key)
        and pool_for(host, waiting.wish) is not None
        and kernel.spec.kernel_id not in host.replicas
        and host.could_serve(kernel.spec)
        for host in parts.hosts.by_name.values()
    )


def _migrations(parts: Parts) -> None:
    _looking(parts)
    moves: dict[str, int] = {}
    for migration in parts.migrations.by_id.values():
        _require(parts.migrations.by_kernel.get(migration.kernel_id) is migration, "a kernel moves twice")
        due = parts.timers.at(("migration", migration.id)) is not None
        _require(due or migration.looks, "a migration never ends")
        moving = migration.phase == "moving"
        _require(moving == (migration.target is not None), "a migration moves nowhere")
        _require(moving or migration.lease is None, "a seeking migration holds GPUs")
        for host in (migration.source, migration.target):
            if host is not None:
                moves[host.name] = moves.get(host.name, 0) + 1
    for name, host in parts.hosts.by_name.items():
        _require(host.moves == moves.get(name, 0), "a host's moves are miscounted")


def _pauses(parts: Parts) -> None:
    pauses, timers, by_id = parts.pauses, parts.timers, parts.leases.by_id
    for lease, record in pauses.pausable.items():
        whole = record.card is None and bool(record.lease.gpus)
        _require(by_id.get(lease) is record and record.phase == "active", "no running cell may be paused")
        _require(whole and record.wish.preemptible is not UNSET, "a cell may be paused that cannot be")
    leaving = {record.lease.lease for record in by_id.values() if record.pausing is not None}
    _require(leaving <= set(pauses.pausable), "a cell is being paused that may not be")
    timed: dict[str, set[str]] = {"pausing": set(), "deferral": set()}
    for (kind, name), _ in timers.all():
        if kind in timed:
            timed[kind].add(name)
    _require(timed["pausing"] == leaving, "a cell that is being paused has no timer, or another one has")
    deferred = {request for request, one in pauses.newcomers.items() if one.phase != "pausing"}
    _require(timed["deferral"] == deferred, "a deferral has no timer, or one too many")
    _require(set(pauses.newcomers) <= set(parts.queue.by_request), "others are paused for nobody who waits")
    locked = [lease for newcomer in pauses.newcomers.values() for lease in newcomer.victims if lease in by_id]
    _require(len(locked) == len(set(locked)), "two requests have claimed one cell")
