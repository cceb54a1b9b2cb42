"""The in-memory group keeps the contract of consensus, and its controls do what tests count on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from replkernel.replication.consensus import (
    Consensus,
    ProposalCommitted,
    ProposalOutcome,
    ProposalUnknown,
    StateCallbacks,
)
from replkernel.replication.memory import MemoryGroup, MemoryMember
from tests.contracts.consensus import Cluster, ConsensusContract, Recorder


class MemoryCluster(Cluster):
    def __init__(self, immediate: bool) -> None:
        super().__init__()
        self.immediate = immediate
        self.group = MemoryGroup([])

    def addresses(self, count: int) -> list[str]:
        addresses = [f"m{number}" for number in range(count)]
        self.group = MemoryGroup(addresses, immediate=self.immediate)
        return addresses

    def spare_address(self) -> str:
        return "spare"

    def make(self, address: str, callbacks: StateCallbacks, joining: bool) -> Consensus:
        return MemoryMember(self.group, address, callbacks)

    def kill(self, address: str) -> None:
        self.members.pop(address).close()
        self.recorders.pop(address)

    def compact(self, address: str) -> None:
        self.group.compact(address)

    def until(self, condition: Callable[[], bool]) -> None:
        self.group.settle()
        assert condition()

    def let_proposals_expire(self) -> None:
        self.group.expire()

    def close(self) -> None:
        for member in self.members.values():
            member.close()


@pytest.fixture(params=[False, True], ids=["stepwise", "immediate"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = MemoryCluster(request.param)
    yield made
    made.close()


class TestMemoryConsensus(ConsensusContract):
    """All of the contract."""


def group_of(*addresses: str) -> tuple[MemoryGroup, dict[str, MemoryMember], dict[str, Recorder]]:
    group = MemoryGroup(addresses)
    recorders = {address: Recorder() for address in addresses}
    members = {address: MemoryMember(group, address, recorders[address].callbacks()) for address in addresses}
    for member in members.values():
        member.start()
    group.settle()
    return group, members, recorders


def test_nothing_moves_until_it_is_delivered() -> None:
    group, members, recorders = group_of("a", "b", "c")
    members["b"].propose(b"x")
    assert [recorder.said() for recorder in recorders.values()] == [[], [], []]
    assert group.deliver()
    assert group.deliver()
    assert sorted(recorder.said() for recorder in recorders.values()) == [[], [], [b"x"]]
    group.settle()
    assert [recorder.said() for recorder in recorders.values()] == [[b"x"]] * 3


def test_the_smaller_island_waits_and_what_it_proposed_is_applied_after_healing() -> None:
    group, members, recorders = group_of("a", "b", "c")
    outcomes: list[ProposalOutcome] = []
    group.partition(["a"], ["b", "c"])
    members["a"].propose(b"from the small side", outcomes.append)
    members["b"].propose(b"from the large side")
    group.settle()
    assert recorders["a"].said() == []
    assert recorders["a"].quorum == [True, False]
    assert recorders["c"].said() == [b"from the large side"]
    group.expire()
    assert [type(outcome) for outcome in outcomes] == [ProposalUnknown]
    group.heal()
    group.settle()
    assert recorders["a"].said() == [b"from the large side", b"from the small side"]
    assert len(outcomes) == 1


def test_the_test_chooses_the_leader() -> None:
    group, members, _ = group_of("a", "b", "c")
    assert group.elect("c")
    assert members["a"].status().leader == "c"
    group.partition(["c"], ["a", "b"])
    assert not group.elect("c")
    assert members["a"].status().leader in ("a", "b")


def test_a_proposer_inside_a_callback_is_heard() -> None:
    group = MemoryGroup(["a"], immediate=True)
    outcomes: list[ProposalOutcome] = []
    entries: list[bytes] = []

    def apply(index: int, entry: bytes) -> None:
        entries.append(entry)
        if entry == b"first":
            member.propose(b"second", outcomes.append)

    member = MemoryMember(group, "a", StateCallbacks(apply, lambda: b"", lambda state: None))
    member.start()
    member.propose(b"first")
    assert entries == [b"first", b"second"]
    assert outcomes == [ProposalCommitted(2)]
