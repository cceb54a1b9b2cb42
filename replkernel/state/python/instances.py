"""Instances of notebook classes: what is in them, read and set past every method that their class defines.

No ``__new__``, ``__init__``, ``__setattr__``, ``append`` or ``__setitem__`` of the user's runs: they ran when
the object was made. A class that says how it pickles is for `whole_states`. An instance's dictionary stays
shared with whoever else holds it.
"""

from __future__ import annotations

import copyreg
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import getweakrefcount

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import Reducer
from replkernel.state.patches.own_modules import is_own
from replkernel.state.python.kinds import entry_of, key_of, module_of
from replkernel.state.python.modules import find_global
from replkernel.state.python.paths import getter_among, instance_dict, is_covered
from replkernel.state.python.weakrefs import REGISTRY, finalizers_of
from replkernel.state.restore import loading

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

_DICT = type.__dict__["__dict__"]
_MRO = type.__dict__["__mro__"]
_QUALNAME = type.__dict__["__qualname__"]
_FLAGS = type.__dict__["__flags__"]
_HEAP_TYPE = 1 << 9

_GENERATORS = frozenset({"collections", "dataclasses"})
HOOKS = frozenset(
    {"__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__"}
)
"""What a class may define to say how it pickles."""
_MAKES_OTHERWISE = HOOKS | {"__new__"}

Items = Callable[[Any], tuple[Any, ...]]


def _exactly(method: Callable[..., Any], *arguments: object) -> Items:
    return lambda value: (method(value, *arguments),)


VALUES: dict[type, Items] = {
    int: _exactly(int.__int__),
    float: _exactly(float.__float__),
    complex: _exactly(complex.__pos__),
    str: _exactly(str.__str__),
    bytes: _exactly(bytes.__getitem__, slice(None)),
    tuple: _exactly(tuple.__getitem__, slice(None)),
    frozenset: lambda value: (frozenset(value),),
}
"""Built-in types whose value is given when an instance is made, and how it is read."""


def _flat(pairs: Iterable[tuple[Any, Any]]) -> tuple[Any, ...]:
    return tuple(part for pair in pairs for part in pair)


_CONTENTS: dict[type, Callable[[Any], Any]] = {
    list: lambda value: tuple(list.__iter__(value)),
    dict: lambda value: _flat(dict.items(value)),
    set: set,
    OrderedDict: lambda value: _flat(OrderedDict.items(value)),
    Counter: lambda value: _flat(dict.items(value)),
    deque: lambda value: tuple(deque.__iter__(value)),
    defaultdict: lambda value: _flat(dict.items(value)),
}
"""Containers that are filled after they were made, and how their contents are read: a set's as a set, since
the order of its members follows from its history. Python copies a set past the methods of its class."""
_BUILT_IN = frozenset({*VALUES, *_CONTENTS})

_FACTORY = defaultdict.__dict__["default_factory"]
_MAXLEN = deque.__dict__["maxlen"]


def plan(cls: type, ignored: frozenset[str] = frozenset()) -> Reducer | None:
    """Return the reducer for instances of a notebook class; None when only pickle knows what they are.

    `ignored` are hooks that are not asked.
    """
    mro: tuple[type, ...] = _MRO.__get__(cls)
    base = base_of(mro, HOOKS - ignored)
    if base is None:
        return None
    getter = getter_among(mro)
    dict_of = None if getter is None else getter.__get__
    slots = slots_of(cls)
    if base is object and dict_of is not None and not slots and not is_covered(mro):
        return _plain(cls, dict_of)
    return _full(cls, base, dict_of, slots)


def base_of(mro: tuple[type, ...], asked: frozenset[str]) -> type | None:
    """Return the built-in type below the notebook's classes; None if a class says how it pickles."""
    found: type = object
    for cls in mro:
        if is_notebooks(cls):
            if any(_says_how(hook) for name, hook in _DICT.__get__(cls).items() if name in asked):
                return None
        elif key_of(cls) in _BUILT_IN:
            found = found if found is not object else cls
        elif cls is not object and (
            not _FLAGS.__get__(cls) & _HEAP_TYPE
            or not HOOKS.isdisjoint(_DICT.__get__(cls))
            or type(_DICT.__get__(cls).get("__new__")) is types.BuiltinFunctionType
        ):
            return None  # What is written in C has parts that nobody sees, and only itself makes one.
    return found


def _says_how(hook: object) -> bool:
    """Tell whether a hook is the user's: what `namedtuple` and `dataclass` generate gives all there is."""
    return getattr(hook, "__module__", None) not in _GENERATORS


def is_notebooks(cls: type) -> bool:
    """Tell whether a class is the user's: no import finds it, or one from a file of his."""
    module = module_of(cls)
    return bool(_FLAGS.__get__(cls) & _HEAP_TYPE) and (
        module == "__main__" or is_own(module) or find_global(module, _QUALNAME.__get__(cls)) is not cls
    )


def says_how_it_pickles(cls: type) -> bool:
    """Tell whether a notebook's class, or one that it derives from, has a hook of the user's."""
    return any(
        _says_how(hook)
        for one in _MRO.__get__(cls)
        if is_notebooks(one)
        for name, hook in _DICT.__get__(one).items()
        if name in HOOKS
    )


def slots_of(cls: type) -> list[tuple[str, Any]]:
    """Return the slots of a class's instances by depth and name, and how each is read."""
    return [
        (sys.intern(f"{depth}.{name}"), slot.__get__)
        for depth, one in enumerate(_MRO.__get__(cls))
        if _FLAGS.__get__(one) & _HEAP_TYPE
        for name, slot in _DICT.__get__(one).items()
        if type(slot) is types.MemberDescriptorType and slot.__objclass__ is one
    ]


