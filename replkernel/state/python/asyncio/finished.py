"""Futures and tasks of asyncio that have ended: their outcome, with the loop of whoever has them now.

Law: one that has not ended belongs to its loop, as does one of a class that is not asyncio's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.kinds import kind_of

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


FAMILIES = [(asyncio.Future, reduce_work)]
