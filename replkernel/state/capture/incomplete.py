"""What cannot be told truly when some units of a survey are left out.

A component is told as a whole or not at all, and nothing that needs a class which nobody knows.
Law: pure, but for the names of what is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from replkernel.state.capture.dump import Dump, roots_of
from replkernel.state.capture.survey_order import Known
from replkernel.state.python.class_registry import ROOT_PREFIX, ClassRegistry


def rest_without(
    left_out: Collection[Dump],
    units: Collection[Dump],
    unseen: set[str],
    known: Mapping[str, Known],
    classes: ClassRegistry,
) -> list[Dump]:
    """Return the units that can be told without those that are left out.

    The roots of all others are added to `unseen`. `known` is what is known of the roots' components.
    """
    gone = {id(unit) for unit in left_out}
    for unit in left_out:
        unseen.update(roots_of(unit))
    defined = {class_id for unit in units if id(unit) not in gone for class_id in unit.own_classes}
    while True:
        more = [
            unit for unit in units if id(unit) not in gone and _is_torn(unit, defined, unseen, known, classes)
        ]
        if not more:
            return [unit for unit in units if id(unit) not in gone]
        for unit in more:
            gone.add(id(unit))
            unseen.update(roots_of(unit))
            defined.difference_update(unit.own_classes)


def _is_torn(
    unit: Dump,
    defined: Collection[str],
    unseen: set[str],
    known: Mapping[str, Known],
    classes: ClassRegistry,
) -> bool:
    """Tell whether a part of what a unit was, or a class that it needs, is left out."""
    for root in roots_of(unit):
        before = known.get(root)
        if before is not None and not unseen.isdisjoint(before.roots):
            return True
    return any(
        class_id not in defined and ROOT_PREFIX + class_id not in known and classes.find(class_id) is not None
        for class_id in unit.classes
    )
