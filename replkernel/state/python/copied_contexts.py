"""Copies of a context (`contextvars.copy_context()`): the notebook's variables, with their values there.

The kernel's own variables, which tell to which cell output belongs, are this process's on every replica, with
the values of the copy. Those of libraries have what the context of cells holds; a copy that differs stays.
"""

from __future__ import annotations

import contextvars
import gc
import sys
import types
from collections import Counter
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.patches.own_modules import is_own
from replkernel.state.python.kinds import module_of
from replkernel.state.restore import loading

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext
    from replkernel.state.seeds import Seeds

DECIMAL = "decimal_context"
"""The name of the variable of `decimal`, which nothing but its own functions can reach."""

_MODULE_DICT = types.ModuleType.__dict__["__dict__"]  # type: ignore[index]
_NOT_LIBRARIES = ("__main__", "__mp_main__")

_KERNELS = frozenset({"ipykernel", "IPython"})
_hidden: set[contextvars.ContextVar[Any]] = set()
"""The variables that `_others_of_the_kernel` has found: they last as long as the process."""

_libraries: tuple[int, frozenset[contextvars.ContextVar[Any]]] = (0, frozenset())


def reduce_context(pickler: UnitContext, context: contextvars.Context) -> object:
    """Reduce a copied context, its variables by name: their own order is that of their addresses."""
    owners = dict(_owners(pickler.world.seeds))
    hidden = _others_of_the_kernel(context, owners)
    present = contextvars.copy_context()
    items: list[Any] = []
    at_libraries: list[str] = []
    at_kernel: list[Any] = []
    decimal: tuple[Any, ...] = ()
    for variable, value in context.items():
        if variable in owners:
            at_kernel.append((*owners[variable], value))
        elif variable.name == DECIMAL and type(value).__module__ == "decimal":
            decimal = (value,)
        elif variable in hidden:
            continue
        elif variable not in _of_libraries():
            items.append((variable, value))
        elif present.get(variable) is value:
            at_libraries.append(variable.name)
        else:
            raise CannotTravel(
                f"A library keeps other settings in it ({variable.name}) than where cells run."
            )
    items = sorted(_without_left_over(items), key=lambda item: item[0].name)
    at_kernel.sort(key=lambda item: item[1:3])
    owned = [(owner, name, value) for owner, _, name, value in at_kernel]
    state = items, owned, sorted(at_libraries), decimal, any(variable in hidden for variable in context)
    return contextvars.Context, (), state, None, None, fill_context


def _others_of_the_kernel(
    context: contextvars.Context, owners: Collection[contextvars.ContextVar[Any]]
) -> set[contextvars.ContextVar[Any]]:
    """Return the variables of objects of the kernel that have no token: they are this process's own.

    They have the names of those of objects that have one; each is looked for once, which takes its time.
    """
    names = {variable.name for variable in owners}
    for variable in context:
        if variable.name in names and variable not in owners and variable not in _hidden:
            holders = gc.get_referrers(variable)
            holders += [owner for held in holders if type(held) is dict for owner in gc.get_referrers(held)]
            if any(module_of(type(holder)).partition(".")[0] in _KERNELS for holder in holders):
                _hidden.add(variable)
    return _hidden


def _without_left_over(items: list[Any]) -> list[Any]:
    """Return the variables with their values, of several of one name those that something still has.

    A context keeps a variable for ever, also where a rebuild has replaced it by another one.
    """
    count = Counter(variable.name for variable, _ in items)
    if len(count) == len(items):
        return items
    twins = [variable for variable, _ in items if count[variable.name] > 1]
    mine = {id(twins), id(items), *map(id, items)}
    holders = [
        held
        for held in gc.get_referrers(*twins)
        if id(held) not in mine and not type(held).__name__.startswith("hamt_")
    ]
    held = {id(value) for holder in holders for value in gc.get_referents(holder)}
    return [item for item in items if count[item[0].name] == 1 or id(item[0]) in held]


@loader("contextvars:fill_context")
def fill_context(context: contextvars.Context, state: tuple[Any, Any, list[str], Any, bool]) -> None:
    """Give an empty context its variables (called by payloads)."""
    items, at_kernel, at_libraries, decimal, has_hidden = state
    present = contextvars.copy_context()
    libraries = {variable.name: variable for variable in _of_libraries()}
    told = [(variable := libraries[name], present[variable]) for name in at_libraries]
    told += [(vars(owner)[name], value) for owner, name, value in at_kernel]
    hidden = _others_of_the_kernel(present, dict(_owners(loading.current().seeds)))
    told += [(variable, value) for variable, value in present.items() if has_hidden and variable in hidden]
    for variable, value in (*told, *items):
        context.run(variable.set, value)
    for value in decimal:
        context.run(sys.modules["decimal"].setcontext, value)


def _owners(seeds: Seeds) -> Iterator[tuple[contextvars.ContextVar[Any], tuple[Any, str, str]]]:
    """Yield the variables of the kernel's own objects: the object, its token, and the attribute."""
    for token, owner in seeds.singletons():
        for name, value in list(getattr(owner, "__dict__", {}).items()):
            if type(value) is contextvars.ContextVar:
                yield value, (owner, token, name)


def _of_libraries() -> frozenset[contextvars.ContextVar[Any]]:
    """Return the variables that modules of libraries hold under a name."""
    global _libraries
    if _libraries[0] != len(sys.modules):
        found = {
            value
            for name, module in list(sys.modules.items())
            if type(module) is types.ModuleType and name not in _NOT_LIBRARIES and not is_own(name)
            for value in list(_MODULE_DICT.__get__(module).values())
            if type(value) is contextvars.ContextVar
        }
        _libraries = len(sys.modules), frozenset(found)
    return _libraries[1]


EXACT = {contextvars.Context: reduce_context}
