"""Which replicas rebuilt variables otherwise than they were captured, and who has the true ones.

Pure. Law: a replica that doubts its own variables has lost them, and holds nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from replkernel.records import Pin, ReplicaId, Seq

TOLD_MAX = 1000
"""So many variables are remembered, to tell of each once; when there are more, they are told again."""

NAMES_TOLD_MAX = 5


class Doubts:
    """What each replica said last of the variables that are not true there.

    `lost` are the last executions of processes that are gone, with all that these left there.
    """

    def __init__(self, lost: Mapping[ReplicaId, Seq] = MappingProxyType({})) -> None:
        self._lost = lost
        self._pins: dict[ReplicaId, tuple[Pin, ...]] = {}
        self._told: set[tuple[str, str, ReplicaId, int]] = set()

    def take(self, replica: ReplicaId, pins: tuple[Pin, ...]) -> str:
        """Take over what a replica says; return a sentence for the user, empty when there is no news."""
        if pins:
            self._pins[replica] = pins
        else:
            self._pins.pop(replica, None)
        news = [pin for pin in pins if _key(pin) not in self._told]
        if len(self._told) > TOLD_MAX:
            self._told.clear()
        self._told.update(map(_key, news))
        return self._sentence(replica, news) if news else ""

    def forget(self, replica: ReplicaId) -> None:
        """Forget what a process said that is gone."""
        self._pins.pop(replica, None)

    def holders(self, ready: Collection[ReplicaId]) -> list[ReplicaId]:
        """Return the replicas among `ready` that have what others have not."""
        return [pin.replica for pin in self.binding(ready)]

    def binding(self, ready: Collection[ReplicaId]) -> list[Pin]:
        """Return what others have not and a replica among `ready` has."""
        return [
            pin
            for replica, pins in self._pins.items()
            for pin in pins
            if pin.replica != replica and pin.replica in ready and not self._is_gone(pin)
        ]

    def _is_gone(self, pin: Pin) -> bool:
        """Tell whether the process that had the true one is gone, or doubts it itself."""
        own = self._pins.get(pin.replica, ())
        doubted = any((one.name, one.path) == (pin.name, pin.path) for one in own)
        return doubted or pin.seq <= self._lost.get(pin.replica, 0)

    def _sentence(self, replica: ReplicaId, pins: list[Pin]) -> str:
        shown = ", ".join(
            f"`{pin.path or pin.name}` ({pin.type_name}, cell {pin.shown_cell})"
            for pin in pins[:NAMES_TOLD_MAX]
        )
        more = f" and {len(pins) - NAMES_TOLD_MAX} more" if len(pins) > NAMES_TOLD_MAX else ""
        holders = ", ".join(sorted({pin.replica for pin in pins}))
        went_on = f"the notebook stays on {holders} while that runs"
        if all(pin.replica == replica or self._is_gone(pin) for pin in pins):
            went_on = f"they are lost, for {holders} was started anew"
        return (
            f"{shown}{more} could not be rebuilt faithfully on replica {replica}: "
            f"{pins[0].reason.rstrip('.')}. So {went_on}; `%replkernel pins` lists what binds it."
        )


def said_of(pins: Sequence[Pin]) -> str:
    """Name what cannot be rebuilt faithfully, and why; nothing where there is nothing."""
    if not pins:
        return ""
    first, more = pins[0], len(set(pins)) - 1
    others = f" and {more} more" if more else ""
    return (
        f"`{first.path or first.name}` ({first.type_name}){others} cannot be rebuilt faithfully: "
        f"{first.reason.rstrip('.')}"
    )


def _key(pin: Pin) -> tuple[str, str, ReplicaId, int]:
    return pin.name, pin.path, pin.replica, pin.seq
