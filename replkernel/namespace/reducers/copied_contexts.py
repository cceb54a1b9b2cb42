"""Contexts copied from that of the cells: what the notebook's variables are in them.

What the kernel and libraries have in one is this process's own, and is taken from where the copy arrives.
Law: one in which a library has something else than where cells run is refused, by the variable's name.
"""

from __future__ import annotations

import contextvars
import gc
import sys
import types
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from replkernel.namespace import loading
from replkernel.namespace.patches.own_modules import own_modules
from replkernel.namespace.reducers.outcome import CannotTravel

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler

Variable = contextvars.ContextVar[Any]

_NOWHERE = frozenset({"decimal_context"})
"""The names of variables that a library's compiled code has and nobody else reaches."""

_kernels: set[Variable] = set()


def note_kernels(owners: Iterable[object]) -> None:
    """Remember the context variables of the kernel's own objects: what they have says which cell runs."""
    for owner in owners:
        values = getattr(owner, "__dict__", {}).values()
        _kernels.update(value for value in values if type(value) is contextvars.ContextVar)


def reduce_context(pickler: CapturePickler, context: contextvars.Context) -> Any:
    """Reduce a context to the values of the notebook's variables, by their names."""
    if pickler.deep:
        raise CannotTravel("A context inside a very deep structure cannot be seen.")
    present, libraries = contextvars.copy_context(), _of_libraries()
    ours: list[tuple[Variable, Any]] = []
    for variable, value in context.items():
        if _is_notebooks(variable, libraries):
            ours.append((variable, value))
        elif variable not in _kernels and (variable not in present or present[variable] is not value):
            raise CannotTravel(f"A library has set its variable {variable.name} in it.")
    return make_context, (), _without_left_over(ours), None, None, fill_context


def _without_left_over(ours: list[tuple[Variable, Any]]) -> list[tuple[Variable, Any]]:
    """Return variables with their values by name; of several of one name, those that something still has.

    A context keeps a variable for ever, also where a rebuild has replaced it by another one.
    """
    count = Counter(variable.name for variable, _ in ours)
    if len(count) < len(ours):
        twins = [variable for variable, _ in ours if count[variable.name] > 1]
        mine = {id(twins), *map(id, ours)}
        held = [
            one
            for one in gc.get_referrers(*twins)
            if id(one) not in mine and type(one).__name__[:5] != "hamt_"
        ]
        had = {id(variable) for one in held for variable in gc.get_referents(one)}
        ours = [pair for pair in ours if count[pair[0].name] == 1 or id(pair[0]) in had]
    return sorted(ours, key=lambda pair: pair[0].name)


def make_context() -> contextvars.Context:
    """Return an empty context (called by payloads)."""
    return contextvars.Context()


def fill_context(context: contextvars.Context, ours: list[tuple[Variable, Any]]) -> None:
    """Give a context its values, and what this process has in that of the cells (called by payloads)."""

    def fill() -> None:
        libraries = _of_libraries()
        for variable, value in contextvars.copy_context().items():
            if not _is_notebooks(variable, libraries):
                context.run(variable.set, value)
        for variable, value in ours:
            context.run(variable.set, value)

    loading.current().late.append(fill)


def _is_notebooks(variable: Variable, libraries: dict[int, Variable]) -> bool:
    return variable not in _kernels and id(variable) not in libraries and variable.name not in _NOWHERE


def _of_libraries() -> dict[int, Variable]:
    """Return the context variables that modules have which the user has not written, by their ids."""
    found: dict[int, Variable] = {}
    ours = {"__main__", *(name for name, _ in own_modules())}
    for name, module in list(sys.modules.items()):
        if name not in ours and isinstance(module, types.ModuleType):
            for value in list(vars(module).values()):
                if type(value) is contextvars.ContextVar:
                    found[id(value)] = value
    return found


EXACT = {contextvars.Context: reduce_context}
