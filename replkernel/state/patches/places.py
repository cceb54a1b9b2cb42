"""Where a notebook can have changed a library: a name for each place, reading it, changing it.

A place's name is the root under which its value travels, like a variable's.
Law: places are read without running anybody's code; only `put` and `remove` assign as Python does.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import types
from collections.abc import Iterable
from typing import Any, NamedTuple

from replkernel.loaders import loader
from replkernel.state.libraries.matplotlib import open_figures as pyplot
from replkernel.state.patches import given
from replkernel.state.python.cached_calls import WRAPPER, cached_by, put_cached
from replkernel.state.python.kinds import is_a, kind_of, module_of, qualname_of
from replkernel.state.python.logging import places as loggers
from replkernel.state.python.paths import instance_dict

PREFIX = "library "
"""The names of places begin with it; no variable's does."""
ATTRIBUTE, SETTING, ITEM, ENTRY = "attribute", "setting", "item", "entry"
"""An attribute; one behind a descriptor; an entry of a dictionary by a plain key, or by a class."""
CONTENT, DISPATCH, VIRTUAL = "content", "dispatch", "virtual"
"""A whole list or set; a function for a type; a virtual subclass."""
FIGURES, LOGGER, ADAPTER, GIVEN = "figures", "logger", "adapter", "given"
"""The open figures of pyplot; what loggers were given; what `sqlite3` makes of a class; what calls gave."""

PLAIN = frozenset({type(None), bool, int, float, str, bytes})

_MODULE_DICT: Any = types.ModuleType.__dict__["__dict__"]  # type: ignore[index]
_CLASS_DICT = type.__dict__["__dict__"]
_MRO = type.__dict__["__mro__"]
_abc: Any = importlib.import_module("_abc")


@loader("patches:Absent")
class Absent:
    """Stands for nothing: the attribute or entry is not there."""


UNKNOWN: Any = object()
"""What a library had at a place that was changed in the cell that imported it."""


@loader("patches:Place")
class Place(NamedTuple):
    """`owner` is the dotted path in `module` of what holds the place; `key` is its name or index there."""

    kind: str
    module: str
    owner: str
    key: str

    def root(self) -> str:
        """Return the name under which the place's value travels: ``library json:dumps`` for an attribute."""
        path, end = self.owner, _ENDS[self.kind].format(self.key)
        if self.kind in (ATTRIBUTE, SETTING) and not path:
            end = end[1:]
        return f"{PREFIX}{self.module}:{path}{end}"


_ENDS = {
    ATTRIBUTE: ".{}",
    SETTING: ".{}=",
    ITEM: "[{}]",
    ENTRY: "[<{}>]",
    CONTENT: "[:]{}",
    DISPATCH: ".register({})",
    VIRTUAL: ".register(<{}>)",
    FIGURES: "[figures]{}",
    LOGGER: "[logger {}]",
    ADAPTER: "[adapter {}]",
    GIVEN: "[given {}]",
}
_ROOT = re.compile(
    re.escape(PREFIX)
    + r"""(?P<module>[\w.]+):(?:
    (?P<content>[\w./+]+)\[:\]
    | (?P<figures>[\w./+]+)\[figures\]
    | (?P<logger>[\w./+]+)\[logger\ (?P<logger_key>.*)\]
    | (?P<adapter>[\w./+]+)\[adapter\ (?P<adapter_key>.*)\]
    | (?P<given>[\w./+]+)\[given\ (?P<given_key>.*)\]
    | (?P<entry>[\w./+]+)\[<(?P<entry_key>.*)>\]
    | (?P<item>[\w./+]+)\[(?P<item_key>.*)\]
    | (?P<virtual>[\w./+]+)\.register\(<(?P<virtual_key>.*)>\)
    | (?P<dispatch>[\w./+]+)\.register\((?P<dispatch_key>.*)\)
    | (?:(?P<setting>[\w./+]+)\.)?(?P<setting_key>\w+)=
    | (?:(?P<attribute>[\w./+]+)\.)?(?P<attribute_key>\w+)
    )\Z""",
    re.VERBOSE | re.DOTALL,
)


def place_of(root: str) -> Place:
    """Return the place of a root; raises ValueError for any other name."""
    match = _ROOT.match(root)
    if match is None:
        raise ValueError(f"{root!r} names no place in a library")
    found = {name: text for name, text in match.groupdict().items() if text is not None}
    module = found.pop("module")
    kind = next(iter(found)).partition("_")[0]
    return Place(kind, module, found.get(kind, ""), found.get(f"{kind}_key", ""))


def place_of_module(name: str) -> Place:
    """Return the place of a module among those that are imported."""
    return Place(ITEM, "sys", "modules", json.dumps(name))


def attributes_of(owner: object) -> Any:
    """Return the dictionary of a module, class or instance, without asking it; empty if it has none."""
    if issubclass(type(owner), type):
        return _CLASS_DICT.__get__(owner)
    if issubclass(type(owner), types.ModuleType):
        return _MODULE_DICT.__get__(owner)
    return instance_dict(owner) or {}


