"""Handles of callbacks: one that waits on its event loop is stuck, one that ran or was cancelled travels."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.kinds import is_a
from replkernel.state.python.paths import instance_dict

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_is_cancelled, _loop_of = (vars(asyncio.Handle)[name].__get__ for name in ("_cancelled", "_loop"))
_is_scheduled = vars(asyncio.TimerHandle)["_scheduled"].__get__


def reduce_handle(context: ReducerContext, handle: object) -> object:
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


FAMILIES = [(asyncio.Handle, reduce_handle)]
