"""scipy's rotations: their numbers as they are.

Law: imported only when scipy's transforms are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scipy.spatial.transform import Rotation

from replkernel.loaders import loader

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext


def reduce_rotation(context: ReducerContext, rotation: object) -> object:
    """Reduce a rotation to its attributes: made from its numbers anew, they would be rounded once more."""
    context.module_needed("scipy")
    attributes = getattr(rotation, "__dict__", None)
    if type(rotation) is not Rotation or not attributes or "_quat" not in attributes:
        return NotImplemented
    return make_rotation, (), dict(attributes), None, None, fill_rotation


@loader("scipy:make_rotation")
def make_rotation() -> object:
    """Return a rotation without numbers (called by payloads)."""
    return object.__new__(Rotation)


@loader("scipy:fill_rotation")
def fill_rotation(rotation: object, state: dict[str, Any]) -> None:
    """Give a rotation its attributes (called by payloads)."""
    vars(rotation).update(state)


FAMILIES = [(Rotation, reduce_rotation)]
