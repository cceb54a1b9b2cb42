"""Raft in disorder: nothing acknowledged is lost or moved, and no log is cut without a conflict."""

from __future__ import annotations

import logging
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from replkernel.replication.addresses import free_raft_address
from replkernel.replication.consensus import ProposalCommitted, ProposalOutcome
from replkernel.replication.raft import RaftMember
from tests.contracts.consensus import Recorder

SECRET = "a secret of the test, thirty-two"
DISORDER_S = 4.0
SIZES = (10, 500, 500, 60_000, 190_000)


def until(condition: Callable[[], bool], patience_s: float = 30.0) -> None:
    ends_at = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < ends_at, "it did not happen in time"
        time.sleep(0.005)


class Disorder:
    """Three members that are closed, started, compacted and deposed at random while they commit."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.directory = directory
        self.addresses = [free_raft_address() for _ in range(3)]
        self.members: dict[str, RaftMember] = {}
        self.recorders: dict[str, Recorder] = {}
        self.acknowledged: list[tuple[int, bytes]] = []
        self.waiting = threading.Semaphore(64)
        self.proposed = 0
        self.answered = 0
        self.away: str | None = None
        for address in self.addresses:
            self.start(address)

    def start(self, address: str) -> None:
        recorder = self.recorders[address] = Recorder()
        directory = self.directory / address
        member = RaftMember(address, self.addresses, SECRET, directory, recorder.callbacks())
        self.members[address] = member
        member.start()

    def propose(self) -> None:
        self.proposed += 1
        entry = b"%d:" % self.proposed + b"x" * self.random.choice(SIZES)

        def done(outcome: ProposalOutcome) -> None:
            self.answered += 1
            self.waiting.release()
            if isinstance(outcome, ProposalCommitted):
                self.acknowledged.append((outcome.index, entry))

        self.waiting.acquire(timeout=10)
        self.random.choice(list(self.members.values())).propose(entry, done)

    def disturb(self) -> None:
        if self.away is not None:
            self.start(self.away)
            self.away = None
            return
        match self.random.randrange(4):
            case 0 | 1:
                self.away = self.random.choice(self.addresses)
                self.members.pop(self.away).close()
            case 2:
                heir = self.random.choice(self.addresses)
                for member in list(self.members.values()):
                    member.transfer_leadership(heir)
            case _:
                self.random.choice(list(self.members.values())).compact()

    def run(self) -> None:
        ends_at = time.monotonic() + DISORDER_S
        disturbed_at = time.monotonic() + 0.3
        while time.monotonic() < ends_at:
            for _ in range(self.random.randint(1, 12)):
                self.propose()
            time.sleep(self.random.choice([0, 0.001, 0.01]))
            if time.monotonic() > disturbed_at:
                self.disturb()
                disturbed_at = time.monotonic() + self.random.choice([0.05, 0.3, 0.6])
        if self.away is not None:
            self.start(self.away)

    def settled(self) -> bool:
        first, *others = (self.recorders[address].entries for address in self.addresses)
        current = all(member.status().current for member in self.members.values())
        current = current and self.answered == self.proposed
        return current and all(len(entries) == len(first) for entries in others)


@pytest.mark.parametrize(("seed", "way"), [(1, "near"), (2, "by_tcp")])
def test_nothing_acknowledged_is_lost_or_moved_in_disorder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest, seed: int, way: str
) -> None:
    if way == "by_tcp":
        request.getfixturevalue(way)
    disorder = Disorder(tmp_path, seed)
    with caplog.at_level(logging.CRITICAL, logger="pysyncobj"):
        disorder.run()
        until(disorder.settled)
    logs = [disorder.recorders[address].entries for address in disorder.addresses]
    assert logs[0] == logs[1] == logs[2]
    at = dict(logs[0])
    assert len(disorder.acknowledged) > 50
    assert all(at.get(index) == entry for index, entry in disorder.acknowledged)
    assert not [record for record in caplog.records if record.name.startswith("pysyncobj")]
    for member in disorder.members.values():
        member.close()


class TestFollower:
    """A follower of a settled group, to which its leader's messages are told by hand."""

    @pytest.fixture
    def follower(self, tmp_path: Path) -> Iterator[RaftMember]:
        addresses = [free_raft_address() for _ in range(3)]
        members = [
            RaftMember(address, addresses, SECRET, tmp_path / address, Recorder().callbacks())
            for address in addresses
        ]
        for member in members:
            member.start()
        for number in range(10):
            outcomes: list[ProposalOutcome] = []
            members[0].propose(b"%d" % number, outcomes.append)
            until(lambda told=outcomes: bool(told))
        until(lambda: len({member.status().applied for member in members}) == 1)
        yield next(member for member in members if member.status().role == "follower")
        for member in members:
            member.close()

    @pytest.fixture
    def told(self, follower: RaftMember) -> Any:
        """Return what tells the follower a message, and returns its log's end and its answer."""
        node, thread = follower._node, follower._thread
        assert node is not None
        assert thread is not None
        answers: list[dict[str, Any]] = []
        leader = node._getLeader()

        def tell(first: int, last: int) -> tuple[int, int]:
            def receive() -> tuple[int, int]:
                log = node._SyncObj__raftLog[:]
                sent = [entry for entry in log if first <= entry[1] <= last]
                before = next(entry for entry in log if entry[1] == first - 1)
                message = {
                    "type": "append_entries",
                    "term": node.raftCurrentTerm,
                    "commit_index": node.raftCommitIndex,
                    "entries": sent,
                    "prevLogIdx": before[1],
                    "prevLogTerm": before[2],
                }
                send = node.transport.send
                node.transport.send = lambda peer, answer: answers.append(answer)
                try:
                    node._SyncObj__onMessageReceived(leader, message)
                finally:
                    node.transport.send = send
                return node._SyncObj__raftLog[-1][1], answers[-1]["next_node_idx"]

            return thread.call(receive)

        return tell

    def test_a_late_message_that_overlaps_the_log_cuts_nothing(self, told: Any) -> None:
        end, _ = told(5, 12)
        assert told(5, 6) == (end, 7)

    def test_a_follower_acknowledges_what_a_message_proves_and_no_more(self, told: Any) -> None:
        end, _ = told(5, 5)
        assert told(5, end) == (end, end + 1)
        assert told(end, end) == (end, end + 1)
        assert told(4, 4) == (end, 5)

    def test_parts_of_a_snapshot_commit_nothing_that_the_log_has_beyond_its_leader(
        self, follower: RaftMember
    ) -> None:
        node, thread = follower._node, follower._thread
        assert node is not None
        assert thread is not None
        began, leader = follower.status().applied, node._getLeader()

        def receive() -> tuple[int, int]:
            command, index, term = node._SyncObj__raftLog[-1]
            node._SyncObj__raftLog.add(command, index + 1, term)  # It had led, and committed nothing.
            said = {"type": "append_entries", "term": node.raftCurrentTerm, "commit_index": index + 50}
            for part in ((b"x", True, False), (b"y", False, False), None):
                node._SyncObj__onMessageReceived(leader, {**said, "serialized": part})
                node.doTick(0.0)
            return int(node.raftLastApplied), int(node._SyncObj__raftLog.getRaftCommitIndex())

        assert thread.call(receive) == (began, began)


def test_addresses_are_written_by_the_system_although_pysyncobj_has_a_way_of_its_own() -> None:
    writes = "import replkernel.replication.raft, socket; print(socket.inet_ntop(socket.AF_INET, bytes(4)))"
    assert subprocess.check_output([sys.executable, "-c", writes], text=True) == "0.0.0.0\n"
