"""Classes: a library's by name; a notebook's by id, with its definition in the component that owns it.

A definition is an empty class first and its attributes afterwards, so that cycles close. No metaclass code,
no ``__init_subclass__`` and no ``__set_name__`` runs when it is rebuilt: these ran when the user defined it.
"""

from __future__ import annotations

import abc
import ctypes
import functools
import gc
import importlib
import sys
import types
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.format.roots import ClassBody
from replkernel.state.libraries import msgspec
from replkernel.state.libraries.pydantic import generic_models
from replkernel.state.patches.book import book, original
from replkernel.state.python import class_registry
from replkernel.state.python.ctypes import functions as c_functions
from replkernel.state.python.ctypes import structs as c_structs
from replkernel.state.python.enums import fill_member, make_member  # noqa: F401 - checkpoints of older releases name them here
from replkernel.state.python.kinds import derives, is_a, key_of, kind_of, module_of, qualname_of
from replkernel.state.python.modules import find_global
from replkernel.state.restore import loading

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext


_abc = importlib.import_module("_abc")
_DICT = type.__dict__["__dict__"]
_MRO = type.__dict__["__mro__"]
_BASES = type.__dict__["__bases__"]
_NAME = type.__dict__["__name__"]
_QUALNAME = type.__dict__["__qualname__"]
_CLASS = object.__dict__["__class__"]
_FLAGS = type.__dict__["__flags__"]
_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8

_UNNAMED = (type(None), type(NotImplemented), type(...))
_OF_PYTHON = frozenset({"__slotnames__", "_abc_impl"})
"""Entries of a class's dictionary that Python makes itself."""

_OF_METACLASS = frozenset({"__class__", "__dict__", "__name__", "__bases__", "__mro__"})
"""Entries that are set on instances' behalf: set on the class they would change the class itself."""

_SET_AT_BIRTH = frozenset({"__slots__", "__qualname__"})

_by_types_module = {
    value: name
    for name, value in vars(types).items()
    if is_a(value, type) and find_global(value.__module__, value.__qualname__) is not value
}


def library_of(cls: type, main_name: str) -> str | None:
    """Return the module in which an import finds this very class; None when there is none."""
    module = module_of(cls)
    return None if module == main_name or find_global(module, qualname_of(cls)) is not cls else module


def _home_of_compiled(cls: type) -> str | None:
    """Return where a class of a compiled module is, that names the module without its package."""
    module = module_of(cls)
    if module == "__main__" or module in sys.modules or "." in module or "<" in qualname_of(cls):
        return None
    for name in [name for name in list(sys.modules) if name.endswith(f".{module}")]:
        if find_global(name, qualname_of(cls)) is cls:
            return name
    return None


@loader("classes:imported_class")
def imported_class(module: str, name: str) -> object:
    """Return a class of a module that is imported for it (called by payloads)."""
    return functools.reduce(getattr, name.split("."), importlib.import_module(module))


def reduce_class(pickler: UnitContext, cls: type) -> object:
    """Reduce a class, wherever it is referred to."""
    if book and (root := book.token_of(cls)) is not None:
        pickler.touched = True
        return original, (root,)
    module = library_of(cls, pickler.world.seeds.main_name)
    if module is not None:
        pickler.touched = True
        pickler.modules.add(module)
        return NotImplemented
    key = key_of(cls)
    if key in _UNNAMED:
        return NotImplemented
    if key in _by_types_module:
        return types_attribute, (_by_types_module[cls],)
    home = _home_of_compiled(cls)
    if home is not None:
        pickler.touched = True
        pickler.modules.add(home)
        return imported_class, (home, qualname_of(cls))
    if c_structs.is_array_type(cls):
        entries = _DICT.__get__(cls)
        return c_structs.array_type, (entries["_type_"], entries["_length_"])
    if c_structs.is_pointer_type(cls):
        return c_structs.pointer_type, (_DICT.__get__(cls)["_type_"],)
    if c_functions.is_function_type(cls):
        return c_functions.told_type(cls)
    if (native := c_structs.native_type(cls)) is not None:
        return c_structs.swapped_type, (native,)
    if key in c_structs.METACLASSES:
        return c_structs.metaclass, (c_structs.METACLASSES[cls],)
    reason = reason_to_stay(cls)
    if reason is not None:
        raise CannotTravel(reason)
    pickler.touched = True
    class_id = pickler.world.class_id(cls)
    if class_id in pickler.own_classes:
        made = make_class, _skeleton(cls, class_id)
        first = {key: value for key, value in _DICT.__get__(cls).items() if key in _AT_FIRST}
        first |= c_structs.layout_of(cls)
        return (*made, first, None, None, fill_first) if first else made
    pickler.classes.add(class_id)
    return loading.resolve_class, (class_id,)


