"""Modules: by name where an import finds them, by value where the notebook made them."""

from __future__ import annotations

import builtins
import gc
import importlib
import importlib.machinery
import sys
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.patches.book import book
from replkernel.state.patches.imported_sources import at_hand
from replkernel.state.patches.places import place_of_module
from replkernel.state.patches.strays import begin_anew, enroll, is_loaded_by_notebook, is_stray
from replkernel.state.python.kinds import derives, is_a, kind_of
from replkernel.state.restore import loading

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

_DICT = types.ModuleType.__dict__["__dict__"]  # type: ignore[index]
_OF_PYTHON = "__builtins__"
_OF_FINDING = ("__loader__", "__spec__")
_PLAIN_SPECS = (type(None), importlib.machinery.ModuleSpec)
_PLAIN_LOADERS = (type(None), importlib.machinery.SourceFileLoader, importlib.machinery.SourcelessFileLoader)
"""What travels of how a module was found; a loader of another kind stays behind, and its spec."""


class ModuleDict:
    """Stands for the dictionary of an importable module (the globals of its functions)."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class MadeModuleDict:
    """Stands for the dictionary of a module that the notebook made (the globals of its functions)."""

    __slots__ = ("module",)

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module


def module_of_dict(scope: dict[str, Any]) -> types.ModuleType | None:
    """Return the module that the notebook made whose dictionary `scope` is; None if it is no module's."""
    if not scope.keys() >= _MODULE_MARKS:
        return None
    name = scope["__name__"]
    for known in (_made.get(id(scope), _nobody)(), sys.modules.get(name) if type(name) is str else None):
        if is_a(known, types.ModuleType) and _DICT.__get__(known) is scope:
            return known
    for holder in gc.get_referrers(scope):
        if isinstance(holder, types.ModuleType) and vars(holder) is scope:
            _made[id(scope)] = weakref.ref(holder)
            return holder
    return None


_made: dict[int, Callable[[], types.ModuleType | None]] = {}
"""The modules that were searched for, by the id of their dictionary: the search looks at every object."""

_MODULE_MARKS = {"__name__", "__loader__", "__spec__"}
"""What the dictionary of a module has, also after autoreload has emptied it."""


def stand_in_for(scope: dict[str, Any]) -> object:
    """Return what stands for a dictionary that a variable holds, if it is a module's; else itself."""
    name = scope.get("__name__")
    module = sys.modules.get(name) if type(name) is str else None
    if module is not None and vars(module) is scope and importable(module) is not None and name != "__main__":
        return ModuleDict(str(name))
    return scope


def _nobody() -> None:
    """Stand in for a module that was not searched for yet."""


def reduce_made_dict(pickler: UnitContext, of: MadeModuleDict) -> object:
    """Reduce such a dictionary."""
    return made_module_dict, (of.module,)


_scopes: dict[str, types.ModuleType] = {}
"""The newest module of each name that was made for its dictionary: functions hold that one only."""


@loader("modules:made_module_dict")
def made_module_dict(module: types.ModuleType) -> dict[str, Any]:
    """Return the dictionary of a module, which stays one for as long (called by payloads)."""
    _scopes[module.__name__] = module
    return vars(module)


def importable(module: types.ModuleType) -> str | None:
    """Return the name under which `module` is imported; None for a module that the notebook made."""
    attributes: dict[str, Any] = _DICT.__get__(module)
    name = attributes.get("__name__")
    if type(name) is str and sys.modules.get(name) is not module:
        name = getattr(attributes.get("__spec__"), "name", None)  # `_collections_abc` calls itself otherwise.
    if type(name) is not str or sys.modules.get(name) is not module or is_stray(module):
        return None
    made_by_import = attributes.get("__spec__") is not None or name in sys.builtin_module_names
    if is_loaded_by_notebook(module):
        return None
    return name if made_by_import or name == "__main__" else None


def reduce_module(pickler: UnitContext, module: types.ModuleType) -> object:
    """Reduce a module."""
    attributes: dict[str, Any] = _DICT.__get__(module)
    if attributes is pickler.namespace:
        return main_module, ()
    name = importable(module)
    if name is not None:
        pickler.module_needed(name)
        return import_module, (name,)
    made_name = str(attributes.get("__name__", ""))
    registered = sys.modules.get(made_name) is module
    root = place_of_module(made_name).root()
    if registered and book.knows(root):
        if root not in pickler.roots:
            return registered_module, (root,)
        registered = False
    stray = is_stray(module)
    made = make_module, (type(module), made_name, registered, stray)
    state = _state_of(attributes)
    return (*made, state, None, None, fill_module)


