"""Expressions of dask, from which its frames are computed: of each there is one, known by its name.

dask makes them by a constructor that returns the one which is there already, with the data of before. Law:
imported only when dask's expressions are; the one that came last is the one that dask knows.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

from dask._expr import SingletonExpr

from replkernel.loaders import loader
from replkernel.state.python import instances

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_DICT = type.__dict__["__dict__"]
_KNOWN = "_instances"


def reduce_expression(context: ReducerContext, expression: SingletonExpr) -> object:
    """Reduce an expression to its operands and name, and what it has computed as dask itself copies it."""
    context.module_needed("dask")
    cls = type(expression)
    if cls.__init__ is not object.__init__ or cls.__reduce__ is not SingletonExpr.__reduce__:
        return NotImplemented
    kept = _DICT.__get__(cls) if cls._pickle_functools_cache else {}
    state = {
        name: value
        for name, value in vars(expression).items()
        if name in kept or name == "_name" or not _is_computed(cls, name)
    }
    return instances.make_plain, (cls,), state, None, None, fill_expression


def _is_computed(cls: type, name: str) -> bool:
    return any(isinstance(vars(base).get(name), functools.cached_property) for base in cls.__mro__)


@loader("dask:fill_expression")
def fill_expression(expression: object, state: dict[str, Any]) -> None:
    """Fill an expression, and have dask know it by its name (called by payloads)."""
    cls: object = type(expression)
    vars(expression).update(state)
    if getattr(cls, _KNOWN, None) is None:
        setattr(cls, _KNOWN, weakref.WeakValueDictionary())
    getattr(cls, _KNOWN)[state["_name"]] = expression


FAMILIES = [(SingletonExpr, reduce_expression)]
