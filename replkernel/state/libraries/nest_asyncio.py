"""``@nest_asyncio``: whether the notebook allowed nested event loops (``nest_asyncio.apply()``)."""

from __future__ import annotations

import sys

from replkernel.records import ComponentId
from replkernel.state.library import Library
from replkernel.state.process.part import Part

PATCHERS = ("nest_asyncio", "nest_asyncio2")


class NestAsyncioPart(Part[str]):
    """The library that patched asyncio so that ``asyncio.run`` works in a cell."""

    cid = ComponentId("@nest_asyncio")

    def __init__(self) -> None:
        self._wanted = ""
        super().__init__()

    def ready(self) -> bool:
        """Tell whether what `load` asked for is imported."""
        return not self._wanted or self._wanted in sys.modules

    def look(self) -> str | None:
        """Return the name of the library whose patch is in force."""
        patched = getattr(sys.modules.get("asyncio"), "_nest_patched", None)
        if patched is None and not hasattr(sys.modules.get("asyncio"), "_nest_asyncio2"):
            return None
        return next((name for name in PATCHERS if name in sys.modules), None)

    def pack(self, seen: str) -> bytes:
        """Write the library's name."""
        return seen.encode()

    def load(self, data: bytes) -> None:
        """Remember which library to apply, and apply it as soon as it is imported."""
        name = data.decode()
        self._wanted = name if name in PATCHERS else ""
        super().load(data)

    def apply(self, data: bytes) -> None:
        """Patch asyncio as the notebook did."""
        if self._wanted:
            sys.modules[self._wanted].apply()
            self._wanted = ""


LIBRARY = Library(name="nest_asyncio", parts=(NestAsyncioPart,))