_AT_FIRST = ("__hash__", "__eq__", "__parameters__")
"""What a class has before anything else: its attributes may be sets and dictionaries of its instances, which
are hashed, and may hold the class itself with types for its variables."""

_MAPPED = {"_sa_class_manager", "_sa_registry"}
"""What a class has that SQLAlchemy maps to a table, or that such classes derive from."""


def reason_to_stay(cls: type) -> str | None:
    """Return why a class cannot be made again elsewhere; None for the many that can."""
    if derives(cls, c_functions.FUNCTION):
        return c_functions.CLASS_NEEDS_ITS_PROCESS
    for part in (type(cls), *_MRO.__get__(cls)):
        if part is not type(cls) and _MAPPED & _DICT.__get__(part).keys():
            return "SQLAlchemy has mapped its class to a table, which it cannot do a second time elsewhere."
        if not _FLAGS.__get__(part) & _HEAP_TYPE and key_of(part) not in _by_types_module:
            if book and book.token_of(part) is not None:
                continue  # The library's own, where the notebook put another: known by its place.
            if part is msgspec.MIXIN or key_of(part) in c_structs.BELOW:
                continue  # Below `msgspec.Struct` and those of ctypes, by which it is found.
            module = module_of(part)
            if find_global(module, qualname_of(part)) is not part and part is not type(None):
                return (
                    f"Its class rests on the built-in type {qualname_of(part)}, which has no name to import."
                )
    return None


def must_stay(pickler: UnitContext, cls: type) -> bool:
    """Tell whether a notebook's class cannot be made again elsewhere, so that its instances cannot either."""
    if not _FLAGS.__get__(cls) & _HEAP_TYPE or library_of(cls, pickler.world.seeds.main_name) is not None:
        return False
    return reason_to_stay(cls) is not None


def refuse_instance(pickler: UnitContext, value: object) -> object:
    """Refuse an instance of a class that cannot be made again."""
    raise CannotTravel(reason_to_stay(type(value)) or "")


def _skeleton(cls: type, class_id: str) -> tuple[Any, ...]:
    slots = _DICT.__get__(cls).get("__slots__")
    if slots is not None and not isinstance(slots, (str, tuple, list, dict)):
        slots = tuple(
            name for name, value in _DICT.__get__(cls).items() if is_a(value, types.MemberDescriptorType)
        )
    skeleton = class_id, type(cls), _NAME.__get__(cls), _BASES.__get__(cls), qualname_of(cls)
    if msgspec.is_struct_class(cls):
        return *skeleton, None, msgspec.definition(cls)
    return *skeleton, slots


def _name_of(cls: type) -> tuple[str, str]:
    return qualname_of(cls), module_of(cls)


def reduce_body(pickler: UnitContext, body: ClassBody) -> object:
    """Reduce a class's definition."""
    cls = body.cls
    attributes = {
        key: value
        for key, value in _DICT.__get__(cls).items()
        if key not in _OF_PYTHON and key not in _SET_AT_BIRTH and not _is_slot(cls, key, value)
    }
    virtual: Collection[Any] = ()
    if derives(type(cls), abc.ABCMeta):
        registered = [alive for held in _abc._get_dump(cls)[0] if (alive := held()) is not None]
        virtual = tuple(sorted(registered, key=_name_of))
        if len(set(map(_name_of, registered))) < len(registered):
            virtual = frozenset(registered)  # As of a class and its former definition: none is the first.
        return fill_class, (cls, attributes, virtual, *answers_of(pickler, cls))
    return fill_class, (cls, attributes, virtual)


