"""Python functions inside polars' plans: each has a name of its own in what polars says of the plan.

polars has functions pickled when a plan is told, and unpickles them when the plan runs, however often: what
it is given for a function is a pickle that asks `held` for it by name, so the function itself travels as any
other. Law: a function that polars has itself is not kept alive here; one that came from another replica is,
as there is no telling which plans mention its name.
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
from typing import Any, cast

from replkernel.state.capture.outcomes import CannotTravel

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


def _name_of(function: Any) -> str:
    name = _names.get(id(function))
    if name is not None:
        return name
    name = _MARK + secrets.token_hex(12)
    key = id(function)

    def forget(_: Any) -> None:
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


def held(name: str) -> Any:
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
