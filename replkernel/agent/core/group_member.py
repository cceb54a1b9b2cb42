"""A replica's membership in its Raft group: whom it knows there, since when, and whether it can start at all.

Pure. Law: a member is opened once it knows the others; one that cannot start is tried again, and told of.
"""

from __future__ import annotations

from replkernel.agent.core.effects import Effect, OpenGroup, SaveReplica, ToRouter
from replkernel.agent.core.events import GroupNamed, GroupTrouble, MemberGone, MemberLogged
from replkernel.protocol.agent_to_router import MemberBroken, ReplicaPrepared, RouteNotice
from replkernel.records import ReplicaId

GROUP_RETRY_S = 3.0
"""So long after a Raft member could not start it is tried again."""


class GroupMember:
    """What one replica's member is opened with; `joining`: its log has not told it everything yet."""

    def __init__(self, replica: ReplicaId, raft_address: str) -> None:
        self.replica = replica
        self.raft_address = raft_address
        self.peers: dict[ReplicaId, str] = {}
        self.secret = ""
        self.checkpoint = ""
        self.checkpoint_digest = ""
        self.generation = 1
        self.joining = False
        """Whether the group was there before it, and its log has not told it everything yet."""
        self._retry_at: float | None = None
        self._why = ""
        self._broken = ""

    def requested(self, *, joining: bool) -> None:
        """Take note that the replica is wanted; `joining`: for a group that is there already."""
        self.joining = self.joining or (joining and not self.peers)

    def named(self, group: GroupNamed) -> None:
        """Take who is in the group."""
        self.peers, self.secret = group.peers, group.secret
        self.checkpoint, self.checkpoint_digest = group.checkpoint, group.checkpoint_digest
        self.generation, self.joining = group.generation, group.joining

    def open(self) -> Effect:
        """Return the effect that starts the member."""
        return OpenGroup(self.peers, self.secret, self.checkpoint, self.checkpoint_digest, self.joining)

    def opened(self) -> None:
        """Take note that it has started."""
        self._broken = self._why = ""

    def troubled(self, event: GroupTrouble, now: float) -> list[Effect]:
        """Tell once why it cannot start, and try again; what lasts has it replaced."""
        self._retry_at = now + GROUP_RETRY_S
        before, self._why = self._why, event.why
        told: list[Effect] = [ToRouter(RouteNotice(event.why, "error"))] if event.why != before else []
        self._broken = event.why if event.lasting else self._broken
        return [*told, *self.say_broken()]

    def say_broken(self) -> list[Effect]:
        """Tell a router that this replica will never be in its group, so that it has it replaced."""
        return [ToRouter(MemberBroken(self.replica, self._broken))] if self._broken else []

    def say_address(self) -> list[Effect]:
        """Tell a router that the group still waits to be started."""
        return [] if self.peers else [ToRouter(ReplicaPrepared(self.replica, self.raft_address))]

    def other_joined(self, event: MemberLogged) -> list[Effect]:
        """Take the address of another member, as the log has it."""
        if not event.address or self.peers.get(event.replica) == event.address:
            return []
        self.peers = {**self.peers, event.replica: event.address}
        return [SaveReplica()]

    def joined(self) -> bool:
        """Take note of its own joining, behind all that was before it in the log; tell whether it waited."""
        before, self.joining = self.joining, False
        return before

    def other_left(self, event: MemberGone) -> list[Effect]:
        """Forget a member that has left the group."""
        if event.replica == self.replica or event.replica not in self.peers:
            return []
        self.peers = {name: address for name, address in self.peers.items() if name != event.replica}
        return [SaveReplica()]

    def tick(self, now: float) -> list[Effect]:
        """Try again to start, when that is due."""
        if self._retry_at is None or now < self._retry_at:
            return []
        self._retry_at = None
        return [self.open()]

    def deadline(self) -> float | None:
        """Return when `tick` has something to do."""
        return self._retry_at
