"""Consensus in memory, for tests: one object is the whole group, and the test decides what happens.

Deterministic: no thread, no clock, no randomness. Nothing moves until `deliver` or `settle` is called,
unless the group was made with `immediate=True`. Not a Raft: it keeps the contract, not the protocol.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

import msgspec

from replkernel.replication.consensus import (
    PROPOSALS_MAX,
    Done,
    ProposalCommitted,
    ProposalUnknown,
    RaftStatus,
    StateCallbacks,
)
from replkernel.replication.entries import ENTRY_BYTES_MAX, EntryTooLarge

STEPS_MAX = 100_000
"""`settle` gives up after this many steps: two members feed each other for ever."""


class Proposal(msgspec.Struct):
    """What waits at a member: an entry, or a change of the membership."""

    entry: bytes
    done: Done | None
    add: str = ""
    remove: str = ""


class Snapshot(msgspec.Struct, frozen=True):
    """A member's state as of log index `index`."""

    index: int
    state: bytes


class MemoryGroup:
    """A group of members with one log, and the controls over what reaches whom."""

    def __init__(self, addresses: Collection[str], *, immediate: bool = False) -> None:
        self.addresses = sorted(addresses)
        self.members: dict[str, MemoryMember] = {}
        self.log: list[bytes | None] = []
        self.term = 0
        self._leader: str | None = None
        self._snapshots: dict[str, Snapshot] = {}
        self._islands: list[frozenset[str]] = []
        self._immediate = immediate
        self._settling = False

    # -- controls --

    def partition(self, *islands: Collection[str]) -> None:
        """Cut the network: members reach only those on the same island; a member on none is alone."""
        self._islands = [frozenset(island) for island in islands]
        self._moved()

    def heal(self) -> None:
        """Join all islands again."""
        self._islands = []
        self._moved()

    def kill(self, address: str) -> None:
        """End a member as `kill -9` would: its state is gone, its journal and snapshot stay."""
        self.members.pop(address).alive = False
        self._moved()

    def elect(self, address: str) -> bool:
        """Make a member the leader if a majority can reach it; tell whether it is one now."""
        if not self._reaches_majority(address):
            return False
        self.term += 1
        self._leader = address
        return True

    def compact(self, address: str) -> None:
        """Have a member write its snapshot, from which it will start again."""
        member = self.members[address]
        self._snapshots[address] = Snapshot(member.applied, member.callbacks.snapshot())

    def expire(self) -> None:
        """Let the proposal time-out pass for everything that waits; the entries stay proposed."""
        for member in list(self.members.values()):
            member.expire("no outcome within the time-out")

    def deliver(self) -> bool:
        """Do the next single thing that can happen; tell whether there was one."""
        if self._tell_quorum() or self._apply_one():
            return True
        return self._append_one()

    def settle(self) -> None:
        """Deliver until nothing is left to do."""
        for _ in range(STEPS_MAX):
            if not self.deliver():
                return
        raise AssertionError(f"the group did not settle within {STEPS_MAX} steps")

    # -- what the group knows --

    def leader(self) -> str | None:
        """Return the leader: the last one while a majority reaches it, else the first that can be."""
        if self._leader is None or not self._reaches_majority(self._leader):
            candidates = (address for address in self.addresses if self._reaches_majority(address))
            successor = next(candidates, None)
            if successor is not None:
                self.term += 1
            self._leader = successor
        return self._leader

    def connected(self, one: str, other: str) -> bool:
        """Tell whether two live members reach each other."""
        if one not in self.members or other not in self.members:
            return False
        if one == other or not self._islands:
            return True
        return any(one in island and other in island for island in self._islands)

    def _reaches_majority(self, address: str) -> bool:
        if address not in self.addresses:
            return False
        return 2 * sum(self.connected(address, other) for other in self.addresses) > len(self.addresses)

    # -- the steps --

    def _tell_quorum(self) -> bool:
        leader = self.leader()
        for address, member in list(self.members.items()):
            if member.tell_quorum(leader is not None and self.connected(address, leader)):
                return True
        return False

    def _apply_one(self) -> bool:
        leader = self.leader()
        if leader is None:
            return False
        for address, member in list(self.members.items()):
            behind = address in self.addresses and member.applied < len(self.log)
            if behind and self.connected(address, leader):
                member.apply(self.log[member.applied])
                return True
        return False

    def _append_one(self) -> bool:
        leader = self.leader()
        if leader is None:
            return False
        for address, member in list(self.members.items()):
            if member.proposals and address in self.addresses and self.connected(address, leader):
                self._append(member, member.proposals.popleft(), leader)
                return True
        return False

    def _append(self, member: MemoryMember, proposal: Proposal, leader: str) -> None:
        if proposal.remove == leader:
            member.answer(proposal, "the leader cannot be removed; transfer the leadership first")
            return
        if proposal.add and proposal.add not in self.addresses:
            self.addresses = sorted([*self.addresses, proposal.add])
        elif proposal.remove in self.addresses:
            self.addresses.remove(proposal.remove)
        self.log.append(None if proposal.add or proposal.remove else proposal.entry)
        member.waiting[len(self.log)] = proposal

    def _moved(self) -> None:
        if self._immediate and not self._settling:
            self._settling = True
            try:
                self.settle()
            finally:
                self._settling = False

    # -- members come and go --

    def enter(self, member: MemoryMember) -> None:
        """Take a starting member in, from its snapshot if it has written one."""
        self.members[member.address] = member
        snapshot = self._snapshots.get(member.address)
        if snapshot is not None:
            member.applied = snapshot.index
            member.callbacks.restore(snapshot.state)
        self._moved()

    def proposed(self) -> None:
        """Take note that a member has something new to say."""
        self._moved()


