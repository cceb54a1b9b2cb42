"""wrapt's proxies, and the functions that its decorators return: what they wrap, and what is their own.

A proxy answers for what it wraps in everything that Python asks it, its class included, and refuses to be
pickled. What it is made of is read past that, by its type.
Law: imported only when wrapt is; a proxy that looks for its object at its first use is not asked for it.
"""

from __future__ import annotations

import ctypes
import types
from typing import TYPE_CHECKING, Any

import wrapt

from replkernel.loaders import loader
from replkernel.state.patches.book import book
from replkernel.state.python.kinds import derives, key_of, kind_of, module_of
from replkernel.state.python.modules import find_global

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

_MRO = type.__dict__["__mro__"]
_DICT = type.__dict__["__dict__"]
_Base: Any = wrapt.BaseObjectProxy
_CallBase: Any = wrapt.FunctionWrapper.__mro__[1]
_C_MODULE = module_of(_Base)
_UNDERSTOOD = frozenset(
    {_Base, _CallBase, wrapt.ObjectProxy, wrapt.CallableObjectProxy, wrapt.FunctionWrapper, object}
    | {wrapt.BoundFunctionWrapper}
)
_CALL_FIELDS = ("instance", "wrapper", "enabled", "binding", "parent", "owner")

_own_attributes = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p)(
    ("PyObject_GenericGetDict", ctypes.pythonapi)
)


def reduce_proxy(pickler: UnitContext, proxy: object) -> object:
    """Reduce a proxy: by name where it is its module's own, else to its parts."""
    kind = type(proxy)
    if not _is_understood(kind):
        return NotImplemented
    wrapped = _Base.__wrapped__.__get__(proxy)
    if _has_name(pickler, proxy, wrapped):
        return str(wrapped.__qualname__)
    calls: tuple[Any, ...] = ()
    if derives(kind, _CallBase):
        calls = tuple(getattr(_CallBase, f"_self_{field}").__get__(proxy) for field in _CALL_FIELDS)
    state = wrapped, calls, dict(_own_attributes(proxy, None))
    return make_proxy, (kind,), state, None, None, fill_proxy


@loader("wrapt:make_proxy")
def make_proxy(kind: Any) -> object:
    """Return a proxy of a type around nothing yet (called by payloads)."""
    return kind.__new__(kind)


@loader("wrapt:fill_proxy")
def fill_proxy(proxy: object, state: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> None:
    """Put into a proxy what it wraps, how it calls that, and its own attributes (called by payloads)."""
    wrapped, calls, attributes = state
    if calls:
        _CallBase.__init__(proxy, wrapped, *calls)
    else:
        _Base.__init__(proxy, wrapped)
    own = _own_attributes(proxy, None)
    own.clear()
    own.update(attributes)


def _is_understood(kind: type) -> bool:
    """Tell whether a proxy's type keeps its object as wrapt's plainest do, and adds only attributes."""
    for base in _MRO.__get__(kind):
        module = module_of(base)
        if key_of(base) in _UNDERSTOOD or module == "wrapt.decorators":
            continue
        if module.partition(".")[0] in ("wrapt", _C_MODULE) or _DICT.__get__(base).get("__slots__"):
            return False
    return True


def _has_name(pickler: UnitContext, proxy: object, wrapped: Any) -> bool:
    """Tell whether an import finds this very proxy by the names of what it wraps."""
    if kind_of(wrapped) not in (types.FunctionType, types.BuiltinFunctionType, type):
        return False
    module, name = wrapped.__module__, wrapped.__qualname__
    if type(module) is not str or module == pickler.world.seeds.main_name or book.is_patched(module, name):
        return False
    if find_global(module, name) is not proxy:
        return False
    pickler.module_needed(module)
    return True


FAMILIES = [(_Base, reduce_proxy)]
