"""statsmodels' data of a model, with the design of its formula: statsmodels itself would work that out anew.

Law: imported only when statsmodels is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from statsmodels.base.data import ModelData

from replkernel.state.python import instances

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext


def reduce_model_data(context: ReducerContext, data: object) -> object:
    """Reduce the data of a model to its attributes."""
    context.module_needed("statsmodels")
    return instances.make_plain, (type(data),), dict(vars(data)), None, None, instances.fill_plain


FAMILIES = [(ModelData, reduce_model_data)]
