"""polars' series, frames, lazy frames and expressions.

An ordinary frame goes by polars' own pickle (`reduce_frame`); those of Python objects are taken apart, and so
are functions in expressions and lazy frames.
Law: imported only when polars is; what holds a function that polars would copy with the values of its
globals is refused by name.
"""

from __future__ import annotations

import contextlib
import pickle
import re
import secrets
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

import polars

from replkernel.loaders import loader
from replkernel.state.capture import sentinels
from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext


_PYTHON_MARKS = (b"PLPYFN", b"PLPYUDF", b"cloudpickle")
PROTOCOL = 5
_STATE = 2


def reduce_plan(pickler: UnitContext, plan: object) -> object:
    """Reduce an expression or a lazy frame; the functions in it beside what polars says of it."""
    pickler.module_needed("polars")
    with named():
        reduced = plan.__reduce_ex__(PROTOCOL)
    state = reduced[_STATE] if len(reduced) > _STATE else None
    names = names_in(state) if type(state) is bytes else []
    if names:
        functions = [(name, held(name)) for name in names]
        return (*reduced[:_STATE], (state, functions), None, None, fill_plan)
    if any(_holds_function(part) for part in reduced[1:]):
        raise CannotTravel(
            "polars would copy the Python function in it together with the values of its globals."
        )
    return reduced


@loader("polars:fill_plan")
def fill_plan(plan: polars.LazyFrame, state: tuple[bytes, list[tuple[str, Any]]]) -> None:
    """Give an expression or a lazy frame what it does (called by payloads)."""
    told, functions = state
    hold(functions)
    plan.__setstate__(told)


def _holds_function(part: object) -> bool:
    if isinstance(part, (bytes, bytearray)):
        return any(mark in part for mark in _PYTHON_MARKS)
    if isinstance(part, (tuple, list)):
        return any(_holds_function(item) for item in part)
    if isinstance(part, dict):
        return any(_holds_function(item) for item in part.values())
    return False


def reduce_series(pickler: UnitContext, series: polars.Series) -> object:
    """Reduce a series; one of Python objects to these."""
    if series.dtype != polars.Object:
        return sentinels.plan_for_library(type(series))(pickler, series)
    pickler.module_needed("polars")
    return make_series, (type(series), series.name), series.to_list(), None, None, fill_series


@loader("polars:make_series")
def make_series(cls: type[polars.Series], name: str) -> object:
    """Return a series without anything in it (called by payloads)."""
    series = cls.__new__(cls)
    series._s = polars.Series(name, [], dtype=polars.Object)._s
    return series


@loader("polars:fill_series")
def fill_series(series: polars.Series, objects: list[Any]) -> None:
    """Give a series its objects (called by payloads)."""
    series._s = polars.Series(series.name, objects, dtype=polars.Object)._s


def reduce_frame(pickler: UnitContext, frame: polars.DataFrame) -> object:
    """Reduce a frame; one with columns of Python objects to its columns."""
    if polars.Object not in frame.dtypes:
        return sentinels.plan_for_library(type(frame))(pickler, frame)
    pickler.module_needed("polars")
    return make_frame, (type(frame),), frame.get_columns(), None, None, fill_frame


@loader("polars:make_frame")
def make_frame(cls: type[polars.DataFrame]) -> object:
    """Return a frame without columns (called by payloads)."""
    frame = cls.__new__(cls)
    frame._df = polars.DataFrame()._df
    return frame


@loader("polars:fill_frame")
def fill_frame(frame: polars.DataFrame, columns: list[Any]) -> None:
    """Give a frame its columns (called by payloads)."""
    frame._df = polars.DataFrame(columns)._df


FAMILIES = [
    (polars.Expr, reduce_plan),
    (polars.LazyFrame, reduce_plan),
    (polars.Series, reduce_series),
    (polars.DataFrame, reduce_frame),
]


# Python functions inside polars' plans: each has a name of its own in what polars says of the plan.
#
# polars has functions pickled when a plan is told, and unpickles them when the plan runs, however often:
# what it is given for a function is a pickle that asks `held` for it by name, so the function itself travels
# as any other. Law: a function that polars has itself is not kept alive here; one that came from another
# replica is, as there is no telling which plans mention its name.


HELD_MAX = 10_000
"""So many functions from other replicas are kept; a plan with more of them fails to be rebuilt."""

_HOME = "replkernel.namespace.reducers.polars_functions"
"""The module by which stored plans name `held`. polars itself unpickles them, so it must be found there."""
sys.modules[_HOME] = sys.modules[__name__]

_MARK = "replkernel-function-"
_NAMES = re.compile(_MARK.encode() + b"[0-9a-f]{24}")

_held: dict[str, Any] = {}
"""The functions that came from other replicas, by name."""
_told: dict[str, weakref.ref[Any]] = {}
"""The functions that were told of here, by name."""
_names: dict[int, str] = {}
"""The names of both, by the function's id."""


@contextlib.contextmanager
def named() -> Iterator[None]:
    """Have functions told by their names while polars tells of a plan on this thread."""
    thread, dumps = threading.get_ident(), pickle.dumps

    def dumps_names(value: Any, *arguments: Any, **options: Any) -> bytes:
        if threading.get_ident() != thread or not callable(value):
            return dumps(value, *arguments, **options)
        return f"c{_HOME}\nheld\n(V{_name_of(value)}\ntR.".encode()

    pickle.dumps = cast("Any", dumps_names)
    try:
        yield
    finally:
        pickle.dumps = dumps


def _name_of(function: object) -> str:
    name = _names.get(id(function))
    if name is not None:
        return name
    name = _MARK + secrets.token_hex(12)
    key = id(function)

    def forget(_: object) -> None:
        _told.pop(name, None)
        _names.pop(key, None)

    try:
        _told[name] = weakref.ref(function, forget)
    except TypeError:
        _held[name] = function
    _names[key] = name
    return name


def names_in(told: bytes) -> list[str]:
    """Return the names of functions in what polars says of a plan, in their order, each once."""
    return list(dict.fromkeys(found.decode() for found in _NAMES.findall(told)))


def held(name: str) -> object:
    """Return a function by its name (called by polars)."""
    function = _held.get(name)
    if function is None and name in _told:
        function = _told[name]()
    if function is None:
        raise CannotTravel("A Python function of this plan of polars belongs to another notebook.")
    return function


def hold(functions: Iterable[tuple[str, Any]]) -> None:
    """Keep functions that came from another replica, under their names."""
    for name, function in functions:
        if name not in _held and len(_held) >= HELD_MAX:
            raise CannotTravel(f"More than {HELD_MAX} Python functions are in plans of polars.")
        before = _held.get(name)
        if before is not None:
            _names.pop(id(before), None)
        _held[name] = function
        _names[id(function)] = name
