"""Weak references and containers: what they point to travels along, and lives on if something holds it.

The calls of `weakref.finalize` that no variable holds travel with the object whose death they tell.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python import finalizers, watchers
from replkernel.state.python.kinds import module_of

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

REGISTRY: dict[Any, Any] = vars(weakref.finalize)["_registry"]
"""The calls that wait for an object's death; whoever asks for those of many objects looks here first."""

NOTEBOOK = "__main__"
"""The module of the notebook's classes, which take all calls at their instances' deaths along."""


class Gone:
    """Dies at once, so that a reference to it is dead."""

    def __init__(self, kept_hash: int | None = None) -> None:
        self._kept_hash = kept_hash or 0

    def __hash__(self) -> int:
        return self._kept_hash

    def method(self) -> None:
        """Be the method that a dead WeakMethod had."""


def reduce_ref(context: ReducerContext, reference: weakref.ref[Any]) -> object:
    """Reduce a weak reference."""
    target = weakref.ref.__call__(reference)
    if target is None:
        return dead_ref, hash_of_dead(reference)
    return _to_watched(reference, weakref.ref, target)


@loader("weakrefs:watching")
def watching(kind: type[Any], target: object, callback: object, newer: int = 0) -> object:
    """Return a reference that calls when its object dies (called by payloads).

    Who came last is told first: so the last `newer` calls of `weakref.finalize` are to have come after it.
    """
    watchers.meet(callback)
    made = kind(target, callback)
    for call in finalizers_of(target)[-newer:] if newer else ():
        REGISTRY[call].weakref = weakref.ref(target, call)
    return made


def hash_of_dead(reference: object) -> tuple[()] | tuple[int]:
    """Return the hash that a reference has kept of its object, in a tuple, if it was ever asked for."""
    try:
        return (hash(reference),)
    except TypeError:
        return ()


@loader("weakrefs:dead_ref")
def dead_ref(kept_hash: int | None = None) -> object:
    """Return a dead reference, with the hash of what it referred to (called by payloads)."""
    gone = Gone(kept_hash)
    reference = weakref.ref(gone)
    if kept_hash is not None:
        hash(reference)
    return reference


@loader("weakrefs:dead_weak_method")
def dead_weak_method(kept_hash: int | None = None) -> object:
    """Return a dead WeakMethod, with the hash of what it referred to (called by payloads)."""
    gone = Gone(kept_hash)
    reference = weakref.WeakMethod(gone.method)
    if kept_hash is not None:
        hash(reference)
    return reference


def reduce_weak_method(context: ReducerContext, reference: weakref.ref[Any]) -> object:
    """Reduce a WeakMethod."""
    method = reference()
    if method is None:
        return dead_weak_method, hash_of_dead(reference)
    callback = watchers.callback_of(reference)
    if callback is not None and watchers.library_of(callback) is None:
        raise CannotTravel("It calls when its method dies, as a copy's would when its class is replaced.")
    return weakref.WeakMethod, (method,)


def _to_watched(reference: object, kind: object, target: object) -> object:
    callback = watchers.callback_of(reference)
    if callback is None:
        return kind, (target,)
    watchers.meet(callback)
    newer = _finalizers_after(reference, target)
    return watching, (kind, target, callback, *((newer,) if newer else ()))


def _finalizers_after(reference: object, target: object) -> int:
    """Return how many calls of `weakref.finalize` at an object's death came after a reference to it.

    Only where all of them travel with the object: not for a library's, which takes along those in variables.
    """
    if not REGISTRY or module_of(type(target)) != NOTEBOOK:
        return 0
    newest_first = weakref.getweakrefs(target)
    at = next((at for at, other in enumerate(newest_first) if other is reference), 0)
    return sum(map(_is_finalizers, newest_first[:at]))


def reduce_proxy(context: ReducerContext, proxy: Any) -> object:
    """Reduce a weak proxy; its object is asked for through the proxy's own reference."""
    try:
        target = proxy.__repr__.__self__
    except ReferenceError:
        return dead_proxy, ()
    return _to_watched(proxy, weakref.proxy, target)


@loader("weakrefs:dead_proxy")
def dead_proxy() -> object:
    """Return a dead proxy (called by payloads)."""
    return weakref.proxy(Gone())


def reduce_weak_dict(context: ReducerContext, mapping: weakref.WeakValueDictionary[Any, Any]) -> object:
    """Reduce a weak-valued or weak-keyed dictionary to its living items."""
    items = list(mapping.items())
    return make_weak, (type(mapping),), items, None, None, fill_weak_dict


def reduce_weak_set(context: ReducerContext, members: weakref.WeakSet[Any]) -> object:
    """Reduce a weak set to its living members."""
    return make_weak, (type(members),), list(members), None, None, fill_weak_set


@loader("weakrefs:make_weak")
def make_weak(cls: Any) -> object:
    """Return an empty weak container, or a finalizer that is over (called by payloads)."""
    return cls.__new__(cls) if cls is weakref.finalize else cls()


@loader("weakrefs:fill_weak_dict")
def fill_weak_dict(mapping: weakref.WeakValueDictionary[Any, Any], items: list[tuple[Any, Any]]) -> None:
    """Fill a weak dictionary (called by payloads)."""
    for key, value in items:
        mapping[key] = value


@loader("weakrefs:fill_weak_set")
def fill_weak_set(members: weakref.WeakSet[Any], items: list[Any]) -> None:
    """Fill a weak set (called by payloads)."""
    for item in items:
        members.add(item)


def reduce_finalize(context: ReducerContext, finalizer: weakref.finalize[..., Any]) -> object:
    """Reduce a `weakref.finalize`: a living one with its call, a dead one as dead."""
    call = finalizer.peek()
    state = None if call is None else (finalizer.atexit, *call)
    return make_weak, (type(finalizer),), state, None, None, fill_finalize


@loader("weakrefs:fill_finalize")
def fill_finalize(finalizer: Any, call: tuple[bool, Any, Any, Any, Any]) -> None:
    """Have a finalizer live, with what it calls (called by payloads).

    It is made before, so that its object, which may name it, comes upon this one.
    """
    at_exit, target, act, args, options = call
    finalizer.__init__(target, act, *args, **options)
    finalizer.atexit = at_exit


def finalizers_of(value: object) -> tuple[Any, ...]:
    """Return the living calls of `weakref.finalize` at an object's death, as they were made."""
    found = [watchers.callback_of(each) for each in weakref.getweakrefs(value) if _is_finalizers(each)]
    return tuple(sorted(found, key=lambda call: REGISTRY[call].index))


def _is_finalizers(reference: object) -> bool:
    """Tell whether a reference is that of a living call of `weakref.finalize`, and not a library's own."""
    call = watchers.callback_of(reference)
    if type(call) is not weakref.finalize:
        return False
    entry = REGISTRY.get(call)
    return entry is not None and not finalizers.is_librarys(entry)


EXACT = {
    weakref.finalize: reduce_finalize,
    weakref.ref: reduce_ref,
    weakref.WeakMethod: reduce_weak_method,
    weakref.ProxyType: reduce_proxy,
    weakref.CallableProxyType: reduce_proxy,
    weakref.WeakValueDictionary: reduce_weak_dict,
    weakref.WeakKeyDictionary: reduce_weak_dict,
    weakref.WeakSet: reduce_weak_set,
}
