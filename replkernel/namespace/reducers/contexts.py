"""Context variables and thread-local data: this thread's value travels with them."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from typing import TYPE_CHECKING, Any

from replkernel.namespace import loading
from replkernel.namespace.reducers.outcome import CannotTravel

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler


def reduce_variable(pickler: CapturePickler, variable: contextvars.ContextVar[Any]) -> Any:
    """Reduce a context variable with its default and its value in the context of cells."""
    context = contextvars.copy_context()
    default: tuple[Any, ...] = ()
    with contextlib.suppress(LookupError):
        default = (contextvars.Context().run(variable.get),)
    value = (context[variable],) if variable in context else ()
    return make_variable, (variable.name, default), value, None, None, fill_variable


def make_variable(name: str, default: tuple[Any, ...]) -> Any:
    """Return a context variable (called by payloads)."""
    return contextvars.ContextVar(name, default=default[0]) if default else contextvars.ContextVar(name)


def fill_variable(variable: Any, value: tuple[Any, ...]) -> None:
    """Give a context variable its value (called by payloads)."""
    if value:
        loading.current().late.append(lambda: variable.set(value[0]))


def reduce_local(pickler: CapturePickler, local: Any) -> Any:
    """Reduce thread-local data to what the main thread has in it."""
    if pickler.deep:
        raise CannotTravel("Thread-local data inside a very deep structure cannot be seen.")
    return make_local, (type(local),), dict(local.__dict__), None, None, fill_local


def make_local(cls: Any) -> Any:
    """Return empty thread-local data (called by payloads)."""
    return cls.__new__(cls)


def fill_local(local: Any, state: dict[str, Any]) -> None:
    """Give the main thread its data (called by payloads)."""
    loading.current().late.append(lambda: local.__dict__.update(state))


EXACT = {contextvars.ContextVar: reduce_variable}
FAMILIES = [(threading.local, reduce_local)]
