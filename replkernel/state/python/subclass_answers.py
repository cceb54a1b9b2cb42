"""What Python has noted of `isinstance` and `issubclass` for a notebook's class that answers by itself.

An abstract class with a ``__subclasshook__``, as each Protocol has, is asked once for each class: what it
said stays, also when a method is patched in or taken out after.
Law: only classes of the notebook are told of; a note that a registration has made void is not told.
"""

from __future__ import annotations

import abc
import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from replkernel.state.python.class_registry import module_of, qualname_of
from replkernel.state.python.kinds import derives

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

_abc = importlib.import_module("_abc")
_DICT = type.__dict__["__dict__"]
_MRO = type.__dict__["__mro__"]
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


def _of_notebook(pickler: UnitContext, held: Iterable[Any], main: str) -> tuple[type, ...]:
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
