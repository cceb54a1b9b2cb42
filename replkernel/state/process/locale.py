"""``@locale``: the C library's locale, once the notebook changed it."""

from __future__ import annotations

import locale

from replkernel.records import ComponentId
from replkernel.state.process.part import Part


class LocalePart(Part[str]):
    """``locale.setlocale``; a host without that locale keeps its own and says so."""

    cid = ComponentId("@locale")

    def look(self) -> str:
        """Return the locale of all categories."""
        return locale.setlocale(locale.LC_ALL)

    def pack(self, seen: str) -> bytes:
        """Write the locale's name."""
        return seen.encode()

    def apply(self, data: bytes) -> None:
        """Set the locale of all categories."""
        try:
            locale.setlocale(locale.LC_ALL, data.decode())
        except locale.Error:
            self.trouble = (
                f"The locale {data.decode()} is not installed on this host; install it or use another."
            )
