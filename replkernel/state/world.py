"""What all captures of one process share: its seeds, classes, hooks, and what is known of stuck objects.

Law: user objects are held weakly here or not at all.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from replkernel.records import ReplicaId
from replkernel.state.format.shared_values import SharedValues
from replkernel.state.python.class_registry import ClassRegistry, older_siblings
from replkernel.state.seeds import Seeds
from replkernel.state.tombstone import Loss

KNOWN_LOSSES_MAX = 100_000


class World:
    """This process, as captures and rebuilds see it.

    `seq` and `cell` are those of the execution being captured, `late` the first cells of what was left to
    audits; `bound_in` tells in which cell a variable was bound to what it has, given the cell being captured.
    """

    def __init__(self, namespace: dict[str, Any], replica: ReplicaId) -> None:
        self.namespace = namespace
        self.replica = replica
        self.seeds = Seeds(namespace)
        self.classes = ClassRegistry()
        self.shared = SharedValues()
        self.seq = 0
        self.cell = 0
        self.late: Mapping[str, int] = {}
        self.bound_in: Callable[[str, int], int] = lambda name, cell: cell
        self._losses: dict[int, tuple[weakref.ref[Any], Loss]] = {}

    def class_id(self, cls: type) -> str:
        """Return the id of a notebook class, given now if it is new."""
        known = self.classes.id_of(cls)
        if known is not None:
            return known
        for older in older_siblings(cls):
            self.classes.name(older, self.replica, self.seq)
        return self.classes.name(cls, self.replica, self.seq)

    def known_loss(self, value: object) -> Loss | None:
        """Return what was said of a stuck object when it was met first."""
        entry = self._losses.get(id(value))
        return entry[1] if entry is not None and entry[0]() is value else None

    def remember_loss(self, value: object, loss: Loss) -> None:
        """Keep what is said of a stuck object while it lives (if it can be referred to weakly)."""
        key = id(value)
        losses = self._losses

        def gone(dead: weakref.ref[Any]) -> None:
            entry = losses.get(key)
            if entry is not None and entry[0] is dead:
                del losses[key]

        if len(losses) >= KNOWN_LOSSES_MAX:
            return
        try:
            losses[key] = (weakref.ref(value, gone), loss)
        except TypeError:
            losses.pop(key, None)
