"""Hosts that are being provisioned, and which kernels' shares are kept on them.

Law: a reservation is fulfilled, failed or given up once, and never comes back; ids are never used twice.
"""

from __future__ import annotations

from replkernel_scheduler.types import HostShape, KernelId, ReservationId

BOOT_WEIGHT = 0.2


class Reservation:
    """One host on its way."""

    __slots__ = ("asked_at", "id", "shape", "shares")

    def __init__(self, number: int, shape: HostShape, now: float) -> None:
        """Start with no share kept."""
        self.id = ReservationId(f"host-{number}")
        self.shape, self.asked_at = shape, now
        self.shares: dict[KernelId, int] = {}

    @property
    def subscribed(self) -> int:
        """Return the GPUs of the shares that are kept."""
        return sum(self.shares.values())


class Reservations:
    """All hosts on their way, and how long hosts take on average."""

    __slots__ = ("by_id", "issued", "mean_boot_s")

    def __init__(self, boot_s: float) -> None:
        """Start with none; a host is first thought to take `boot_s`."""
        self.by_id: dict[ReservationId, Reservation] = {}
        self.issued = 0
        self.mean_boot_s = boot_s

    def open(self, shape: HostShape, now: float) -> Reservation:
        """Begin one."""
        self.issued += 1
        made = Reservation(self.issued, shape, now)
        self.by_id[made.id] = made
        return made

    def was_issued(self, name: ReservationId) -> bool:
        """Say whether this id was ever given."""
        number = name.removeprefix("host-")
        return number.isdecimal() and name == f"host-{int(number)}" and 0 < int(number) <= self.issued

    def fulfil(self, name: ReservationId, now: float) -> Reservation | None:
        """End one whose host came; None if it was over already."""
        found = self.by_id.pop(name, None)
        if found is not None:
            self.mean_boot_s += BOOT_WEIGHT * (now - found.asked_at - self.mean_boot_s)
        return found

    def forget(self, kernel_id: KernelId) -> None:
        """Keep no share for the kernel any more."""
        for reservation in self.by_id.values():
            reservation.shares.pop(kernel_id, None)