def step(value: object, name: str) -> Any:
    """Return a module's or class's attribute without running code of theirs; Absent if there is none.

    Only a module that imports what it exports when it is asked for that is asked.
    """
    if issubclass(type(value), type):
        for cls in _MRO.__get__(value):
            found = _CLASS_DICT.__get__(cls).get(name, Absent)
            if found is not Absent:
                return found
        return Absent
    if issubclass(type(value), types.ModuleType):
        attributes = _MODULE_DICT.__get__(value)
        if name in attributes:
            return attributes[name]
        module = attributes.get("__name__")
        if type(module) is str and f"{module}.{name}" in sys.modules:
            return sys.modules[f"{module}.{name}"]
        return _lazily_from(attributes, name)
    return attributes_of(value).get(name, Absent)


def _lazily_from(module: dict[str, Any], name: str) -> Any:
    """Return what a module imports when it is asked for a name that it exports; Absent for other names."""
    ask, exported = module.get("__getattr__"), module.get("__all__", ())
    if type(ask) is not types.FunctionType or kind_of(exported) not in (list, tuple) or name not in exported:
        return Absent
    try:
        return ask(name)
    except Exception:
        return Absent


def owner_at(module: str, path: str) -> Any:
    """Return what a dotted path in an imported module leads to; Absent when nothing is there."""
    found: Any = sys.modules.get(module, Absent)
    for name in path.split(".") if path else ():
        found = found.get(name, Absent) if type(found) is dict else step(found, name)
    return found.__func__ if kind_of(found) in (staticmethod, classmethod) else found


def home_of(owner: Any, main_name: str = "__main__") -> tuple[str, str] | None:
    """Return the module and path by which an import finds a library's module, class or function, or None."""
    if issubclass(type(owner), types.ModuleType):
        name = _MODULE_DICT.__get__(owner).get("__name__")
        if type(name) is not str or name == main_name or sys.modules.get(name) is not owner:
            return None
        return name, ""
    if issubclass(type(owner), type):
        module, path = module_of(owner), qualname_of(owner)
    elif issubclass(type(owner), types.FunctionType) and type(owner.__module__) is str:
        module, path = owner.__module__, owner.__qualname__
    else:
        return None
    return None if module == main_name or owner_at(module, path) is not owner else (module, path)


def is_dispatcher(value: object) -> bool:
    """Tell whether a function dispatches on the type of its argument."""
    is_function = issubclass(type(value), types.FunctionType)
    return is_function and {"register", "registry", "dispatch"} <= vars(value).keys()


def is_abstract(value: object) -> bool:
    """Tell whether a class takes virtual subclasses."""
    return issubclass(type(value), type) and "_abc_impl" in _CLASS_DICT.__get__(value)


def virtual_subclasses(cls: type) -> list[type]:
    """Return the classes registered with an abstract class."""
    return [alive for held in _abc._get_dump(cls)[0] if (alive := held()) is not None]


def class_label(cls: type) -> str:
    """Return what stands for a class in a place's name."""
    return f"{qualname_of(cls)}@{module_of(cls)}".replace(":", ".")


def read(place: Place) -> Any:
    """Return what is at a place now; Absent when nothing is."""
    owner = owner_at(place.module, place.owner)
    return Absent if owner is Absent else _READERS[place.kind](owner, place.key)


DEFAULTS, KEYWORD_DEFAULTS, CELLS = "__defaults__", "__kwdefaults__", "__closure__"
"""What a function keeps beside its attributes; of its cells those with data are one place."""

CACHED = "__cached__"
"""What a function that `functools` wrapped has cached."""

_BY_NAME = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)


def cells_of(function: types.FunctionType) -> dict[str, Any]:
    """Return what a function's closure holds, by name, but for functions, classes and modules."""
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            held = cell.cell_contents
        except ValueError:
            continue
        if not is_a(held, _BY_NAME):
            found[name] = held
    return found


def _read_attribute(owner: object, key: str) -> Any:
    if type(owner) is types.FunctionType and key in (DEFAULTS, KEYWORD_DEFAULTS, CELLS):
        return cells_of(owner) if key == CELLS else getattr(owner, key)
    if type(owner) is WRAPPER and key == CACHED:
        return cached_by(owner)
    return attributes_of(owner).get(key, Absent)


def _read_setting(owner: object, key: str) -> Any:
    try:
        value = getattr(owner, key)
    except Exception:
        return Absent
    return value if kind_of(value) in PLAIN else Absent


def _read_item(owner: object, key: str) -> Any:
    return dict.get(owner, _item_key(key), Absent) if is_a(owner, dict) else Absent


def _item_key(key: str) -> Any:
    """Return the key of a dictionary that a place's name holds: text, a number, or a tuple of such."""
    found = json.loads(key)
    return tuple(found) if type(found) is list else found


