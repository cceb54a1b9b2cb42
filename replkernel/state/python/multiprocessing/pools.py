"""multiprocessing's pools of processes and threads: one that is closed, and whose workers have ended."""

from __future__ import annotations

from multiprocessing import pool
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_HANDLERS = ("_worker_handler", "_task_handler", "_result_handler")


class _Over:
    """Stands for the threads that worked for a pool."""

    def join(self) -> None:
        """Wait for nothing."""

    def is_alive(self) -> bool:
        """Tell that the work is over."""
        return False


def reduce_pool(context: ReducerContext, own: pool.Pool) -> object:
    """Reduce a pool that takes no more work and has none."""
    held = vars(own)
    workers = [*(held[name] for name in _HANDLERS if name in held), *held.get("_pool", ())]
    if held["_state"] not in (pool.CLOSE, pool.TERMINATE) or any(one.is_alive() for one in workers):
        raise CannotTravel("The workers of a pool belong to its process.")
    return closed_pool, (type(own), held["_state"])


@loader("multiprocessing:closed_pool")
def closed_pool(cls: Any, state: str) -> object:
    """Return a pool that is closed, without workers (called by payloads)."""
    made = cls.__new__(cls)
    vars(made).update(dict.fromkeys(_HANDLERS, _Over()), _state=state, _pool=[], _terminate=_nothing)
    return made


def _nothing() -> None:
    """End nothing."""


def reduce_awaited(context: ReducerContext, awaited: dict[int, Any]) -> object:
    """Reduce what keeps the results that are awaited of a pool: each has it, also once it has come."""
    if awaited:
        raise CannotTravel("Its result is still being computed by this process.")
    return nothing_awaited, ()


@loader("multiprocessing:nothing_awaited")
def nothing_awaited() -> object:
    """Return what keeps no result (called by payloads)."""
    return pool._PoolCache(notifier=None)  # type: ignore[attr-defined]


FAMILIES = [(pool.Pool, reduce_pool)]
EXACT = {pool._PoolCache: reduce_awaited}  # type: ignore[attr-defined]
