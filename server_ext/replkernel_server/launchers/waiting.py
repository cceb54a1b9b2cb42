"""Jobs of an engine that wait for GPUs: the core is told of them for as long as they wait.

Pure: a launcher's words in, the core's events out. Law: nothing is said of nobody; while somebody waits it
is said again after AGAIN_S, for what lingers may have begun to after it was said last.
"""

from __future__ import annotations

from replkernel_scheduler.events import GpusAwaited, GpusWanted
from replkernel_scheduler.types import HostName

from replkernel_server.launchers.protocol import JobsWaiting

AGAIN_S = 5.0
SOON_S = 1.0
"""What changes more often is said as it is then."""
KINDS_MAX = 64
"""So many kinds of jobs are told of; there is more to be had for the others later."""


class WaitingJobs:
    """What waits by now."""

    def __init__(self) -> None:
        """Start with nobody."""
        self._event: GpusWanted | None = None
        self._said_at = float("-inf")
        self._again_s = SOON_S

    def told(self, word: JobsWaiting, now: float) -> list[GpusWanted]:
        """Take what the launcher tells; return what the core is to hear."""
        jobs = tuple(
            GpusAwaited(tuple(HostName(host) for host in job.hosts), job.gpus, job.count)
            for job in word.jobs[:KINDS_MAX]
            if job.hosts and job.gpus > 0
        )
        self._event = GpusWanted(jobs) if jobs else None
        self._again_s = SOON_S
        return self.due(now)

    def due(self, now: float) -> list[GpusWanted]:
        """Return what the core is to hear by now."""
        if self._event is None or now < self._said_at + self._again_s:
            return []
        self._said_at, self._again_s = now, AGAIN_S
        return [self._event]
