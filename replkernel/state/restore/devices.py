"""Which components may be rebuilt in this process now: those that lie on leased GPUs wait for a lease.

Law: pure. Where GPUs are leased, nothing is rebuilt onto one but for a cell that has some; where nobody
leases any, all may be rebuilt at any time.
"""

from __future__ import annotations

from replkernel.records import ComponentRecord


class Devices:
    """One process's standing with GPUs."""

    def __init__(self) -> None:
        self.leased = False
        """Whether GPUs are leased, so that what lies on one is captured as needing a lease."""
        self._lent = False

    def lend(self, gpus: tuple[str, ...] | None, *, leased: bool = True) -> None:
        """Take note of the GPUs of the cell that begins, and whether any are `leased` at all."""
        self.leased = leased or gpus is not None
        self._lent = bool(gpus) or not self.leased

    def take_back(self) -> None:
        """Take note that no cell runs: whoever leases GPUs has none now."""
        self._lent = self._lent and not self.leased

    def may_have(self, record: ComponentRecord) -> bool:
        """Tell whether a component may be rebuilt here now."""
        return self._lent or not record.gpus

    def needed(self, gpus: int) -> int:
        """Return how many leased GPUs a component needs whose tensors lie on so many devices."""
        return gpus if self.leased else 0
