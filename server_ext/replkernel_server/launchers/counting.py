"""GPUs that an engine counts too: what is to be taken and left there, and which grants wait for that.

Pure. Laws: a router hears of a grant only once the engine has given a GPU for each of its GPUs, and never
again of one that was not told; a GPU is left only when no lease has it. The engine chooses which GPU it
gives: the scheduler's GPU is a place on its host, and the holder is told the engine's. One that the engine
cannot give is used elsewhere: its lease ends untold, and its request is asked anew behind the jobs that use
it. Where a lease ends untold otherwise, whoever asked for it is refused, and told why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec
from replkernel_scheduler.effects import LeaseChanged, LeaseEnded, LeaseGranted, LeaseRefused
from replkernel_scheduler.harvest.types import HarvestEffect
from replkernel_scheduler.types import GpuUuid, HostName, Lease, LeaseId

from replkernel_server.launchers.engine_usage import USER

NOT_COUNTED = (
    "This cell was not run on a GPU: its lease was over before the engine of host {} had counted its GPUs "
    "({}). Run the cell again."
)
Place: TypeAlias = tuple[HostName, GpuUuid]


class TakeGpu(msgspec.Struct, frozen=True):
    """Have a GPU of the host counted, for this place."""

    host: HostName
    gpu: GpuUuid


class LeaveGpu(msgspec.Struct, frozen=True):
    """Have it counted no longer."""

    host: HostName
    gpu: GpuUuid


Step: TypeAlias = TakeGpu | LeaveGpu


class Counting:
    """All leases on hosts whose names begin with `prefix`, and what the engine has given for them."""

    def __init__(self, prefix: str, leases: Iterable[Lease] = ()) -> None:
        """Begin with leases that are in force; their holders know them."""
        self.steps: list[Step] = []
        """What the engine is to do; whoever does it takes it from here."""
        self._prefix = prefix
        self._leases: dict[LeaseId, Lease] = {}
        self._of_place: dict[Place, LeaseId] = {}
        self._given: dict[Place, str] = {}
        self._asked: set[Place] = set()
        self._offered: dict[HostName, tuple[str, ...]] = {}
        self._ready: set[HostName] = set()
        self._unknown: set[LeaseId] = set()
        """Leases that nobody was told of."""
        self._anew: set[LeaseId] = set()
        """Those of them whose requests are asked anew."""
        self._owed: set[LeaseId] = set()
        """Leases that are told, or told again, once they are counted."""
        for lease in leases:
            if self.counts(lease):
                self._add(lease)

    def is_on(self, host: HostName) -> bool:
        """Say whether a host is the engine's."""
        return host.startswith(self._prefix)

    def counts(self, lease: Lease) -> bool:
        """Say whether the engine counts a lease's GPUs, and somebody else than the engine's jobs has them."""
        return self.is_on(lease.host) and bool(lease.gpus) and lease.user != USER

    def offered(self, host: HostName, gpus: Sequence[str]) -> list[HarvestEffect]:
        """Note which GPUs a host's agent offers, in their order; return the grants that may be told now.

        Nothing is taken on a host before, and what was taken cannot be named.
        """
        self._offered[host] = tuple(gpus)
        self._look()
        return self._due()

    def surplus(self, host: HostName, gpus: int) -> int:
        """Return how many GPUs a host's agent offers beyond those that the engine knows."""
        return max(0, len(self._offered.get(host, ())) - gpus)

    def is_offered(self, host: HostName, what: str) -> bool:
        """Say whether a host's agent offers the GPU that the engine gave, by UUID or by number."""
        offered = self._offered.get(host, ())
        return int(what) < len(offered) if what.isascii() and what.isdecimal() else what in offered

    # -- what was decided, and what of it is told ----------------------------------------------------

    def decided(self, effects: Sequence[HarvestEffect]) -> list[HarvestEffect]:
        """Take note of what was decided; return what of it may be told, as its hearers see it."""
        for effect in effects:
            match effect:
                case LeaseGranted(lease) | LeaseChanged(lease) if self.counts(lease):
                    if lease.lease not in self._leases:
                        self._unknown.add(lease.lease)
                    self._remove(lease.lease)
                    self._add(lease)
                case LeaseEnded(lease):
                    self._remove(lease.lease)
        self._look()
        return [seen for effect in effects if (seen := self._seen(effect)) is not None]

    def _seen(self, effect: HarvestEffect) -> HarvestEffect | None:
        match effect:
            case LeaseGranted(lease) | LeaseChanged(lease) if lease.lease in self._leases:
                if self.waits(lease.lease):
                    self._owed.add(lease.lease)
                    return None
                self._unknown.discard(lease.lease)
                return msgspec.structs.replace(effect, lease=self.translated(lease))
            case LeaseEnded(lease, why):
                unknown, anew = lease.lease in self._unknown, lease.lease in self._anew
                for names in (self._owed, self._unknown, self._anew):
                    names.discard(lease.lease)
                if anew:
                    return None
                if unknown:
                    return LeaseRefused(lease.request, NOT_COUNTED.format(lease.host, why))
        return effect

    def asked_anew(self, name: LeaseId) -> None:
        """Note that the request of a lease that nobody was told of waits again: its end says nothing."""
        self._anew.add(name)

    def is_unknown(self, name: LeaseId) -> bool:
        """Say whether a lease's holder has not heard of it."""
        return name in self._unknown

    def waits(self, name: LeaseId) -> bool:
        """Say whether a lease is not to be told yet: the engine has not given all of its GPUs."""
        lease = self._leases.get(name)
        if lease is None:
            return False
        return lease.host not in self._offered or any(
            (lease.host, gpu) not in self._given for gpu in lease.gpus
        )

    def may_be_told(self, lease: Lease) -> bool:
        """Say whether a granted lease is in force still, and counted: whoever asks may be told of it."""
        return not self.counts(lease) or (lease.lease in self._leases and not self.waits(lease.lease))

    def _due(self) -> list[HarvestEffect]:
        """Return the grants that may be told now."""
        due = sorted(name for name in self._owed if not self.waits(name))
        self._owed.difference_update(due)
        self._unknown.difference_update(due)
        return [LeaseGranted(self.translated(self._leases[name])) for name in due if name in self._leases]

    # -- what the engine says ------------------------------------------------------------------------

    def given(self, host: HostName, gpu: GpuUuid, what: str) -> list[HarvestEffect]:
        """Note what the engine gave; return the grants that may be told now."""
        self._asked.discard((host, gpu))
        self._given[host, gpu] = what
        self._look()
        return self._due()

    def none_free(self, host: HostName, gpu: GpuUuid) -> Lease | None:
        """Note that the engine has none to give; return the lease that cannot be, if it is not over."""
        self._asked.discard((host, gpu))
        name = self._of_place.get((host, gpu))
        return None if name is None else self._leases[name]

    def failed(self, host: HostName, gpu: GpuUuid) -> None:
        """Note that the engine could not be asked; it is when `look_again` says so."""
        self._asked.discard((host, gpu))

    def look_again(self) -> None:
        """Have what failed done again."""
        self._look()

    def held(self, host: HostName, given: Mapping[str, str]) -> list[HarvestEffect]:
        """Take what the engine has given on a host by now; return the grants that may be told now.

        Nothing is taken on a host before this was said of it.
        """
        self.lost(host)
        self._ready.add(host)
        self._given.update({(host, GpuUuid(gpu)): what for gpu, what in given.items()})
        self._look()
        return self._due()

    def lost(self, host: HostName) -> None:
        """Forget what was given on a host that is gone."""
        self._ready.discard(host)
        for place in [place for place in self._given if place[0] == host]:
            del self._given[place]
        self._asked -= {place for place in self._asked if place[0] == host}

    def translated(self, lease: Lease) -> Lease:
        """Return a lease with the GPUs that the engine gave."""
        if lease.lease not in self._leases:
            return lease
        gpus = tuple(self._uuid(lease.host, gpu) for gpu in lease.gpus)
        return msgspec.structs.replace(lease, gpus=gpus)

    def _uuid(self, host: HostName, gpu: GpuUuid) -> GpuUuid:
        what = self._given.get((host, gpu), gpu)
        if what.isascii() and what.isdecimal():
            offered = self._offered.get(host, ())
            return GpuUuid(offered[int(what)]) if int(what) < len(offered) else gpu
        return GpuUuid(what)

    def _look(self) -> None:
        """Find what is to be taken and left."""
        over = [place for place in self._given if place not in self._of_place]
        for place in over:
            del self._given[place]
        ready = self._ready & self._offered.keys()
        missing = [
            place
            for place in self._of_place
            if place[0] in ready and place not in self._given and place not in self._asked
        ]
        self._asked.update(missing)
        self.steps += [*(LeaveGpu(*place) for place in over), *(TakeGpu(*place) for place in missing)]

    def _add(self, lease: Lease) -> None:
        self._leases[lease.lease] = lease
        self._of_place.update({(lease.host, gpu): lease.lease for gpu in lease.gpus})

    def _remove(self, name: LeaseId) -> None:
        lease = self._leases.pop(name, None)
        if lease is None:
            return
        for gpu in lease.gpus:
            if self._of_place.get((lease.host, gpu)) == name:
                del self._of_place[lease.host, gpu]
