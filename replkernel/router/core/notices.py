"""Sentences about the kernel that are shown once, under the next cell that runs.

Pure. Law: bounded, and no sentence waits twice.
"""

from __future__ import annotations

from replkernel.router.core.events import Effect, Log

NOTICES_MAX = 20


class Notices:
    """The sentences that wait to be shown; a lasting trouble is shown once until it is over."""

    def __init__(self) -> None:
        self._waiting: list[str] = []
        self._troubles: dict[str, str] = {}

    def add(self, text: str) -> None:
        """Have a sentence shown under the next cell."""
        if text and text not in self._waiting:
            self._waiting.append(text)
            del self._waiting[:-NOTICES_MAX]

    def tell(self, text: str) -> list[Effect]:
        """Tell the user a sentence, if any: on the terminal now, in the notebook under the next cell."""
        if not text:
            return []
        self.add(text)
        return [Log(text, "warning")]

    def trouble(self, source: str, why: str) -> None:
        """Have a lasting trouble shown once; an empty `why` ends it."""
        if not why:
            self._troubles.pop(source, None)
        elif self._troubles.get(source) != why:
            told = why in self._troubles.values()
            self._troubles[source] = why
            if not told:
                self.add(why)

    def take(self) -> list[str]:
        """Return the sentences to show, and forget them."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def check_invariants(self) -> None:
        """Assert the bound and that no sentence waits twice."""
        assert len(self._waiting) <= NOTICES_MAX
        assert len(set(self._waiting)) == len(self._waiting)
