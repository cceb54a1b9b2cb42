"""How much of the processor checking may take, and when it may begin: time is an argument. Pure.

Law: audits, and captures that would take long, have a fifth of a core in any minute at most; a check that
gave way waits for a quiet moment that is longer than the last; only a move cannot wait.
"""

from __future__ import annotations

AUDIT_SHARE = 2 / 15
AUDIT_SAVED_S = 4.0
"""Checking takes at most this part of the time; what it has not taken is saved up to so much. Together that
is a fifth of a minute.
"""

HOLD_SHARE = 0.1
HOLD_SAVED_S = 2.0
"""Captures that take long hold up cells that wait for at most this part of the time, saved up to so much.

So the first cells of *Run All* are durable when a long one begins, however large what they leave alone is.
Where more follow each other at once, what takes longer is checked when they end.
"""

PART_MAX = 0.2
"""What no cell mentions is checked in this part of the time at most."""

PAUSE_MAX_S = 60.0
"""Nothing waits longer than this for its turn."""

PATIENCE_MIN_S, PATIENCE_MAX_S = 0.25, 2.0
"""After a check that gave way nobody must have run a cell for so long; each time for twice as long."""


class Allowance:
    """Seconds that may be spent: they come as a part of the time, and are saved up to a limit."""

    def __init__(self, share: float, saved_s: float, owed_s: float) -> None:
        self._share = share
        self._saved_s = saved_s
        self._owed_s = owed_s
        self._left_s = saved_s
        self._at = float("-inf")

    def left_s(self, now: float) -> float:
        """Return how much may be spent now; less than nothing when too much was."""
        if self._at == float("-inf"):
            return self._saved_s
        return min(self._saved_s, self._left_s + self._share * max(0.0, now - self._at))

    def spend(self, seconds: float, now: float) -> None:
        """Take what was spent, which may be more than was left: nothing is begun before that is paid for."""
        self._left_s = max(self.left_s(now) - seconds, -self._owed_s)
        self._at = now

    def delay_s(self, now: float) -> float:
        """Return in how many seconds there is something left."""
        left_s = self.left_s(now)
        return 0.0 if left_s > 0 else -left_s / self._share


class AuditTimes:
    """When the next audit may begin, by what the last ones took.

    With `moves` another replica waits for it, and it begins at once; an `urgent` one is of what a cell
    mentions, and is not behind those that nobody waits for.
    """

    def __init__(self) -> None:
        self.moves = False
        self.urgent = False
        self._allowance = Allowance(AUDIT_SHARE, AUDIT_SAVED_S, PAUSE_MAX_S * AUDIT_SHARE)
        self._free_at = 0.0
        self._not_before = 0.0
        self._quiet_since = float("-inf")
        self._patience_s = 0.0

    def took(self, seconds: float, now: float) -> None:
        """Note what an audit took, finished or not."""
        self._allowance.spend(seconds, now)
        pause_s = seconds * (1 - PART_MAX) / PART_MAX
        self._free_at = min(now + PAUSE_MAX_S, max(now, self._free_at) + pause_s)

    def captured(self, seconds: float, now: float) -> None:
        """Note that the capture after a cell is over, and what of it was for costly components."""
        self._allowance.spend(seconds, now)
        self._quiet_since = now

    def gave_way(self) -> None:
        """Note that a check did not come to its end because somebody waited."""
        self._patience_s = min(PATIENCE_MAX_S, max(PATIENCE_MIN_S, 2 * self._patience_s))

    def finished(self) -> None:
        """Note that a check came to its end."""
        self._patience_s = 0.0

    def put_off(self, seconds: float, now: float) -> None:
        """Begin none for so long."""
        self._not_before = now + seconds

    def spare(self, now: float, *, crowded: bool) -> bool:
        """Tell whether the capture after a cell may look at what takes long.

        Where the next cell is there already, whoever asks knows for how long it may wait; else a capture that
        is likely to give way is not begun.
        """
        likely = crowded or not self._patience_s
        return self.moves or (likely and self._allowance.left_s(now) > 0)

    def delay_s(self, now: float) -> float:
        """Return in how many seconds the next audit may begin."""
        if self.moves:
            return max(0.0, self._not_before - now)
        due = max(self._not_before, self._quiet_since + self._patience_s)
        due = max(due, now + self._allowance.delay_s(now))
        return max(0.0, (due if self.urgent else max(due, self._free_at)) - now)
