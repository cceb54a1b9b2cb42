"""`types.SimpleNamespace`: its attributes stay the dictionary that others may hold (``settings = vars(ns)``).

Its own reduction gives a copy of them to the new one, and Python lets nobody set its dictionary.
"""

from __future__ import annotations

import ctypes
import types
from typing import TYPE_CHECKING, Any
from weakref import getweakrefcount

from replkernel.loaders import loader
from replkernel.state.python import instances
from replkernel.state.python.kinds import lineage

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_DICT_OF = vars(types.SimpleNamespace)["__dict__"]
_MRO = type.__dict__["__mro__"]

_set_dict = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.py_object, ctypes.c_void_p)(
    ("PyObject_GenericSetDict", ctypes.pythonapi)
)


def reduce_namespace(context: ReducerContext, space: types.SimpleNamespace) -> object:
    """Reduce a namespace to its dictionary, and what is in slots of the notebook's classes."""
    cls = type(space)
    state = _DICT_OF.__get__(space), instances.held_in(space, instances.slots_of(cls)) or None
    reduction = make, (cls,), state, None, None, fill
    return instances.with_calls(space, reduction) if getweakrefcount(space) else reduction


@loader("namespaces:make")
def make(cls: type[Any]) -> Any:
    """Return a namespace without attributes (called by payloads)."""
    return types.SimpleNamespace.__new__(cls)


@loader("namespaces:fill")
def fill(space: object, state: tuple[dict[str, Any], dict[str, Any] | None]) -> None:
    """Give a namespace its dictionary and slots (called by payloads)."""
    attributes, slots = state
    _set_dict(space, attributes, None)
    instances.fill_slots(space, slots or {})


def _is_childs(cls: type) -> bool:
    """Tell whether a class of the notebook's adds to a namespace, and leaves its copying to it."""
    keys = lineage(cls)
    if types.SimpleNamespace not in keys or instances.says_how_it_pickles(cls):
        return False
    return all(map(instances.is_notebooks, _MRO.__get__(cls)[: keys.index(types.SimpleNamespace)]))


EXACT = {types.SimpleNamespace: reduce_namespace}
TESTED_MODULES = ("types",)
TESTS = [(_is_childs, reduce_namespace)]
