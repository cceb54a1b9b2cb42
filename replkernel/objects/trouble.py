"""A store's trouble as one call meets it: how long until the next try, and what is told of it. Pure."""

from __future__ import annotations

from collections.abc import Callable

from replkernel.errors import StoreError, StoreRefused

BACKOFF_FIRST_S = 0.2
BACKOFF_MAX_S = 15.0
REFUSED_BACKOFF_S = 30.0
"""After the store said no, it is asked again this slowly: somebody may have mended it."""

TELL_AFTER_FAILURES = 2
"""A passing fault is told from the second failure in a row on; a refusal at once."""

OnTrouble = Callable[[str], None]


def backoff_s(failures: int, chance: float) -> float:
    """Return how long to wait after so many failures in a row; `chance` in [0, 1) spreads the waiters."""
    longest = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(failures - 1, 16))
    return longest * (0.5 + chance / 2)


class Trouble:
    """What one call tells of its store's trouble: neither each hiccup nor the same sentence twice."""

    def __init__(self, tell: OnTrouble) -> None:
        self.failures = 0
        self._tell = tell
        self._told = ""

    def failed(self, error: StoreError, *, progress: bool) -> None:
        """Count a failure; one after some progress is the first in a row."""
        self.failures = 1 if progress else self.failures + 1
        due = isinstance(error, StoreRefused) or self.failures >= TELL_AFTER_FAILURES
        if due and str(error) != self._told:
            self._told = str(error)
            self._tell(self._told)

    def over(self) -> None:
        """Say that it is over, if it was told."""
        self.failures = 0
        if self._told:
            self._told = ""
            self._tell("")
