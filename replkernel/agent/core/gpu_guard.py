"""Whose GPUs are open on this host, and what the device hook is to do next. Pure.

An *access* is one GPU for one owner. Laws: the hook does one thing at a time; accesses that nobody has a
lease for are closed before others are opened; a GPU that could not be closed to one owner is opened for no
other. It is to be closed from before the hook is asked to open it until it has closed it; it is open for its
owner only from when the hook has said so until it is asked to close it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from replkernel.leasing.wire import GPUS_OF_HOST_MAX, WHY_MAX, LeaseHere, LeasesOpen, NotOpened

AGAIN_S, AGAIN_MAX_S = 5.0, 60.0
"""So long after a failure an access is closed again: at first, and at last."""


class GpuAccess(NamedTuple):
    """One GPU for one owner."""

    owner: str
    gpu: str


class HookCall(NamedTuple):
    """What the hook is to do: open `gpus` for `owner` or close them, who has `owner_gpus` after that."""

    action: Literal["bind", "release"]
    owner: str
    kernel_id: str
    lease: str
    gpus: tuple[str, ...]
    owner_gpus: tuple[str, ...]


class _Stuck(NamedTuple):
    why: str
    again_at: float
    wait_s: float


class GpuGuard:
    """The accesses of one host."""

    def __init__(self, accesses: Mapping[GpuAccess, str] | None = None) -> None:
        """Begin with the accesses that an earlier agent left open, each with the kernel it was opened for."""
        self.accesses: dict[GpuAccess, str] = dict(accesses or {})
        """What may be open, and so is to be closed."""
        self._bound: set[GpuAccess] = set()
        """What is open: the last that the hook did there was to open it, and did not fail."""
        self._leases: dict[str, LeaseHere] = {}
        self._open: set[str] = set()
        self._failed: dict[str, str] = {}
        self._unsaid = False
        self._stuck: dict[GpuAccess, _Stuck] = {}
        self._stuck_said: tuple[str, ...] = ()
        self._told = False

    def told(self, leases: Iterable[LeaseHere]) -> None:
        """Take the leases that are in force on this host: all of them."""
        self._leases = {lease.lease: lease for lease in leases}
        self._open &= self._leases.keys()
        self._failed = {name: why for name, why in self._failed.items() if name in self._leases}
        self._told = self._unsaid = True

    def next(self, now: float) -> HookCall | None:
        """Return what the hook is to do now; None: nothing."""
        if not self._told:
            return None
        call = self._to_close(now)
        while call is None and (lease := self._to_open()) is not None:
            call = self._opens(lease)
        return call

    def answer(self) -> LeasesOpen | None:
        """Return what the scheduler is to hear, if that is news."""
        stuck = tuple(sorted({access.gpu for access in self._stuck})[:GPUS_OF_HOST_MAX])
        if not self._unsaid and stuck == self._stuck_said:
            return None
        self._unsaid, self._stuck_said = False, stuck
        failed = tuple(NotOpened(name, why[:WHY_MAX]) for name, why in sorted(self._failed.items()))
        return LeasesOpen(tuple(sorted(self._open)), failed, stuck)

    def done(self, call: HookCall, why: str, now: float) -> None:
        """Take what came of a call; `why` it failed, or nothing."""
        accesses = [GpuAccess(call.owner, gpu) for gpu in call.gpus]
        self._bound.difference_update(accesses)
        if call.action == "bind" and not why:
            self._bound.update(accesses)
        if call.action == "release":
            for access in accesses:
                before = self._stuck.pop(access, None)
                if why:
                    wait_s = AGAIN_S if before is None else min(AGAIN_MAX_S, 2 * before.wait_s)
                    self._stuck[access] = _Stuck(why, now + wait_s, wait_s)
                else:
                    self.accesses.pop(access, None)
        elif call.lease in self._leases:
            self._settle(call.lease, why)

    def deadline(self) -> float:
        """Return when an access is to be closed again."""
        return min((stuck.again_at for stuck in self._stuck.values()), default=math.inf)

    def _wanted(self) -> set[GpuAccess]:
        leases = [lease for name, lease in self._leases.items() if name not in self._failed]
        return {GpuAccess(lease.user, gpu) for lease in leases for gpu in lease.gpus}

    def _to_close(self, now: float) -> HookCall | None:
        """Return what closes the accesses of one owner and kernel."""
        wanted = self._wanted()
        for gone in [access for access in self._stuck if access in wanted]:
            del self._stuck[gone]
        over = [
            (access, kernel)
            for access, kernel in self.accesses.items()
            if access not in wanted and (access not in self._stuck or self._stuck[access].again_at <= now)
        ]
        if not over:
            return None
        (owner, _), kernel = over[0]
        gpus = tuple(access.gpu for access, whose in over if access.owner == owner and whose == kernel)
        return HookCall("release", owner, kernel, "", gpus, self._all_of(owner))

    def _to_open(self) -> LeaseHere | None:
        for name, lease in self._leases.items():
            if name not in self._failed and not (name in self._open and self._has(lease)):
                return lease
        return None

    def _has(self, lease: LeaseHere) -> bool:
        return all(GpuAccess(lease.user, gpu) in self._bound for gpu in lease.gpus)

    def _opens(self, lease: LeaseHere) -> HookCall | None:
        """Return what opens the accesses of a lease; None: they are, or cannot be, which is noted."""
        wanted = self._wanted()  # Others have parts of the same GPU by leases of their own.
        for access in self.accesses:
            if access.gpu in lease.gpus and access.owner != lease.user and access not in wanted:
                stuck = self._stuck.get(access)
                said = "" if stuck is None else f" ({stuck.why})"
                self._settle(
                    lease.lease, f"{access.gpu} could not be closed to whom it was leased before{said}"
                )
                return None
        gpus = tuple(gpu for gpu in lease.gpus if GpuAccess(lease.user, gpu) not in self._bound)
        if not gpus:
            self._settle(lease.lease, "")
            return None
        self.accesses.update({GpuAccess(lease.user, gpu): lease.kernel_id for gpu in gpus})
        return HookCall("bind", lease.user, lease.kernel_id, lease.lease, gpus, self._all_of(lease.user))

    def _all_of(self, owner: str) -> tuple[str, ...]:
        """Return the GPUs that are to be open for an owner, of those that are his to open."""
        wanted = self._wanted()
        return tuple(access.gpu for access in self.accesses if access.owner == owner and access in wanted)

    def _settle(self, lease: str, why: str) -> None:
        self._unsaid = True
        if why:
            self._failed[lease] = why
        else:
            self._open.add(lease)
