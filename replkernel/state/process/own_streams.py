"""``@streams``: which of the process's own two streams is `sys.stdout`, and which is `sys.stderr`.

``sys.stderr = sys.stdout`` binds no object of the notebook: each process has these two itself, by name.
Law: what a library has put there is left alone; a stream of the notebook's is told as a pin, and gives way
where the state is one in which an own stream stood there.
"""

from __future__ import annotations

import sys
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.process.part import Part
from replkernel.state.process.pins import is_of_notebook
from replkernel.state.process.plain import decode_plain, encode_plain

NAMES = ("stdout", "stderr")
_CELL = "parent_header"

Bound = tuple[str, ...]
"""Which own stream is bound under each of NAMES: its own where a library has put something there; empty where
the notebook has."""


class OwnStreamsPart(Part[Bound]):
    """The two streams, as this process had them at its birth."""

    cid = ComponentId("@streams")

    def __init__(self) -> None:
        self._own: dict[str, Any] = {name: getattr(sys, name) for name in NAMES}
        super().__init__()

    def look(self) -> Bound:
        """Return what is bound."""
        return tuple(self._bound(name) or ("" if _is_notebooks(name) else name) for name in NAMES)

    def pack(self, seen: Bound) -> bytes:
        """Write the names."""
        return encode_plain(list(seen))

    def apply(self, data: bytes) -> None:
        """Bind this process's own streams in the same way; a library's wrapper goes only for another one."""
        for name, wanted in zip(NAMES, decode_plain(data), strict=True):
            gives_way = wanted != name or self._bound(name) is not None or _is_notebooks(name)
            if wanted in self._own and gives_way:
                _bind(name, self._own[wanted])

    def _bound(self, name: str) -> str | None:
        """Return the name of the own stream that stands under a name; None for any other object."""
        present = getattr(sys, name, None)
        if present is self._own[name]:
            return name
        return next((other for other, stream in self._own.items() if stream is present), None)


def _is_notebooks(name: str) -> bool:
    """Tell whether a stream under a name, which is no own one, is an object or a file of the notebook's."""
    return is_of_notebook(getattr(sys, name, None))


def _bind(name: str, stream: object) -> None:
    """Bind a stream that may have been nowhere when IPython told which cell what is written belongs to."""
    before = getattr(sys, name)
    setattr(sys, name, stream)
    if type(before) is type(stream) and hasattr(stream, _CELL):
        setattr(stream, _CELL, getattr(before, _CELL))
