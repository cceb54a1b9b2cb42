"""The Raft members keep the contract of consensus, with real journals, on one thread and over sockets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replkernel.replication.addresses import free_raft_address
from replkernel.replication.consensus import Consensus, Done, StateCallbacks
from replkernel.replication.raft import RaftMember
from tests.contracts.consensus import Cluster, ConsensusContract

SECRET = "a secret of the test, thirty-two"
EXPIRES_S = 1.5
"""The time-out of a proposal that is to expire; another may wait for several elections."""
TIMEOUT_S = 30.0
PATIENCE_S = 60.0


class RaftCluster(Cluster):
    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        self.group: list[str] = []

    def addresses(self, count: int) -> list[str]:
        self.group = [free_raft_address() for _ in range(count)]
        return list(self.group)

    def spare_address(self) -> str:
        return free_raft_address()

    def make(self, address: str, callbacks: StateCallbacks, joining: bool) -> Consensus:
        directory = self.directory / address.replace(":", "-")
        return RaftMember(
            address, self.group, SECRET, directory, callbacks, joining=joining, proposal_timeout_s=TIMEOUT_S
        )

    def kill(self, address: str) -> None:
        self.members.pop(address).close()
        self.recorders.pop(address)

    def compact(self, address: str) -> None:
        member = self.members[address]
        assert isinstance(member, RaftMember)
        snapshot = self.directory / address.replace(":", "-") / "raft.snapshot"
        member.compact()
        self.until(snapshot.exists)

    def until(self, condition: Callable[[], bool]) -> None:
        ends_at = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < ends_at, "it did not happen in time"
            time.sleep(0.005)

    def propose_in_vain(self, address: str, entry: bytes, done: Done) -> None:
        member = self.members[address]
        assert isinstance(member, RaftMember)
        member._timeout_s = EXPIRES_S
        member.propose(entry, done)
        member._timeout_s = TIMEOUT_S

    def let_proposals_expire(self) -> None:
        """Nothing to do: real time passes."""

    def close(self) -> None:
        for member in self.members.values():
            member.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = RaftCluster(tmp_path)
    yield made
    made.close()


class TestRaftConsensus(ConsensusContract):
    """All of the contract, among members of one process."""


@pytest.mark.usefixtures("by_tcp")
class TestRaftConsensusByTcp(ConsensusContract):
    """All of it among members that talk as those of different hosts do."""
