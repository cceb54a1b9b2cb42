"""Raft members in processes of their own: killed without warning, they lose nothing that was acknowledged."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replkernel.replication.addresses import free_raft_address, release_raft_address

ROOT = Path(__file__).resolve().parents[2]
SECRET = "a secret of the test, thirty-two"


class RaftProcess:
    """A child that holds members of a group."""

    def __init__(self, directory: Path, name: str, here: list[str], group: list[str]) -> None:
        config = directory / f"{name}.json"
        config.write_text(
            json.dumps({"here": here, "group": group, "secret": SECRET, "directory": str(directory)})
        )
        self.child = subprocess.Popen(
            [sys.executable, "-m", "tests.support.raft_process", str(config)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline().strip()

    def ask(self, line: str) -> str:
        assert self.child.stdin is not None
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        return self.line()

    def log(self, address: str) -> list[tuple[int, bytes]]:
        return [(index, bytes.fromhex(entry)) for index, entry in json.loads(self.ask(f"log {address}"))]

    def propose(self, address: str, entry: bytes) -> str:
        return self.ask(f"propose {address} {entry.hex()}")

    def kill(self) -> None:
        self.child.kill()
        self.end()

    def end(self) -> None:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.close()
        self.child.wait(20)
        self.child.stdout.close()


Launch = Callable[[str, list[str], list[str]], RaftProcess]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Start processes; whatever still runs at the end is ended."""
    started: list[RaftProcess] = []

    def start(name: str, here: list[str], group: list[str]) -> RaftProcess:
        for address in here:
            release_raft_address(address)
        started.append(RaftProcess(tmp_path, name, here, group))
        assert started[-1].line() == "started"
        return started[-1]

    yield start
    for process in started:
        if process.child.poll() is None:
            process.kill()


def until(condition: Callable[[], bool], patience_s: float = 20.0) -> None:
    ends_at = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < ends_at, "it did not happen in time"
        time.sleep(0.02)


def leader_of(hosts: dict[str, RaftProcess]) -> str:
    """Return whom all members take for their leader, once they agree."""
    said: set[str | None] = set()

    def agreed() -> bool:
        said.clear()
        said.update(leader for host in hosts.values() for leader in json.loads(host.ask("leader")))
        return len(said) == 1 and None not in said

    until(agreed)
    return str(said.pop())


def test_three_members_of_one_process_survive_its_kill_with_all_that_was_acknowledged(launch: Launch) -> None:
    group = [free_raft_address() for _ in range(3)]
    acknowledged: list[tuple[int, bytes]] = []
    for life in range(3):
        process = launch("all", group, group)
        for number in range(20):
            entry = f"life {life} entry {number}".encode()
            verb, index = process.propose(group[number % 3], entry).split()
            assert verb == "committed"
            acknowledged.append((int(index), entry))
        process.kill()
    process = launch("all", group, group)
    for address in group:
        until(lambda a=address: set(acknowledged) <= set(process.log(a)))
    logs = [process.log(address) for address in group]
    assert logs[0] == logs[1] == logs[2]
    process.end()


def test_a_host_that_dies_is_replaced_as_leader_and_catches_up_when_it_returns(launch: Launch) -> None:
    group = [free_raft_address() for _ in range(3)]
    hosts = {address: launch(address.replace(":", "-"), [address], group) for address in group}
    assert hosts[group[0]].propose(group[0], b"first").startswith("committed")
    leader = leader_of(hosts)
    hosts.pop(leader).kill()
    survivors = list(hosts)
    assert hosts[survivors[0]].propose(survivors[0], b"second").startswith("committed")
    hosts[leader] = launch(leader.replace(":", "-"), [leader], group)
    for address in group:
        until(lambda a=address: list(dict(map(reversed, hosts[a].log(a)))) == [b"first", b"second"])
    for process in hosts.values():
        process.end()


def test_a_leader_that_falls_silent_at_rest_does_not_hold_the_next_commit_up_for_long(launch: Launch) -> None:
    group = [free_raft_address() for _ in range(3)]
    hosts = {address: launch(address.replace(":", "-"), [address], group) for address in group}
    assert hosts[group[0]].propose(group[0], b"first").startswith("committed")
    leader = leader_of(hosts)
    silent = hosts.pop(leader)
    silent.child.send_signal(signal.SIGSTOP)
    follower = next(iter(hosts))
    # What is not committed within PROPOSAL_TIMEOUT_S is said to be unknown.
    assert hosts[follower].propose(follower, b"second").startswith("committed")
    silent.child.send_signal(signal.SIGCONT)
    until(lambda: [entry for _, entry in silent.log(leader)][-1:] == [b"second"])
    assert hosts[follower].propose(follower, b"third").startswith("committed")
    until(lambda: [entry for _, entry in silent.log(leader)][-1:] == [b"third"])


def test_a_member_that_is_alone_with_a_dead_majority_says_unknown_and_recovers(launch: Launch) -> None:
    group = [free_raft_address() for _ in range(3)]
    pair = launch("pair", group[:2], group)
    alone = launch("alone", group[2:], group)
    assert alone.propose(group[2], b"first").startswith("committed")
    pair.kill()
    assert alone.propose(group[2], b"second").startswith("unknown")
    pair = launch("pair", group[:2], group)
    until(lambda: alone.propose(group[2], b"second").startswith("committed"))
    until(lambda: pair.log(group[0])[-1:] == alone.log(group[2])[-1:])
    pair.end()
    alone.end()
