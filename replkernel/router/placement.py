"""Which replica runs the next cell: the executor policies and what holds the executor where it is.

Pure: randomness comes from the generator that the caller seeds. Law: a policy only picks among replicas that
are ready, and never moves an executor that is held.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from replkernel.records import Pin, ReplicaId
from replkernel.router.doubts import Doubts

Policy = Literal["sticky", "rotate", "random"]


class Placement:
    """The executor of one kernel and the policy that chooses the next one."""

    def __init__(self, policy: Policy, generator: random.Random) -> None:
        self._policy = policy
        self._generator = generator
        self._pins: tuple[Pin, ...] = ()
        self.doubts = Doubts()
        self.executor: ReplicaId | None = None

    @property
    def moves(self) -> bool:
        """Tell whether the policy ever moves a healthy executor."""
        return self._policy != "sticky"

    def pinned(self, pins: tuple[Pin, ...]) -> None:
        """Take over the pins of the last committed execution."""
        self._pins = pins

    def pick(self, ready: Sequence[ReplicaId], *, stay: bool) -> ReplicaId:
        """Pick the next executor among `ready`, which is in the replicas' order and not empty.

        `stay` keeps a ready executor; pins keep it on the replica that holds the pinned object.
        """
        pinning = [pin.replica for pin in self._pins if pin.replica in ready] + self.doubts.holders(ready)
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
