"""Members of a group in one process need no connection of the machine's, and keep out whom TCP would."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil

from replkernel.replication.addresses import free_raft_address
from replkernel.replication.consensus import ProposalCommitted, ProposalOutcome
from replkernel.replication.raft import RaftMember
from replkernel.replication.raft_thread import TAKEN_MAX, RaftThread
from tests.contracts.consensus import Recorder

SECRET = "a secret of the test, thirty-two"


def until(condition: Callable[[], bool], patience_s: float = 30.0) -> None:
    ends_at = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < ends_at, "it did not happen in time"
        time.sleep(0.005)


def member(address: str, group: list[str], directory: Path) -> tuple[RaftMember, Recorder]:
    recorder = Recorder()
    made = RaftMember(address, group, SECRET, directory / address, recorder.callbacks())
    made.start()
    return made, recorder


def commit(at: RaftMember, entry: bytes) -> None:
    outcomes: list[ProposalOutcome] = []
    at.propose(entry, outcomes.append)
    until(lambda: bool(outcomes))
    assert isinstance(outcomes[0], ProposalCommitted), outcomes


def connections(group: list[str]) -> list[str]:
    ports = {int(address.rpartition(":")[2]) for address in group}
    found = psutil.Process().net_connections(kind="tcp")
    return [each.status for each in found if each.raddr and {each.laddr.port, each.raddr.port} & ports]


def test_members_of_a_process_commit_without_a_connection_also_once_one_has_returned(tmp_path: Path) -> None:
    group = [free_raft_address() for _ in range(3)]
    members = {address: member(address, group, tmp_path) for address in group}
    commit(members[group[0]][0], b"first")
    for address in group:
        members[address][0].close()
        commit(next(made for other, (made, _) in members.items() if other != address), b"without one")
        members[address] = member(address, group, tmp_path)
        until(lambda: all(made.status().current for made, _ in members.values()))
    commit(members[group[2]][0], b"last")
    until(lambda: all(recorder.said()[-1:] == [b"last"] for _, recorder in members.values()))
    logs = [list(dict.fromkeys(recorder.said())) for _, recorder in members.values()]
    assert logs == [[b"first", b"without one", b"last"]] * 3
    assert connections(group) == []
    for made, _ in members.values():
        made.close()


class Sleeper:
    """A member with nothing to do."""

    def tick(self, now: float) -> float:
        return now + 60.0

    def forgive(self, late_s: float) -> None:
        pass


def test_a_member_that_is_told_much_leaves_the_others_their_turn() -> None:
    thread = RaftThread()
    thread.start()
    told: list[str] = []

    def tell() -> None:
        for _ in range(100):
            thread.hand(flooded, lambda: told.append("much"))
        thread.hand(other, lambda: told.append("little"))

    flooded, other = Sleeper(), Sleeper()
    thread.call(tell)
    until(lambda: len(told) == 101)
    assert told.index("little") <= TAKEN_MAX
    thread.end()


def test_a_member_that_the_group_does_not_know_is_not_let_in(tmp_path: Path) -> None:
    *group, stranger = sorted(free_raft_address() for _ in range(3))
    members = [member(address, group, tmp_path) for address in group]
    made, recorder = member(stranger, [*group, stranger], tmp_path)
    commit(members[0][0], b"among us")
    time.sleep(0.5)
    assert recorder.said() == []
    assert made.status().leader is None
    for each in [made, *(known for known, _ in members)]:
        each.close()
