"""Running cells are paused for shorter ones, where their owners or groups allow it: Lazer's rule (spec 3).

Laws: nobody is paused for whom GPUs come anyhow, nor for one that has not less left to compute or a lower
priority. A request has others paused once, and again only where one of them could not be. How long it is
deferred before that is an event, so a journal decides the same again. Who has stood still for PATIENCE_S is
not paused again.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from msgspec import UNSET
from msgspec.structs import replace

from replkernel_scheduler.asking import Asking
from replkernel_scheduler.effects import DeferralAsked, PauseLease
from replkernel_scheduler.events import DeferralChosen, PauseFailed
from replkernel_scheduler.hosts import MILLI, Host, LeaseRecord, Pool, Waiting
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.passing import LINE_LOOKS, PATIENCE_S, Passing, what_is_left
from replkernel_scheduler.pauses import Newcomer
from replkernel_scheduler.pool.arrivals import Watch
from replkernel_scheduler.pool.types import Context, Deferral, PoolWanted
from replkernel_scheduler.pool.victims import whom_to_stop
from replkernel_scheduler.types import LeaseId, LeaseRequest, RequestId

ANSWERS_S = 30.0
"""A deferral that nobody has chosen by then is over."""
AT_ONCE_S = 0.5
"""A shorter deferral is none (spec 3.2)."""
PAUSE_WEIGHT = 0.2
OUTLASTS = 1.5
"""Who takes so many times as long as it said has not kept its word."""
BEGINS_S = 5.0
"""A cell that refuses so soon may not have begun in its process yet: it is asked once more,"""
AGAIN_S = 60.0
"""so long afterwards."""
COMPUTES_S_MIN = 60.0
"""A cell that was paused computes so long at least before it is paused again, and"""
COMPUTES_PAUSES = 10.0
"""so many times as long as it takes to leave GPUs: else pauses would be most of what it does."""


def may_pause(wish: LeaseRequest) -> bool:
    """Say whether the cell of a request may be paused."""
    if wish.preemptible is UNSET or wish.share is not UNSET or wish.holder is not UNSET:
        return False
    return wish.paused is UNSET or wish.paused.paused_s < PATIENCE_S


def stood_still(wish: LeaseRequest, waited_s: float) -> LeaseRequest:
    """Return the request of a cell that goes on, with the time that it has just waited."""
    if wish.paused is UNSET:
        return wish
    return replace(wish, paused=replace(wish.paused, paused_s=wish.paused.paused_s + max(0.0, waited_s)))


class Pausing:
    """Decides for whom who is paused; `touch` has a host's lines looked at."""

    def __init__(self, parts: Parts, asking: Asking, touch: Callable[[Host], None]) -> None:
        """Decide about `parts`."""
        self._parts, self._asking, self._touch = parts, asking, touch
        self._passing = Passing(parts)

    # -- requests come ------------------------------------------------------------------------------

    def goes_on(self, wish: LeaseRequest) -> LeaseRequest:
        """Return what a cell has left that goes on, or its request without that claim if it was not paused.

        A cell that was told to stand still may ask to go on before its lease is known to be over.
        """
        parts, kernel_id = self._parts, wish.kernel_id
        owed = kernel_id in parts.pauses.owed
        parts.pauses.owed.pop(kernel_id, None)
        if wish.paused is UNSET or owed:
            return what_is_left(wish)
        of_request = parts.leases.of_request
        for request in parts.kernels.asks.get(kernel_id, ()):
            record = of_request.get(request)
            if record is not None and record.told:
                record.told = False
                return what_is_left(wish)
        return replace(wish, paused=UNSET)

    def came(self, wish: LeaseRequest) -> None:
        """Take note of an arrival, by which earlier deferrals are judged."""
        takes_s = self._passing.takes_s(wish)
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
        self._parts.timers.set(("deferral", waiting.wish.request), self._parts.now + ANSWERS_S)
        self._parts.out.append(DeferralAsked(waiting.wish.request, context))

    def left(self, waiting: Waiting) -> None:
        """Take note that a request waits no more: nobody is to be paused for it."""
        self._forget(waiting.wish.request)

    def stops(self, host: Host) -> None:
        """Pause nobody any more on a host that changes, or serves nobody new."""
        newcomers = self._parts.pauses.newcomers
        for request in [name for name, one in newcomers.items() if one.host == host.name]:
            self._forget(request)

    def _forget(self, request: RequestId) -> None:
        newcomer = self._parts.pauses.newcomers.pop(request, None)
        if newcomer is not None:
            self._parts.timers.cancel(("deferral", request))
            self._spare(newcomer, request)

    def _spare(self, newcomer: Newcomer, request: RequestId) -> None:
        """Insist no more that cells stand still for a request; who has begun to may do so all the same."""
        for lease in newcomer.victims:
            record = self._parts.pauses.pausable.get(lease)
            if record is not None and record.pausing == request:
                self._parts.timers.cancel(("pausing", lease))
                record.pausing = None

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
        """Pause others for a request that was deferred, or never answered for, if that is still to be."""
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
        parts.timers.cancel(("deferral", request))
        host = parts.hosts.by_name.get(newcomer.host)
        victims = [] if host is None or self._next(host) is not waiting else self._victims(host, waiting)
        if host is None or not victims:
            return  # It goes on waiting, and may be looked at again.
        newcomer.victims = tuple([record.lease.lease for record in victims])
        newcomer.phase = "pausing"
        parts.pauses.newcomers[request] = newcomer
        until = parts.now + parts.settings.reclaim_s
        for record in victims:
            record.pausing, record.wanted_at, record.told = request, parts.now, True
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
        """Take note that a cell cannot be paused: others may be. It is asked again if it had only begun."""
        record, now = self._parts.pauses.pausable.get(event.lease), self._parts.now
        if record is not None and record.lease.fence == event.fence:
            early = not record.again_at and now < record.granted_at + BEGINS_S
            record.again_at = now + AGAIN_S
            self._give_up(record, again=early)

    def late(self, lease: LeaseId) -> None:
        """Count on a cell no more that has not left its GPUs in time."""
        self._give_up(self._parts.pauses.pausable[lease])

    def ended(self, record: LeaseRecord) -> None:
        """Take note of whether a cell took as long as it said; of one that was told to leave nobody knows."""
        outlasted, kernel_id = self._parts.pauses.outlasted, record.lease.kernel_id
        if record.told or not record.wish.expected_s or kernel_id not in self._parts.kernels.by_id:
            return
        if self._parts.now - record.granted_at > OUTLASTS * record.wish.expected_s:
            outlasted[kernel_id] = outlasted.get(kernel_id, 0) + 1
        else:
            outlasted.pop(kernel_id, None)

    def given_back(self, record: LeaseRecord) -> None:
        """Learn how long it takes until a cell has left its GPUs: this one was told to, and has."""
        pauses, took_s = self._parts.pauses, self._parts.now - record.wanted_at
        pauses.pause_s += PAUSE_WEIGHT * (took_s - pauses.pause_s)

    def over(self, record: LeaseRecord) -> None:
        """Take note that the lease of a cell is over, be it by a pause, that may be paused or was told to."""
        parts, pauses, lease = self._parts, self._parts.pauses, record.lease
        pauses.pausable.pop(lease.lease, None)
        if record.pausing is not None:
            parts.timers.cancel(("pausing", lease.lease))
            record.pausing = None
        if record.told and lease.kernel_id in parts.kernels.by_id:
            pauses.owed[lease.kernel_id] = None

    def _give_up(self, record: LeaseRecord, *, again: bool = False) -> None:
        pauses, request = self._parts.pauses, record.pausing
        if request is not None:
            self._forget(request)
        record.pausing = None
        if not again:
            del pauses.pausable[record.lease.lease]
        self._touch(record.host)

    # -- for whom, and who ------------------------------------------------------------------------

    def _next(self, host: Host) -> Waiting | None:
        """Return who is next on a host, before those who were paused, if others may be paused for it.

        That is a kernel's cell on whole GPUs; one on several hosts may have to wait for the others anyhow.
        """
        bound, before = self._passing.bound(host), list[Waiting]()
        for key, waiting in islice(host.line, LINE_LOOKS):
            if bound is not None and key > bound:
                return None
            if self._passing.gives_way(waiting):
                before.append(waiting)
                continue
            if not self._passing.passes(waiting, before):
                continue
            wish = waiting.wish
            whole = wish.gpus and wish.share is UNSET and wish.paused is UNSET
            cell = wish.holder is UNSET and wish.kernel_id in self._parts.kernels.by_id
            return waiting if whole and cell else None
        return None

    def _victims(self, host: Host, waiting: Waiting) -> list[LeaseRecord]:
        """Return whose cells are to be paused on a host; none where GPUs come anyhow, or too few would."""
        takes_s = self._passing.takes_s(waiting.wish)
        if takes_s is None or host.state != "up" or self._comes(waiting):
            return []
        pauses, locked = self._parts.pauses, self._parts.pauses.locked()
        for pool in host.pools:
            if not pool.suits(waiting.wish):
                continue
            running: list[tuple[float, int, LeaseRecord]] = []
            for lease, record in pauses.pausable.items():
                left_s = self._passing.running_s(record)
                longer = left_s is not None and left_s > takes_s + pauses.pause_s
                theirs = record.lease.kernel_id != waiting.wish.kernel_id and self._may_leave(record)
                theirs = theirs and not self._passing.outranks(record.wish, waiting.wish)
                if record.pool is pool and longer and theirs and lease not in locked and left_s is not None:
                    running.append((-left_s, record.lease.fence, record))
            running.sort(key=lambda entry: entry[:2])
            longest = ((len(record.lease.gpus), record) for _, _, record in running)
            found = whom_to_stop(longest, self._soon(pool), waiting.wish.gpus)
            if found and _suffices(host, waiting.wish, found):
                return found
        return []

    def _may_leave(self, record: LeaseRecord) -> bool:
        """Say whether a cell may be told to stand still now: not if it has just gone on, or refused."""
        if self._parts.now < record.again_at:
            return False
        least_s = max(COMPUTES_S_MIN, COMPUTES_PAUSES * self._parts.pauses.pause_s)
        return record.wish.paused is UNSET or self._parts.now - record.granted_at >= least_s

    def _comes(self, waiting: Waiting) -> bool:
        """Say whether the host that a request claims has its GPUs soon without a pause."""
        claim, wish = waiting.claim, waiting.wish
        if claim is None:
            return False
        return any(pool.suits(wish) and self._soon(pool) >= wish.gpus for pool in claim.pools)

    def _soon(self, pool: Pool) -> int:
        late = self._asking.late(pool) if pool.reclaiming else 0
        return len(pool.idle) + pool.lingering + pool.reclaiming - late

    def _context(self, waiting: Waiting) -> Context:
        pauses = self._parts.pauses
        between_s = pauses.arrivals.between_s(self._parts.now)
        return Context(between_s, self._passing.takes_s(waiting.wish) or 0.0, pauses.pause_s, pauses.pause_s)


def _suffices(host: Host, wish: LeaseRequest, victims: list[LeaseRecord]) -> bool:
    """Say whether a host's cores and memory suffice for a request once these stand still."""
    cpu = host.cpu_free + sum([round(record.wish.cpu * MILLI) for record in victims])
    memory = host.memory_free + sum([round(record.wish.memory_gb * MILLI) for record in victims])
    return cpu >= round(wish.cpu * MILLI) and memory >= round(wish.memory_gb * MILLI)
