"""patsy's formulas and designs, which patsy does not let anybody pickle: what is in them travels.

An environment of a formula is the notebook's namespace itself.
Law: imported only when patsy is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from patsy.design_info import DesignMatrix

from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.libraries.numpy.arrays import reduce_array
from replkernel.state.python import instances
from replkernel.state.python.kinds import module_of

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext


def is_kept_from_pickle(cls: type[Any]) -> bool:
    """Tell whether a class of patsy's refuses to be pickled, and is an ordinary one otherwise."""
    return (
        module_of(cls).startswith("patsy.")
        and getattr(getattr(cls, "__getstate__", None), "__module__", "").startswith("patsy.")
        and not hasattr(cls, "__setstate__")
        and getattr(cls, "__reduce__", None) is object.__reduce__
    )


def reduce_plainly(context: ReducerContext, value: object) -> object:
    """Reduce an object of patsy's to its attributes."""
    context.module_needed("patsy")
    try:
        state = dict(vars(value))
    except TypeError:
        raise CannotTravel("patsy has no way to copy it.") from None
    return instances.make_plain, (type(value),), state, None, None, instances.fill_plain


EXACT: dict[type, Any] = {DesignMatrix: reduce_array}
TESTS = [(is_kept_from_pickle, reduce_plainly)]
