"""matplotlib's callback registries: callbacks travel but for those of canvases and managers.

Law: imported only when matplotlib is; nothing of a registry is used up by being looked at.
"""

from __future__ import annotations

import contextlib
import copy
import copyreg
import functools
import types
from typing import TYPE_CHECKING, Any

from matplotlib.cbook import CallbackRegistry

from replkernel.state.libraries.ipython.notebook_function import is_notebooks
from replkernel.state.python.kinds import is_a, kind_of, module_of

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinMethodType, functools.partial)
_WINDOWS = ("matplotlib.backend", "matplotlib._pylab_helpers", "matplotlib_inline", "ipympl")
"""Where canvases, managers and toolbars are at home: they are made again for each process."""

DEPTH_MAX = 4
"""Wrappers around wrappers are opened so far."""


def reduce_registry(context: ReducerContext, registry: Any) -> object:
    """Reduce a registry as it reduces itself, with its counter put back and the notebook's callbacks kept."""
    attributes = vars(registry)
    counter = attributes.get("_cid_gen")
    if counter is None:
        return NotImplemented
    attributes["_cid_gen"] = copy.copy(counter)
    try:
        state = registry.__getstate__()
    finally:
        attributes["_cid_gen"] = counter
    state["callbacks"] = {
        signal: kept
        for signal, held in attributes["callbacks"].items()
        if (kept := _kept(context, attributes["_pickled_cids"], held))
    }
    return copyreg.__newobj__, (type(registry),), state  # type: ignore[attr-defined]


def _kept(context: ReducerContext, pickled: set[int], held: dict[int, Any]) -> dict[int, Any]:
    """Return the callbacks that matplotlib keeps itself, those of the notebook, and methods of artists."""
    found = {}
    for cid, proxy in held.items():
        function = proxy()
        if function is None:
            continue
        if cid in pickled or _goes_along(context, function):
            found[cid] = function
    return found


def _goes_along(context: ReducerContext, function: Any, depth: int = DEPTH_MAX) -> bool:
    """Tell whether it is the notebook's, or a method of something that travels and is not a window."""
    if is_notebooks(function, context.namespace):
        return True
    if depth and type(function) is functools.partial:
        return _goes_along(context, function.func, depth - 1)
    if depth and type(function) is types.FunctionType:
        return any(_goes_along(context, held, depth - 1) for held in _enclosed(function))
    if kind_of(function) not in (types.MethodType, types.BuiltinMethodType):
        return False
    owner = function.__self__
    return not is_a(owner, types.ModuleType) and not module_of(type(owner)).startswith(_WINDOWS)


def _enclosed(function: types.FunctionType) -> list[Any]:
    """Return the functions in a function's cells, as in a library's wrapper around one of the notebook's."""
    found = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # an empty cell
            found.append(cell.cell_contents)
    return [held for held in found if is_a(held, _FUNCTIONS) and held is not function]


FAMILIES = [(CallbackRegistry, reduce_registry)]
