"""Running cells are paused for shorter ones, where their owners or groups allow it: Lazer's rule (spec 3).

Laws: nobody is paused for whom GPUs come anyhow, nor for one that has not less left to compute; a request has
others paused once. How long it is deferred before that is an event, so a journal decides the same again. Who
was paused is passed by shorter ones alone, and not beyond PATIENCE_S; then it is not paused again either.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from msgspec import UNSET
from msgspec.structs import replace

from replkernel_scheduler.asking import Asking
from replkernel_scheduler.choosing import Choice, Choosing
from replkernel_scheduler.effects import DeferralAsked, PauseLease
from replkernel_scheduler.events import DeferralChosen, PauseFailed
from replkernel_scheduler.hosts import Host, Pool
from replkernel_scheduler.leases import LeaseRecord
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.pauses import Newcomer
from replkernel_scheduler.pool.arrivals import Watch
from replkernel_scheduler.pool.types import Context, Deferral, PoolWanted
from replkernel_scheduler.pool.victims import whom_to_stop
from replkernel_scheduler.queue import Waiting
from replkernel_scheduler.types import LeaseId, LeaseRequest, RequestId

PATIENCE_S = 1800.0
"""So long a cell stands still in all, at most, before nobody passes it or pauses it any more."""
AT_ONCE_S = 0.5
"""A shorter deferral is none (spec 3.2)."""
CELLS_TELL = 3
"""From so many cells on a kernel's own mean says how long the next one takes; before, its user's does."""
LINE_LOOKS = 64
PAUSE_WEIGHT = 0.2


def may_pause(wish: LeaseRequest) -> bool:
    """Say whether the cell of a request may be paused."""
    if wish.preemptible is UNSET or wish.share is not UNSET or wish.holder is not UNSET:
        return False
    return wish.paused is UNSET or wish.paused.paused_s < PATIENCE_S


class Pausing:
    """Decides for whom who is paused; `touch` has a host's lines looked at."""

    def __init__(
        self, parts: Parts, choosing: Choosing, asking: Asking, touch: Callable[[Host], None]
    ) -> None:
        """Decide about `parts`."""
        self._parts, self._choosing, self._asking, self._touch = parts, choosing, asking, touch

    # -- requests come ------------------------------------------------------------------------------

    def goes_on(self, wish: LeaseRequest) -> LeaseRequest:
        """Return a request without its claim that its cell was paused, where that is not so."""
        owed = wish.kernel_id in self._parts.pauses.owed
        self._parts.pauses.owed.pop(wish.kernel_id, None)
        return wish if wish.paused is UNSET or owed else replace(wish, paused=UNSET)

    def came(self, wish: LeaseRequest) -> None:
        """Take note of an arrival, by which earlier deferrals are judged."""
        takes_s = self._takes_s(wish)
        if wish.gpus and wish.holder is UNSET and wish.paused is UNSET and takes_s is not None:
            pause_s = self._parts.pauses.pause_s
            wanted = PoolWanted(wish.request, wish.gpus, takes_s, pause_s, pause_s)
            self._parts.pauses.arrivals.saw(wanted, 0, self._parts.now)

    def look(self, host: Host) -> None:
        """Have a deferral chosen for the next one on a host, if that is to have others paused."""
        pauses = self._parts.pauses
        waiting = self._next(host)
        if waiting is None or waiting.wish.request in pauses.newcomers:
            return
        victims = self._victims(host, waiting)
        if not victims:
            return
        self._judge()
        context = self._context(waiting)
        names = tuple([record.lease.lease for record in victims])
        pauses.newcomers[waiting.wish.request] = Newcomer(host.name, names, context)
        self._parts.out.append(DeferralAsked(waiting.wish.request, context))

    def left(self, waiting: Waiting) -> None:
        """Take note that a request waits no more: nobody is to be paused for it."""
        if self._parts.pauses.newcomers.pop(waiting.wish.request, None) is not None:
            self._parts.timers.cancel(("deferral", waiting.wish.request))

    # -- deferrals ----------------------------------------------------------------------------------

    def chosen(self, event: DeferralChosen) -> None:
        """Pause others for a request now, or in a while."""
        parts, newcomer = self._parts, self._parts.pauses.newcomers.get(event.request)
        waiting = parts.queue.by_request.get(event.request)
        if newcomer is None or newcomer.phase != "asked" or waiting is None:
            return
        context = newcomer.context
        defer_s = max(0.0, min(event.defer_s, context.remaining_s))  # No longer than the cell itself takes.
        parts.pauses.arrivals.watched.append(Watch(context, waiting.wish.gpus, defer_s, parts.now))
        if defer_s < AT_ONCE_S:
            self._pause(waiting, newcomer)
            return
        newcomer.phase = "deferred"
        parts.timers.set(("deferral", event.request), parts.now + defer_s)

    def deferred(self, request: RequestId) -> None:
        """Pause others for a request that was deferred, if that is still to be."""
        newcomer, waiting = self._parts.pauses.newcomers[request], self._parts.queue.by_request[request]
        self._pause(waiting, newcomer)

    def judged(self, since: int) -> tuple[int, list[Deferral]]:
        """Return how many deferrals have been judged, and those after the first `since` that are kept."""
        pauses = self._parts.pauses
        new = min(len(pauses.judged), max(0, pauses.judged_count - since))
        return pauses.judged_count, list(pauses.judged)[len(pauses.judged) - new :]

    def resumed(self) -> None:
        """Ask again for what may never have been answered: the driver was away."""
        for request, newcomer in self._parts.pauses.newcomers.items():
            if newcomer.phase == "asked":
                self._parts.out.append(DeferralAsked(request, newcomer.context))

    def _judge(self) -> None:
        pauses = self._parts.pauses
        results = pauses.arrivals.results(self._parts.now)
        pauses.judged.extend(results)
        pauses.judged_count += len(results)

    # -- pauses -------------------------------------------------------------------------------------

    def _pause(self, waiting: Waiting, newcomer: Newcomer) -> None:
        """Tell those who are to stand still now, which may be others than when it came."""
        parts, request = self._parts, waiting.wish.request
        del parts.pauses.newcomers[request]
        host = parts.hosts.by_name.get(newcomer.host)
        victims = [] if host is None or self._next(host) is not waiting else self._victims(host, waiting)
        if host is None or not victims:
            return  # It goes on waiting, and may be looked at again.
        newcomer.victims = tuple([record.lease.lease for record in victims])
        newcomer.phase = "pausing"
        parts.pauses.newcomers[request] = newcomer
        until = parts.now + parts.settings.reclaim_s
        for record in victims:
            record.pausing, record.wanted_at = request, parts.now
            parts.timers.set(("pausing", record.lease.lease), until)
            self.tell(record)

    def tell(self, record: LeaseRecord) -> None:
        """Tell a cell that it is to stand still, again if it speaks of its lease meanwhile."""
        parts = self._parts
        newcomer = None if record.pausing is None else parts.pauses.newcomers.get(record.pausing)
        for_s = 0.0 if newcomer is None else newcomer.context.remaining_s
        until = parts.timers.at(("pausing", record.lease.lease)) or parts.now
        parts.out.append(PauseLease(record.lease, until, for_s, record.pool.model))

    def failed(self, event: PauseFailed) -> None:
        """Take note that a cell cannot be paused: it is not asked again, and others may be."""
        record = self._parts.pauses.pausable.get(event.lease)
        if record is not None and record.lease.fence == event.fence:
            self._give_up(record)

    def late(self, lease: LeaseId) -> None:
        """Count on a cell no more that has not left its GPUs in time."""
        self._give_up(self._parts.pauses.pausable[lease])

    def over(self, record: LeaseRecord) -> None:
        """Take note that the lease of a cell that may be paused is over, be it by a pause."""
        parts, pauses = self._parts, self._parts.pauses
        del pauses.pausable[record.lease.lease]
        if record.pausing is None:
            return
        parts.timers.cancel(("pausing", record.lease.lease))
        took_s = parts.now - record.wanted_at
        pauses.pause_s += PAUSE_WEIGHT * (took_s - pauses.pause_s)
        if record.lease.kernel_id in parts.kernels.by_id:
            pauses.owed[record.lease.kernel_id] = None
        record.pausing = None

    def _give_up(self, record: LeaseRecord) -> None:
        parts, request = self._parts, record.pausing
        del parts.pauses.pausable[record.lease.lease]
        if request is not None:
            parts.timers.cancel(("pausing", record.lease.lease))
            parts.pauses.newcomers.pop(request, None)
            record.pausing = None
            self._touch(record.host)

    # -- who goes first -----------------------------------------------------------------------------

    def passes(self, host: Host, paused: Waiting) -> tuple[Waiting, Choice] | None:
        """Return who is served before a cell that was paused and could go on: the next that is shorter."""
        left_s = self._left_s(paused.wish)
        if left_s is None or not self._waits_for_shorter(paused):
            return None
        bound = self._bound(host)
        for key, waiting in islice(host.line, LINE_LOOKS):
            if bound is not None and key > bound:
                break
            takes_s = None if waiting.wish.paused is not UNSET else self._takes_s(waiting.wish)
            if takes_s is not None and takes_s < left_s:
                choice = self._choosing.on(host, waiting.wish)
                if choice is not None:
                    return waiting, choice
        return None

    def _next(self, host: Host) -> Waiting | None:
        """Return who is next on a host, behind those who were paused, if others may be paused for it.

        That is a kernel's cell on whole GPUs; one on several hosts may have to wait for the others anyhow.
        """
        bound = self._bound(host)
        for key, waiting in islice(host.line, LINE_LOOKS):
            if bound is not None and key > bound:
                return None
            if self._waits_for_shorter(waiting):
                continue
            wish = waiting.wish
            whole = wish.gpus and wish.share is UNSET and wish.paused is UNSET
            cell = wish.holder is UNSET and wish.kernel_id in self._parts.kernels.by_id
            return waiting if whole and cell else None
        return None

    def _bound(self, host: Host) -> tuple[object, ...] | None:
        """Return the first claim that nobody passes."""
        claims = islice(host.claims, LINE_LOOKS)
        return next((key for key, waiting in claims if not self._waits_for_shorter(waiting)), None)

    def _waits_for_shorter(self, waiting: Waiting) -> bool:
        paused = waiting.wish.paused
        if paused is UNSET:
            return False
        return paused.paused_s + self._parts.now - waiting.asked_at < PATIENCE_S

    def _victims(self, host: Host, waiting: Waiting) -> list[LeaseRecord]:
        """Return whose cells are to be paused on a host; none where GPUs come anyhow, or too few would."""
        takes_s = self._takes_s(waiting.wish)
        if takes_s is None or host.state != "up" or self._comes(waiting):
            return []
        pauses, locked = self._parts.pauses, self._parts.pauses.locked()
        for pool in host.pools:
            if not pool.suits(waiting.wish):
                continue
            running: list[tuple[float, int, LeaseRecord]] = []
            for lease, record in pauses.pausable.items():
                left_s = self._running_s(record)
                longer = left_s is not None and left_s > takes_s + pauses.pause_s
                theirs = record.lease.kernel_id != waiting.wish.kernel_id
                if record.pool is pool and longer and theirs and lease not in locked and left_s is not None:
                    running.append((-left_s, record.lease.fence, record))
            running.sort(key=lambda entry: entry[:2])
            longest = ((len(record.lease.gpus), record) for _, _, record in running)
            found = whom_to_stop(longest, self._soon(pool), waiting.wish.gpus)
            if found:
                return found
        return []

    def _comes(self, waiting: Waiting) -> bool:
        """Say whether the host that a request claims has its GPUs soon without a pause."""
        claim, wish = waiting.claim, waiting.wish
        if claim is None:
            return False
        return any(pool.suits(wish) and self._soon(pool) >= wish.gpus for pool in claim.pools)

    def _soon(self, pool: Pool) -> int:
        late = self._asking.late(pool) if pool.reclaiming else 0
        return len(pool.idle) + pool.lingering + pool.reclaiming - late

    # -- how long cells take ------------------------------------------------------------------------

    def _context(self, waiting: Waiting) -> Context:
        pauses = self._parts.pauses
        between_s = pauses.arrivals.between_s(self._parts.now)
        return Context(between_s, self._takes_s(waiting.wish) or 0.0, pauses.pause_s, pauses.pause_s)

    def _takes_s(self, wish: LeaseRequest) -> float | None:
        """Return how long a cell is thought to compute: as it says, else as its kernel's or user's did."""
        if wish.expected_s:
            return wish.expected_s
        accounts = self._parts.accounts
        sums = accounts.kernels.get(wish.kernel_id)
        if sums is not None and sums.cells >= CELLS_TELL:
            return sums.leased_s / sums.cells
        return accounts.hold_s_of(wish.user)

    def _left_s(self, wish: LeaseRequest, ran_s: float = 0.0) -> float | None:
        """Return how much longer; who has outlasted what was thought takes as long again."""
        if wish.paused is not UNSET:
            ran_s += wish.paused.ran_s
        takes_s = self._takes_s(wish)
        if takes_s is None:
            return None
        return takes_s - ran_s if takes_s > ran_s else ran_s

    def _running_s(self, record: LeaseRecord) -> float | None:
        return self._left_s(record.wish, self._parts.now - record.granted_at)
