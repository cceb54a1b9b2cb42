"""How long cells took here, to tell whether one that waits is quick: then what it waits for may wait for it.

Pure, and bounded. Law: quick is what was quick each time: the same text once, or several that differ in their
numbers alone.
"""

from __future__ import annotations

import re

QUICK_CELL_S = 3.0
"""Nobody minds that the cells before one that takes no longer are durable only after it."""

ALIKE_MIN = 3
"""So many cells that differ in their numbers alone say how long the next one takes."""

TEXT_MAX = 10_000
"""A longer text is not known again."""

CELLS_MAX = 1000

_NUMBERS = re.compile(r"\d+")


class CellTimes:
    """What the cells of a process took, by their text."""

    def __init__(self) -> None:
        self._quick: dict[str, int] = {}
        """How often a text, or one with other numbers, was quick; 0 once it was not. The oldest is first."""

    def took(self, text: str, seconds: float) -> None:
        """Note how long a cell took."""
        if len(text) > TEXT_MAX:
            return
        for key in (text, _alike(text)):
            times = self._quick.pop(key, None)
            self._quick[key] = (times or 0) + 1 if seconds <= QUICK_CELL_S and times != 0 else 0
        while len(self._quick) > CELLS_MAX:
            del self._quick[next(iter(self._quick))]

    def is_quick(self, text: str) -> bool:
        """Tell whether a cell is known to be quick; False where that is not known."""
        if len(text) > TEXT_MAX:
            return False
        times = self._quick.get(text)
        return self._quick.get(_alike(text), 0) >= ALIKE_MIN if times is None else times > 0


def _alike(text: str) -> str:
    """Return what stands for all texts that differ from this in their numbers alone; it is no text itself."""
    return "\0" + _NUMBERS.sub("0", text)
