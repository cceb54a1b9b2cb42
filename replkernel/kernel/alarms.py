"""Deadlines by name for a thread that polls: which are due, and how long it may block until the next.

Law: pure; the caller gives the time, in seconds.
"""

from __future__ import annotations


class Alarms:
    """A handful of deadlines."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}

    def set(self, name: str, at: float) -> None:
        """Set a deadline, in place of the one of that name."""
        self._at[name] = at

    def set_once(self, name: str, at: float) -> None:
        """Set a deadline unless there is one of that name."""
        self._at.setdefault(name, at)

    def cancel(self, name: str) -> None:
        """Forget a deadline, if there is one of that name."""
        self._at.pop(name, None)

    def __contains__(self, name: str) -> bool:
        return name in self._at

    def take(self, name: str, now: float) -> bool:
        """Tell once whether a deadline has passed."""
        if self._at.get(name, float("inf")) > now:
            return False
        del self._at[name]
        return True

    def patience_s(self, now: float) -> float | None:
        """Return how long until the next deadline; None when there is none."""
        return max(0.0, min(self._at.values()) - now) if self._at else None
