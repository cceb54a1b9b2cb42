"""Objects that a library made once and compares by identity: they travel by the library's name for them."""

from __future__ import annotations

import copyreg
import importlib
import pickle
import sys
import types
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel, Reducer
from replkernel.state.patches.book import book
from replkernel.state.patches.own_modules import is_own
from replkernel.state.patches.strays import is_stray
from replkernel.state.python.kinds import entry_of, is_a, key_of, kind_of, module_of
from replkernel.state.restore import loading

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

PROTOCOL = 5
NAMES_MAX = 64
"""A module with more instances of a type than this holds data, not sentinels."""

_names_by_type: dict[int, tuple[type, int, tuple[str, ...]]] = {}
"""What a module had of a type, by the type's id; and how many names it had then."""
_held_objects: dict[int, tuple[str, str, Any]] = {}
_sizes: dict[str, int] = {}
"""How many names each module had when it was looked at."""
_METHODS = frozenset({types.MethodType, types.BuiltinMethodType})
_PLAIN_OWNERS = frozenset({list, dict, set, frozenset, str, bytes, tuple, int, float, type, types.ModuleType})
_looked_at_modules = 0


@loader("sentinels:seed")
def seed(token: str) -> Any:
    """Return this process's object for a token (called by payloads)."""
    return loading.current().seeds.object_of(token)


def plan_for_library(cls: type, natural: Reducer | None = None) -> Reducer:
    """Return the reducer for a library's type: by name if its module holds that very instance.

    What does not say itself how it pickles is for `natural`, if there is that.
    """
    module = module_of(cls)
    reduces: object = (cls.__reduce_ex__, cls.__reduce__)
    own_reduce = reduces != (object.__reduce_ex__, object.__reduce__)
    own_reduce = own_reduce and entry_of(copyreg.dispatch_table, cls) is None

    def reduce_instance(pickler: UnitContext, value: Any) -> Any:
        pickler.touched = True
        pickler.modules.add(module)
        for name in _names_in(module, cls):
            if vars(sys.modules[module]).get(name) is value and not book.is_patched(module, name):
                pickler.unlinked.add(id(value))
                return attribute, (module, name)
        if not own_reduce:
            return NotImplemented if natural is None else natural(pickler, value)
        reduced = value.__reduce_ex__(PROTOCOL)
        if type(reduced) is str and pickle.whichmodule(value, reduced) == pickler.world.seeds.main_name:  # type: ignore[attr-defined]
            raise CannotTravel("Its library copies it by its name only, and the notebook made it.")
        return pickler.checked(value, reduced) if pickler.careful else reduced

    return reduce_instance


def _names_in(module_name: str, cls: type) -> tuple[str, ...]:
    module = sys.modules.get(module_name)
    if not is_a(module, types.ModuleType) or is_own(module_name):
        return ()
    attributes = vars(module)
    known = _names_by_type.get(id(cls))
    if known is not None and known[1] == len(attributes):
        return known[2]
    names = tuple(name for name, value in list(attributes.items()) if type(value) is cls)
    names = names if len(names) <= NAMES_MAX else ()
    if module_name != "__main__":
        _names_by_type[id(cls)] = (cls, len(attributes), names)
    return names


def reduce_plain_object(pickler: UnitContext, value: object) -> Any:
    """Reduce a bare `object()`: by name if some library's module holds it."""
    return _by_name(pickler, value) or NotImplemented


def method_of_module(pickler: UnitContext, method: Any) -> Any:
    """Reduce a method that a library's module has for a function (`random.random`); None for any other."""
    kind = type(method.__self__)
    if key_of(kind) in _PLAIN_OWNERS or module_of(kind) == pickler.world.seeds.main_name:
        return None
    return _by_name(pickler, method)


def _by_name(pickler: UnitContext, value: object) -> Any:
    """Reduce what some library's module holds to its name there; None for any other."""
    global _looked_at_modules
    if _looked_at_modules != len(sys.modules):
        _looked_at_modules = len(sys.modules)
        _look_at_modules()
    entry = _held_objects.get(id(value))
    if entry is None:
        return None
    module_name, name, _ = entry
    module = sys.modules.get(module_name)
    if module is None or vars(module).get(name) is not value:
        return None
    if is_stray(module) or book.is_patched(module_name, name):
        return None
    pickler.touched = True
    pickler.modules.add(module_name)
    pickler.unlinked.add(id(value))
    return attribute, (module_name, name)


def _look_at_modules() -> None:
    for module_name, module in list(sys.modules.items()):
        if module_name == "__main__" or not is_a(module, types.ModuleType):
            continue
        if _sizes.get(module_name) == len(vars(module)):
            continue
        _sizes[module_name] = len(vars(module))
        for name, held in list(vars(module).items()):
            kind = kind_of(held)
            if kind is object or (kind in _METHODS and _is_of_instance(held)):
                entry = module_name, name, held
                known = _held_objects.setdefault(id(held), entry)
                if known is not entry and _rank(entry) < _rank(known):
                    _held_objects[id(held)] = entry


def _rank(entry: tuple[str, str, Any]) -> tuple[bool, int, str, str]:
    """Order the places of one object, so that every process tells the same of those that it has."""
    module_name, name, held = entry
    home = type(held) is object or module_of(type(held.__self__)) == module_name
    return not home, module_name.count("."), module_name, name


def _is_of_instance(method: Any) -> bool:
    owner = method.__self__
    return owner is not None and not is_a(owner, (type, types.ModuleType))


@loader("sentinels:attribute")
def attribute(module_name: str, name: str) -> Any:
    """Return a module's attribute (called by payloads)."""
    module = sys.modules.get(module_name) or importlib.import_module(module_name)
    try:
        return vars(module)[name]
    except KeyError:
        raise CannotTravel(f"The module {module_name} has no {name} here.") from None


EXACT = {object: reduce_plain_object}