class MemoryMember:
    """One member of a MemoryGroup; see Consensus for the methods."""

    def __init__(self, group: MemoryGroup, address: str, callbacks: StateCallbacks) -> None:
        self.group = group
        self.callbacks = callbacks
        self.alive = False
        self.applied = 0
        self.busy = False
        self.proposals: deque[Proposal] = deque()
        self.waiting: dict[int, Proposal] = {}
        self._address = address
        self._quorum: bool | None = None

    @property
    def address(self) -> str:
        return self._address

    def start(self) -> None:
        self.alive = True
        self.group.enter(self)

    def propose(self, entry: bytes, done: Done | None = None) -> None:
        if len(entry) > ENTRY_BYTES_MAX:
            raise EntryTooLarge("An entry", len(entry), ENTRY_BYTES_MAX)
        self._put(Proposal(entry, done))

    def add_member(self, address: str, done: Done | None = None) -> None:
        self._put(Proposal(b"", done, add=address))

    def remove_member(self, address: str, done: Done | None = None) -> None:
        self._put(Proposal(b"", done, remove=address))

    def _put(self, proposal: Proposal) -> None:
        if not self.alive:
            self.answer(proposal, "the member is closed")
        elif len(self.proposals) >= PROPOSALS_MAX:
            self.answer(proposal, f"{PROPOSALS_MAX} proposals wait already")
        else:
            self.proposals.append(proposal)
            self.group.proposed()

    def status(self) -> RaftStatus:
        leader = self.group.leader()
        seen = leader if leader is not None and self.group.connected(self._address, leader) else None
        role = "leader" if seen == self._address else "follower" if self.alive else "closed"
        length = len(self.group.log)
        return RaftStatus(
            role=role,  # type: ignore[arg-type]
            term=self.group.term,
            commit=length,
            applied=self.applied,
            leader=seen,
            members=tuple(self.group.addresses),
            quorum=seen is not None,
            current=self.applied == length,
        )

    def transfer_leadership(self, address: str) -> bool:
        if self.group.leader() != self._address or not self.group.connected(self._address, address):
            return False
        return self.group.elect(address)

    def compact(self) -> None:
        self.group.compact(self._address)

    def pace(self, busy: bool) -> None:
        self.busy = busy

    def close(self) -> None:
        if not self.alive:
            return
        self.group.kill(self._address)
        self.expire("the member is closed")

    # -- what the group does to a member --

    def apply(self, entry: bytes | None) -> None:
        """Apply the next entry of the log, and answer whoever waits for it here."""
        self.applied += 1
        if entry is not None:
            self.callbacks.on_apply(self.applied, entry)
        proposal = self.waiting.pop(self.applied, None)
        if proposal is not None and proposal.done is not None:
            proposal.done(ProposalCommitted(self.applied))

    def tell_quorum(self, quorum: bool) -> bool:
        """Tell a change of the quorum; return whether there was one."""
        if quorum == self._quorum:
            return False
        self._quorum = quorum
        if self.callbacks.on_quorum is not None:
            self.callbacks.on_quorum(quorum)
        return True

    def answer(self, proposal: Proposal, why: str) -> None:
        """Answer a proposal with Unknown, once."""
        if proposal.done is not None:
            done, proposal.done = proposal.done, None
            done(ProposalUnknown(why))

    def expire(self, why: str) -> None:
        """Answer everything that waits with Unknown; what waits stays proposed."""
        for proposal in [*self.waiting.values(), *self.proposals]:
            self.answer(proposal, why)
