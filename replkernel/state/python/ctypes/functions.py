"""Pointers to functions of ctypes, and the libraries that it has loaded: their types travel, they do not.

ctypes keeps one type for what CFUNCTYPE is given; it is asked for that again elsewhere. Law: no address is
ever copied.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture import sentinels
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.kinds import kind_of

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

FUNCTION: type = vars(ctypes)["_CFuncPtr"]
_USE_ERRNO: int = vars(ctypes)["_FUNCFLAG_USE_ERRNO"]
_USE_LAST_ERROR: int = vars(ctypes)["_FUNCFLAG_USE_LASTERROR"]
_DICT = type.__dict__["__dict__"]

NEEDS_ITS_PROCESS = (
    "It is the address of a function in the memory of this process, which leads nowhere in another one. Keep "
    "the Python function in a variable, or the library's name, and make the pointer in the cell that uses it."
)
CLASS_NEEDS_ITS_PROCESS = (
    "It is a type of pointers to functions of a kind that ctypes makes anew at each call, so that another "
    "process cannot find it. Make it in the cell that uses it, or take one of CFUNCTYPE."
)


def is_function_type(cls: type) -> bool:
    """Tell whether a type is the one that ctypes keeps for pointers to functions of some signature."""
    if type(cls) is not type(FUNCTION):
        return False
    known: dict[Any, Any] = vars(ctypes).get("_c_functype_cache", {})
    result, arguments, flags = _signature(cls)
    try:
        return known.get((result, arguments, flags)) is cls
    except TypeError:  # Arguments that cannot be hashed: a class of the notebook's own.
        return False


def _signature(cls: type) -> tuple[Any, Any, Any]:
    entries = _DICT.__get__(cls)
    return tuple(entries.get(key) for key in ("_restype_", "_argtypes_", "_flags_"))


def told_type(cls: type) -> tuple[Any, ...]:
    """Return what makes a type for which `is_function_type` holds."""
    return function_type, _signature(cls)


@loader("ctypes:function_type")
def function_type(result: type[ctypes._CData] | None, arguments: tuple[Any, ...], flags: int) -> object:
    """Return the type of pointers to functions of a signature (called by payloads)."""
    errors = {"use_errno": bool(flags & _USE_ERRNO), "use_last_error": bool(flags & _USE_LAST_ERROR)}
    return ctypes.CFUNCTYPE(result, *arguments, **errors)


def reduce_function(context: ReducerContext, function: object) -> object:
    """Reduce a pointer to no function; refuse any other."""
    if not function:
        return type(function), ()
    raise CannotTravel(NEEDS_ITS_PROCESS)


def _refuse_library(context: ReducerContext, library: ctypes.CDLL) -> object:
    name = vars(library).get("_name")
    call = f"ctypes.{type(library).__name__}({name!r})" if kind_of(library) in _KINDS else "ctypes.CDLL"
    raise CannotTravel(
        "What ctypes has loaded lies in the memory of this process. Keep its name, and load it where "
        f"it is needed: `{call}` in the cell that calls it."
    )


_KINDS = (ctypes.CDLL, ctypes.PyDLL)
reduce_library = sentinels.plan_for_library(ctypes.PyDLL, _refuse_library)
"""Reduces `ctypes.pythonapi` to its name; refuses any other library that was loaded."""

FAMILIES = [
    (FUNCTION, reduce_function),
    (ctypes.CDLL, reduce_library),
]
