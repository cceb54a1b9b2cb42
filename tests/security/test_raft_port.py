"""Strangers at the ports of a Raft group, without its secret, cost it neither its quorum nor a port.

The attacker is a process of its own, as another Unix user where the test runs as root.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replkernel.replication import raft_node
from replkernel.replication.addresses import free_raft_address, release_raft_address
from replkernel.replication.consensus import ProposalCommitted, ProposalOutcome
from replkernel.replication.raft import RaftMember
from tests.conftest import ROOT
from tests.contracts.consensus import Recorder
from tests.support.raft_by_tcp import by_tcp

__all__ = ["by_tcp"]

pytestmark = pytest.mark.usefixtures("by_tcp")

SECRET = "a secret of the test, thirty-two"
NOBODY = 65_533
HANDSHAKE_S = 5.0
LATE_S = 60.0
"""So much later a busy machine may do something."""
GATHERS_S = 60.0
"""In this time the group of three has to have its quorum, whoever else is at its ports."""


def until(condition: Callable[[], bool], patience_s: float) -> None:
    ends_at = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < ends_at, f"it did not happen within {patience_s:g} s"
        time.sleep(0.02)


def port_of(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


class Group:
    """Three members at addresses of their own, started one by one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.addresses = sorted(free_raft_address() for _ in range(3))
        self.members: dict[str, RaftMember] = {}

    def start(self, address: str) -> RaftMember:
        recorder = Recorder()
        made = RaftMember(address, self.addresses, SECRET, self.directory / address, recorder.callbacks())
        made.start()
        self.members[address] = made
        return made

    def close(self) -> None:
        for member in self.members.values():
            member.close()
        for address in self.addresses:
            release_raft_address(address)

    def gathered(self) -> bool:
        return len(self.members) == 3 and all(each.status().quorum for each in self.members.values())

    def commits(self) -> bool:
        outcomes: list[ProposalOutcome] = []
        next(iter(self.members.values())).propose(b"an entry", outcomes.append)
        until(lambda: bool(outcomes), LATE_S)
        return isinstance(outcomes[0], ProposalCommitted)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    yield made
    made.close()


class Attack:
    """Starts attackers, and ends them with the test."""

    def __init__(self) -> None:
        self.running: list[subprocess.Popen[str]] = []

    def begin(self, addresses: list[str], *, held: int, uid: int = NOBODY) -> None:
        command = [sys.executable, "-m", "tests.security.flood", str(uid), str(held), *addresses]
        started = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self.running.append(started)
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"

    def end(self) -> None:
        for each in self.running:
            each.send_signal(signal.SIGKILL)
            each.wait()
            if each.stdout is not None:
                each.stdout.close()


@pytest.fixture
def attack() -> Iterator[Attack]:
    made = Attack()
    yield made
    made.end()


def test_silent_connections_do_not_keep_a_group_from_its_quorum(group: Group, attack: Attack) -> None:
    lowest, middle, highest = group.addresses
    group.start(lowest)
    attack.begin([lowest], held=40)
    group.start(middle)
    attack.begin([middle], held=40)
    group.start(highest)
    until(group.gathered, GATHERS_S)
    assert group.commits()


def test_nor_do_they_when_they_come_from_the_members_own_user(group: Group, attack: Attack) -> None:
    lowest, middle, highest = group.addresses
    group.start(lowest)
    attack.begin([lowest], held=40, uid=os.getuid())
    group.start(middle)
    attack.begin([middle], held=40, uid=os.getuid())
    group.start(highest)
    until(group.gathered, GATHERS_S)
    assert group.commits()


def test_a_member_returns_while_another_user_opens_connections_as_fast_as_it_can(
    group: Group, attack: Attack
) -> None:
    for address in group.addresses:
        group.start(address)
    until(group.gathered, GATHERS_S)
    group.members.pop(group.addresses[-1]).close()
    attack.begin(group.addresses[:2], held=0)
    group.start(group.addresses[-1])
    until(group.gathered, GATHERS_S)
    assert group.commits()


def test_who_does_not_show_the_secret_in_time_is_shut_out(group: Group) -> None:
    lowest = group.addresses[0]
    group.start(lowest)
    with socket.create_connection(port_of(lowest), timeout=HANDSHAKE_S + LATE_S) as stranger:
        assert stranger.recv(1) == b""


def test_dripping_bytes_buys_no_more_time(group: Group) -> None:
    lowest = group.addresses[0]
    group.start(lowest)
    with socket.create_connection(port_of(lowest), timeout=1) as stranger:
        began_at = time.monotonic()
        stranger.sendall(b"\x00\x10\x00\x00")
        with pytest.raises(OSError):  # noqa: PT012 - one of many sends meets a closed port
            while time.monotonic() - began_at < HANDSHAKE_S + LATE_S:
                stranger.sendall(b"x")
                time.sleep(0.2)


def test_one_address_has_so_many_connections_and_no_more(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft_node, "HANDSHAKE_S", 600.0)  # None of them leaves for its age.
    lowest = group.addresses[0]
    group.start(lowest)
    strangers = [socket.create_connection(port_of(lowest), timeout=LATE_S) for _ in range(80)]
    try:
        until(lambda: sum(map(is_open, strangers)) <= 32, LATE_S)
        time.sleep(0.2)
        assert sum(map(is_open, strangers)) == 32
    finally:
        for stranger in strangers:
            stranger.close()


def is_open(stranger: socket.socket) -> bool:
    stranger.setblocking(False)
    try:
        return stranger.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


def test_a_process_without_descriptors_left_keeps_its_port(group: Group) -> None:
    lowest, middle, highest = group.addresses
    group.start(lowest)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    knocking = subprocess.Popen([sys.executable, "-c", _KNOCKS, *map(str, port_of(lowest))])
    next_number = os.dup(0)
    os.close(next_number)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_number, before[1]))
    try:
        time.sleep(3.0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert knocking.wait(10) == 0
    group.start(middle)
    group.start(highest)
    until(group.gathered, GATHERS_S)


_KNOCKS = """
import socket, sys, time
time.sleep(1)
held = [socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5) for _ in range(3)]
time.sleep(1)
"""
