"""Locks, events and queues of asyncio: they forget the loop that they waited on while nobody waits.

They take the loop in which they are waited for next.
Law: one that somebody waits for stays with its loop.
"""

from __future__ import annotations

from asyncio import mixins
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_LOOP = "_loop"
_WAITING = ("_waiters", "_getters", "_putters")


def reduce_loop_bound(context: ReducerContext, value: Any) -> object:
    """Reduce what waits in loops; with the loop where somebody waits."""
    attributes = vars(value)
    if any(attributes.get(name) for name in _WAITING):
        return NotImplemented
    return make, (type(value),), {**attributes, _LOOP: None}


@loader("asyncio:make")
def make(cls: type[Any]) -> Any:
    """Return a lock or queue to be filled (called by payloads)."""
    return object.__new__(cls)


FAMILIES = [(mixins._LoopBoundMixin, reduce_loop_bound)]
