"""What is lost in the unit being dumped: each stuck object's name and path, as when it was met first.

Law: a loss must read the same in every capture, or an unchanged component would look changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from replkernel.errors import WITHIN
from replkernel.state.capture.whereabouts import Whereabouts
from replkernel.state.hooks import HOOKS_ROOT
from replkernel.state.python import kinds, paths
from replkernel.state.python.kinds import qualname_of
from replkernel.state.tombstone import Loss, shorten
from replkernel.state.world import World


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
        self._places = Whereabouts(self._roots)
        self._earlier = earlier
        self.losses: list[Loss] = []

    def note(self, obj: object, reason: str, type_name: str = "") -> Loss:
        """Enter an object that cannot travel, and return what is said of it."""
        kind = type_name or kinds.type_name(obj)
        known = self._world.known_loss(obj)
        if known is None and not paths.weak(obj):
            known = self._as_earlier(kind)
        if known is None:
            world = self._world
            name, path = self._place(obj)
            # What lies in a variable may have come there since.
            cell = world.late.get(name, world.cell) if path else world.bound_in(name, world.cell)
            loss = Loss(name, kind, world.replica, world.seq, cell, path, shorten(reason))
            world.remember_loss(obj, loss)
        else:
            loss = self._as_it_is_now(obj, known)
        self.losses.append(loss)
        return loss

    def _as_earlier(self, kind: str) -> Loss | None:
        left = (loss for loss in self._earlier[len(self.losses) :] if loss.name in self._roots)
        here = self._world.replica
        return next((loss for loss in left if loss.type_name == kind and loss.replica == here), None)

    def _as_it_is_now(self, obj: object, known: Loss) -> Loss:
        """Return what was said of an object, under the name and the path that it has now.

        Its own variable may be in another unit yet: then it keeps that name for later.
        """
        if self._places.still(known.name, known.path, obj):
            return known
        name, path = self._place(obj)
        if (name, path) == (known.name, known.path):
            return known
        loss = msgspec.structs.replace(known, name=name, path=path)
        if known.name in self._roots or known.name not in self._world.namespace:
            self._world.remember_loss(obj, loss)
        return loss

    def _place(self, obj: object) -> tuple[str, str]:
        """Return the variable that reaches an object, and the path when it lies deeper.

        What no variable reaches is told as within the first one, for it is not what that has.
        """
        found = self._places.of(obj) or self._places.within(obj)
        first = next(iter(self._roots), "")
        return found or (first, "" if first in ("", HOOKS_ROOT) else first + WITHIN)
