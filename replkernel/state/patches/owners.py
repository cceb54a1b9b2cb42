"""The objects of libraries that a cell's source names: modules, classes, their instances and containers.

Law: names are followed through dictionaries; no attribute is asked of an object.
"""

from __future__ import annotations

import builtins
import dis
import logging
import sys
import types
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from replkernel.state.patches.places import Absent, attributes_of, home_of, step
from replkernel.state.patches.sources import TYPE, Chain, Plan
from replkernel.state.python.kinds import is_a, kind_of

LEFT_ALONE = frozenset({
    ("sys", "stdout"), ("sys", "stderr"), ("sys", "stdin"), ("sys", "path"),
    ("sys", "last_type"), ("sys", "last_value"), ("sys", "last_traceback"), ("sys", "last_exc"),
    ("sys", "tracebacklimit"), ("sys", "dont_write_bytecode"),
    ("builtins", "get_ipython"), ("builtins", "display"), ("builtins", "__IPYTHON__"),
    ("builtins", "input"), ("getpass", "getpass"),
    ("os", "environ"), ("warnings", "filters"), ("logging", "_warnings_showwarning"),
    ("matplotlib", "rcParams"),
    ("sqlite3", "adapters"), ("sqlite3", "converters"),
    ("sqlite3.dbapi2", "adapters"), ("sqlite3.dbapi2", "converters"),
})  # fmt: skip
"""What other parts of the process's state carry, or what is the process's own."""

OWN_ROOTS = frozenset({"replkernel", "__main__", "__mp_main__"})
CONTAINERS = (dict, list, set)

PATCHERS = {
    ("tqdm", "pandas"): ("pandas", (
        "DataFrame", "Series", "core.groupby.generic.DataFrameGroupBy", "core.groupby.generic.SeriesGroupBy",
        "core.groupby.groupby.GroupBy", "core.window.rolling.Rolling", "core.window.expanding.Expanding",
        "core.window.rolling._Rolling_and_Expanding",
    )),
}  # fmt: skip
"""Functions of libraries that change other libraries, by the ends of their names, and what they change."""


ACTIVE_MOCKS = ("import unittest.mock", "_patch", "_active_patches")
"""The list in which ``unittest.mock`` keeps what was started."""


CARRIED = frozenset({
    "IPython", "builtins", "decimal", "gc", "locale", "logging", "matplotlib", "numpy", "os", "pandas",
    "polars", "random", "scipy", "seaborn", "sklearn", "sys", "sympy", "torch", "warnings", "xarray",
})  # fmt: skip
"""Libraries that other parts of the process's state know to read the settings of."""


class Owner(NamedTuple):
    """A library's object, and the module and path by which every replica finds it."""

    value: Any
    module: str
    path: str

    def below(self, name: str) -> str:
        """Return the path of what the owner holds under `name`."""
        return f"{self.path}.{name}" if self.path else name


def is_left_alone(owner: Owner) -> bool:
    """Tell whether other parts of the process's state carry an object, whichever module names it."""
    if (owner.module, owner.path) in LEFT_ALONE:
        return True
    return is_a(owner.value, CONTAINERS) and any(
        attributes_of(sys.modules[module]).get(name) is owner.value
        for module, name in LEFT_ALONE
        if module in sys.modules
    )


class Started(NamedTuple):
    """A mock in a library's place: whose attribute it took, and what was there before."""

    owner: Owner
    name: str
    original: Any


def active_mocks() -> list[Any]:
    """Return what ``unittest.mock`` has started and not stopped; empty where nobody imported it."""
    patch = attributes_of(sys.modules.get(ACTIVE_MOCKS[0].removeprefix("import "))).get(ACTIVE_MOCKS[1])
    found: Any = attributes_of(patch).get(ACTIVE_MOCKS[2]) if is_a(patch, type) else None
    return list(found) if kind_of(found) is list else []


def place_of_mock(patcher: object) -> Started | None:
    """Return where a patcher that was started put its mock; None for an object that is no library's."""
    known = attributes_of(patcher)
    target, name = known.get("target"), known.get("attribute")
    home = home_of(target) if is_a(target, (type, types.ModuleType)) else None
    owner = _owner(target, home)
    if owner is None or type(name) is not str or is_left_alone(owner):
        return None
    if (owner.module, owner.below(name)) in LEFT_ALONE:
        return None
    return Started(owner, name, known.get("temp_original") if known.get("is_local") is True else Absent)


