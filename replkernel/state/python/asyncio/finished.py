"""What of asyncio no loop works on: futures and tasks that have ended, locks that nobody waits for, and
handles of callbacks that ran.

Law: what a loop has still to do belongs to it and its process, as does what is of a class that is not
asyncio's own.
"""

from __future__ import annotations

import asyncio
from asyncio import mixins
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.kinds import is_a, kind_of
from replkernel.state.python.paths import instance_dict

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext


_KINDS: dict[type, str] = {
    asyncio.Future: "future",
    asyncio.Task: "task",
    asyncio.tasks._GatheringFuture: "gathered",  # type: ignore[attr-defined]
}


def reduce_work(context: ReducerContext, work: asyncio.Future[Any]) -> object:
    """Reduce a future or a task that has ended."""
    kind = _KINDS.get(kind_of(work))
    if kind is None or not work.done():
        raise CannotTravel("What an event loop works on belongs to its process.")
    return make_work, (kind, _PARTS[kind](work)), _outcome(work), None, None, end_work


_PARTS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "future": lambda work: (),
    "task": lambda work: (work.get_coro(), work.get_name()),
    "gathered": lambda work: (work._children,),
}
"""What each kind is made of."""


def _outcome(work: Any) -> tuple[str, Any]:
    """Return how something ended, without counting as whoever asks for its exception."""
    if work.cancelled():
        return "cancelled", work._cancel_message
    error = work._exception
    return ("result", work._result) if error is None else ("exception", error)


@loader("asyncio:make_work")
def make_work(kind: str, told: tuple[Any, ...]) -> object:
    """Return a future, or a task of a coroutine that is over (called by payloads)."""
    loop = asyncio.get_event_loop_policy().get_event_loop()
    if kind == "future":
        return asyncio.Future(loop=loop)
    if kind == "gathered":
        return asyncio.tasks._GatheringFuture(*told, loop=loop)  # type: ignore[attr-defined]
    return _unscheduled(loop, lambda: asyncio.Task(told[0], loop=loop, name=told[1]))


def _unscheduled(loop: object, act: Callable[[], Any]) -> object:
    """Return what `act` does, whose first step the loop is not to take."""
    vars(loop)["call_soon"] = lambda *call, **options: None
    try:
        return act()
    finally:
        del vars(loop)["call_soon"]


@loader("asyncio:end_work")
def end_work(work: asyncio.Future[Any], outcome: tuple[str, Any]) -> None:
    """End a future or a task as it ended (called by payloads)."""
    how, value = outcome
    if how == "cancelled":
        asyncio.Future.cancel(work, value)
    elif how == "exception":
        asyncio.Future.set_exception(work, value)
        work._log_traceback = False
    else:
        asyncio.Future.set_result(work, value)


# Locks, events and queues of asyncio: they forget the loop that they waited on while nobody waits.
#
# They take the loop in which they are waited for next.
# Law: one that somebody waits for stays with its loop.

_LOOP = "_loop"
_WAITING = ("_waiters", "_getters", "_putters")


def reduce_loop_bound(context: ReducerContext, value: object) -> Any:
    """Reduce what waits in loops; with the loop where somebody waits."""
    attributes = vars(value)
    if any(attributes.get(name) for name in _WAITING):
        return NotImplemented
    return make, (type(value),), {**attributes, _LOOP: None}


@loader("asyncio:make")
def make(cls: Any) -> Any:
    """Return a lock or queue to be filled (called by payloads)."""
    return object.__new__(cls)


# Handles of callbacks: one that waits on its event loop is stuck, one that ran or was cancelled travels.

_is_cancelled, _loop_of = (vars(asyncio.Handle)[name].__get__ for name in ("_cancelled", "_loop"))
_is_scheduled = vars(asyncio.TimerHandle)["_scheduled"].__get__


def reduce_handle(context: ReducerContext, handle: object) -> Any:
    """Reduce a handle as its class says, while nothing waits."""
    if not _is_cancelled(handle) and waits(handle):
        raise CannotTravel("A callback that waits on an event loop belongs to its process.")
    return NotImplemented


def waits(handle: object) -> bool:
    """Tell whether the handle's loop has still to call it."""
    if is_a(handle, asyncio.TimerHandle) and _is_scheduled(handle):
        return True
    ready = (instance_dict(_loop_of(handle)) or {}).get("_ready", ())
    return any(one is handle for one in tuple(ready))


FAMILIES = [(asyncio.Future, reduce_work)]
OF_LOOPS = [(mixins._LoopBoundMixin, reduce_loop_bound), (asyncio.Handle, reduce_handle)]
"""Families of which each other one goes first."""