def reduce_module_dict(pickler: UnitContext, of: ModuleDict) -> object:
    """Reduce a module's dictionary."""
    pickler.module_needed(of.name)
    return module_dict, (of.name,)


@loader("modules:main_module")
def main_module() -> object:
    """Return the notebook's module (called by payloads)."""
    return loading.current().seeds.main_module()


@loader("modules:import_module")
def import_module(name: str) -> Any:
    """Import a module (called by payloads)."""
    module = sys.modules.get(name)
    if module is not None and is_stray(module):
        del sys.modules[name]
        begin_anew(name)
        module = None
    if module is None:
        with at_hand():
            module = importlib.import_module(name)
    return module


@loader("modules:module_dict")
def module_dict(name: str) -> dict[str, Any]:
    """Return a module's dictionary (called by payloads)."""
    found: dict[str, Any] = vars(import_module(name))
    return found


@loader("modules:registered_module")
def registered_module(root: str) -> object:
    """Return the module that the notebook made and put where imports find it (called by payloads)."""
    return book.held(root)


def _state_of(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return a module's attributes, without a spec or loader that cannot be copied."""
    loader, spec = attributes.get("__loader__"), attributes.get("__spec__")
    plain = kind_of(spec) in _PLAIN_SPECS and {type(loader), type(getattr(spec, "loader", None))} <= {
        *_PLAIN_LOADERS
    }
    return {
        key: value
        for key, value in attributes.items()
        if key != _OF_PYTHON and (key not in _OF_FINDING or (plain and value is not None))
    }


@loader("modules:make_module")
def make_module(
    cls: type[types.ModuleType], name: str, registered: bool, stray: bool = False
) -> types.ModuleType:
    """Return an empty module (called by payloads).

    A stray is this process's module of that name, if it has it: other modules may hold it.
    """
    module = sys.modules.get(name) if stray else None
    if module is None or not derives(type(module), cls):
        module = cls.__new__(cls)
        types.ModuleType.__init__(module, name)
    if stray:
        enroll(module)
    if registered:
        sys.modules[name] = module
    return module


@loader("modules:fill_module")
def fill_module(module: types.ModuleType, state: dict[str, Any]) -> None:
    """Give a module its attributes (called by payloads)."""
    attributes = vars(module)
    attributes.clear()
    attributes.update(state)
    attributes.setdefault(_OF_PYTHON, vars(builtins))
    for key in _OF_FINDING:
        attributes.setdefault(key, None)


EXACT = {ModuleDict: reduce_module_dict, MadeModuleDict: reduce_made_dict, types.ModuleType: reduce_module}
FAMILIES = [(types.ModuleType, reduce_module)]


_CLASS_DICT = type.__dict__["__dict__"]


_CLASS_MRO = type.__dict__["__mro__"]


_ABSENT_MAX = 4096


_absent: set[str] = set()
"""Names of submodules that an imported package does not have; bounded by `_ABSENT_MAX`."""


def _module_named(name: object) -> types.ModuleType | None:
    """Return the module of that name when it is imported, or is an imported package's that it loads lazily.

    A class may say that it lives in a module which its package imports on first use only (``numpy.rec``);
    unpickling imports that module by name, so it may be imported here as well.
    """
    if type(name) is not str:
        return None
    module = sys.modules.get(name)
    if module is None and "." in name and name not in _absent:
        package = sys.modules.get(name.partition(".")[0])
        if isinstance(package, types.ModuleType) and "__path__" in vars(package):
            try:
                module = importlib.import_module(name)
            except Exception:
                module = None
        if module is None and len(_absent) < _ABSENT_MAX:
            _absent.add(name)
    return module if isinstance(module, types.ModuleType) else None


def _is_made(module: types.ModuleType) -> bool:
    """Tell whether a module was made by hand, and not by an import: no other process could import it."""
    attributes = vars(module)
    return (
        type(module) is types.ModuleType
        and attributes.get("__spec__") is None
        and "__file__" not in attributes
        and attributes.get("__name__") not in ("__main__", *sys.builtin_module_names)
    )


def find_global(module_name: object, qualname: str) -> Any:
    """Return what a library holds under a qualified name, running no code of the user's; None if nothing."""
    module = _module_named(module_name)
    if module is None or _is_made(module) or is_stray(module) or is_loaded_by_notebook(module):
        return None
    first, _, rest = qualname.partition(".")
    found: object = vars(module).get(first)
    while rest and isinstance(found, type):
        step, _, rest = rest.partition(".")
        for base in _CLASS_MRO.__get__(found):
            attributes = _CLASS_DICT.__get__(base)
            if step in attributes:
                found = attributes[step]
                break
        else:
            return None
    return None if rest else found
