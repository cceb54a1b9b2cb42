"""Objects that a library made once and compares by identity: they travel by the library's name for them."""

from __future__ import annotations

import copyreg
import importlib
import pickle
import sys
import types
from typing import TYPE_CHECKING, Any

from replkernel.namespace import loading
from replkernel.namespace.class_registry import module_of
from replkernel.namespace.patches.book import book
from replkernel.namespace.patches.own_modules import is_own
from replkernel.namespace.patches.strays import is_stray
from replkernel.namespace.reducers.outcome import CannotTravel, Reducer

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler

PROTOCOL = 5
NAMES_MAX = 64
"""A module with more instances of a type than this holds data, not sentinels."""

_names_by_type: dict[type, tuple[int, tuple[str, ...]]] = {}
_plain_objects: dict[int, tuple[str, str, Any]] = {}
_looked_at_modules = 0


def seed(token: str) -> Any:
    """Return this process's object for a token (called by payloads)."""
    return loading.current().seeds.object_of(token)


def plan_for_library(cls: type) -> Reducer:
    """Return the reducer for a library's type: by name if its module holds that very instance."""
    module = module_of(cls)
    reduces: Any = (cls.__reduce_ex__, cls.__reduce__)
    own_reduce = reduces != (object.__reduce_ex__, object.__reduce__) and cls not in copyreg.dispatch_table

    def reduce_instance(pickler: CapturePickler, value: Any) -> Any:
        pickler.touched = True
        pickler.modules.add(module)
        for name in _names_in(module, cls):
            if vars(sys.modules[module]).get(name) is value and not book.is_patched(module, name):
                pickler.unlinked.add(id(value))
                return attribute, (module, name)
        if not own_reduce:
            return NotImplemented
        reduced = value.__reduce_ex__(PROTOCOL)
        if type(reduced) is str and pickle.whichmodule(value, reduced) == pickler.world.seeds.main_name:  # type: ignore[attr-defined]
            raise CannotTravel("Its library copies it by its name only, and the notebook made it.")
        return pickler.checked(value, reduced) if pickler.careful else reduced

    return reduce_instance


def _names_in(module_name: str, cls: type) -> tuple[str, ...]:
    module = sys.modules.get(module_name)
    if not isinstance(module, types.ModuleType) or is_own(module_name):
        return ()
    attributes = vars(module)
    known = _names_by_type.get(cls)
    if known is not None and known[0] == len(attributes):
        return known[1]
    names = tuple(name for name, value in list(attributes.items()) if type(value) is cls)
    names = names if len(names) <= NAMES_MAX else ()
    if module_name != "__main__":
        _names_by_type[cls] = (len(attributes), names)
    return names


def reduce_plain_object(pickler: CapturePickler, value: object) -> Any:
    """Reduce a bare `object()`: by name if some library's module holds it."""
    global _looked_at_modules
    if _looked_at_modules != len(sys.modules):
        _looked_at_modules = len(sys.modules)
        for module_name, module in list(sys.modules.items()):
            if module_name == "__main__" or not isinstance(module, types.ModuleType):
                continue
            for name, held in list(vars(module).items()):
                if type(held) is object:
                    _plain_objects[id(held)] = (module_name, name, held)
    entry = _plain_objects.get(id(value))
    if entry is None or is_stray(sys.modules[entry[0]]):
        return NotImplemented
    pickler.touched = True
    pickler.modules.add(entry[0])
    pickler.unlinked.add(id(value))
    return attribute, entry[:2]


def attribute(module_name: str, name: str) -> Any:
    """Return a module's attribute (called by payloads)."""
    module = sys.modules.get(module_name) or importlib.import_module(module_name)
    try:
        return vars(module)[name]
    except KeyError:
        raise CannotTravel(f"The module {module_name} has no {name} here.") from None


EXACT = {object: reduce_plain_object}
