"""Who passes whom where cells were paused, and how long cells are thought to take.

Laws: it looks and changes nothing. A paused cell stands before everybody who waits, for all of them would
wait for it if it had computed on. Only shorter ones pass it, that can be served now, and not beyond
PATIENCE_S. While cells leave their GPUs for a shorter one, it does not take the first of these back.
"""

from __future__ import annotations

from itertools import islice

from msgspec import UNSET
from msgspec.structs import replace

from replkernel_scheduler.choosing import Choice, Choosing
from replkernel_scheduler.hosts import Host, LeaseRecord, Waiting
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.policies.protocol import Rank
from replkernel_scheduler.types import LeaseRequest
from replkernel_scheduler.wishes import EXPECTED_S_MAX

FIRST = -1e300
"""What the key of a paused cell's request begins with; no priority is as high."""
PATIENCE_S = 1800.0
"""So long a cell stands still in all, at most, before nobody passes it or pauses it any more."""
CELLS_TELL = 3
"""From so many cells on a kernel's own mean says how long the next one takes; before, its user's does."""
LINE_LOOKS = 64


class Passing:
    """Looks at lines in which paused cells stand."""

    def __init__(self, parts: Parts) -> None:
        """Look at `parts`."""
        self._parts = parts

    def next(self, host: Host, choosing: Choosing) -> tuple[Waiting, Choice] | None:
        """Return who is served next on a host that a paused cell claims first."""
        goes_on: tuple[Waiting, Choice] | None = None
        before: list[Waiting] = []
        bound, holds = self.bound(host), self.holds(host)
        for key, waiting in islice(host.line, LINE_LOOKS):
            if bound is not None and key > bound:
                break
            if not self.passes(waiting, before):
                continue
            choice = choosing.on(host, waiting.wish)
            if not self.gives_way(waiting):
                if choice is not None:
                    return waiting, choice
                continue
            if choice is not None and goes_on is None and not holds:
                goes_on = waiting, choice
            before.append(waiting)
        return goes_on

    def bound(self, host: Host) -> Rank | None:
        """Return the first claim that nobody passes."""
        claims = islice(host.claims, LINE_LOOKS)
        return next((key for key, waiting in claims if not self.gives_way(waiting)), None)

    def holds(self, host: Host) -> bool:
        """Say whether cells are leaving GPUs of a host, which are to be served together."""
        pauses = self._parts.pauses
        return any(
            record is not None and record.pausing == request
            for request, one in pauses.newcomers.items()
            if one.phase == "pausing" and one.host == host.name
            for record in map(pauses.pausable.get, one.victims)
        )

    def gives_way(self, waiting: Waiting) -> bool:
        """Say whether a request is a paused cell's that shorter ones pass."""
        paused = waiting.wish.paused
        if paused is UNSET:
            return False
        return paused.paused_s + self._parts.now - waiting.asked_at < PATIENCE_S

    def passes(self, waiting: Waiting, paused: list[Waiting]) -> bool:
        """Say whether a request passes these paused cells: it is shorter, and its priority no lower."""
        if not paused:
            return True
        takes_s = self.left_s(waiting.wish)
        if takes_s is None or any(self.outranks(one.wish, waiting.wish) for one in paused):
            return False
        lefts = [self.left_s(one.wish) for one in paused]
        return all(left_s is not None and takes_s < left_s for left_s in lefts)

    def outranks(self, one: LeaseRequest, other: LeaseRequest) -> bool:
        """Say whether the user of `one` has a higher priority than that of `other`."""
        users = self._parts.users
        return users.get(one.user).quota.priority > users.get(other.user).quota.priority

    def takers(self, host: Host, waits: list[Waiting]) -> list[Waiting]:
        """Return who waits, without paused cells that a host cannot serve yet, and who waits for these."""
        before: list[Waiting] = []
        found: list[Waiting] = []
        for waiting in waits:
            if self.gives_way(waiting) and not _comes(host, waiting.wish):
                before.append(waiting)
            elif self.passes(waiting, before):
                found.append(waiting)
            else:
                break
        return found

    # -- how long cells take ------------------------------------------------------------------------

    def takes_s(self, wish: LeaseRequest) -> float | None:
        """Return how long a cell is thought to compute: as it says, else as its kernel's or user's did.

        Nobody is believed whose last cells all took longer than they said; then it is as long as these took.
        """
        parts, accounts = self._parts, self._parts.accounts
        sums = accounts.kernels.get(wish.kernel_id)
        if wish.expected_s:
            lies = sums is not None and parts.pauses.outlasted.get(wish.kernel_id, 0) >= CELLS_TELL
            return (
                max(wish.expected_s, sums.leased_s / max(1, sums.cells)) if sums and lies else wish.expected_s
            )
        if sums is not None and sums.cells >= CELLS_TELL:
            return sums.leased_s / sums.cells
        return accounts.hold_s_of(wish.user)

    def left_s(self, wish: LeaseRequest, ran_s: float = 0.0) -> float | None:
        """Return how much longer; who has outlasted what was thought takes as long again.

        What a cell expected that goes on is what was left of it when it asked to (`what_is_left`).
        """
        takes_s = self.takes_s(wish)
        if takes_s is None:
            return None
        before_s = 0.0 if wish.paused is UNSET else wish.paused.ran_s
        passed_s = ran_s if wish.expected_s else before_s + ran_s
        return takes_s - passed_s if takes_s > passed_s else before_s + ran_s

    def running_s(self, record: LeaseRecord) -> float | None:
        """Return how much longer a cell that runs is thought to compute."""
        return self.left_s(record.wish, self._parts.now - record.granted_at)


def what_is_left(wish: LeaseRequest) -> LeaseRequest:
    """Return the request of a cell that goes on, which expects no more than it has left."""
    if wish.paused is UNSET or not wish.expected_s:
        return wish
    ran_s, said_s = wish.paused.ran_s, wish.expected_s
    return replace(wish, expected_s=said_s - ran_s if said_s > ran_s else min(ran_s, EXPECTED_S_MAX))


def _comes(host: Host, wish: LeaseRequest) -> bool:
    """Say whether a host has the GPUs once what lingers is back."""
    return any(
        pool.suits(wish) and len(pool.idle) + pool.lingering + pool.reclaiming >= wish.gpus
        for pool in host.pools
    )
