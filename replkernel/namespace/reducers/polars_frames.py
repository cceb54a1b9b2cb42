"""polars' expressions and lazy frames: functions inside them would be copied with their globals.

Law: imported only when polars is; what holds such a function is refused by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars

from replkernel.namespace.reducers.outcome import CannotTravel

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler

_PYTHON_MARKS = (b"PLPYFN", b"PLPYUDF", b"cloudpickle")
PROTOCOL = 5


def reduce_plan(pickler: CapturePickler, plan: Any) -> Any:
    """Reduce an expression or a lazy frame, if it is made of polars' own operations."""
    pickler.module_needed("polars")
    reduced = plan.__reduce_ex__(PROTOCOL)
    if any(_holds_function(part) for part in reduced[1:]):
        raise CannotTravel(
            "polars would copy the Python function in it together with the values of its globals."
        )
    return reduced


def _holds_function(part: Any) -> bool:
    if isinstance(part, (bytes, bytearray)):
        return any(mark in part for mark in _PYTHON_MARKS)
    if isinstance(part, (tuple, list)):
        return any(_holds_function(item) for item in part)
    if isinstance(part, dict):
        return any(_holds_function(item) for item in part.values())
    return False


FAMILIES = [(polars.Expr, reduce_plan), (polars.LazyFrame, reduce_plan)]