def _read_entry(owner: object, key: str) -> Any:
    return _entry_among(dict.items(owner), key) if is_a(owner, dict) else Absent


def _entry_among(entries: Iterable[tuple[Any, Any]], key: str) -> Any:
    found = ((cls, value) for cls, value in entries if is_a(cls, type) and class_label(cls) == key)
    return next(found, Absent)


def _read_adapter(owner: Any, key: str) -> Any:
    return _entry_among(((made[0], function) for made, function in dict.items(owner)), key)


def _read_content(owner: Any, key: str) -> Any:
    return type(owner)(owner) if kind_of(owner) in (list, set) else Absent


def _read_dispatch(owner: Any, key: str) -> Any:
    return _entry_among(owner.registry.items(), key) if is_dispatcher(owner) else Absent


def _read_virtual(owner: Any, key: str) -> Any:
    found = virtual_subclasses(owner) if is_abstract(owner) else []
    return next((cls for cls in found if class_label(cls) == key), Absent)


def _read_figures(owner: object, key: str) -> Any:
    found = pyplot.read_figures(owner)
    return Absent if found is None else found


def _read_logger(owner: object, key: str) -> Any:
    found = loggers.read(key)
    return Absent if found is None else found


def _read_given(owner: object, key: str) -> Any:
    found = given.read(key)
    return Absent if found is None else found


_READERS = {
    GIVEN: _read_given,
    ADAPTER: _read_adapter,
    LOGGER: _read_logger,
    FIGURES: _read_figures,
    ATTRIBUTE: _read_attribute,
    SETTING: _read_setting,
    ITEM: _read_item,
    ENTRY: _read_entry,
    CONTENT: _read_content,
    DISPATCH: _read_dispatch,
    VIRTUAL: _read_virtual,
}


def put(place: Place, value: Any) -> None:
    """Make `value` what is at a place; the module must be importable."""
    if place.module not in sys.modules:
        importlib.import_module(place.module)
    owner = owner_at(place.module, place.owner)
    if owner is Absent:
        raise LookupError(f"{place.module} has no {place.owner} here")
    if place.kind in (ATTRIBUTE, SETTING):
        _set_attribute(owner, place.key, value)
    elif place.kind == ITEM:
        owner[_item_key(place.key)] = value
    elif place.kind == ENTRY:
        owner[value[0]] = value[1]
    elif place.kind == CONTENT:
        _set_content(owner, value)
    elif place.kind == DISPATCH:
        owner.register(*value)
    elif place.kind == FIGURES:
        pyplot.put_figures(owner, value)
    elif place.kind == LOGGER:
        loggers.put(place.key, value)
    elif place.kind == GIVEN:
        given.put(place.key, value)
    elif place.kind == ADAPTER:
        sys.modules[place.module].register_adapter(*value)
    else:
        owner.register(value)


def remove(place: Place) -> None:
    """Take away what is at a place, if it can be: a virtual subclass stays one for ever."""
    owner = owner_at(place.module, place.owner)
    if place.kind == ATTRIBUTE and place.key in attributes_of(owner):
        delattr(owner, place.key)
    elif place.kind == ITEM:
        owner.pop(_item_key(place.key), None)
    elif place.kind == FIGURES:
        pyplot.put_figures(owner, [])
    elif place.kind == GIVEN:
        given.remove(place.key)
    elif place.kind == LOGGER:
        loggers.put(place.key, (0,))
    elif place.kind == ADAPTER:
        for made in [made for made in owner if class_label(made[0]) == place.key]:
            del owner[made]
    elif place.kind in (ENTRY, DISPATCH):
        registry = _registry_of(owner) if place.kind == DISPATCH else owner
        for cls in [cls for cls in registry if is_a(cls, type) and class_label(cls) == place.key]:
            del registry[cls]
        if place.kind == DISPATCH:
            owner._clear_cache()


def _registry_of(dispatcher: Any) -> dict[type, Any]:
    """Return the dictionary in which a dispatcher keeps its functions: a cell of its own method."""
    inner = dispatcher.dispatch
    cells = dict(zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True))
    found: dict[type, Any] = cells["registry"].cell_contents if "registry" in cells else {}
    return found


def _set_cells(function: types.FunctionType, value: dict[str, Any]) -> None:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name in value:
            cell.cell_contents = value[name]


def _set_attribute(owner: Any, name: str, value: Any) -> None:
    if name == CELLS and type(owner) is types.FunctionType:
        _set_cells(owner, value)
        return
    if name == CACHED and type(owner) is WRAPPER:
        owner.cache_clear()
        put_cached(owner, value)
        return
    setattr(owner, name, value)
    accessors = step(owner, "_accessors")
    if type(accessors) is set and type(value).__name__ in ("CachedAccessor", "Accessor", "NameSpace"):
        accessors.add(name)


def _set_content(owner: Any, value: Any) -> None:
    if type(owner) is list:
        owner[:] = value
    else:
        owner.clear()
        owner.update(value)
