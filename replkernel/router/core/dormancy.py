"""Standbys of a notebook that nobody uses: their processes end, and come back with the next cell.

Pure. Laws: the executor stays; a standby goes only when all that ran is durable and nothing lives in it
alone; whatever needs a replica brings all of them back.
"""

from __future__ import annotations

from replkernel.records import ReplicaId
from replkernel.router.core.events import Effect, Log
from replkernel.router.core.parts import Parts


class Dormancy:
    """Which of one kernel's standbys have no process for now. `idle_s` of 0: each always has one."""

    def __init__(self, parts: Parts, idle_s: float, now: float) -> None:
        self._parts = parts
        self._idle_s = idle_s
        self._used_at = self._tried_at = now

    @property
    def present(self) -> bool:
        """Tell whether a standby has no process for now."""
        return any(replica.dormant for replica in self._parts.fleet.replicas.values())

    def used(self, now: float) -> None:
        """Note that a client spoke or a cell ran."""
        self._used_at = now

    def advance(self, now: float, *, needed: bool) -> list[Effect]:
        """Take the step that is due; `needed`: something is under way for which replicas may be wanted."""
        fleet = self._parts.fleet
        if needed:
            self.used(now)
        dormant = fleet.dormant()
        if dormant and (now < self._used_at + self._idle_s or not self._idle_s or not fleet.ready()):
            self.used(now)
            back = [fleet.dismiss(name, recalled=True) for name in dormant]
            return [Log(f"replicas {', '.join(dormant)} get their processes back"), *back]
        if not self._idle_s or now < self._due() or not fleet.ready():
            return []
        self._tried_at = now
        spare = self._spare()
        if not spare:
            return []
        gone = [fleet.dismiss(name) for name in spare]
        return [Log(f"unused for {self._idle_s:g} s: {', '.join(spare)} go without processes"), *gone]

    def _spare(self) -> list[ReplicaId]:
        """Return the standbys that nobody needs, all or none."""
        parts = self._parts
        executor = parts.succession.designated()
        others = [name for name in parts.fleet.ready() if name != executor]
        hosts = {parts.fleet.replicas[name].host for name in others}
        if not all(parts.fleet.hosts[host].dismisses for host in hosts):
            return []
        if parts.placement.moves or not parts.fleet.grouped or not parts.succession.all_committed:
            return []
        bound = parts.placement.holders(others) or any(parts.comms.held_by(name) for name in others)
        return [] if bound else others

    def _due(self) -> float:
        """Return when standbys go that can; those that cannot are looked at again after as long."""
        return max(self._used_at, self._tried_at) + self._idle_s

    def deadline(self) -> float | None:
        """Return when `advance` has something to do that no event announces."""
        return self._due() if self._idle_s and len(self._parts.fleet.ready()) > 1 else None
