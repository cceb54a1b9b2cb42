"""SQLAlchemy's engines and tables: who listens to their events, which their own copies leave out.

Law: imported only when SQLAlchemy's events are. An open connection stays, alone, and its engine travels.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy.event import base as _base
from sqlalchemy.event.attr import _ListenerCollection

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from replkernel.state.library import ReducerContext

Listeners = list[tuple[str, list[Any]]]

_Dispatch: object = vars(_base)["_Dispatch"]
_INSTANCE_CLASS = "_instance_cls"
_OPEN = "_dbapi_connection"


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


FAMILIES = [(_Dispatch, reduce_dispatch)]
TESTS = [
    (_is("sqlalchemy.engine.base", "Connection"), reduce_connection),
    (_is("sqlalchemy.engine.cursor", "CursorResult"), refuse_result),
]
