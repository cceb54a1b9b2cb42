"""Raft members' logs stay short, members that fell behind get a snapshot, and a stall costs no leader."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from replkernel.replication import raft
from replkernel.replication.addresses import free_raft_address
from replkernel.replication.consensus import (
    JournalUnavailable,
    ProposalCommitted,
    ProposalOutcome,
    ProposalUnknown,
)
from replkernel.replication.raft import RaftMember
from replkernel.replication.raft_files import MetaFile, ReadySerializer, TidyJournal
from replkernel.replication.raft_node import COMPACT_BYTES_MAX, Transport
from tests.contracts.consensus import Recorder
from tests.support.small_disk import fill, small_disk

SECRET = "a secret of the test, thirty-two"
ENTRY = b"x" * 200_000


def until(condition: Callable[[], bool], patience_s: float = 30.0) -> None:
    ends_at = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < ends_at, "it did not happen in time"
        time.sleep(0.005)


class Group:
    """Members of one group in this process, each with a recorder."""

    def __init__(self, directory: Path, count: int) -> None:
        self.directory = directory
        self.addresses = [free_raft_address() for _ in range(count)]
        self.members: dict[str, RaftMember] = {}
        self.recorders: dict[str, Recorder] = {}

    def start(self, address: str, *, joining: bool = False) -> RaftMember:
        recorder = self.recorders[address] = Recorder()
        member = RaftMember(
            address, self.addresses, SECRET, self.directory / address, recorder.callbacks(), joining=joining
        )
        self.members[address] = member
        member.start()
        return member

    def commit(self, address: str, entry: bytes) -> None:
        outcomes: list[ProposalOutcome] = []
        self.members[address].propose(entry, outcomes.append)
        until(lambda: bool(outcomes))
        assert isinstance(outcomes[0], ProposalCommitted), outcomes

    def agree(self) -> bool:
        first, *others = (self.recorders[address].entries for address in self.members)
        return all(entries == first for entries in others)

    def close(self) -> None:
        for member in self.members.values():
            member.close()

    def snapshot_of(self, address: str) -> Path:
        return self.directory / address / "raft.snapshot"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path, 3)
    for address in made.addresses:
        made.start(address)
    until(lambda: all(member.status().quorum for member in made.members.values()))
    yield made
    made.close()


def test_the_log_is_compacted_by_its_bytes_and_its_file_shrinks(group: Group) -> None:
    address = group.addresses[0]
    for _ in range(COMPACT_BYTES_MAX // len(ENTRY) + 2):
        group.commit(address, ENTRY)
    until(lambda: all(group.snapshot_of(each).exists() for each in group.addresses))
    until(lambda: (group.directory / address / "raft.journal").stat().st_size < COMPACT_BYTES_MAX / 4)
    group.members.pop(address).close()
    group.start(address)
    until(group.agree)
    assert group.recorders[address].restored == 1


def test_what_comes_between_a_snapshot_and_the_journals_compaction_outlives_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(tmp_path, 1)
    (address,) = group.addresses
    group.start(address)
    compacted = Event()

    def never(journal: TidyJournal, entry_to: int) -> None:
        compacted.set()  # As if the agent were killed before, or the disk were full.
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    group.commit(address, b"before")
    with monkeypatch.context() as full:
        full.setattr(TidyJournal, "deleteEntriesTo", never)
        group.members[address].compact()
        assert compacted.wait(30)
        group.commit(address, b"after")
        group.members.pop(address).close()
    group.start(address)
    with contextlib.closing(group):
        until(lambda: b"after" in group.recorders[address].said())
    assert group.recorders[address].said() == [b"before", b"after"]


def test_a_member_that_was_away_during_a_compaction_gets_the_snapshot(group: Group) -> None:
    away = next(each for each in group.addresses if group.members[each].status().role != "leader")
    here = [each for each in group.addresses if each != away]
    group.commit(here[0], b"first")
    group.members.pop(away).close()
    for _ in range(10):
        group.commit(here[0], ENTRY)
    for each in here:
        group.members[each].compact()
    until(lambda: all(group.snapshot_of(each).exists() for each in here))
    group.commit(here[0], b"after")
    group.start(away)
    until(group.agree)
    assert group.recorders[away].restored == 1
    group.commit(away, b"I am back")
    until(group.agree)


def test_a_blank_member_joins_a_compacted_group(group: Group) -> None:
    for _ in range(10):
        group.commit(group.addresses[0], ENTRY)
    for member in group.members.values():
        member.compact()
    until(lambda: all(group.snapshot_of(each).exists() for each in group.addresses))
    joiner = free_raft_address()
    outcomes: list[ProposalOutcome] = []
    group.members[group.addresses[0]].add_member(joiner, outcomes.append)
    until(lambda: bool(outcomes))
    terms = {member.status().term for member in group.members.values()}
    group.addresses.append(joiner)
    group.start(joiner, joining=True)
    group.commit(joiner, b"mine")
    until(group.agree)
    assert {member.status().term for member in group.members.values()} == terms


def test_a_member_whose_disk_is_full_says_so_and_starts_once_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", mebibytes=1) as disk:
        group = Group(disk, 1)
        (address,) = group.addresses
        fill(disk / "filler")
        for _ in range(2):
            with pytest.raises(JournalUnavailable, match=r"No space left on device.*JUPYTER_DATA_DIR"):
                group.start(address)
        (disk / "filler").unlink()
        member = group.start(address)
        group.commit(address, b"an entry")
        member.close()


def test_a_stall_of_the_whole_process_costs_no_leader(group: Group) -> None:
    for member in group.members.values():
        member.pace(True)
    group.commit(group.addresses[0], b"before")
    terms = {member.status().term for member in group.members.values()}
    factor, held_s = 3**1_000_000, 0.0
    while held_s < 0.8:
        started_at = time.monotonic()
        _ = factor * factor
        held_s = time.monotonic() - started_at
        factor = factor**2 if held_s < 0.2 else factor * 3**500_000
    time.sleep(0.8)
    group.commit(group.addresses[0], b"after")
    assert {member.status().term for member in group.members.values()} == terms


def test_members_that_all_return_wait_for_no_leader_of_before(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft, "LED_RETURN_S", 3600.0)
    group.commit(group.addresses[0], b"before")
    for address in group.addresses:
        group.members.pop(address).close()
    for address in group.addresses:
        group.start(address)
    group.commit(group.addresses[0], b"after")
    assert group.recorders[group.addresses[0]].said() == [b"before", b"after"]


def test_a_member_that_returns_leaves_a_leader_in_place_that_a_peer_tells_of(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    roles = {address: group.members[address].status().role for address in group.addresses}
    leader = next(address for address, role in roles.items() if role == "leader")
    back = next(address for address, role in roles.items() if role != "leader")
    until(lambda: all(member.status().leader == leader for member in group.members.values()))
    term = group.members[leader].status().term
    group.members.pop(back).close()
    hear = Transport._onMessageReceived
    deaf = [back]

    def hear_all_but_the_leader(self: Transport, node: Any, message: Any) -> None:
        if node.id != leader or self._selfNode.id not in deaf:
            hear(self, node, message)

    monkeypatch.setattr(Transport, "_onMessageReceived", hear_all_but_the_leader)
    monkeypatch.setattr(raft, "LED_RETURN_S", 3600.0)
    group.start(back)
    time.sleep(2.0)
    assert {member.status().term for member in group.members.values()} == {term}
    deaf.clear()
    group.commit(back, b"back")
    assert group.members[leader].status().term == term


def test_a_member_that_closes_while_a_snapshot_arrives_leaves_no_file_open(tmp_path: Path) -> None:
    serializer = ReadySerializer(str(tmp_path / "raft.snapshot"), 10, False, None, None, None)
    serializer.setTransmissionData((b"the first part", True, False))
    assert open_files_below(tmp_path)
    serializer.close()
    assert not open_files_below(tmp_path)
    serializer.close()


def open_files_below(directory: Path) -> list[str]:
    """Return the files below `directory` that this process has open."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(entry))
    return [path for path in found if path.startswith(f"{directory}/")]


