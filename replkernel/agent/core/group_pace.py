"""How quickly a Raft member beats, and with which member the lead should be: quick while cells run.

Pure. Law: the lead goes to the executor's member in a quiet moment only, and not often.
"""

from __future__ import annotations

from collections.abc import Mapping

from replkernel.agent.core.effects import Effect, LeadElsewhere, SetPace
from replkernel.records import ReplicaId

LEAD_QUIET_S = 0.25
LEAD_PERIOD_S = 5.0
"""The leadership goes to the executor's member, whose commits need one round less, once no delta has come for
so long; no oftener than this."""

RESTING_PACE_S = 3.0
"""So long after the last execution the Raft group goes back to its cheap pace."""


class GroupPace:
    """One member's."""

    def __init__(self) -> None:
        self._rest_at: float | None = None
        self._executor: ReplicaId | None = None
        """The other replica whose delta is the last one logged, while the leadership is due to go there."""
        self._lead_at: float | None = None
        self._led_at = float("-inf")

    def quicken(self) -> list[Effect]:
        """Beat quickly: an execution is under way."""
        resting, self._rest_at = self._rest_at is None, float("inf")
        return [SetPace(True)] if resting else []

    def calm_down(self, now: float) -> None:
        """Go back to the cheap pace in a moment: an execution is over."""
        if self._rest_at is not None:
            self._rest_at = now + RESTING_PACE_S

    def ran_here(self) -> None:
        """Take note that the last execution was this replica's."""
        self._executor = self._lead_at = None

    def ran_at(self, executor: ReplicaId, now: float) -> None:
        """Take note that the last execution was another replica's."""
        self._executor = executor
        self._lead_at = max(now + LEAD_QUIET_S, self._led_at + LEAD_PERIOD_S)

    def tick(self, peers: Mapping[ReplicaId, str], now: float) -> list[Effect]:
        """Do what is due."""
        made: list[Effect] = []
        if self._rest_at is not None and self._rest_at <= now:
            self._rest_at = None
            made.append(SetPace(False))
        if self._lead_at is not None and self._lead_at <= now:
            made += self._lead_elsewhere(peers, now)
        return made

    def _lead_elsewhere(self, peers: Mapping[ReplicaId, str], now: float) -> list[Effect]:
        """Have the executor's member lead: what it proposes then needs no way to a leader first."""
        self._lead_at, self._led_at = None, now
        address = peers.get(self._executor, "") if self._executor is not None else ""
        return [LeadElsewhere(address)] if address else []

    def deadline(self) -> float | None:
        """Return when `tick` has something to do."""
        return min([time for time in (self._rest_at, self._lead_at) if time is not None], default=None)
