"""``@patches``: brings the watch on libraries into the life of a process; the values travel as components.

Law: ships nothing itself; what was changed in a way that cannot travel is told as stuck.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from replkernel.records import ComponentId
from replkernel.state.patches.book import UNKNOWN, Book
from replkernel.state.patches.imported_sources import texts
from replkernel.state.patches.module_places import enter_places
from replkernel.state.patches.own_modules import is_own, own_modules
from replkernel.state.patches.places import place_of_module
from replkernel.state.patches.strays import is_stray, registered, taken_out
from replkernel.state.patches.strays import look as look_for_strays
from replkernel.state.patches.watch import Watch
from replkernel.state.process.part import Part

log = logging.getLogger(__name__)

MET_BYTES_MAX = 1024 * 1024
"""So much text of the user's modules is read for what their functions may change: parsing it takes 0.6 s."""


class SourceReader(Protocol):
    """Whoever must know of code before it runs."""

    def expect(self, source: str) -> None:
        """Take the source of a cell that is about to run."""

    def learn(self, source: str) -> None:
        """Take the source of a cell that ran on another replica."""

    def meet(self, text: str, now: bool) -> None:
        """Take the text of a module of the user's; with `now`, the cell under way has imported it."""


class PatchesPart(Part[None]):
    """What the notebook changed in libraries: `expect` before a cell's code, the book after it."""

    cid = ComponentId("@patches")

    def __init__(
        self,
        namespace: dict[str, Any],
        book: Book,
        waits: Callable[[], bool],
        hooks: Sequence[Part[Any]],
        *others: SourceReader,
    ) -> None:
        super().__init__()
        self._hooks = hooks
        self._others = others
        self._book = book
        self._watch = Watch(namespace, book)
        self._imported: set[str] = set()
        self._met: dict[str, bytes] = {}
        self._met_bytes = 0
        book.look, book.waits, book.at_once = self._look_at_everything, waits, is_stray
        book.is_users = is_own

    def _look_at_everything(self) -> None:
        self._watch.compare()
        for part in self._hooks:
            part.dump()
        look_for_strays()
        self._meet_modules(False)
        for name in [*taken_out(), *[name for name, _ in registered()]]:
            self._book.enter(place_of_module(name), UNKNOWN)
            self._book.let_go(name)
        enter_places(self._book, is_stray)

    def expect(self, source: str) -> None:
        """Look at what a cell names; an error here is no reason not to run it."""
        self._meet_modules(False)
        for reader in (self._watch, *self._others):
            try:
                reader.expect(source)
            except Exception:
                log.exception("What a cell may change was not found")

    def learn(self, source: str) -> None:
        """Take the source of a cell that ran elsewhere."""
        for reader in (self._watch, *self._others):
            try:
                reader.learn(source)
            except Exception:
                log.exception("What a cell may change was not found")

    def go_on(self) -> None:
        """Look once more before each statement of a cell that imports what it changes."""
        try:
            names = {name for name, _ in own_modules()}
            if not names <= self._imported:
                self._imported |= names
                look_for_strays()
                self._meet_modules(True)
            self._watch.go_on()
        except Exception:
            log.exception("What a cell may change in libraries was not found")

    def _meet_modules(self, now: bool) -> None:
        """Read the texts of the user's modules that have come since."""
        new = [(name, text) for name, text in texts.items() if self._met.get(name) is not text]
        for name, text in new:
            self._met[name] = text
            self._met_bytes += len(text)
            if self._met_bytes > MET_BYTES_MAX:
                continue
            for reader in (self._watch, *self._others):
                try:
                    reader.meet(text.decode(errors="replace"), now)
                except Exception:
                    log.exception("What a module may change was not found")

    def look(self) -> None:
        """See nothing: the book is looked at with the variables."""

    def pack(self, seen: None) -> bytes | None:
        """Write nothing."""
        return None

    def apply(self, data: bytes) -> None:
        """Take nothing over: no process writes any."""

    def dump(self) -> bytes | None:
        """Note what cannot travel; there is nothing to say otherwise."""
        if len(self._book.notes) != len(self.stuck):
            self.stuck = tuple(self._book.notes)
        return None

    def settle(self) -> bool:
        """Change the libraries as other replicas did, now that the notebook's modules are imported."""
        self._book.settle()
        self.trouble = " ".join(self._book.troubles.values())
        return True
