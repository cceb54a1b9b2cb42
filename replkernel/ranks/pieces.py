"""What a process writes, cut into what is told: whole lines, and the beginning of one after a while. Pure.

Law: nothing is lost, and no character is cut in two.
"""

from __future__ import annotations

import codecs

LONG_CHARS = 32 * 1024
"""A line that is longer is told in pieces."""
UNFINISHED_S = 0.2
"""The beginning of a line is told when nothing has followed for so long: a prompt, or a progress bar."""


class Pieces:
    """One stream of one process."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = ""
        self._since = 0.0

    def take(self, data: bytes, now: float) -> str:
        """Take what was written, and return what is to be told of all that there is."""
        text, self._since = self._begun + self._decoder.decode(data), now
        whole = max(text.rfind("\n"), text.rfind("\r")) + 1  # A progress bar has the latter.
        if not whole and len(text) >= LONG_CHARS:
            whole = len(text)
        self._begun = text[whole:]
        return text[:whole]

    def late(self, now: float) -> str:
        """Return the beginning of a line of which nothing has followed for long."""
        if not self._begun or now - self._since < UNFINISHED_S:
            return ""
        text, self._begun = self._begun, ""
        return text

    def rest(self) -> str:
        """Return what is left, when no more will come."""
        text, self._begun = self._begun + self._decoder.decode(b"", final=True), ""
        return text
