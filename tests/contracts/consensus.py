"""The contract of consensus: what every implementation of it must do, as a suite that each one inherits.

A subclass gives the `cluster` fixture; the cases speak of members, entries and outcomes alone.
"""

from __future__ import annotations

import abc
from collections.abc import Callable

import msgspec
import pytest

from replkernel.replication.consensus import (
    Consensus,
    Done,
    ProposalCommitted,
    ProposalOutcome,
    ProposalUnknown,
    StateCallbacks,
)
from replkernel.replication.entries import ENTRY_BYTES_MAX, EntryTooLarge


class Recorder:
    """A state machine that is the list of its entries."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, bytes]] = []
        self.quorum: list[bool] = []
        self.restored = 0

    def callbacks(self) -> StateCallbacks:
        return StateCallbacks(self.apply, self.snapshot, self.restore, self.quorum.append)

    def apply(self, index: int, entry: bytes) -> None:
        self.entries.append((index, entry))

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.entries)

    def restore(self, state: bytes) -> None:
        self.entries = msgspec.msgpack.decode(state, type=list[tuple[int, bytes]])
        self.restored += 1

    def said(self) -> list[bytes]:
        return [entry for _, entry in self.entries]


class Cluster(abc.ABC):
    """Members of one group, as an implementation makes them."""

    def __init__(self) -> None:
        self.members: dict[str, Consensus] = {}
        self.recorders: dict[str, Recorder] = {}

    @abc.abstractmethod
    def addresses(self, count: int) -> list[str]:
        """Return the addresses of a new group of `count` members."""

    @abc.abstractmethod
    def spare_address(self) -> str:
        """Return an address that is in no group."""

    @abc.abstractmethod
    def make(self, address: str, callbacks: StateCallbacks, joining: bool) -> Consensus:
        """Make a member of the group."""

    @abc.abstractmethod
    def kill(self, address: str) -> None:
        """End a member without a word; its files stay."""

    @abc.abstractmethod
    def compact(self, address: str) -> None:
        """Have a member write a snapshot and drop the log below."""

    @abc.abstractmethod
    def until(self, condition: Callable[[], bool]) -> None:
        """Let things happen until `condition` holds; fail when it does not come to hold."""

    def propose_in_vain(self, address: str, entry: bytes, done: Done) -> None:
        """Propose what is to expire; where real time passes, its time-out is short."""
        self.members[address].propose(entry, done)

    @abc.abstractmethod
    def let_proposals_expire(self) -> None:
        """Let the proposal time-out pass."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close every member that is left."""

    def start(self, address: str, *, joining: bool = False) -> Consensus:
        recorder = self.recorders[address] = Recorder()
        member = self.members[address] = self.make(address, recorder.callbacks(), joining)
        member.start()
        return member

    def start_group(self, count: int) -> list[str]:
        addresses = self.addresses(count)
        for address in addresses:
            self.start(address)
        self.until(lambda: self.leader() is not None)
        return addresses

    def leader(self) -> str | None:
        """Return the leader that all live members agree on."""
        told = {member.status().leader for member in self.members.values()}
        leader = told.pop() if len(told) == 1 else None
        return leader if leader in self.members else None

    def commit(self, address: str, entry: bytes) -> int:
        outcomes: list[ProposalOutcome] = []
        self.members[address].propose(entry, outcomes.append)
        self.until(lambda: bool(outcomes))
        assert isinstance(outcomes[0], ProposalCommitted), outcomes
        return outcomes[0].index

    def all_said(self, *entries: bytes) -> Callable[[], bool]:
        wanted = list(entries)
        return lambda: all(self.recorders[address].said() == wanted for address in self.members)


