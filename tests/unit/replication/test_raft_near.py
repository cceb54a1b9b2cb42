"""Members of one thread hand messages over: in order, as copies, and never on the other one's stack."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, cast

import pytest

from replkernel.replication.raft_fit import fit_pysyncobj
from replkernel.replication.raft_near import NearConnection, NearTransport, copied

fit_pysyncobj()


class Queue:
    """What a Raft thread does with what is handed over, step by step."""

    def __init__(self) -> None:
        self.jobs: deque[Callable[[], None]] = deque()

    def hand(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)

    def run(self) -> None:
        while self.jobs:
            self.jobs.popleft()()


class End:
    """One member's end of a connection, and what it has heard."""

    def __init__(self, queue: Any) -> None:
        self.heard: list[object] = []
        self.connection = NearConnection(cast("Any", queue), None)
        self.connection.tell(self.heard.append, lambda: self.heard.append("lost"))


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def ends(queue: Queue) -> tuple[End, End]:
    here, there = End(queue), End(queue)
    here.connection.join(there.connection)
    return here, there


def test_messages_arrive_in_order_once_the_sender_is_done(queue: Queue, ends: tuple[End, End]) -> None:
    here, there = ends
    for number in range(3):
        here.connection.send(number)
    assert there.heard == []
    queue.run()
    assert there.heard == [0, 1, 2]


def test_what_was_sent_before_the_end_arrives_and_nothing_after(queue: Queue, ends: tuple[End, End]) -> None:
    here, there = ends
    here.connection.send("last word")
    there.connection.send("crossed it")
    here.connection.disconnect()
    here.connection.send("too late")
    assert here.heard == ["lost"]
    queue.run()
    assert there.heard == ["last word", "lost"]
    assert here.heard == ["lost"]


def test_both_may_end_it_at_once(queue: Queue, ends: tuple[End, End]) -> None:
    here, there = ends
    here.connection.disconnect()
    there.connection.disconnect()
    queue.run()
    assert here.heard == there.heard == ["lost"]


def test_a_copy_shares_nothing_that_can_change() -> None:
    entry = (b"entry", 4, 1)
    message = {"type": "append_entries", "entries": [entry], "nested": ({"a": [1]},), "node": {"set"}}
    copy = copied(message)
    assert copy == message
    copy["entries"].append("more")
    copy["nested"][0]["a"].append(2)
    copy["node"].add("more")
    assert message == {
        "type": "append_entries",
        "entries": [entry],
        "nested": ({"a": [1]},),
        "node": {"set"},
    }


def test_the_bytes_of_an_entry_are_there_once() -> None:
    body = bytes(1000)
    assert copied({"entries": [(body, 1, 1)]})["entries"][0][0] is body


class Taker(NearTransport):
    """A member's transport without a node: what it tells of its one peer."""

    def __init__(self, peer: str) -> None:
        self._nodeAddrToNode = {peer: peer}
        self._connections: dict[str, Any] = {}
        self.told: list[str] = []

    def _onNodeConnected(self, node: Any) -> None:
        self.told.append(f"{node} is there")

    def _onNodeDisconnected(self, node: Any) -> None:
        self.told.append(f"{node} is gone")

    def _connectIfNecessarySingle(self, node: Any) -> bool:
        return False


def test_a_peer_that_meets_us_anew_is_told_as_lost_first(queue: Queue) -> None:
    taker = Taker("peer")
    for connection in (NearConnection(cast("Any", queue), None), NearConnection(queue, None)):
        taker._take_near("peer", connection)
    assert taker.told == ["peer is there", "peer is gone", "peer is there"]
    assert taker._connections == {"peer": connection}


def test_who_has_left_the_group_is_not_taken(queue: Queue) -> None:
    taker = Taker("peer")
    theirs, ours = End(queue), NearConnection(cast("Any", queue), None)
    theirs.connection.join(ours)
    taker._take_near("a stranger", ours)
    queue.run()
    assert theirs.heard == ["lost"]
    assert taker.told == []
