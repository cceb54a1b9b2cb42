"""What keeps executions from being committed, as router and process are told of it.

Pure. Law: each change is told once; a majority that is back within TELL_MAJORITY_S was never away.
"""

from __future__ import annotations

from replkernel.agent.core.outbox import NO_MAJORITY
from replkernel.records import Seq

TELL_MAJORITY_S = 3.0
"""A majority that answers again within so long is never told as lost: a busy group elects anew meanwhile."""


class CommitTroubles:
    """One replica's; `told` is what people know: since which execution, and why."""

    def __init__(self) -> None:
        self.told: tuple[Seq, str] | None = None
        self._majority = True
        """As people were told."""
        self._majority_due: float | None = None

    def majority_seen(self, now: float, *, seen: bool) -> None:
        """Take note of whether most members answer."""
        if seen:
            self._majority, self._majority_due = True, None
        elif self._majority and self._majority_due is None:
            self._majority_due = now + TELL_MAJORITY_S

    def tick(self, now: float) -> None:
        """Give up the majority, when that is due."""
        if self._majority_due is not None and self._majority_due <= now:
            self._majority, self._majority_due = False, None

    def news(self, kept: tuple[Seq, str] | None, pending: Seq) -> tuple[Seq, str] | None:
        """Return what there is to tell, if anything: an empty reason says that all is committed again.

        `kept` is what the outbox cannot get into the log; `pending` is the newest that is on its way there.
        """
        trouble = (pending, NO_MAJORITY) if kept is None and not self._majority else kept
        if trouble == self.told:
            return None
        before, self.told = self.told, trouble
        return trouble or (before[0] if before else Seq(0), "")

    def deadline(self) -> float | None:
        """Return when `tick` has something to do."""
        return self._majority_due