class ConsensusContract:
    """The cases."""

    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_an_entry_reaches_every_member_at_the_same_index(self, cluster: Cluster, count: int) -> None:
        addresses = cluster.start_group(count)
        index = cluster.commit(addresses[0], b"one")
        cluster.until(cluster.all_said(b"one"))
        assert {recorder.entries[0] for recorder in cluster.recorders.values()} == {(index, b"one")}

    def test_done_comes_after_the_entry_was_applied_at_the_proposer(self, cluster: Cluster) -> None:
        addresses = cluster.start_group(3)
        for address in addresses:
            seen: list[bool] = []
            entry = address.encode()
            said = cluster.recorders[address].said
            cluster.members[address].propose(entry, lambda _, e=entry, s=said, o=seen: o.append(e in s()))
            cluster.until(lambda o=seen: bool(o))
            assert seen == [True]

    def test_all_members_apply_in_one_order_and_each_proposer_keeps_its_own(self, cluster: Cluster) -> None:
        addresses = cluster.start_group(3)
        for number in range(20):
            for address in addresses:
                cluster.members[address].propose(f"{address} {number:02}".encode())
        cluster.until(lambda: all(len(recorder.entries) == 60 for recorder in cluster.recorders.values()))
        first, *others = (recorder.entries for recorder in cluster.recorders.values())
        assert all(entries == first for entries in others)
        assert [index for index, _ in first] == sorted({index for index, _ in first})
        for address in addresses:
            mine = [entry for _, entry in first if entry.startswith(address.encode())]
            assert mine == sorted(mine)

    def test_an_entry_above_the_limit_is_refused_before_it_leaves(self, cluster: Cluster) -> None:
        (address,) = cluster.start_group(1)
        with pytest.raises(EntryTooLarge, match="REPLKERNEL_INLINE_BYTES_MAX"):
            cluster.members[address].propose(b"x" * (ENTRY_BYTES_MAX + 1))
        cluster.commit(address, b"x" * ENTRY_BYTES_MAX)

    def test_a_follower_that_dies_is_not_missed_and_catches_up(self, cluster: Cluster) -> None:
        addresses = cluster.start_group(3)
        cluster.commit(addresses[0], b"before")
        follower = next(address for address in addresses if address != cluster.leader())
        other = next(address for address in addresses if address != follower)
        cluster.kill(follower)
        cluster.commit(other, b"without")
        cluster.start(follower)
        cluster.until(cluster.all_said(b"before", b"without"))

    def test_a_leader_that_dies_is_followed_by_another(self, cluster: Cluster) -> None:
        addresses = cluster.start_group(3)
        cluster.commit(addresses[0], b"before")
        cluster.until(cluster.all_said(b"before"))
        leader = cluster.leader()
        assert leader is not None
        cluster.kill(leader)
        survivor = next(address for address in addresses if address != leader)
        cluster.commit(survivor, b"after")
        cluster.until(cluster.all_said(b"before", b"after"))

    def test_without_a_majority_a_proposal_is_unknown_and_the_loss_is_told(self, cluster: Cluster) -> None:
        addresses = cluster.start_group(3)
        last = cluster.leader()
        assert last is not None
        cluster.until(lambda: cluster.recorders[last].quorum[-1:] == [True])
        for address in addresses:
            if address != last:
                cluster.kill(address)
        cluster.until(lambda: cluster.recorders[last].quorum[-1:] == [False])
        outcomes: list[ProposalOutcome] = []
        cluster.propose_in_vain(last, b"lost?", outcomes.append)
        cluster.let_proposals_expire()
        cluster.until(lambda: bool(outcomes))
        assert isinstance(outcomes[0], ProposalUnknown)
        assert not cluster.members[last].status().quorum

    def test_with_the_majority_back_the_same_entry_commits(self, cluster: Cluster) -> None:
        addresses = cluster.start_group(3)
        cluster.commit(addresses[0], b"before")
        last = addresses[0]
        for address in addresses[1:]:
            cluster.kill(address)
        cluster.until(lambda: cluster.recorders[last].quorum[-1:] == [False])
        outcomes: list[ProposalOutcome] = []
        cluster.propose_in_vain(last, b"again", outcomes.append)
        cluster.let_proposals_expire()
        cluster.until(lambda: len(outcomes) == 1)
        for address in addresses[1:]:
            cluster.start(address)
        cluster.until(lambda: cluster.recorders[last].quorum[-1] is True)
        cluster.commit(last, b"again")
        assert len(outcomes) == 1
        cluster.until(lambda: len({tuple(recorder.said()) for recorder in cluster.recorders.values()}) == 1)
        first, *others = cluster.recorders[last].said()
        assert first == b"before"
        assert set(others) == {b"again"}

    def test_a_member_starts_again_from_its_snapshot_and_the_entries_after_it(self, cluster: Cluster) -> None:
        addresses = cluster.start_group(3)
        for number in range(5):
            cluster.commit(addresses[0], b"%d" % number)
        cluster.compact(addresses[0])
        cluster.commit(addresses[0], b"after")
        cluster.kill(addresses[0])
        cluster.start(addresses[0])
        cluster.until(cluster.all_said(b"0", b"1", b"2", b"3", b"4", b"after"))
        assert cluster.recorders[addresses[0]].restored == 1

    def test_a_whole_group_starts_again_with_everything(self, cluster: Cluster) -> None:
        addresses = cluster.start_group(3)
        cluster.commit(addresses[0], b"one")
        cluster.commit(addresses[1], b"two")
        for address in addresses:
            cluster.kill(address)
        for address in addresses:
            cluster.start(address)
        cluster.until(cluster.all_said(b"one", b"two"))
        cluster.commit(addresses[2], b"three")
        cluster.until(cluster.all_said(b"one", b"two", b"three"))

    def test_a_new_member_is_told_everything(self, cluster: Cluster) -> None:
        addresses = cluster.start_group(1)
        cluster.commit(addresses[0], b"before")
        joiner = cluster.spare_address()
        outcomes: list[ProposalOutcome] = []
        cluster.members[addresses[0]].add_member(joiner, outcomes.append)
        cluster.until(lambda: joiner in cluster.members[addresses[0]].status().members)
        cluster.start(joiner, joining=True)
        cluster.until(lambda: bool(outcomes))
        assert isinstance(outcomes[0], ProposalCommitted)
        cluster.commit(joiner, b"mine")
        cluster.until(cluster.all_said(b"before", b"mine"))
        assert cluster.members[joiner].status().members == tuple(sorted([addresses[0], joiner]))

    def test_a_dead_member_is_removed_and_no_longer_counts(self, cluster: Cluster) -> None:
        addresses = cluster.start_group(3)
        gone = next(address for address in addresses if address != cluster.leader())
        cluster.kill(gone)
        stays = next(address for address in addresses if address != gone)
        outcomes: list[ProposalOutcome] = []
        cluster.members[stays].remove_member(gone, outcomes.append)
        cluster.until(lambda: bool(outcomes))
        assert isinstance(outcomes[0], ProposalCommitted)
        cluster.until(lambda: all(gone not in m.status().members for m in cluster.members.values()))
        cluster.commit(stays, b"two left")

    def test_the_leader_is_not_removed_before_it_hands_over(self, cluster: Cluster) -> None:
        addresses = cluster.start_group(3)
        cluster.commit(addresses[0], b"before")
        cluster.until(cluster.all_said(b"before"))
        leader = cluster.leader()
        assert leader is not None
        outcomes: list[ProposalOutcome] = []
        cluster.members[leader].remove_member(leader, outcomes.append)
        cluster.until(lambda: bool(outcomes))
        assert isinstance(outcomes[0], ProposalUnknown)
        assert "transfer" in outcomes[0].why
        heir = next(address for address in addresses if address != leader)
        cluster.until(lambda: cluster.members[leader].transfer_leadership(heir))
        cluster.until(lambda: cluster.leader() == heir)
        cluster.members[heir].remove_member(leader, outcomes.append)
        cluster.until(lambda: len(outcomes) == 2)
        assert isinstance(outcomes[1], ProposalCommitted)

    def test_only_the_leader_hands_over(self, cluster: Cluster) -> None:
        addresses = cluster.start_group(3)
        follower = next(address for address in addresses if address != cluster.leader())
        assert not cluster.members[follower].transfer_leadership(follower)

    def test_a_closed_member_answers_unknown_at_once(self, cluster: Cluster) -> None:
        (address,) = cluster.start_group(1)
        member = cluster.members[address]
        cluster.kill(address)
        outcomes: list[ProposalOutcome] = []
        member.propose(b"late", outcomes.append)
        assert outcomes == [ProposalUnknown("the member is closed")]
        assert member.status().role == "closed"
        member.close()

    def test_the_pace_changes_nothing_but_time(self, cluster: Cluster) -> None:
        addresses = cluster.start_group(3)
        for busy in (True, False, True):
            for address in addresses:
                cluster.members[address].pace(busy)
            cluster.commit(addresses[1], b"busy" if busy else b"rest")
        cluster.until(cluster.all_said(b"busy", b"rest", b"busy"))
