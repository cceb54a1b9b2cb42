"""What all drivers have: the time of the run, how many events and records there were, and who watches.

Law: it counts, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.records import Job, Record

WATCH_EVERY = 4096
Watcher: TypeAlias = Callable[[int, int], None]
"""Told of the events handled and the records played so far."""


class Driver:
    """The counts of one run."""

    def __init__(self, watch: Watcher | None) -> None:
        """Start at nothing."""
        self.now = 0.0
        self.events = self.played = 0
        self.event: object = None
        """What the core was told last."""
        self._watch = watch

    def _count(self, now: float) -> None:
        """Count an event that happens now."""
        self.now = now
        self.events += 1
        if self._watch is not None and not self.events % WATCH_EVERY:
            self._watch(self.events, self.played)


def job_in(record: Record) -> Job:
    """Return the job that a record is; raise SimulationError for a session or a cell."""
    if not isinstance(record, Job):
        raise SimulationError(
            "This policy serves jobs, and the trace has sessions with cells: play it with notebook, "
            "reservation, fcfs-batch or large-pool."
        )
    return record
