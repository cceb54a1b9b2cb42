"""A move is deferred: for as long as one takes, the replicas' own hosts may have the GPUs after all.

It is NotebookOS's migration with Lazer's deferral on top. Who waits for what may come soon, and pays for the
other way only when it has waited as long as that takes, never takes more than twice the best (as with skis
that are rented or bought).
"""

from __future__ import annotations

from replkernel_scheduler.policies.migration_random import RandomVictim

DEFER_S = 20.0
"""A move's state written, a process started, state read: about so long (specification 1.5)."""


class DeferredMove(RandomVictim):
    """The paper's way, once `defer_s` have passed."""

    def __init__(self, defer_s: float = DEFER_S) -> None:
        """Keep the deferral."""
        self.defer_s = defer_s
