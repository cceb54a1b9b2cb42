"""sympy's symbols, and its expressions as they were written, where sympy's own way would work them out.

The symbols that one call makes keep their assumptions in one dictionary, which says nothing that another one
with the same contents would not: each is told with its own, so that no two hang together by it.

Law: imported only when sympy is; what it gives for an expression's parts is taken when it is that expression.
"""

from __future__ import annotations

import copyreg
from typing import TYPE_CHECKING, Any

from sympy import evaluate
from sympy.core.basic import Basic

from replkernel.loaders import loader
from replkernel.state.capture import sentinels
from replkernel.state.python.kinds import module_of

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

_Basic = Basic


def is_expression(cls: type[Any]) -> bool:
    """Tell whether sympy copies instances of a class of its own by working out their parts."""
    return (
        module_of(cls).startswith("sympy.")
        and issubclass(cls, Basic)
        and cls.__getnewargs__ is _Basic.__getnewargs__
        and cls.__reduce_ex__ is _Basic.__reduce_ex__
        and not hasattr(cls, "__getnewargs_ex__")
    )


def reduce_expression(pickler: UnitContext, expression: Basic) -> object:
    """Reduce an expression to its class and its parts."""
    cls = type(expression)
    reduced = sentinels.plan_for_library(cls)(pickler, expression)
    parts = expression.args
    if not parts or reduced[:2] != (copyreg.__newobj__, (cls, *parts)) or any(reduced[2:]):  # type: ignore[attr-defined]
        return reduced
    return make_expression, (cls, parts)


def is_symbol(cls: type[Any]) -> bool:
    """Tell whether instances of a class of sympy's own are told by a name and assumptions."""
    return (
        module_of(cls).startswith("sympy.")
        and issubclass(cls, Basic)
        and cls.__reduce_ex__ is _Basic.__reduce_ex__
        and hasattr(cls, "__getnewargs_ex__")
    )


def reduce_symbol(pickler: UnitContext, symbol: object) -> object:
    """Reduce a symbol to its class, its name and its assumptions."""
    reduced = sentinels.plan_for_library(type(symbol))(pickler, symbol)
    if reduced[0] is not copyreg.__newobj_ex__ or any(reduced[2:]):  # type: ignore[attr-defined]
        return reduced
    cls, names, assumptions = reduced[1]
    return make_symbol, (cls, names, tuple(sorted(assumptions.items())))


@loader("sympy:make_symbol")
def make_symbol(cls: type[Any], names: tuple[Any, ...], assumptions: tuple[tuple[str, Any], ...]) -> object:
    """Return a symbol (called by payloads)."""
    return cls.__new__(cls, *names, **dict(assumptions))


@loader("sympy:make_expression")
def make_expression(cls: type[Any], parts: tuple[Any, ...]) -> object:
    """Return an expression of these parts, which nobody works out (called by payloads)."""
    made = _made(cls, parts)
    if made is not None:
        return made
    with evaluate(False):
        made = _made(cls, parts)
    if made is not None:
        return made
    return cls._from_args(list(parts)) if hasattr(cls, "_from_args") else _Basic.__new__(cls, *parts)


def _made(cls: type[Any], parts: tuple[Any, ...]) -> object:
    """Return what sympy makes of the parts; None where that is something else than what they are parts of."""
    try:
        made = cls.__new__(cls, *parts)
        found = made.args if type(made) is cls else ()
        same = len(found) == len(parts) and all(map(_are_alike, found, parts))
    except Exception:
        return None
    return made if same else None


def _are_alike(one: object, other: object) -> bool:
    return one is other or (type(one) is type(other) and bool(one == other))


TESTS = [(is_expression, reduce_expression), (is_symbol, reduce_symbol)]
