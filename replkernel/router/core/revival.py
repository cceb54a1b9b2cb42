"""The founding of another group for a kernel whose replicas are gone: from its newest checkpoint.

Pure. Law: no group is founded before the store has said what there is; a group that another one follows is
never gone back to.
"""

from __future__ import annotations

import hashlib

from replkernel.protocol.agent_to_router import CheckpointFound
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.protocol.router_to_agent import FindCheckpoint, StartReplica
from replkernel.records import HostName, ReplicaId
from replkernel.router.core.events import Effect, ToAgent

ASK_AGAIN_S = 5.0
"""A search for a checkpoint that failed, or that nobody answers, is made again after so long."""
ANSWER_LIMIT_S = 60.0


class Revival:
    """One founding: who was asked for the checkpoint, and what was found."""

    def __init__(self, spec: KernelSpec, secret: str, *, awaited: bool = False) -> None:
        """`awaited`: the members of the group are there already, and what they have run is with them."""
        self.awaited = awaited
        self.found: CheckpointFound | None = None
        self.why = ""
        """Why the store could not be searched the last time."""
        self._spec = spec
        self._secret = secret
        self._asked: HostName | None = None
        self._ask_at = float("-inf")

    def ask(self, hosts: list[HostName], now: float) -> list[Effect]:
        """Have one of `hosts` look for the checkpoint, unless one is looking."""
        if self.found is not None or not hosts or (self._asked in hosts and now < self._ask_at):
            return []
        if self._asked is None and now < self._ask_at:
            return []
        others = [host for host in hosts if host != self._asked]
        self._asked = (others or hosts)[0]
        self._ask_at = now + ANSWER_LIMIT_S
        return [ToAgent(self._asked, FindCheckpoint(self._spec))]

    def take(self, message: CheckpointFound, now: float) -> bool:
        """Take what a host found; return whether that is the answer."""
        if self.found is not None:
            return False
        if message.why:
            self.why, self._asked, self._ask_at = message.why, None, now + ASK_AGAIN_S
            return False
        self.found, self.why = message, ""
        return True

    @property
    def generation(self) -> int:
        """Return the number of the group that is being founded."""
        return 1 if self.found is None else self.found.generation + 1

    def start(self, replica: ReplicaId, peers: dict[ReplicaId, str]) -> StartReplica:
        """Return what starts one member of the group; its secret is none that an older group had."""
        assert self.found is not None
        secret = hashlib.sha256(f"{self._secret}/{self.generation}".encode()).hexdigest()
        return StartReplica(
            kernel_id=self._spec.kernel_id,
            replica=replica,
            peers=peers,
            secret=secret,
            checkpoint=self.found.name,
            checkpoint_digest=self.found.digest,
            generation=self.generation,
        )

    def deadline(self) -> float | None:
        """Return when `ask` has something to do that no event announces."""
        return None if self.found is not None or self._ask_at == float("-inf") else self._ask_at
