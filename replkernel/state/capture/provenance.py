"""In which cell each variable was bound to the object that it has: what a loss tells its user to run again.

Law: objects are known by their ids, and not kept; what another process made is known by its records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from replkernel.records import Making
from replkernel.state.component_table import ComponentTable
from replkernel.state.python.class_registry import module_of
from replkernel.state.python.paths import type_name


class Provenance:
    """Which cells made one process's variables; `late`: the first cells of what was left to an audit."""

    def __init__(self, namespace: Mapping[str, Any], table: ComponentTable) -> None:
        self._namespace = namespace
        self._table = table
        self._ids: dict[str, int] = {}
        self.late: dict[str, int] = {}

    def of(self, roots: Iterable[str], cell: int) -> tuple[Making, ...]:
        """Return what is to be said of the roots of a component that is told in `cell`."""
        told: list[Making] = []
        namespace = self._namespace
        for root in roots:
            made = self.cell_of(root, cell)
            kind = type(namespace[root]) if root in namespace else object
            name = "" if module_of(kind) == "builtins" else type_name(namespace[root])
            if made != cell or name:
                told.append(Making(root, 0 if made == cell else made, name))
        return tuple(told)

    def cell_of(self, root: str, cell: int) -> int:
        """Return the cell in which a root was bound to what it has; `cell` is the one that is told."""
        table, namespace = self._table, self._namespace
        owner = table.records.get(table.owners.get(root, ""))  # type: ignore[call-overload]
        if owner is None or (root in namespace and self._ids.get(root) != id(namespace[root])):
            return self.late.get(root, cell)
        return int(owner.making(root).cell)

    def bound(self, roots: Iterable[str]) -> None:
        """Note that roots are bound as the records say."""
        namespace = self._namespace
        self._ids.update((root, id(namespace[root])) for root in roots if root in namespace)

    def left(self, unseen: Iterable[str], cell: int) -> None:
        """Note what the capture after `cell` leaves to an audit."""
        self.late = {root: self.late.get(root, cell) for root in unseen}
