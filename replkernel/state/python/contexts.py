"""Context variables, their tokens, and thread-local data: this thread's value travels with them.

A token has its context and the value of before; there is no way to make one with another but its memory,
whose layout is checked before it is relied on.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import functools
import gc
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.instances import fill_slots, held_in, slots_of
from replkernel.state.restore import loading

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext


def reduce_variable(pickler: UnitContext, variable: contextvars.ContextVar[Any]) -> object:
    """Reduce a context variable with its default and its value in the context of cells."""
    context = contextvars.copy_context()
    default: tuple[Any, ...] = ()
    with contextlib.suppress(LookupError):
        default = (contextvars.Context().run(variable.get),)
    value = (context[variable],) if variable in context else ()
    return make_variable, (variable.name, default), value, None, None, fill_variable


@loader("contextvars:make_variable")
def make_variable(name: str, default: tuple[Any, ...]) -> object:
    """Return a context variable (called by payloads)."""
    return contextvars.ContextVar(name, default=default[0]) if default else contextvars.ContextVar(name)


@loader("contextvars:fill_variable")
def fill_variable(variable: contextvars.ContextVar[Any], value: tuple[Any, ...]) -> None:
    """Give a context variable its value (called by payloads)."""
    if value:
        loading.current().late.append(lambda: variable.set(value[0]))


_NONE: Mapping[str, Any] = {}
_CONTEXT, _OLD, _USED = 0, 2, 3
_HEAD = 16
_TOKEN_WORDS = 4
_increase = ctypes.pythonapi.Py_IncRef
_decrease = ctypes.pythonapi.Py_DecRef
_probe: contextvars.ContextVar[int] = contextvars.ContextVar("replkernel_probe")


def _words(token: object) -> Any:
    return (ctypes.c_size_t * _TOKEN_WORDS).from_address(id(token) + _HEAD)


def _used(token: object) -> Any:
    return ctypes.c_int.from_address(id(token) + _HEAD + 8 * _USED)


@functools.cache
def _readable() -> bool:
    """Tell whether tokens lie in memory as is known here."""
    if sys.implementation.name != "cpython" or contextvars.Token.__basicsize__ != _HEAD + 8 * _TOKEN_WORDS:
        return False
    return contextvars.Context().run(_is_as_known)


def _is_as_known() -> bool:
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("sample")
    first, old = variable.set(1), object()
    variable.set(old)
    second = variable.set(2)
    told = [list(_words(token))[1:_USED] for token in (first, second)]
    if told != [[id(variable), 0], [id(variable), id(old)]] or _used(first).value:
        return False
    variable.reset(second)
    return bool(_used(second).value) and _words(first)[_CONTEXT] == _words(second)[_CONTEXT]


def _here() -> int:
    """Return the address of the present context."""
    token = _probe.set(1)
    _probe.reset(token)
    return int(_words(token)[_CONTEXT])


def reduce_token(pickler: UnitContext, token: contextvars.Token[Any]) -> Any:
    """Reduce a token of the context of cells."""
    if not _readable() or pickler.deep or _words(token)[_CONTEXT] != _here():
        raise CannotTravel("It belongs to another context than that of the cells.")
    old = () if token.old_value is token.MISSING else (token.old_value,)
    return make_token, (token.var,), (old, bool(_used(token).value)), None, None, fill_token


@loader("contextvars:make_token")
def make_token(variable: contextvars.ContextVar[Any]) -> Any:
    """Return a token of a variable, whose value stays (called by payloads)."""
    if not _readable():
        raise LookupError("how tokens lie in memory is not known in this release of Python")
    token = variable.set(None)
    variable.reset(token)
    return token


@loader("contextvars:fill_token")
def fill_token(token: object, state: tuple[tuple[Any, ...], bool]) -> None:
    """Give a token the value of before, and the context in which cells run (called by payloads)."""
    old, used = state
    _exchange(token, _OLD, *old)
    _used(token).value = int(used)
    loading.current().late.append(
        lambda: _exchange(token, _CONTEXT, ctypes.cast(_here(), ctypes.py_object).value)
    )


def _exchange(token: object, place: int, *value: Any) -> None:
    """Have a token refer to another object at a place in its memory, or to none."""
    words = _words(token)
    before = words[place]
    for held in value:
        _increase(ctypes.py_object(held))
    words[place] = id(value[0]) if value else 0
    if before:
        _decrease(ctypes.c_void_p(before))


def reduce_local(pickler: UnitContext, local: object) -> object:
    """Reduce thread-local data to what the main thread has in it."""
    if pickler.deep:
        raise CannotTravel("Thread-local data inside a very deep structure cannot be seen.")
    arguments, keywords = _made_with(local)
    own = dict(local.__dict__)
    slots = held_in(local, slots_of(type(local)))
    state = (own, slots) if slots else own
    return make_local, (type(local), arguments, keywords), state, None, None, fill_local


def _made_with(local: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of thread-local data, with which each further thread calls its `__init__`."""
    held = gc.get_referents(local)
    last = max(at for at, value in enumerate(held) if value is type(local))
    arguments, *rest = held[last + 1 :]
    dictionaries = [value for value in rest if type(value) is dict]  # the last has the threads' own
    return arguments, dictionaries[0] if len(dictionaries) > 1 else {}


@loader("contextvars:make_local")
def make_local(
    cls: type[Any], arguments: tuple[Any, ...] = (), keywords: Mapping[str, Any] = _NONE
) -> object:
    """Return empty thread-local data (called by payloads)."""
    return cls.__new__(cls, *arguments, **keywords)


@loader("contextvars:fill_local")
def fill_local(local: object, state: dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Give the main thread its data, and all threads what is in slots (called by payloads)."""
    own, slots = state if isinstance(state, tuple) else (state, {})
    fill_slots(local, slots)
    loading.current().late.append(lambda: local.__dict__.update(own))


EXACT = {contextvars.ContextVar: reduce_variable, contextvars.Token: reduce_token}
FAMILIES = [(threading.local, reduce_local)]
