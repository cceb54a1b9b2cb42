"""plotly's figures and what they consist of: as they are, so that a trace in a variable stays the figure's.

Figures that are widgets are left to what knows widgets.
Law: imported only when plotly's figures are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _plotly_utils.basevalidators import BaseValidator
from plotly.basedatatypes import BaseFigure, BasePlotlyType
from plotly.validator_cache import ValidatorCache

from replkernel.loaders import loader
from replkernel.state.python import instances

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_WIDGETS = "plotly.basewidget"


def reduce_part(context: ReducerContext, part: object) -> object:
    """Reduce a figure, a trace or a part of one to its attributes."""
    cls = type(part)
    if any(base.__module__ == _WIDGETS for base in cls.__mro__):
        return NotImplemented
    context.module_needed("plotly")
    return instances.make_plain, (cls,), vars(part), None, None, instances.fill_plain


def reduce_validator(context: ReducerContext, validator: object) -> object:
    """Reduce what checks a property: where it is found if all figures share it, and what all share of it."""
    context.module_needed("plotly")
    place = next((place for place, held in ValidatorCache._cache.items() if held is validator), None)
    if place is not None:
        context.unlinked.add(id(validator))
        return take_validator, place
    context.unlinked.update(id(held) for held in vars(validator).values() if type(held) is dict)
    return NotImplemented


@loader("plotly:take_validator")
def take_validator(parent: str, name: str) -> object:
    """Return what checks a property in all figures (called by payloads)."""
    return ValidatorCache.get_validator(parent, name)


FAMILIES = [(BaseValidator, reduce_validator), (BaseFigure, reduce_part), (BasePlotlyType, reduce_part)]
