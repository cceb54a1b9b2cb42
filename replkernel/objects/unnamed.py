"""The chunks that one process wrote and that no delta names: which of them none will name any more. Pure.

A capture that gave way has written chunks for nothing, unless its values are the same when it goes on.
Law: what was written, or looked at again, since the cell before the last one stays: an audit may name it yet.
"""

from __future__ import annotations

from collections.abc import Iterable

from replkernel.records import Digest

CELLS_KEPT = 2
"""So many cells are awaited before what their captures left unnamed is given up."""


class Unnamed:
    """Whoever has several threads holds a lock around each call."""

    def __init__(self) -> None:
        self._cells: dict[Digest, int] = {}
        """The cell after which each was last written or looked at, by our own count."""
        self._cell = 0

    def __contains__(self, digest: Digest) -> bool:
        return digest in self._cells

    def wrote(self, digest: Digest) -> None:
        """Note a chunk that this process has just written, or looked at again."""
        self._cells[digest] = self._cell

    def named(self, digests: Iterable[Digest]) -> None:
        """Note that a delta names these."""
        if self._cells:
            for digest in digests:
                self._cells.pop(digest, None)

    def ended(self, *, cell: bool, whole: bool) -> list[Digest]:
        """Note the end of a capture, the first after a `cell` or an audit; return what is given up.

        A `whole` one leaves nothing to be checked: no delta will name what is left.
        """
        if cell:
            self._cell += 1
        oldest = self._cell if whole else self._cell - CELLS_KEPT
        return self.take(oldest)

    def take(self, oldest: int | None = None) -> list[Digest]:
        """Return everything, or what was not looked at since cell `oldest`; it is not ours any more."""
        taken = [digest for digest, cell in self._cells.items() if oldest is None or cell <= oldest]
        for digest in taken:
            del self._cells[digest]
        return taken
