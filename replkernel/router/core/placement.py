"""Which replica runs the next cell: the executor policies and what holds the executor where it is.

Pure: randomness comes from the generator that the caller seeds. Law: a policy only picks among replicas that
are ready, and never moves an executor that is held.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from replkernel.records import Pin, ReplicaId, Seq
from replkernel.router.core.doubts import Doubts

Policy = Literal["sticky", "rotate", "random"]


TOLD_MAX = 5


class Placement:
    """The executor of one kernel and the policy that chooses the next one."""

    def __init__(self, policy: Policy, generator: random.Random) -> None:
        self._policy = policy
        self._generator = generator
        self._pins: tuple[Pin, ...] = ()
        self._lost: dict[ReplicaId, Seq] = {}
        """For each replica whose process was lost, the last execution that may have left objects in it."""
        self.doubts = Doubts(self._lost)
        self.executor: ReplicaId | None = None

    @property
    def moves(self) -> bool:
        """Tell whether the policy ever moves a healthy executor."""
        return self._policy != "sticky"

    def pinned(self, pins: tuple[Pin, ...]) -> None:
        """Take over the pins of the last committed execution."""
        self._pins = pins

    def lost(self, replica: ReplicaId, last: Seq) -> str:
        """Take note that a replica's process is gone, with all that executions up to `last` left there.

        Return a sentence of what is gone that no variable's use will tell; empty when there is nothing.
        """
        before = self._lost.get(replica, Seq(0))
        self._lost[replica] = last
        gone = [pin for pin in self._pins if pin.replica == replica and before < pin.seq <= last]
        return _epitaph(replica, [pin for pin in gone if not pin.name.isidentifier()])

    @property
    def gone(self) -> dict[ReplicaId, Seq]:
        """Return the replicas whose processes were lost, with the last execution that left objects there."""
        return dict(self._lost)

    def holders(self, ready: Sequence[ReplicaId]) -> list[ReplicaId]:
        """Return the ready replicas that hold a pinned object; one of a lost process pins nothing."""
        pins = (pin for pin in self._pins if pin.replica in ready)
        held = [pin.replica for pin in pins if pin.seq > self._lost.get(pin.replica, Seq(0))]
        return held + self.doubts.holders(ready)

    def pick(self, ready: Sequence[ReplicaId], *, stay: bool) -> ReplicaId:
        """Pick the next executor among `ready`, which is in the replicas' order and not empty.

        `stay` keeps a ready executor; pins keep it on the replica that holds the pinned object.
        """
        pinning = self.holders(ready)
        executor = self.executor if self.executor in ready else None
        if stay and executor is not None:
            return executor
        if pinning:
            return executor if executor in pinning and executor is not None else pinning[0]
        if executor is None:
            return ready[0]
        if self._policy == "rotate":
            return ready[(list(ready).index(executor) + 1) % len(ready)]
        if self._policy == "random":
            return self._generator.choice(list(ready))
        return executor


def _epitaph(replica: ReplicaId, pins: Sequence[Pin]) -> str:
    if not pins:
        return ""
    shown = "; ".join(
        f"{pin.path or pin.name} (cell {pin.shown_cell}): {pin.reason.rstrip('.')}" for pin in pins[:TOLD_MAX]
    )
    more = f"; and {len(pins) - TOLD_MAX} more" if len(pins) > TOLD_MAX else ""
    return (
        f"With the process of replica {replica} went what lived in it alone: {shown}{more}. "
        "Run the cells that made it again."
    )
