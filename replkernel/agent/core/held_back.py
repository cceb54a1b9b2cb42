"""Other replicas' deltas that a standby's process gets a moment later, with those that come right after them.

Pure. Law: they are taken in the order in which they came, each once, and none waits past the limits below.
"""

from __future__ import annotations

from replkernel.agent.core.catch_up import delta_bytes
from replkernel.records import Delta

HAND_OVER_QUIET_S = 0.05
HAND_OVER_LIMIT_S = 0.25
HAND_OVER_MAX = 64
HAND_OVER_BYTES_MAX = 256 * 1024
"""Where the executor is sticky, a standby's process gets them once no more come; at these limits at once."""


class HeldBack:
    """What waits to be handed over; where the executor is not `sticky`, nothing waits."""

    def __init__(self, *, sticky: bool) -> None:
        self._sticky = sticky
        self._deltas: list[Delta] = []
        self._bytes = 0
        self._since = 0.0
        self.due_at: float | None = None
        """When all of it must be taken, None while there is nothing."""

    def add(self, delta: Delta, now: float) -> bool:
        """Take a delta; return whether it may wait: if not, all must be taken at once."""
        if not self._deltas:
            self._since = now
        self._deltas.append(delta)
        self._bytes += delta_bytes(delta)
        if not self._sticky or len(self._deltas) >= HAND_OVER_MAX or self._bytes > HAND_OVER_BYTES_MAX:
            return False
        self.due_at = min(now + HAND_OVER_QUIET_S, self._since + HAND_OVER_LIMIT_S)
        return True

    def take(self) -> list[Delta]:
        """Return all that waits, in order; nothing waits then."""
        deltas, self._deltas = self._deltas, []
        self._bytes, self.due_at = 0, None
        return deltas

    def check_invariants(self) -> None:
        """Assert that what waits has an end, and stays below its limit."""
        assert bool(self._deltas) == (self.due_at is not None), "deltas wait without an end"
        assert len(self._deltas) < HAND_OVER_MAX, "too many deltas are held back"
