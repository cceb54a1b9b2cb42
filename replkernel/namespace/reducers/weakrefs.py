"""Weak references and containers: what they point to travels along, and lives on if something holds it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from replkernel.namespace.reducers.outcome import CannotTravel

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler


class _Gone:
    """Dies at once, so that a reference to it is dead."""


def reduce_ref(pickler: CapturePickler, reference: Any) -> Any:
    """Reduce a weak reference."""
    target = weakref.ref.__call__(reference)
    if target is None:
        return dead_ref, ()
    if type(reference) is not weakref.ref:
        raise CannotTravel("Only plain weak references can be copied.")
    callback = reference.__callback__
    return weakref.ref, (target,) if callback is None else (target, callback)


def dead_ref() -> Any:
    """Return a dead reference (called by payloads)."""
    return weakref.ref(_Gone())


def reduce_weak_method(pickler: CapturePickler, reference: Any) -> Any:
    """Reduce a WeakMethod."""
    method = reference()
    return (dead_ref, ()) if method is None else (weakref.WeakMethod, (method,))


def reduce_proxy(pickler: CapturePickler, proxy: Any) -> Any:
    """Reduce a weak proxy; its object is asked for through the proxy's own reference."""
    try:
        target = proxy.__repr__.__self__
    except ReferenceError:
        return dead_proxy, ()
    return weakref.proxy, (target,)


def dead_proxy() -> Any:
    """Return a dead proxy (called by payloads)."""
    return weakref.proxy(_Gone())


def reduce_weak_dict(pickler: CapturePickler, mapping: Any) -> Any:
    """Reduce a weak-valued or weak-keyed dictionary to its living items."""
    items = list(mapping.items())
    return make_weak, (type(mapping),), items, None, None, fill_weak_dict


def reduce_weak_set(pickler: CapturePickler, members: Any) -> Any:
    """Reduce a weak set to its living members."""
    return make_weak, (type(members),), list(members), None, None, fill_weak_set


def make_weak(cls: Any) -> Any:
    """Return an empty weak container, or a finalizer that is over (called by payloads)."""
    return cls.__new__(cls) if cls is weakref.finalize else cls()


def fill_weak_dict(mapping: Any, items: list[tuple[Any, Any]]) -> None:
    """Fill a weak dictionary (called by payloads)."""
    for key, value in items:
        mapping[key] = value


def fill_weak_set(members: Any, items: list[Any]) -> None:
    """Fill a weak set (called by payloads)."""
    for item in items:
        members.add(item)


def reduce_finalize(pickler: CapturePickler, finalizer: Any) -> Any:
    """Reduce a `weakref.finalize`: a living one with its call, a dead one as dead."""
    call = finalizer.peek()
    if call is None:
        return make_weak, (type(finalizer),)
    return live_finalize, (type(finalizer), finalizer.atexit, *call)


def live_finalize(cls: Any, at_exit: bool, target: Any, act: Any, args: Any, options: Any) -> Any:
    """Return a living finalizer (called by payloads)."""
    finalizer = cls(target, act, *args, **options)
    finalizer.atexit = at_exit
    return finalizer


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
