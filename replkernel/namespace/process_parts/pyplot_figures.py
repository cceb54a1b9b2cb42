"""``@pyplot``: figures that are still open when a cell is done (the inline backend closes them all).

Figures travel pickled, as matplotlib pickles them; one that cannot is a reason to stay.
Law: a figure that the namespace already brought back under its number is not made twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import sys
from typing import Any

from replkernel.namespace.process_parts.part import Part
from replkernel.namespace.process_parts.plain import decode_plain, encode_plain
from replkernel.records import ComponentId

FIGURE_BYTES_MAX = 16 * 1024 * 1024


class PyplotPart(Part[tuple[Any, ...]]):
    """The open figures of ``matplotlib.pyplot`` by their numbers, and which one is current."""

    cid = ComponentId("@pyplot")
    library = "matplotlib._pylab_helpers"

    def __init__(self) -> None:
        self._pickles: dict[int, bytes] = {}
        self._told: dict[int, bytes] | None = None
        super().__init__()

    def look(self) -> tuple[Any, ...]:
        """Return number and digest of each open figure, the current one last."""
        managers: Any = sys.modules["matplotlib._pylab_helpers"].Gcf.figs
        if not managers:
            self._pickles = {}
            self.stuck = ()
            return ()
        self._pickles, stuck = {}, []
        for number, manager in managers.items():
            try:
                data = pickle.dumps(manager.canvas.figure, protocol=5)
                if len(data) > FIGURE_BYTES_MAX:
                    raise ValueError(f"{len(data)} bytes are more than {FIGURE_BYTES_MAX}")
            except Exception as error:
                stuck.append(f"The open figure {number} cannot be copied ({type(error).__name__}: {error}).")
            else:
                self._pickles[int(number)] = data
        self.stuck = tuple(stuck)
        return tuple(
            (number, hashlib.blake2b(data, digest_size=16).digest()) for number, data in self._pickles.items()
        )

    def pack(self, seen: tuple[Any, ...]) -> bytes | None:
        """Write the figures in the order of their use."""
        if not seen and self._data is None:
            return None
        return encode_plain(list(self._pickles.items()))

    def apply(self, data: bytes) -> None:
        """Remember the figures; `settle` makes them when a cell is about to run."""
        self._told = {int(number): figure for number, figure in decode_plain(data)}

    def settle(self) -> bool:
        """Number the open figures, make those that no variable has brought back, close the rest."""
        done = super().settle()
        if not done or self._told is None or "matplotlib.pyplot" not in sys.modules:
            return done
        told, self._told = self._told, None
        figures: Any = sys.modules["matplotlib._pylab_helpers"].Gcf
        strangers = {
            pickle.dumps(manager.canvas.figure, protocol=5): manager
            for number, manager in figures.figs.items()
            if number not in told
        }
        for number, data in told.items():
            if number not in figures.figs:
                manager = strangers.pop(data, None) or pickle.loads(data).canvas.manager
                _renumber(figures.figs, manager, number)
            figures.figs.move_to_end(number)
        for manager in strangers.values():
            figures.destroy(manager)
        self._seen = self._look_if_ready()
        return done


def _renumber(figures: Any, manager: Any, number: int) -> None:
    """Give a figure its number: matplotlib hands out the next free one when it unpickles."""
    figures.pop(manager.num, None)
    manager.num = number
    with contextlib.suppress(AttributeError):
        manager.canvas.figure.number = number
    figures[number] = manager
