"""What of the state this process rebuilt otherwise than it was captured, and what it could not prove.

Law: an unfaithful component is a pin of the replica that made it; it stays in the book until it is gone,
comes anew, or is made here.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from replkernel.records import ComponentId, Pin
from replkernel.state.tombstone import Loss
from replkernel.state.verify.proof import Proof, Verdict

PINS_MAX = 100
"""No more pins of one component are told; the tombstones are all there."""


class Unfaithful(msgspec.Struct, frozen=True):
    """A component that was rebuilt otherwise than captured: one pin for each part of it that is lost."""

    cid: ComponentId
    pins: tuple[Pin, ...]


class Verification:
    """The components of this process that are not as they were captured, or not known to be."""

    def __init__(self) -> None:
        self._wrong: dict[ComponentId, Unfaithful] = {}
        self._suspected: dict[ComponentId, Unfaithful] = {}
        """What could not be rebuilt in idle time: it is told like what is wrong, and tried again."""
        self._open: set[ComponentId] = set()

    @property
    def unfaithful(self) -> tuple[Unfaithful, ...]:
        """Return what is wrong here, and what most likely is."""
        return (*self._wrong.values(), *self._suspected.values())

    @property
    def unproven(self) -> int:
        """Return how many components could not be proven."""
        return len(self._open)

    def note(self, cid: ComponentId, verdict: Verdict) -> None:
        """Enter a component that is bound."""
        self.forget([cid])
        if verdict.proof is Proof.OPEN:
            self._open.add(cid)

    def condemn(self, cid: ComponentId, losses: Iterable[Loss]) -> Unfaithful:
        """Enter an unfaithful component by the losses that stand for it."""
        self.forget([cid])
        self._wrong[cid] = Unfaithful(cid, tuple(loss.pin() for loss in losses)[:PINS_MAX])
        return self._wrong[cid]

    def suspect(self, cid: ComponentId, losses: Iterable[Loss]) -> None:
        """Enter a component that could not be rebuilt in idle time, and waits to be tried once more."""
        self._suspected[cid] = Unfaithful(cid, tuple(loss.pin() for loss in losses)[:PINS_MAX])

    def forget(self, cids: Iterable[ComponentId]) -> None:
        """Take out components that are gone, or come anew."""
        for cid in cids:
            self._wrong.pop(cid, None)
            self._suspected.pop(cid, None)
            self._open.discard(cid)
