"""Cards that leases of shares have in common, and which card a share gets.

Laws: shares on a card come to no more than the least multiplicity that any lease on it allows, and the memory
that they may take to no more than the card has: each may take some. A card with a share on it is in no lease
of whole GPUs; it is idle again when its last share is over. A share goes to the card where it leaves least
memory, then the least of the card; an empty card is opened only where none of the host's open ones will do.
"""

from __future__ import annotations

from msgspec import UNSET

from replkernel_scheduler.hosts import Host, LeaseRecord, Pool, share_of
from replkernel_scheduler.types import LeaseRequest, Share

MILLI = 1000
MIB_PER_GIB = 1024


def memory_mib(pool: Pool) -> int:
    """Return the memory of one of a pool's GPUs; 0: nobody measured it."""
    return round(pool.memory_gb * MIB_PER_GIB)


def share_on(pool: Pool, wish: LeaseRequest) -> Share:
    """Return the share that a request has on a card of this pool: who names no memory has his fraction."""
    wanted = wish.share
    assert wanted is not UNSET
    card = memory_mib(pool)
    mib = round(wish.vram_gb * MIB_PER_GIB) if wish.vram_gb else card * wanted.milli // MILLI
    return Share(wanted.milli, wanted.multiplicity, max(mib, 1) if card else mib)


