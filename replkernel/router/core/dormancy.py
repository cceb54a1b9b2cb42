"""Standbys of a notebook that nobody uses: their processes end, and come back with the next cell.

Pure. Laws: the executor stays; a standby goes only when all that ran is durable and nothing lives in it
alone; they come back one after the other behind a cell that runs, and together for what waits for them.
"""

from __future__ import annotations

from replkernel.records import ReplicaId
from replkernel.router.core.events import Effect, Log
from replkernel.router.core.parts import Parts

RECALL_AFTER_S = 0.3
"""A cell that runs has the processor for so long before another process is forked beside it."""
EXECUTOR_WAIT_S = 5.0
"""So long the executor's own next process is awaited while nobody waits for a cell."""


class Dormancy:
    """Which of one kernel's standbys have no process for now. `idle_s` of 0: each always has one."""

    def __init__(self, parts: Parts, idle_s: float, now: float) -> None:
        self._parts = parts
        self._idle_s = idle_s
        self._used_at = self._tried_at = now
        self._recall_at: float | None = None
        self._returning = False
        """Whether somebody has used the notebook since they went: then all of them come back."""

    @property
    def present(self) -> bool:
        """Tell whether a standby has no process for now."""
        return bool(self._parts.fleet.dormant())

    def used(self, now: float) -> None:
        """Note that a client spoke or a cell ended."""
        self._used_at = now

    def advance(self, now: float, *, busy: bool, waits: bool) -> list[Effect]:
        """Take the step that is due; `busy`: a cell runs, `waits`: something may wait for a standby."""
        if busy or waits:
            self.used(now)
        fleet = self._parts.fleet
        dormant = fleet.dormant()
        if dormant:
            return self._bring_back(dormant, now, waits=waits)
        self._recall_at, self._returning = None, False
        if not self._idle_s or now < self._due() or not fleet.ready():
            return []
        self._tried_at = now
        spare = self._spare()
        if not spare:
            return []
        gone = [fleet.dismiss(name) for name in spare]
        return [Log(f"unused for {self._idle_s:g} s: {', '.join(spare)} go without processes"), *gone]

    def _bring_back(self, dormant: list[ReplicaId], now: float, *, waits: bool) -> list[Effect]:
        fleet = self._parts.fleet
        alone = not fleet.ready()
        self._returning = self._returning or waits or now < self._used_at + self._idle_s or not self._idle_s
        if not self._returning and not alone:
            self._recall_at = None
            return []
        after_s = 0.0 if waits else EXECUTOR_WAIT_S if alone else RECALL_AFTER_S
        due = now + after_s if self._recall_at is None else min(self._recall_at, now + after_s)
        self._recall_at = due
        if now < due or not (waits or alone or not fleet.recalled()):
            return []
        self._recall_at = None
        self.used(now)
        back = dormant if waits or alone else dormant[:1]
        effects = [fleet.dismiss(name, recalled=True) for name in back]
        return [Log(f"{', '.join(back)} get their processes back"), *effects]

    def _spare(self) -> list[ReplicaId]:
        """Return the standbys that nobody needs, all or none."""
        parts, ready = self._parts, self._parts.fleet.ready()
        others = [name for name in ready if name != parts.succession.designated()]
        hosts = [parts.fleet.hosts[parts.fleet.replicas[name].host] for name in others]
        whole = len(ready) == len(parts.fleet.replicas)
        if not whole or not all(host.dismisses and host.welcomed for host in hosts):
            return []
        if parts.placement.moves or not parts.fleet.grouped or not parts.succession.all_committed:
            return []
        # What they say of variables that they could not rebuild keeps the executor's process from ending.
        bound = parts.placement.holders(others) or parts.placement.doubts.binding(ready)
        return [] if bound or any(parts.comms.held_by(name) for name in others) else others

    def _due(self) -> float:
        """Return when standbys go that can; those that cannot are looked at again after as long."""
        return max(self._used_at, self._tried_at) + self._idle_s

    def deadline(self) -> float | None:
        """Return when `advance` has something to do that no event announces."""
        fleet = self._parts.fleet
        if self._recall_at is not None:
            return self._recall_at if not fleet.ready() or not fleet.recalled() else None
        return self._due() if self._idle_s and len(fleet.ready()) > 1 and not self.present else None
