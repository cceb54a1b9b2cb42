"""What leases cost: sums for every kernel and user, and one row for each lease.

Law: a row is made once, when a cell's use of its GPUs is over; the sums are those of the rows. What
holding the GPUs all along would have cost is the most a kernel asked for in a session, all the
time that this took (from the first request to the end of the last lease, if nobody said when it began).
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec import UNSET

from replkernel_scheduler.cards import MILLI, counted
from replkernel_scheduler.hosts import LeaseRecord, share_of
from replkernel_scheduler.types import CellUsage, KernelId, Usage, UserName

HOLD_WEIGHT = 0.1
USUAL_FROM_LEASES = 5
"""From so many leases on it can be said how long they are held."""
KERNELS_MAX = 200_000


class Sums:
    """What a kernel or a user has used."""

    __slots__ = ("busy_s", "cells", "cost", "gpu_s", "leased_s", "queued_s", "reserved_gpu_s")

    def __init__(self) -> None:
        """Start at nothing."""
        self.cells = 0
        self.queued_s = self.leased_s = self.busy_s = self.gpu_s = self.reserved_gpu_s = self.cost = 0.0

    def add(self, row: CellUsage, goes_on: bool) -> None:
        """Add one row; a cell that `goes_on` after a pause has been counted."""
        leased_s = row.leased_s
        self.cells += not goes_on
        self.queued_s += row.queued_s
        self.leased_s += leased_s
        self.busy_s += row.busy_s
        self.gpu_s += leased_s * row.gpus
        if row.cost is not UNSET:
            self.cost += row.cost

    def usage(self, reserved_gpu_s: float = 0.0) -> Usage:
        """Return the sums, with what reservations still running have cost so far."""
        return Usage(
            self.cells,
            self.queued_s,
            self.leased_s,
            self.busy_s,
            self.gpu_s,
            self.reserved_gpu_s + reserved_gpu_s,
            self.cost or UNSET,
        )


class KernelSums(Sums):
    """One kernel's sums: `gpus` is the most it asked for, which a reservation holds.

    Its session began at `began`; what a reservation costs is written down until `since`.
    """

    __slots__ = ("began", "gpus", "live", "since", "user")

    def __init__(self, user: UserName) -> None:
        """Start at nothing."""
        super().__init__()
        self.user = user
        self.began: float | None = None
        self.since: float | None = None
        self.gpus = 0
        self.live = False

    def reserving_s(self, now: float) -> float:
        """Return the GPU-seconds that a reservation, not yet over, would have cost until now."""
        return self.gpus * (now - self.since) if self.live and self.since is not None else 0.0


class Accounts:
    """The sums of all kernels and users, and how long leases are held on average."""

    def __init__(self) -> None:
        """Start at nothing."""
        self.kernels: OrderedDict[KernelId, KernelSums] = OrderedDict()
        """Oldest first; of a plain dict the first one is found slower the more were taken off before it."""
        self.users: dict[UserName, Sums] = {}
        self.mean_hold_s: float | None = None

    def started(self, kernel_id: KernelId, user: UserName, gpus: int, now: float) -> None:
        """Note that a kernel begins: a reservation would as well."""
        sums = self._sums(kernel_id, user)
        if sums.since is None:
            sums.began = sums.since = now
        sums.live = True
        self._want(sums, gpus, now)

    def asked(self, kernel_id: KernelId, user: UserName, gpus: int, now: float) -> None:
        """Note that a kernel wants so many GPUs; one that nobody started lives from its first request on."""
        sums = self.kernels.get(kernel_id) or self._sums(kernel_id, user)
        if sums.since is None:
            sums.began = sums.since = now
        if gpus > sums.gpus:
            self._want(sums, gpus, now)

    def ended(self, kernel_id: KernelId, now: float) -> None:
        """Note that a kernel is over: a reservation would be as well."""
        sums = self.kernels.get(kernel_id)
        if sums is not None:
            if sums.live:
                self._settle(sums, now)
            sums.live, sums.began, sums.since, sums.gpus = False, None, None, 0

    def close(
        self, record: LeaseRecord, busy_s: float | None, now: float, cost: float | None = None
    ) -> CellUsage:
        """Account for a lease whose use ends now, and return its row."""
        lease = record.lease
        leased_s = now - record.granted_at
        row = CellUsage(
            lease.request,
            lease.lease,
            lease.kernel_id,
            lease.user,
            lease.host,
            len(lease.gpus) if record.card is None else counted(share_of(record), record.pool) / MILLI,
            record.asked_at,
            record.granted_at - record.asked_at,
            leased_s,
            leased_s if busy_s is None or busy_s >= leased_s else max(0.0, busy_s),
            UNSET if cost is None else cost,
        )
        goes_on = record.wish.paused is not UNSET
        kernel = self.kernels.get(lease.kernel_id)
        if kernel is not None:
            kernel.add(row, goes_on)
            if not kernel.live:
                self._settle(kernel, now)
        (self.users.get(lease.user) or self.user(lease.user)).add(row, goes_on)
        mean = self.mean_hold_s
        self.mean_hold_s = leased_s if mean is None else mean + HOLD_WEIGHT * (leased_s - mean)
        return row

    @property
    def usual_hold_s(self) -> float | None:
        """Return how long leases were held on average; None before there were enough to tell."""
        seen = 0
        for sums in self.users.values():
            seen += sums.cells
            if seen >= USUAL_FROM_LEASES:
                return self.mean_hold_s
        return None

    def user(self, name: UserName) -> Sums:
        """Return a user's sums."""
        found = self.users.get(name)
        if found is None:
            found = self.users[name] = Sums()
        return found

    def hold_s_of(self, name: UserName) -> float | None:
        """Return how long a user's leases were held on average; of a new one, how long all were."""
        own = self.users.get(name)
        return own.leased_s / own.cells if own is not None and own.cells else self.mean_hold_s

    def _sums(self, kernel_id: KernelId, user: UserName) -> KernelSums:
        sums = self.kernels.get(kernel_id)
        if sums is None:
            self._make_room()
            sums = self.kernels[kernel_id] = KernelSums(user)
        return sums

    def _want(self, sums: KernelSums, gpus: int, now: float) -> None:
        """Note that so many are wanted; who reserves must do so when the session begins."""
        if gpus <= sums.gpus:
            return
        if sums.gpus:
            self._settle(sums, now)
        elif sums.since is not None:
            sums.since = now  # What reserved nothing has cost nothing.
        if sums.began is not None:
            self._cost(sums, (gpus - sums.gpus) * (now - sums.began))
        sums.gpus = gpus

    def _settle(self, sums: KernelSums, now: float) -> None:
        """Write down what a reservation has cost until now, for the kernel and its user."""
        if sums.since is not None:
            self._cost(sums, sums.gpus * (now - sums.since))
            sums.since = now

    def _cost(self, sums: KernelSums, gpu_s: float) -> None:
        sums.reserved_gpu_s += gpu_s
        self.user(sums.user).reserved_gpu_s += gpu_s

    def _make_room(self) -> None:
        """Forget the oldest kernel that is over, once there are too many; its user's sums stay."""
        if len(self.kernels) >= KERNELS_MAX:
            for kernel_id, sums in self.kernels.items():
                if not sums.live:
                    del self.kernels[kernel_id]
                    return