class Names:
    """What a plan's names stand for: in the namespace, in its import statements, in builtins."""

    def __init__(self, plan: Plan, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._imports = {name: (module, attribute) for name, module, attribute in plan.imports}
        self._stars = plan.stars

    @property
    def complete(self) -> bool:
        """Tell whether every module that the plan's statements import is there."""
        modules = {module for module, _ in self._imports.values()} | self._stars
        return all(module in sys.modules for module in modules)

    def along(self, chain: Chain) -> list[Owner | None]:
        """Return the library's object at each part of a chain; None where there is no such object."""
        value = self._first(chain[0])
        home = home_of(value) if value is not Absent else None
        found: list[Owner | None] = [_owner(value, home)]
        for name in chain[1:]:
            if name == TYPE:
                value = type(value) if value is not Absent else Absent
                home = home_of(value)
            else:
                module, path = home or ("", "")
                value = step(value, name) if home is not None else Absent
                home = home_of(value) or ((module, f"{path}.{name}" if path else name) if module else None)
            found.append(_owner(value, home))
        return found

    def owner(self, chain: Chain) -> Owner | None:
        """Return the library's object that a chain ends with."""
        return self.along(chain)[-1] if chain else None

    def _first(self, name: str) -> Any:
        if name.startswith("import "):
            return sys.modules.get(name.removeprefix("import "), Absent)
        if name in self._imports:
            module, attribute = self._imports[name]
            held = sys.modules.get(module, Absent)
            return step(held, attribute) if attribute and held is not Absent else held
        if name in self._namespace:
            return self._namespace[name]
        for module in self._stars:
            found = step(sys.modules.get(module), name)
            if found is not Absent:
                return found
        return vars(builtins).get(name, Absent)

    def patched_by(self, chain: Chain) -> list[Owner]:
        """Return the classes that a library's function, known for it, changes."""
        module, paths = PATCHERS.get((".".join(chain[-2:-1]).lower(), chain[-1]), ("", ()))
        found = [self.owner((f"import {module}", *path.split("."))) for path in paths]
        return [owner for owner in found if owner is not None]

    def dotted(self, text: str) -> tuple[Owner, str] | None:
        """Return the owner and the name of an attribute that a text says, as ``unittest.mock`` reads it."""
        path, _, name = text.rpartition(".")
        parts = path.split(".")
        module = parts[0]
        if module not in sys.modules:
            return None
        found = self.along((f"import {module}", *parts[1:]))[-1]
        if found is None or name not in attributes_of(found.value):
            return None
        return found, name


def _owner(value: object, home: tuple[str, str] | None) -> Owner | None:
    if value is Absent or home is None or home[0].partition(".")[0] in OWN_ROOTS:
        return None
    return Owner(value, *home)


def holds_attributes(value: object) -> bool:
    """Tell whether an object is a module or class, or an instance with a dictionary."""
    if is_a(value, (type, types.ModuleType)):
        return True
    return kind_of(value) not in CONTAINERS and bool(attributes_of(value))


def containers_in(owner: Owner) -> Iterator[Owner]:
    """Yield the containers that a module or instance holds under public names, an instance under any."""
    inside = is_a(owner.value, types.ModuleType)
    for name, value in list(attributes_of(owner.value).items()):
        if kind_of(value) in CONTAINERS and type(name) is str and not (inside and name.startswith("_")):
            yield Owner(value, owner.module, owner.below(name))


BEHIND_MAX = 50
"""So many functions behind one that registers something are looked into."""


def functions_behind(function: Any) -> Iterator[types.FunctionType]:
    """Yield a library's function, and those of its package that it names; of a class its methods."""
    if is_a(function, type):
        yield from (one for one in attributes_of(function).values() if type(one) is types.FunctionType)
    if type(function) is not types.FunctionType:
        return
    yield function
    package = str(function.__module__).partition(".")[0]
    named = (function.__globals__.get(name) for name in _names_in(function.__code__))
    behind = (one for one in named if type(one) is types.FunctionType and one is not function)
    yield from islice((one for one in behind if one.__module__.partition(".")[0] == package), BEHIND_MAX)


def _names_in(code: types.CodeType) -> Iterator[str]:
    """Yield the names that code looks up, in what it defines too."""
    yield from code.co_names
    for part in code.co_consts:
        if type(part) is types.CodeType:
            yield from _names_in(part)


def kept_by(function: types.FunctionType, *, instances: bool = False) -> Iterator[Owner]:
    """Yield where a library's function may keep something: its module, and the containers that it names.

    A container counts under any name, and so does one in an instance that the function names. With
    `instances` these are told too.
    """
    held, module = function.__globals__, function.__module__
    if vars(sys.modules.get(module, object)) is held:
        yield Owner(sys.modules[module], module, "")
    for name in _names_in(function.__code__):
        value = held.get(name)
        if kind_of(value) in CONTAINERS:
            yield Owner(value, module, name)
        elif not is_a(value, (type, types.ModuleType, types.FunctionType)):
            named = Owner(value, module, name)
            if instances and holds_attributes(value):
                yield named
            yield from containers_in(named)


def variables_set_by(function: types.FunctionType) -> Iterator[str]:
    """Yield the variables of its module that a library's function binds."""
    for instruction in dis.get_instructions(function.__code__):
        if instruction.opname == "STORE_GLOBAL":
            yield str(instruction.argval)


def attributes_set_by(cls: type) -> Iterator[str]:
    """Yield the attributes that the methods of a library's class bind on something."""
    for base in type.__dict__["__mro__"].__get__(cls):
        for held in list(attributes_of(base).values()):
            parts = (held.fget, held.fset) if type(held) is property else (held,)
            for function in parts:
                if type(function) is types.FunctionType:
                    for instruction in dis.get_instructions(function.__code__):
                        if instruction.opname == "STORE_ATTR":
                            yield str(instruction.argval)


def set_up_by(function: Chain, names: Names) -> list[Owner]:
    """Return the objects in which a call that sets a library up may keep something: no module or class."""
    called, owner = names.owner(function), names.owner(function[:-1])
    home = called or owner
    if home is None or home.module.partition(".")[0] in CARRIED:
        return []
    found: list[Owner] = []
    for behind in functions_behind(called.value if called is not None else None):
        for kept in kept_by(behind, instances=True):
            found.extend((kept, *_dictionaries_in(kept)))
    if owner is not None and not is_a(owner.value, (type, types.ModuleType)):
        found.extend((owner, *containers_in(owner)))
    return [one for one in found if not is_a(one.value, (type, types.ModuleType, logging.Logger))]


def _dictionaries_in(owner: Owner) -> Iterator[Owner]:
    """Yield the dictionaries in a dictionary of settings, which may be trees of such."""
    for name, value in list(owner.value.items()) if type(owner.value) is dict else ():
        if type(value) is dict and type(name) is str and name.isidentifier():
            inner = Owner(value, owner.module, owner.below(name))
            yield inner
            yield from _dictionaries_in(inner)


def registries_of(function: Chain, names: Names) -> list[Owner]:
    """Return the objects in which a function may register something."""
    found = names.patched_by(function)
    registering = names.owner(function)
    if registering is not None:
        for behind in functions_behind(registering.value):
            found.extend(kept_by(behind))
    owner = names.owner(function[:-1])
    if owner is None:
        return found
    found.append(owner)
    if not is_a(owner.value, type):
        found.extend(containers_in(owner))
    if is_a(owner.value, types.ModuleType):
        found.extend(_classes_exported_by(owner, names, function[:-1]))
    return found


def _classes_exported_by(owner: Owner, names: Names, chain: Chain) -> list[Owner]:
    """Return the public classes of the package that a registering function belongs to."""
    first = names.along(chain[:1])[0]
    package = owner if first is None else first
    if not is_a(package.value, types.ModuleType):
        return []
    found = []
    for name, value in list(attributes_of(package.value).items()):
        if is_a(value, type) and not name.startswith("_"):
            home = names.along((chain[0], name))[-1]
            if home is not None:
                found.append(home)
    return found


def changed_by(plan: Plan, names: Names) -> Iterator[Owner]:
    """Yield the objects that a plan changes in place, and those in which what it calls may keep something."""
    for chain in plan.filled:
        filled = names.owner(chain)
        if filled is None:
            yield from _behind_property(chain, names)
        elif (filled.module, filled.path) not in LEFT_ALONE:
            yield filled
            if not is_a(filled.value, (*CONTAINERS, type, types.ModuleType)):
                yield from containers_in(filled)
    for function in plan.registries:
        yield from registries_of(function, names)
    for function in plan.settings | plan.registries:
        yield from set_up_by(function, names)


def _behind_property(chain: Chain, names: Names) -> Iterator[Owner]:
    """Yield the dictionaries of the instance at which a chain of names goes on to what a property gives."""
    known = [owner for owner in names.along(chain) if owner is not None]
    if not known or is_a(known[-1].value, (*CONTAINERS, type, types.ModuleType)):
        return
    for name, value in list(attributes_of(known[-1].value).items()):
        if issubclass(type(value), dict) and type(name) is str:
            yield Owner(value, known[-1].module, known[-1].below(name))
