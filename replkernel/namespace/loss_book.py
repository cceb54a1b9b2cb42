"""What is lost in the unit being dumped: each stuck object's name and path, as when it was met first.

Law: a loss must read the same in every capture, or an unchanged component would look changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from replkernel.namespace import paths
from replkernel.namespace.class_registry import qualname_of
from replkernel.namespace.hooks import HOOKS_ROOT
from replkernel.namespace.tombstone import Loss, shorten
from replkernel.namespace.world import World


class LossBook:
    """The losses of one unit, in the order in which they were met.

    A unit without variables is made of `classes`: what is lost in their definitions goes by their names.
    `earlier` are those of the same component as it was: an object that cannot be referred to weakly is
    recognised by them. What no variable reaches, as what a dump function has just made, goes by the first
    one; registrations come last.
    """

    def __init__(
        self, world: World, roots: dict[str, Any], classes: Iterable[type], earlier: tuple[Loss, ...]
    ) -> None:
        self._world = world
        named = {name: value for name, value in roots.items() if name != HOOKS_ROOT}
        self._roots = {**named, **roots} or {qualname_of(cls): cls for cls in classes}
        self._earlier = earlier
        self.losses: list[Loss] = []

    def note(self, obj: Any, reason: str, type_name: str = "") -> Loss:
        """Enter an object that cannot travel, and return what is said of it."""
        loss = self._recognised(obj, type_name or paths.type_name(obj))
        if loss is None:
            loss = self._new(obj, shorten(reason), type_name or paths.type_name(obj))
        self.losses.append(loss)
        return loss

    def _recognised(self, obj: Any, type_name: str) -> Loss | None:
        known = self._world.known_loss(obj)
        if known is not None:
            return known if known.name in self._roots else None
        if paths.weak(obj):
            return None
        left = self._earlier[len(self.losses) :]
        return next((loss for loss in left if loss.type_name == type_name and loss.name in self._roots), None)

    def _new(self, obj: Any, reason: str, type_name: str) -> Loss:
        world = self._world
        known = world.known_loss(obj)
        name, path = paths.locate(self._roots, obj)
        if known is not None:
            loss = msgspec.structs.replace(known, name=name, path=path)
        else:
            loss = Loss(name, type_name, world.replica, world.seq, world.cell, path, reason)
        if known is None or known.name not in world.namespace:
            world.remember_loss(obj, loss)
        return loss
