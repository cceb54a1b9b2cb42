"""matplotlib's transforms: what is told when one changes is found by its new id.

A transform keeps its parents by their ids, which matplotlib writes as they are. An id of the old process is
either nobody's in the new one, or that of some other object by chance.
Law: imported only when matplotlib's transforms are; nothing of a transform is changed by being looked at.
"""

from __future__ import annotations

import copyreg
from typing import TYPE_CHECKING, Any

from matplotlib.transforms import TransformNode

from replkernel.loaders import loader

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_Node: Any = TransformNode
_PARENTS = "_parents"


def reduce_transform(context: ReducerContext, node: Any) -> object:
    """Reduce a transform to its attributes and the parents that are alive, in their order."""
    cls = type(node)
    if cls.__getstate__ is not _Node.__getstate__ or cls.__setstate__ is not _Node.__setstate__:
        return NotImplemented
    attributes = dict(vars(node))
    parents = attributes.pop(_PARENTS, None)
    if type(parents) is not dict:
        return NotImplemented
    alive = tuple(parent for held in parents.values() if (parent := held()) is not None)
    return copyreg.__newobj__, (cls,), (attributes, alive), None, None, fill_transform  # type: ignore[attr-defined]


@loader("matplotlib-transforms:fill_transform")
def fill_transform(node: Any, state: tuple[dict[str, Any], tuple[Any, ...]]) -> None:
    """Give a transform its attributes and its parents by their ids here (called by payloads)."""
    attributes, parents = state
    node.__setstate__({**attributes, _PARENTS: {id(parent): parent for parent in parents}})


FAMILIES = [(TransformNode, reduce_transform)]
