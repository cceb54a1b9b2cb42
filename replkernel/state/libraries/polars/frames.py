"""polars' expressions and lazy frames with the functions in them, and series and frames of Python objects.

Law: imported only when polars is; what holds a function that polars would copy with the values of its
globals is refused by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars

from replkernel.loaders import loader
from replkernel.state.capture import sentinels
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.libraries.polars import functions as polars_functions

if TYPE_CHECKING:
    from replkernel.state.capture.pickling import CapturePickler

_PYTHON_MARKS = (b"PLPYFN", b"PLPYUDF", b"cloudpickle")
PROTOCOL = 5
_STATE = 2


def reduce_plan(pickler: CapturePickler, plan: Any) -> Any:
    """Reduce an expression or a lazy frame; the functions in it beside what polars says of it."""
    pickler.module_needed("polars")
    with polars_functions.named():
        reduced = plan.__reduce_ex__(PROTOCOL)
    state = reduced[_STATE] if len(reduced) > _STATE else None
    names = polars_functions.names_in(state) if type(state) is bytes else []
    if names:
        functions = [(name, polars_functions.held(name)) for name in names]
        return (*reduced[:_STATE], (state, functions), None, None, fill_plan)
    if any(_holds_function(part) for part in reduced[1:]):
        raise CannotTravel(
            "polars would copy the Python function in it together with the values of its globals."
        )
    return reduced


@loader("polars:fill_plan")
def fill_plan(plan: Any, state: tuple[bytes, list[tuple[str, Any]]]) -> None:
    """Give an expression or a lazy frame what it does (called by payloads)."""
    told, functions = state
    polars_functions.hold(functions)
    plan.__setstate__(told)


def _holds_function(part: Any) -> bool:
    if isinstance(part, (bytes, bytearray)):
        return any(mark in part for mark in _PYTHON_MARKS)
    if isinstance(part, (tuple, list)):
        return any(_holds_function(item) for item in part)
    if isinstance(part, dict):
        return any(_holds_function(item) for item in part.values())
    return False


def reduce_series(pickler: CapturePickler, series: Any) -> Any:
    """Reduce a series; one of Python objects to these."""
    if series.dtype != polars.Object:
        return sentinels.plan_for_library(type(series))(pickler, series)
    pickler.module_needed("polars")
    return make_series, (type(series), series.name), series.to_list(), None, None, fill_series


@loader("polars:make_series")
def make_series(cls: Any, name: str) -> Any:
    """Return a series without anything in it (called by payloads)."""
    series = cls.__new__(cls)
    series._s = polars.Series(name, [], dtype=polars.Object)._s
    return series


@loader("polars:fill_series")
def fill_series(series: Any, objects: list[Any]) -> None:
    """Give a series its objects (called by payloads)."""
    series._s = polars.Series(series.name, objects, dtype=polars.Object)._s


def reduce_frame(pickler: CapturePickler, frame: Any) -> Any:
    """Reduce a frame; one with columns of Python objects to its columns."""
    if polars.Object not in frame.dtypes:
        return sentinels.plan_for_library(type(frame))(pickler, frame)
    pickler.module_needed("polars")
    return make_frame, (type(frame),), frame.get_columns(), None, None, fill_frame


@loader("polars:make_frame")
def make_frame(cls: Any) -> Any:
    """Return a frame without columns (called by payloads)."""
    frame = cls.__new__(cls)
    frame._df = polars.DataFrame()._df
    return frame


@loader("polars:fill_frame")
def fill_frame(frame: Any, columns: list[Any]) -> None:
    """Give a frame its columns (called by payloads)."""
    frame._df = polars.DataFrame(columns)._df


FAMILIES = [
    (polars.Expr, reduce_plan),
    (polars.LazyFrame, reduce_plan),
    (polars.Series, reduce_series),
    (polars.DataFrame, reduce_frame),
]