def _is_slot(cls: type, key: str, value: Any) -> bool:
    """Tell whether an entry of a class is made with it, for what its instances have a place for."""
    if c_structs.is_native(cls):
        return c_structs.is_of_layout(key, value) or type(value) is types.GetSetDescriptorType
    return (
        kind_of(value) in (types.MemberDescriptorType, types.GetSetDescriptorType)
        and value.__objclass__ is cls
    )


@loader("classes:types_attribute")
def types_attribute(name: str) -> object:
    """Return a type that only the module `types` names (called by payloads)."""
    return getattr(types, name)


@loader("classes:make_class")
def make_class(
    class_id: str,
    meta: type,
    name: str,
    bases: tuple[type, ...],
    qualname: str,
    slots: object,
    struct: Any = None,
) -> type:
    """Return the class of that id: this process's, or a new one without attributes (called by payloads)."""
    registry = loading.current().classes
    known = registry.find(class_id)
    if known is not None:
        loading.current().let_go(list(_DICT.__get__(known).values()))
        if list(map(id, _BASES.__get__(known))) != list(map(id, bases)):
            type.__setattr__(known, "__bases__", bases)
        if type(known) is not meta:
            _CLASS.__set__(known, meta)
        for own, said in ((_NAME, name), (_QUALNAME, qualname)):
            if own.__get__(known) != said:
                own.__set__(known, said)
        _can_have_instances(known)
        fill_first(known, {})
        return known
    scope: dict[str, Any] = {"__module__": "__main__", "__qualname__": qualname}
    if slots is not None:
        scope["__slots__"] = slots
    options: dict[str, Any] = {}
    if struct is not None:
        entries, options = msgspec.body(struct)
        scope |= entries
    with _no_subclass_hooks(bases):
        builtin = _builtin_metaclass(meta)
        cls: type = builtin.__new__(meta, name, bases, scope, **options)
        if builtin.__init__ is not type.__init__:  # As that of ctypes from Python 3.13 on.
            builtin.__init__(cls, name, bases, scope)
    if derives(type(cls), abc.ABCMeta):
        _abc._abc_init(cls)
        _can_have_instances(cls)
    registry.enroll(cls, class_id)
    late = loading.current().late
    derived = not all(base is object for base in bases)
    if derived and not any(getattr(act, "func", None) is class_registry.sort for act in late):
        late.append(functools.partial(class_registry.sort, registry))
    return cls


def _can_have_instances(cls: type) -> None:
    """Call nothing abstract in a class until it has its methods: its attributes may hold instances of it."""
    if "__abstractmethods__" in _DICT.__get__(cls):
        type.__setattr__(cls, "__abstractmethods__", frozenset())


@loader("classes:fill_first")
def fill_first(cls: type, attributes: dict[str, Any]) -> None:
    """Give a class what is asked of it first, and take away what it no longer has (called by payloads)."""
    builtin = _builtin_metaclass(type(cls))
    for key in _AT_FIRST:
        if key in attributes:
            builtin.__setattr__(cls, key, attributes[key])
        elif key in _DICT.__get__(cls):
            builtin.__delattr__(cls, key)
    c_structs.lay_out(cls, attributes)


def _builtin_metaclass(meta: type) -> Any:
    """Return the nearest metaclass that is written in C."""
    return next((base for base in _MRO.__get__(meta) if not _is_mutable(base)), type)


def _is_mutable(cls: type) -> bool:
    """Tell whether a class may be changed, as those may that are written in Python.

    Of those in C, each release of Python makes more heap types.
    """
    flags: int = _FLAGS.__get__(cls)
    return flags & (_HEAP_TYPE | _IMMUTABLE_TYPE) == _HEAP_TYPE


@contextmanager
def _no_subclass_hooks(bases: tuple[type, ...]) -> Iterator[None]:
    """Keep `__init_subclass__` of the bases from running."""
    hushed: list[tuple[type, Any]] = []
    for base in bases:
        for cls in type.__dict__["__mro__"].__get__(base):
            attributes = _DICT.__get__(cls)
            if "__init_subclass__" in attributes and _is_mutable(cls):
                hushed.append((cls, attributes["__init_subclass__"]))
                type.__setattr__(cls, "__init_subclass__", classmethod(_nothing))
                break
    try:
        yield
    finally:
        for cls, hook in reversed(hushed):
            type.__setattr__(cls, "__init_subclass__", hook)