def counted(share: Share, pool: Pool) -> int:
    """Return the thousandths of a GPU that a share counts as: the most of it that others cannot have."""
    mib = memory_mib(pool)
    return max(share.milli, min(MILLI, -(-share.vram_mib * MILLI // mib))) if mib else share.milli


def left(shares: list[Share], more: Share, mib: int) -> tuple[int, int] | None:
    """Return the memory and the thousandths that are left on a card once `more` is on it too.

    None: it does not fit. `mib` is the card's memory; 0: nobody knows, so nothing of it is counted.
    """
    most = min([share.multiplicity for share in shares], default=more.multiplicity)
    milli = min(most, more.multiplicity) * MILLI - sum([share.milli for share in shares]) - more.milli
    rest = mib - sum([share.vram_mib for share in shares]) - more.vram_mib if mib else 0
    return None if milli < 0 or rest < 0 else (rest, milli)


def best_card(pool: Pool, wish: LeaseRequest) -> tuple[tuple[int, int, int], int] | None:
    """Return how well a share fits on the best card of a pool (smaller is better), and its number."""
    share, mib = share_on(pool, wish), memory_mib(pool)
    best: tuple[tuple[int, int, int], int] | None = None
    for number, card in pool.cards.items():
        rest = left(card.shares(), share, mib)
        if rest is not None and (best is None or ((0, *rest), number) < best):
            best = (0, *rest), number
    if best is None and pool.idle:
        rest = left([], share, mib)
        if rest is not None:
            best = (1, *rest), pool.idle[0]
    return best


def best_pool(host: Host, wish: LeaseRequest) -> Pool | None:
    """Return the pool of a host with the card on which a share fits best, if there is room for the rest."""
    found = [
        (best, number, pool)
        for number, pool in enumerate(host.pools)
        if pool.suits(wish) and (best := best_card(pool, wish)) is not None
    ]
    if not found or not host.has_room(wish):
        return None
    return min(found, key=lambda entry: entry[:2])[2]


def pool_for(host: Host, wish: LeaseRequest) -> Pool | None:
    """Return the pool of a host from which a request can be served now, if there is one."""
    return host.pool_with(wish) if wish.share is UNSET else best_pool(host, wish)


def opens(pool: Pool, wish: LeaseRequest) -> bool:
    """Say whether a share would open an empty card of a pool, as none that is open has room."""
    best = best_card(pool, wish)
    return best is None or best[0][0] > 0


def goes_on(record: LeaseRecord, wish: LeaseRequest) -> bool:
    """Say whether a request can have the very GPUs of a resting lease of its kernel, one being for a share.

    What lies there has to fit into what the share may take.
    """
    card, pool = record.card, record.pool
    if wish.share is UNSET:
        return card is not None and len(card.records) == 1
    share, mib = share_on(pool, wish), memory_mib(pool)
    if not holds(record, wish):
        return False
    return left([] if card is None else card.shares(record), share, mib) is not None


def holds(record: LeaseRecord, wish: LeaseRequest) -> bool:
    """Say whether what lies on a resting lease's GPUs fits into what a request may take there."""
    if wish.share is UNSET:
        return True
    mib = share_on(record.pool, wish).vram_mib
    return not mib or record.held_gb * MIB_PER_GIB <= mib


def gpus_freed(records: list[LeaseRecord]) -> int:
    """Return how many whole GPUs come free once all of these leases are over."""
    cards: dict[int, int] = {}
    found = 0
    for record in records:
        if record.card is None:
            found += len(record.lease.gpus)
        else:
            seen = cards[id(record.card)] = cards.get(id(record.card), 0) + 1
            found += seen == len(record.card.records)
    return found


# -- what would be free if some leases were over ----------------------------------------------------------


class CardRoom:
    """A card as it would be: the shares that stay, and the leases that could be asked back."""

    __slots__ = ("asked", "shares")

    def __init__(self, shares: list[Share], asked: list[LeaseRecord]) -> None:
        """Keep what is given; the shares of `asked` are not among `shares`."""
        self.shares, self.asked = shares, asked

    def all(self) -> list[Share]:
        """Return every share on it."""
        return self.shares + [share_of(record) for record in self.asked]


class Room:
    """What a pool would have left: whole GPUs that are free, cards with shares, leases to ask back."""

    __slots__ = ("cards", "free", "pool", "whole")

    def __init__(self, pool: Pool, gone: set[int], lingering: list[LeaseRecord]) -> None:
        """Look at a pool as if the leases with these ids (Python's) were over; `lingering` could be asked."""
        self.pool = pool
        self.free = len(pool.idle)
        self.whole = [record for record in lingering if record.card is None]
        for record in pool.host.leases.values():
            if record.pool is pool and record.card is None and id(record) in gone:
                self.free += len(record.lease.gpus)
        could = {id(record) for record in lingering}
        self.cards: list[CardRoom] = []
        for _, card in sorted(pool.cards.items()):
            stay = [record for record in card.records.values() if id(record) not in gone]
            if not stay:
                self.free += 1
                continue
            asked = [record for record in stay if id(record) in could]
            kept = [share_of(record) for record in stay if id(record) not in could]
            self.cards.append(CardRoom(kept, asked))

    def take(self, wish: LeaseRequest) -> bool:
        """Give a request what is free; say whether that was enough."""
        if wish.share is UNSET:
            if self.free < wish.gpus:
                return False
            self.free -= wish.gpus
            return True
        share, mib = share_on(self.pool, wish), memory_mib(self.pool)
        best: tuple[tuple[int, int], CardRoom] | None = None
        for card in self.cards:
            rest = left(card.all(), share, mib)
            if rest is not None and (best is None or rest < best[0]):
                best = rest, card
        if best is not None:
            best[1].shares.append(share)
            return True
        if not self.free or left([], share, mib) is None:
            return False
        self.free -= 1
        self.cards.append(CardRoom([share], []))
        return True

    def ask(self, wish: LeaseRequest) -> list[LeaseRecord]:
        """Return the leases that cost least to ask back for a request, and count them as over."""
        return self._ask_whole(wish.gpus) if wish.share is UNSET else self._ask_share(wish)

    def _ask_whole(self, gpus: int) -> list[LeaseRecord]:
        units = [([record], len(record.lease.gpus), None) for record in self.whole]
        soft = [(card.asked, 1, card) for card in self.cards if not card.shares]
        picked: list[tuple[list[LeaseRecord], int, CardRoom | None]] = []
        free = self.free
        for unit in sorted([*units, *soft], key=lambda unit: cost(unit[0])):
            if free >= gpus:
                break
            picked.append(unit)
            free += unit[1]
        for unit in reversed(picked.copy()):
            if free - unit[1] >= gpus:
                free -= unit[1]
                picked.remove(unit)
        if free < gpus:
            return []
        self.free = free
        for records, _, card in picked:
            if card is None:
                self.whole.remove(records[0])
            else:
                self.cards.remove(card)
        return [record for records, _, _ in picked for record in records]

    def _ask_share(self, wish: LeaseRequest) -> list[LeaseRecord]:
        share, mib = share_on(self.pool, wish), memory_mib(self.pool)
        best: tuple[tuple[float, float, int], list[LeaseRecord], CardRoom | None] | None = None
        for record in self.whole:
            found = (cost([record]), [record], None)
            best = found if best is None or found[0] < best[0] else best
        for card in self.cards:
            records = _fewest(card, share, mib)
            if records and (best is None or cost(records) < best[0]):
                best = cost(records), records, card
        if best is None or left([], share, mib) is None:
            return []
        _, records, where = best
        if where is None:
            self.whole.remove(records[0])
            self.free += len(records[0].lease.gpus)
        else:
            where.asked = [record for record in where.asked if record not in records]
        return records


def _fewest(card: CardRoom, share: Share, mib: int) -> list[LeaseRecord]:
    """Return the leases on a card that cost least and whose end gives a share room there; none: no way."""
    picked: list[LeaseRecord] = []

    def fits(over: list[LeaseRecord]) -> bool:
        stay = [share_of(record) for record in card.asked if record not in over]
        return left(card.shares + stay, share, mib) is not None

    for record in sorted(card.asked, key=lambda record: cost([record])):
        picked.append(record)
        if fits(picked):
            break
    else:
        return []
    for record in picked[:-1]:
        fewer = [other for other in picked if other is not record]
        if fits(fewer):
            picked = fewer
    return picked


def cost(records: list[LeaseRecord]) -> tuple[float, float, int]:
    """Return what it costs to ask leases back: the least to move first, then who has rested longest."""
    return (
        sum([record.held_gb for record in records]),
        min([record.rested_at for record in records]),
        min([record.lease.fence for record in records]),
    )