def has_attributes(cls: type) -> bool:
    """Tell whether instances of a class have a dictionary, or slots."""
    return bool(slots_of(cls)) or getter_among(_MRO.__get__(cls)) is not None


def attributes_of(instance: object) -> dict[str, Any]:
    """Return the dictionary of an instance past its class's methods; an empty one where it has none."""
    held = instance_dict(instance)
    return {} if held is None else held


def _plain(cls: type, dict_of: Any) -> Reducer:
    def reduce_plain(pickler: UnitContext, value: object) -> object:
        reduction = make_plain, (cls,), dict_of(value), None, None, fill_plain
        return with_calls(value, reduction) if REGISTRY and getweakrefcount(value) else reduction

    return reduce_plain


def plan_for_shared_dict(cls: type) -> Reducer | None:
    """Return the reducer for instances of a library's class that leaves all but one kind to pickle.

    That kind: a variable holds the instance's dictionary (``vars(arguments)``), which is to stay that. None
    for a class of which pickle makes more than an instance with a dictionary.
    """
    mro: tuple[type, ...] = _MRO.__get__(cls)
    getter = getter_among(mro)
    if getter is None or is_covered(mro) or entry_of(copyreg.dispatch_table, cls):
        return None
    for one in mro[:-1]:
        if not _FLAGS.__get__(one) & _HEAP_TYPE or not _MAKES_OTHERWISE.isdisjoint(_DICT.__get__(one)):
            return None
    if slots_of(cls):
        return None
    dict_of = getter.__get__

    def reduce_shared(pickler: UnitContext, value: object) -> object:
        held = dict_of(value)
        if id(held) in pickler.root_dicts:
            return make_plain, (cls,), held, None, None, fill_plain
        return NotImplemented

    return reduce_shared


@loader("instances:make_plain")
def make_plain(cls: type[Any]) -> object:
    """Return an instance without attributes (called by payloads)."""
    return object.__new__(cls)


@loader("instances:fill_plain")
def fill_plain(instance: object, attributes: dict[str, Any]) -> None:
    """Give an instance its dictionary (called by payloads)."""
    object.__setattr__(instance, "__dict__", attributes)


def with_calls(value: object, reduction: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the reduction of an instance with the calls of `weakref.finalize` at its death."""
    calls = finalizers_of(value)
    if not calls:
        return reduction
    maker, arguments, state, _, _, filler = reduction
    return maker, arguments, (calls, filler, state), None, None, fill_and_call


@loader("instances:fill_and_call")
def fill_and_call(instance: object, given: tuple[Any, ...]) -> None:
    """Fill an instance; the calls at its death, made before what it holds, know it themselves.

    Called by payloads; those of earlier versions have the calls at the end.
    """
    filler, state = given[:2] if callable(given[0]) else given[1:]
    filler(instance, state)


def _full(cls: type, base: type, dict_of: Any, slots: list[tuple[str, Any]]) -> Reducer:
    value_of, contents_of = VALUES.get(base), _CONTENTS.get(base)

    def reduce_full(pickler: UnitContext, value: object) -> object:
        arguments = () if value_of is None else value_of(value)
        if base is deque:
            arguments = (_MAXLEN.__get__(value),)
        held = held_in(value, slots)
        state = (
            None if dict_of is None else dict_of(value),
            held or None,
            None if contents_of is None else contents_of(value),
            _FACTORY.__get__(value) if base is defaultdict else None,
        )
        reduction = make, (cls, base, arguments), state, None, None, fill
        return with_calls(value, reduction) if REGISTRY and getweakrefcount(value) else reduction

    return reduce_full


def held_in(value: object, slots: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return what an instance has in its slots."""
    held = {}
    for name, get in slots:
        try:
            held[name] = get(value, type(value))
        except AttributeError:
            continue
    return held


@loader("instances:make")
def make(cls: type[Any], base: object, arguments: tuple[Any, ...]) -> Any:
    """Return an instance of a notebook class as its built-in base makes it (called by payloads)."""
    if base is deque:
        made = deque.__new__(cls)
        deque.__init__(made, (), *arguments)
        return made
    return base.__new__(cls, *arguments)


@loader("instances:fill")
def fill(instance: object, state: tuple[Any, ...]) -> None:
    """Give an instance its dictionary, slots and contents (called by payloads)."""
    attributes, slots, contents, factory = state
    if attributes is not None:
        _set_dict(instance, attributes)
    fill_slots(instance, slots or {})
    if factory is not None:
        _FACTORY.__set__(instance, factory)
    if contents:
        loading.current().fill_later(lambda: _fill_contents(instance, contents))


def fill_slots(instance: object, slots: dict[str, Any]) -> None:
    """Give an instance what it had in its slots."""
    mro = _MRO.__get__(type(instance))
    for key, value in slots.items():
        depth, _, name = key.partition(".")
        _DICT.__get__(mro[int(depth)])[name].__set__(instance, value)


def _set_dict(instance: object, attributes: object) -> None:
    getter_among(_MRO.__get__(type(instance))).__set__(instance, attributes)


def _fill_contents(instance: object, contents: Sequence[Any]) -> None:
    if isinstance(instance, list):
        list.extend(instance, contents)
    elif isinstance(instance, set):
        set.update(instance, contents)
    elif isinstance(instance, deque):
        deque.extend(instance, contents)
    else:
        put: Any = OrderedDict.__setitem__ if isinstance(instance, OrderedDict) else dict.__setitem__
        for key, value in zip(contents[::2], contents[1::2], strict=True):
            put(instance, key, value)