def _nothing(cls: object, /, **_options: object) -> None:
    """Stand in for a hook."""


@loader("classes:fill_class")
def fill_class(cls: type, attributes: dict[str, Any], virtual: Collection[type], *answers: Answers) -> type:
    """Give a class its attributes, and take away those it no longer has (called by payloads)."""
    present = _DICT.__get__(cls)
    for key in list(present):
        gone = key not in attributes and key not in _OF_PYTHON and key not in _SET_AT_BIRTH
        if (gone and not _is_slot(cls, key, present[key])) or key in _AT_FIRST:
            # Those that came first get their place among the others again.
            _builtin_metaclass(type(cls)).__delattr__(cls, key)
    for key, value in attributes.items():
        if key not in present or present[key] is not value:
            _set_entry(cls, key, value)
    if derives(type(cls), abc.ABCMeta) and not _virtual(cls) <= set(map(id, virtual)):
        _abc._reset_registry(cls)
        _abc._reset_caches(cls)
    for other in virtual:
        abc.ABCMeta.register(cls, other)  # type: ignore[arg-type]
    generic_models.enter(cls, attributes)
    for told in answers:
        loading.current().late.append(functools.partial(note, cls, told))
    return cls


def _virtual(cls: type) -> set[int]:
    """Return the ids of the classes that are registered with an abstract one."""
    return {id(alive) for held in _abc._get_dump(cls)[0] if (alive := held()) is not None}


def _set_entry(cls: type, key: str, value: object) -> None:
    """Set an entry of a class's dictionary, past the metaclass where it means something else on a class."""
    if key not in _OF_METACLASS:
        _builtin_metaclass(type(cls)).__setattr__(cls, key, value)
        return
    (entries,) = (held for held in gc.get_referents(_DICT.__get__(cls)) if type(held) is dict)
    entries[key] = value
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(cls))


EXACT = {type: reduce_class}


# What Python has noted of `isinstance` and `issubclass` for a notebook's class that answers by itself.
#
# An abstract class with a ``__subclasshook__``, as each Protocol has, is asked once for each class: what it
# said stays, also when a method is patched in or taken out after.
# Law: only classes of the notebook are told of; a note that a registration has made void is not told.

_HOOK = "__subclasshook__"
_VERSION = 3

Answers = tuple[tuple[type, ...], tuple[type, ...]]
"""The classes that were found to be below, and those that were not."""


def answers_of(pickler: UnitContext, cls: type) -> tuple[Answers, ...]:
    """Return what is noted for an abstract class, for `fill_class`; nothing where it has no hook."""
    main = pickler.world.seeds.main_name
    if not any(_HOOK in _DICT.__get__(base) and module_of(base) == main for base in _MRO.__get__(cls)):
        return ()
    notes = _abc._get_dump(cls)
    void = notes[_VERSION] != abc.get_cache_token()
    below, others = (_of_notebook(pickler, held, main) for held in (notes[1], () if void else notes[2]))
    return ((tuple(other for other in below if not derives(other, cls)), others),)


def _of_notebook(pickler: UnitContext, held: Any, main: str) -> tuple[type, ...]:
    """Return the notebook's classes among weakly held ones: those that have an id or are in a variable."""
    alive = [cls for reference in held if (cls := reference()) is not None and module_of(cls) == main]
    if not alive:
        return ()
    bound = {id(value) for value in list(pickler.namespace.values())}
    known = pickler.world.classes.id_of
    return tuple(sorted((c for c in alive if known(c) is not None or id(c) in bound), key=qualname_of))


def note(cls: type, answers: Answers) -> None:
    """Have Python note what was found for an abstract class, and nothing else (called by loads)."""
    _abc._reset_caches(cls)
    entries = _DICT.__get__(cls)
    own = entries.get(_HOOK)
    try:
        for said, classes in zip((True, False), answers, strict=True):
            if classes:
                type.__setattr__(cls, _HOOK, staticmethod(lambda _asked, said=said: said))
            for other in classes:
                _abc._abc_subclasscheck(cls, other)
    finally:
        if own is not None:
            type.__setattr__(cls, _HOOK, own)
        elif _HOOK in entries:
            type.__delattr__(cls, _HOOK)
