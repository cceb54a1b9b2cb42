"""The cell that was interrupted because its lease is over: what its process says of that gets its own name.

Pure. Law: only the interrupt is renamed; a cell that ends otherwise, and any other cell, says what it says.
"""

from __future__ import annotations

import msgspec

from replkernel.errors import UNREADABLE, LeaseLost
from replkernel.router.core.answers import Fault
from replkernel.router.core.wire import pack

INTERRUPTED = "KeyboardInterrupt"


class FallenCell:
    """The last cell of a kernel that lost its lease."""

    def __init__(self) -> None:
        self._cell = self._why = ""

    def falls(self, cell: str, why: str) -> None:
        """Take note that a cell is interrupted, and why."""
        self._cell, self._why = cell, why

    def renamed(self, cell: str, content: bytes) -> bytes | None:
        """Return what to say instead of `content` of a reply or an error, None if it stays as it is."""
        if cell != self._cell:
            return None
        try:
            whole = msgspec.json.decode(content, type=dict[str, object])
        except UNREADABLE:
            return None
        if whole.get("ename") != INTERRUPTED:
            return None
        fault = Fault(LeaseLost.__name__, self._why).content()
        lines = whole.get("traceback")
        shown = [*(lines[:-1] if isinstance(lines, list) else []), *fault["traceback"]]
        return pack({**whole, **fault, "traceback": shown})
