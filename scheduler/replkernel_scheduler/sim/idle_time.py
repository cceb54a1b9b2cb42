"""How much of what notebooks leave idle is used by jobs: GPU-seconds, exact over event times.

Law: it only counts. What notebooks leave idle is what open sessions ask for less what their cells have; of
what jobs have, as much as that counts as harvested, and the rest would have been nobody's.
"""

from __future__ import annotations


class IdleTime:
    """Three levels at once, and the integrals of what follows from them."""

    __slots__ = ("_begins", "_cells", "_jobs", "_sessions", "_since", "harvested", "idle", "jobs")

    def __init__(self, begins: float = 0.0) -> None:
        """Start with nobody, at time 0, and count from `begins`."""
        self._begins = begins
        self._sessions = self._cells = self._jobs = self._since = 0.0
        self.idle = self.jobs = self.harvested = 0.0

    def add(self, now: float, *, sessions: float = 0.0, cells: float = 0.0, jobs: float = 0.0) -> None:
        """Let sessions ask for so many more GPUs, cells or jobs have so many more; fewer if below 0."""
        lasted_s = max(now, self._begins) - max(self._since, self._begins)
        idle = max(0.0, self._sessions - self._cells)
        self.idle += idle * lasted_s
        self.jobs += self._jobs * lasted_s
        self.harvested += min(idle, self._jobs) * lasted_s
        self._since = now
        self._sessions += sessions
        self._cells += cells
        self._jobs += jobs
