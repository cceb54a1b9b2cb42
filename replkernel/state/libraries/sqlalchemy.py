"""SQLAlchemy's engines and tables: who listens to their events, which their own copies leave out.

What an engine has compiled is not captured: a copy of it would no longer say how values are read.
Law: imported only when SQLAlchemy's events are. An open connection stays, alone, and its engine travels.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy.event import base as _base
from sqlalchemy.event.attr import _ListenerCollection
from sqlalchemy.util import LRUCache

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from replkernel.state.capture.outcomes import Reducer
    from replkernel.state.library import ReducerContext

Listeners = list[tuple[str, list[Any]]]

_Dispatch: object = vars(_base)["_Dispatch"]
_INSTANCE_CLASS = "_instance_cls"
_OPEN = "_dbapi_connection"
_PROTOCOL = 5


def reduce_dispatch(context: ReducerContext, dispatch: object) -> object:
    """Reduce what an object of SQLAlchemy tells its events to, with the functions that listen."""
    listeners = _listeners(dispatch)
    if not listeners:
        return NotImplemented
    return make_dispatch, (getattr(dispatch, _INSTANCE_CLASS),), listeners, None, None, fill_dispatch


def _listeners(dispatch: Any) -> Listeners:
    """Return the functions that listen to the events of this very object, by the events' names."""
    found: Listeners = []
    for name in dispatch._event_names:
        try:
            held = object.__getattribute__(dispatch, name)
        except AttributeError:  # Nobody has asked for it yet.
            continue
        if isinstance(held, _ListenerCollection) and held.listeners:
            found.append((name, list(held.listeners)))
    return found


@loader("sqlalchemy:make_dispatch")
def make_dispatch(cls: Any) -> object:
    """Return what instances of a class tell their events to, without listeners (called by payloads)."""
    return _base._UnpickleDispatch()(cls)


@loader("sqlalchemy:fill_dispatch")
def fill_dispatch(dispatch: object, listeners: Listeners) -> None:
    """Have functions listen (called by payloads)."""
    for name, functions in listeners:
        getattr(dispatch, name).for_modify(dispatch).listeners.extend(functions)


def _is(module: str, name: str) -> Callable[[type], bool]:
    """Return a test whether a class is, or is below, one of a module that may not be imported yet."""

    def test(cls: type) -> bool:
        found = getattr(sys.modules.get(module), name, None)
        return isinstance(found, type) and issubclass(cls, found)

    return test


def reduce_connection(context: ReducerContext, connection: Connection) -> object:
    """Refuse an open connection, alone."""
    if vars(connection).get(_OPEN) is not None:
        raise CannotTravel("An open connection of SQLAlchemy belongs to its process; close it after use.")
    return NotImplemented


def refuse_result(context: ReducerContext, result: object) -> object:
    """Refuse what reads from a cursor, alone."""
    raise CannotTravel("A result of SQLAlchemy belongs to its process: keep its rows (`.all()`).")


def reduce_cache(context: ReducerContext, cache: LRUCache[Any, Any]) -> object:
    """Reduce a cache, as of compiled statements, to its limits: what it holds is made anew when asked for."""
    limits = {name: getattr(cache, name) for name in ("capacity", "threshold", "size_alert")}
    return LRUCache, (), (None, limits)


def _without(name: str) -> Reducer:
    """Return a reducer that leaves out an attribute which is made again when it is asked for."""

    def reduce(context: ReducerContext, value: Any) -> object:
        reduced = value.__reduce_ex__(_PROTOCOL)
        if type(reduced) is not tuple or len(reduced) < 3 or type(reduced[2]) is not dict:
            return reduced
        function, arguments, state, *rest = reduced
        return function, arguments, {key: held for key, held in state.items() if key != name}, *rest

    return reduce


EXACT: dict[type, Any] = {LRUCache: reduce_cache}
FAMILIES = [(_Dispatch, reduce_dispatch)]
TESTS = [
    (_is("sqlalchemy.engine.base", "Connection"), reduce_connection),
    (_is("sqlalchemy.engine.cursor", "CursorResult"), refuse_result),
    (_is("sqlalchemy.engine.interfaces", "Dialect"), _without("_type_memos")),
    (_is("sqlalchemy.sql.compiler", "Compiled"), _without("_cached_metadata")),
]
