"""``@sys_path``: what the notebook did to ``sys.path``, told relative to the path at birth.

Law: an entry that was there at birth is told by its place, so that other hosts keep theirs.
"""

from __future__ import annotations

import sys

from replkernel.records import ComponentId
from replkernel.state.process.part import Part
from replkernel.state.process.plain import decode_plain, encode_plain


class SysPathPart(Part[list[str]]):
    """The import path."""

    cid = ComponentId("@sys_path")

    def __init__(self) -> None:
        super().__init__()
        self._birth = _text_entries()

    def look(self) -> list[str]:
        """Return the path's text entries: the import system passes over all others."""
        return _text_entries()

    def pack(self, seen: list[str]) -> bytes:
        """Write how long the path was at birth, and then each entry: its place at birth, or its text."""
        places = {entry: place for place, entry in reversed(list(enumerate(self._birth)))}
        return encode_plain((len(self._birth), [places.get(entry, entry) for entry in seen]))

    def apply(self, data: bytes) -> None:
        """Rebuild the path from this process's own entries of birth and the told ones."""
        length, told = decode_plain(data)
        path: list[str] = []
        for entry in told:
            if isinstance(entry, str):
                path.append(entry)
            elif entry < len(self._birth):
                path.append(self._birth[entry])
        path.extend(self._birth[length:])
        if path != _text_entries():
            sys.path[:] = path


def _text_entries() -> list[str]:
    return [entry for entry in sys.path if type(entry) is str]
