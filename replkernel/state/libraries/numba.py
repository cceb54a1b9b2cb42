"""numba's compiled functions: they are compiled again where they go, from a function with live globals.

numba keeps the values that globals had when it compiled.
Law: imported only when numba is; a function compiled with data among its globals is refused by name.
"""

from __future__ import annotations

import contextlib
import types
from typing import TYPE_CHECKING, Any

from numba.core.dispatcher import Dispatcher
from numba.core.registry import CPUDispatcher

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_CODE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type, Dispatcher)


def reduce_dispatcher(context: ReducerContext, dispatcher: Dispatcher) -> object:
    """Reduce a compiled function of the notebook to its function, its options and its signatures."""
    function = dispatcher.py_func
    if getattr(function, "__globals__", None) is not context.namespace:
        return NotImplemented
    if dispatcher.overloads and _uses_data(function):
        raise CannotTravel("numba compiled it with the values that its variables had then.")
    options = {
        name: value for name, value in dispatcher.targetoptions.items() if name != "boundscheck" or value
    }
    state = (list(dispatcher.nopython_signatures), bool(dispatcher._can_compile))
    context.module_needed("numba")
    return make_dispatcher, (function, options), state, None, None, fill_dispatcher


def _uses_data(function: types.FunctionType) -> bool:
    """Tell whether a function reads a variable that is no code."""
    code = function.__code__
    used = [function.__globals__[name] for name in code.co_names if name in function.__globals__]
    used += [cell.cell_contents for cell in function.__closure__ or ()]
    return any(not isinstance(value, _CODE) for value in used)


@loader("numba:make_dispatcher")
def make_dispatcher(function: object, options: dict[str, Any]) -> object:
    """Return a function that numba will compile (called by payloads)."""
    import numba

    return numba.jit(**options)(function)


@loader("numba:fill_dispatcher")
def fill_dispatcher(dispatcher: Dispatcher, state: tuple[list[Any], bool]) -> None:
    """Compile a function for the types that it was compiled for (called by payloads)."""
    signatures, may_compile = state
    for signature in signatures:
        with contextlib.suppress(Exception):  # compiled when it is called, then, or refused as it was here
            dispatcher.compile(signature.args)
    if not may_compile:
        dispatcher.disable_compile()


EXACT: dict[type, Any] = {CPUDispatcher: reduce_dispatcher}
