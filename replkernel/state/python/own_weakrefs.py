"""Weak references of a kind of the notebook's own: made past their class, with what they hold besides."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python import watchers
from replkernel.state.python.instances import attributes_of, fill_slots, held_in, slots_of
from replkernel.state.python.kinds import derives
from replkernel.state.python.weakrefs import Gone, hash_of_dead

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext


def reduce_own_ref(context: ReducerContext, reference: weakref.ref[Any]) -> object:
    """Reduce a weak reference of a kind of its own: it is made past what its class says."""
    kind = type(reference)
    if derives(kind, weakref.WeakMethod):
        raise CannotTravel("Only plain weak references to methods can be copied.")
    target = weakref.ref.__call__(reference)
    callback = watchers.callback_of(reference)
    watchers.meet(callback)
    made = kind, () if target is None else (target,), callback, *hash_of_dead(reference)[: target is None]
    state = attributes_of(reference), held_in(reference, slots_of(kind))
    return own_ref, made, state if any(state) else None, None, None, fill_own_ref


@loader("own_weakrefs:own_ref")
def own_ref(
    kind: type[weakref.ref[Any]], target: tuple[Any, ...], callback: object, kept_hash: int | None = None
) -> object:
    """Return a weak reference of a kind of its own, dead without a target (called by payloads)."""
    gone = Gone(kept_hash)
    reference = weakref.ref.__new__(kind, *(target or (gone,)), *(() if callback is None else (callback,)))
    if kept_hash is not None:
        weakref.ref.__hash__(reference)
    watchers.meet(callback)
    return reference


@loader("own_weakrefs:fill_own_ref")
def fill_own_ref(reference: object, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Give a weak reference what it has besides (called by payloads)."""
    attributes, slots = state
    if attributes:
        object.__setattr__(reference, "__dict__", attributes)
    fill_slots(reference, slots)


FAMILIES = [(weakref.ref, reduce_own_ref)]
