"""What users say of a variable beforehand: that it is not worth a copy.

Law: a hint is about a name, whatever it is bound to later, and travels with the notebook. One book a process,
as a process runs one notebook. Pure but for that book.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from replkernel.namespace import paths
from replkernel.namespace.agenda import ATOMS
from replkernel.namespace.kinds import kind_of
from replkernel.namespace.reducers.roots import Spared
from replkernel.namespace.tombstone import Loss, is_tombstone, loss_of
from replkernel.namespace.world import World

NAMES_MAX = 10_000
"""No notebook marks more names than this."""

transient: dict[str, None] = {}
"""The names whose values are not captured, in the order in which they were marked."""


def mark_transient(namespace: Mapping[str, Any], values: tuple[Any, ...], *, on: bool = True) -> None:
    """Have the variables that hold `values` left out of captures, or (`on=False`) captured again.

    Raises TypeError for a value that costs nothing to copy, ValueError for one that no variable holds and
    where too many names are marked.
    """
    for value in values:
        names = _names_of(namespace, value)
        if on:
            transient.update(dict.fromkeys(names))
        else:
            for name in names:
                transient.pop(name, None)
    if len(transient) > NAMES_MAX:
        raise ValueError(f"More than {NAMES_MAX:,} variables are transient: put them into one dictionary.")


def _names_of(namespace: Mapping[str, Any], value: Any) -> list[str]:
    if kind_of(value) in ATOMS:
        raise TypeError("transient takes what a variable holds: a dict, an array …, and no plain number.")
    names = [name for name, held in namespace.items() if held is value and not name.startswith("_")]
    if not names:
        raise ValueError(
            "transient takes what a variable holds: give it a name, then say `replkernel.transient(name)`."
        )
    return names


def spared(world: World, values: dict[str, Any]) -> dict[str, Any]:
    """Return `values` as a capture is to see them: with stand-ins for what transient variables hold.

    Numbers and None are left: a variable that is reset is reset everywhere.
    """
    marked = [name for name in transient if name in values and kind_of(values[name]) not in ATOMS]
    if not marked:
        return values
    return {**values, **{name: Spared(_loss(world, name, values[name])) for name in marked}}


def _loss(world: World, name: str, value: Any) -> Loss:
    """Return what is said of a transient variable elsewhere; the same until it is bound anew."""
    if is_tombstone(value):
        return loss_of(value)
    cell = world.bound_in(name, world.cell)
    return Loss(name, paths.type_name(value), world.replica, 0, cell, transient=True)
