"""The running event loop, where it is one of Python's own: of others nobody knows what they keep."""

from __future__ import annotations

import asyncio

from replkernel.state.python.kinds import is_a


def running_loop() -> asyncio.BaseEventLoop | None:
    """Return that loop; None where none runs, or one of another library's."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    return loop if is_a(loop, asyncio.BaseEventLoop) else None
