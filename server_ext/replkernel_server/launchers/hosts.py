"""A launcher's hosts: which of them were provisioned for whom, and how many more are wanted. Pure.

Law: a host that was there when the launcher was opened fulfils no reservation; each reservation is
fulfilled by one host that came after it, failed, or given up, and what is wanted of the launcher is the
number of those still open.
"""

from __future__ import annotations

from collections.abc import Sequence

from replkernel_scheduler.effects import CancelHost, ProvisionHost, ReleaseHost
from replkernel_scheduler.harvest.types import HarvestEffect
from replkernel_scheduler.types import HostName, ReservationId


class LaunchedHosts:
    """Hosts by name, reservations in their order."""

    def __init__(self, open_ones: Sequence[ReservationId] = ()) -> None:
        """Begin with reservations that are open."""
        self.here: set[HostName] = set()
        self.open: list[ReservationId] = list(open_ones)
        self._before: set[HostName] = set()

    def joined(self, host: HostName) -> ReservationId | None:
        """Note that a host is there; return the reservation that it fulfils."""
        news = host not in self.here and host not in self._before
        self.here.add(host)
        self._before.add(host)
        return self.open.pop(0) if news and self.open else None

    def lost(self, host: HostName) -> None:
        """Note that a host is gone; one of its name that comes later is another."""
        self.here.discard(host)
        self._before.discard(host)

    def decided(self, effects: Sequence[HarvestEffect]) -> tuple[bool, list[HostName]]:
        """Take note of what was decided; return whether another number is wanted, and whom to give back."""
        before, back = list(self.open), []
        for effect in effects:
            match effect:
                case ProvisionHost(reservation):
                    self.open.append(reservation)
                case CancelHost(reservation) if reservation in self.open:
                    self.open.remove(reservation)
                case ReleaseHost(host) if host in self.here:
                    back.append(host)
        return before != self.open, back

    def failed(self) -> list[ReservationId]:
        """Give up what is open; return it."""
        gone, self.open = self.open, []
        return gone
