"""The outermost nodes of a payload: several names in one, class bodies, and roots that are lost wholly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from replkernel.state.tombstone import Loss, Tombstone, loss_of, lost

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext


class LostRoot:
    """A root that cannot be dumped at all: dumped as a tombstone."""

    __slots__ = ("reason", "value")

    def __init__(self, value: object, reason: str) -> None:
        self.value = value
        self.reason = reason


class Spared:
    """A root that its user does not want copied: dumped as a tombstone, though nothing of it is lost here."""

    __slots__ = ("loss",)

    def __init__(self, loss: Loss) -> None:
        self.loss = loss


class ClassBody:
    """Stands for the definition of a class, where the class itself would be a reference."""

    __slots__ = ("cls",)

    def __init__(self, cls: type) -> None:
        self.cls = cls


def whole(classes: dict[str, type], roots: dict[str, Any], lost_bodies: str = "") -> tuple[Any, ...]:
    """Return what is dumped for several roots: class skeletons, then their bodies, then the names.

    Where no definition can be dumped, `lost_bodies` says why, and each has a tombstone for it.
    """
    bodies = [LostRoot(cls, lost_bodies) if lost_bodies else ClassBody(cls) for cls in classes.values()]
    return tuple(classes.values()), bodies, dict(roots)


def reduce_lost_root(pickler: UnitContext, root: LostRoot) -> Any:
    """Reduce a root that cannot be dumped to the tombstone that stands for it."""
    return pickler.bury(root.value, root.reason)


def reduce_spared(pickler: UnitContext, spared: Spared) -> Any:
    """Reduce what is spared to its tombstone: no loss, for nothing binds the notebook to it."""
    pickler.touched = True
    return lost, msgspec.structs.astuple(spared.loss)


def reduce_tombstone(pickler: UnitContext, tombstone: object) -> Any:
    """Reduce a tombstone to itself: the pin stays with whoever holds the real object."""
    pickler.touched = True
    loss = loss_of(tombstone)
    pickler.book.losses.append(loss)
    return lost, msgspec.structs.astuple(loss)


EXACT: dict[type, Any] = {LostRoot: reduce_lost_root, Spared: reduce_spared, Tombstone: reduce_tombstone}
