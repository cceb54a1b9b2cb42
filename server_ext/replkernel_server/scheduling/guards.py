"""Hosts whose agents open GPUs for their holders and close them again: which grants wait for that.

Pure. Laws: nobody hears of a lease on a guarded host before its guard has said that the GPUs are open; a
lease whose GPUs could not be opened ends, and its asker is told why; a GPU that could not be closed to
somebody is leased after all others of its host. A guard is told of all leases on its
host whenever they change, so that no word that got lost leaves a GPU open.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from replkernel_scheduler.effects import (
    LeaseChanged,
    LeaseEnded,
    LeaseGranted,
    LeaseQueued,
    LeaseRefused,
)
from replkernel_scheduler.events import HostUp, LeaseReleased
from replkernel_scheduler.harvest.types import HarvestEffect
from replkernel_scheduler.types import HostName, Lease, LeaseId, RequestId

from replkernel.leasing.wire import HostLeases, LeaseHere, LeasesOpen
from replkernel_server.launchers.engine_usage import USER

REFUSALS_MAX = 1_000
"""So many refusals are kept for askers who come back for their answer."""


class Guards:
    """The guards of all hosts that have one, and what they have opened."""

    def __init__(self, leases: Iterable[Lease] = (), unseen: Iterable[HostName] = ()) -> None:
        """Begin with leases that are in force, which their holders know.

        Hosts whose agents have not come back yet (`unseen`) may each have a guard.
        """
        self.refusals: dict[RequestId, str] = {}
        """Why requests were refused that had a lease for a moment."""
        self._leases: dict[HostName, dict[LeaseId, Lease]] = {}
        self._guards: dict[HostName, int | None] = dict.fromkeys(unseen)
        """The client that guards a host; None: it is away, or nobody has seen yet whether there is one."""
        self._open: dict[HostName, set[LeaseId]] = {}
        self._owed: set[LeaseId] = set()
        """Leases that are told, or told again, once they are open."""
        self._untold: set[LeaseId] = set()
        """Leases of which nobody has heard."""
        self._failed: dict[LeaseId, str] = {}
        self._changed: set[HostName] = set()
        self._stuck: dict[HostName, tuple[str, ...]] = {}
        for lease in leases:
            self._has(lease)

    def is_on(self, host: HostName) -> bool:
        """Say whether a host's GPUs are opened for those alone who have a lease."""
        return host in self._guards

    # -- guards come and go ----------------------------------------------------------------------------

    def offers(self, client: int, host: HostName, *, guarded: bool, owns: bool) -> str:
        """Take note of an offer; return why it is refused. `owns`: the host is this client's user's."""
        if not guarded:
            if owns and self._guards.get(host, client) in (None, client):  # What waited is due now.
                self._guards.pop(host, None)
                self._stuck.pop(host, None)
            return ""
        if not owns:
            return (
                f"Host {host} is offered by another user's agent: its device hook is not asked. Stop that "
                "agent, or name this agent's host otherwise."
            )
        self._guards[host], self._open[host] = client, set()
        self._changed.add(host)
        return ""

    def left(self, client: int) -> None:
        """Take note that a client is gone: what it guarded is opened for nobody until it is back."""
        for host in [host for host, guard in self._guards.items() if guard == client]:
            self._guards[host] = None

    def named(self, lease: Lease) -> None:
        """Note that its holder names a lease: it was told of it when it was open, if this guard is away."""
        if self._guards.get(lease.host, 0) is None and lease.lease not in self._untold:
            self._open.setdefault(lease.host, set()).add(lease.lease)

    def away(self, host: HostName) -> list[LeaseReleased]:
        """Return the leases on a host out of sight that are to end: those of which nobody has heard."""
        here = self._leases.get(host, {})
        return [LeaseReleased(name, here[name].fence, 0.0) for name in sorted(self._untold & here.keys())]

    def words(self) -> list[tuple[int, HostLeases]]:
        """Return what guards are to be told now."""
        changed, self._changed = self._changed, set()
        told = []
        for host in sorted(changed):
            client = self._guards.get(host)
            if client is not None:
                here = (
                    LeaseHere(lease.lease, lease.user, lease.kernel_id, tuple(lease.gpus))
                    for lease in self._leases.get(host, {}).values()
                )
                told.append((client, HostLeases(tuple(here))))
        return told

    # -- what was decided, and what of it is told ----------------------------------------------------

    def decided(self, effects: Sequence[HarvestEffect]) -> list[HarvestEffect]:
        """Take note of what was decided; return what of it may be told."""
        return [seen for effect in effects for seen in self._seen(effect)]

    def _seen(self, effect: HarvestEffect) -> list[HarvestEffect]:
        match effect:
            case LeaseGranted(lease) | LeaseChanged(lease):
                return self._granted(effect, lease)
            case LeaseEnded(lease, why):
                return self._ended(effect, lease, why)
        return [effect]

    def _granted(self, effect: HarvestEffect, lease: Lease) -> list[HarvestEffect]:
        fresh = self._has(lease)
        if not self.waits(lease):
            return [effect]
        if fresh:
            self._untold.add(lease.lease)
        self._owed.add(lease.lease)
        return [LeaseQueued(lease.request, 0)] if lease.lease in self._untold else []

    def _ended(self, effect: HarvestEffect, lease: Lease, why: str) -> list[HarvestEffect]:
        name = lease.lease
        if self._leases.get(lease.host, {}).pop(name, None) is not None:
            self._changed.add(lease.host)
        self._open.get(lease.host, set()).discard(name)
        failure, untold, owed = self._failed.pop(name, ""), name in self._untold, name in self._owed
        self._owed.discard(name)
        self._untold.discard(name)
        ended = msgspec.structs.replace(effect, why=failure) if failure else effect
        if not untold and not owed:
            return [ended]
        said = failure or f"the lease was over before host {lease.host} had opened its GPUs ({why})"
        refusal = f"This cell was not run on a GPU: {said}."
        while len(self.refusals) >= REFUSALS_MAX:
            del self.refusals[next(iter(self.refusals))]
        self.refusals[lease.request] = refusal
        refused = LeaseRefused(lease.request, refusal)
        return [refused] if untold else [refused, ended]  # Who asked before a restart may know it or not.

    def _has(self, lease: Lease) -> bool:
        """Keep a lease; say whether it is a new one."""
        if not lease.gpus or lease.user == USER:
            return False
        here = self._leases.setdefault(lease.host, {})
        before, here[lease.lease] = here.get(lease.lease), lease
        if before is None or before.gpus != lease.gpus:
            self._changed.add(lease.host)
        return before is None

    def waits(self, lease: Lease) -> bool:
        """Say whether a lease is not to be told yet: its guard has not said that its GPUs are open."""
        host = lease.host
        return (
            host in self._guards
            and lease.lease in self._leases.get(host, {})
            and lease.lease not in self._open.get(host, ())
        )

    def may_be_told(self, lease: Lease) -> bool:
        """Say whether whoever asks may be told of a granted lease."""
        return not self.waits(lease) and lease.lease not in self._failed

    # -- what guards say -------------------------------------------------------------------------------

    def stuck(self, client: int, host: HostName, gpus: tuple[str, ...]) -> bool:
        """Take note of which GPUs could not be closed; say whether those are others than before."""
        if self._guards.get(host) != client or self._stuck.get(host, ()) == gpus:
            return False
        self._stuck[host] = gpus
        return True

    def stuck_last(self, up: HostUp) -> HostUp:
        """Have a host offer the GPUs last that could not be closed: the core leases the first idle ones."""
        stuck = self._stuck.get(up.host, ())
        ordered = tuple(sorted(up.gpus, key=lambda gpu: gpu.uuid in stuck))
        return msgspec.structs.replace(up, gpus=ordered)

    def answered(
        self, client: int, host: HostName, said: LeasesOpen
    ) -> tuple[list[HarvestEffect], list[LeaseReleased]]:
        """Take a guard's answer; return the grants that may be told now, and the leases that are to end."""
        if self._guards.get(host) != client:
            return [], []
        here, opened = self._leases.get(host, {}), self._open.setdefault(host, set())
        opened.update(LeaseId(name) for name in said.leases if name in here)
        ends = []
        for failure in said.failed:
            lease = here.get(LeaseId(failure.lease))
            if lease is not None and lease.lease not in self._failed:
                self._failed[lease.lease] = f"host {host} has not opened its GPUs for it: {failure.why}"
                ends.append(LeaseReleased(lease.lease, lease.fence, 0.0))
        return self.due(host), ends

    def due(self, host: HostName) -> list[HarvestEffect]:
        """Return the grants on a host that may be told now: its guard has opened them, or it has none."""
        here = self._leases.get(host, {})
        due = sorted(name for name in self._owed & here.keys() if not self.waits(here[name]))
        self._owed.difference_update(due)
        self._untold.difference_update(due)
        return [LeaseGranted(here[name]) for name in due]