def test_a_member_whose_disk_is_full_after_its_first_vote_votes_again(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", mebibytes=1) as disk:
        terms = MetaFile(str(disk / "terms"))
        terms.storeMeta({"currentTerm": 1})
        fill(disk / "filler")
        for term in range(2, 5):
            terms.storeMeta({"currentTerm": term})
            assert terms.getMeta() == {"currentTerm": term}


def test_a_group_on_a_full_disk_says_so_elects_takes_small_entries_and_recovers(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", mebibytes=2) as disk:
        group = Group(disk, 3)
        for address in group.addresses:
            group.start(address)
        until(lambda: any(member.status().role == "leader" for member in group.members.values()))
        group.commit(group.addresses[0], b"before")
        until(group.agree)
        fill(disk / "filler")
        leader = next(each for each, member in group.members.items() if member.status().role == "leader")
        outcomes: list[ProposalOutcome] = []
        for _ in range(20):
            group.members[leader].propose(b"y" * 20_000, outcomes.append)
        until(lambda: len(outcomes) == 20)
        last = outcomes[-1]
        assert isinstance(last, ProposalUnknown)
        assert "No space is left" in last.trouble
        assert str(disk) in last.trouble
        group.commit(leader, b"a small one")
        group.members.pop(leader).close()
        other = next(iter(group.members))
        until(lambda: any(member.status().role == "leader" for member in group.members.values()))
        group.commit(other, b"another small one")
        until(group.agree)
        (disk / "filler").unlink()
        group.commit(other, b"z" * 20_000)
        group.start(leader)
        until(group.agree)
        said = group.recorders[leader].said()
        assert [entry for entry in said if len(entry) < 100] == [
            b"before",
            b"a small one",
            b"another small one",
        ]
        assert said[-1] == b"z" * 20_000
        group.close()
