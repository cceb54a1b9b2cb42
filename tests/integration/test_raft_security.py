"""What a Raft member owes to the network and to its host: strangers are shut out, nothing is left behind."""

from __future__ import annotations

import os
import pickle
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replkernel.errors import AuthenticationFailed
from replkernel.hosts.reach import Reach
from replkernel.replication import addresses as raft_addresses
from replkernel.replication import raft_node
from replkernel.replication.addresses import HELD_MAX, free_raft_address, release_raft_address
from replkernel.replication.consensus import JournalDamaged, RaftAddressLost
from replkernel.replication.raft import RaftMember
from tests.contracts.consensus import Recorder

SECRET = "a secret of the test, thirty-two"


def until(condition: Callable[[], bool], patience_s: float = 20.0) -> None:
    ends_at = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < ends_at, "it did not happen in time"
        time.sleep(0.005)


def member_at(
    address: str, directory: Path, *, secret: str = SECRET, peers: tuple[str, ...] = ()
) -> RaftMember:
    return RaftMember(address, peers, secret, directory, Recorder().callbacks())


@pytest.fixture
def member(tmp_path: Path) -> Iterator[RaftMember]:
    made = member_at(free_raft_address(), tmp_path / "m")
    made.start()
    yield made
    made.close()


def connect(member: RaftMember) -> socket.socket:
    host, _, port = member.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return (os.mkdir, (str(self.path),))


def test_a_stranger_s_pickle_is_never_loaded(member: RaftMember, tmp_path: Path) -> None:
    payload = pickle.dumps(Bomb(tmp_path / "pwned"))
    with connect(member) as stranger:
        stranger.sendall(struct.pack("i", len(payload)) + payload)
        assert stranger.recv(1) == b""
    assert not (tmp_path / "pwned").exists()


def test_a_peer_with_another_secret_is_shut_out(tmp_path: Path) -> None:
    group = [free_raft_address(), free_raft_address()]
    right = member_at(group[0], tmp_path / "right", peers=tuple(group))
    wrong = member_at(
        group[1], tmp_path / "wrong", peers=tuple(group), secret="another secret, as long as it"
    )
    right.start()
    wrong.start()
    time.sleep(0.7)
    assert right.status().leader is None
    assert wrong.status().leader is None
    right.close()
    wrong.close()


def test_a_stranger_cannot_make_us_buffer_much(member: RaftMember) -> None:
    with connect(member) as stranger:
        stranger.sendall(struct.pack("i", 2**30))
        with pytest.raises(OSError):
            stranger.sendall(b"x" * 64 * 1024 * 1024)


@pytest.mark.usefixtures("by_tcp")
def test_strangers_do_not_keep_peers_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raft_node, "HANDSHAKE_S", 60.0)  # None of them leaves for its age.
    group = sorted((free_raft_address(), free_raft_address()))
    first, second = (member_at(address, tmp_path / address, peers=tuple(group)) for address in group)
    strangers: list[socket.socket] = []
    first.start()
    try:
        for _ in range(40):
            strangers.append(connect(first))
            time.sleep(0.005)
        until(lambda: sum(_closed(stranger) for stranger in strangers) >= 40 - 32)
        second.start()  # The one of the greater address connects to the other.
        until(lambda: first.status().quorum and second.status().quorum)
    finally:
        for each in (*strangers, first, second):
            each.close()


def _closed(stranger: socket.socket) -> bool:
    stranger.setblocking(False)
    try:
        return stranger.recv(1) == b""
    except BlockingIOError:
        return False


def test_a_short_secret_is_refused(tmp_path: Path) -> None:
    address = free_raft_address()
    with pytest.raises(AuthenticationFailed, match="16 random bytes"):
        member_at(address, tmp_path / "m", secret="short").start()
    release_raft_address(address)


def test_closing_leaves_no_thread_port_or_descriptor(tmp_path: Path) -> None:
    descriptors = set(os.listdir("/proc/self/fd"))
    group = [free_raft_address() for _ in range(3)]
    members = [member_at(address, tmp_path / address, peers=tuple(group)) for address in group]
    for each in members:
        each.start()
    until(lambda: all(each.status().quorum for each in members))
    assert sum(thread.name == "replkernel-raft" for thread in threading.enumerate()) == 1
    for each in members:
        each.close()
    assert not any(thread.name == "replkernel-raft" for thread in threading.enumerate())
    assert len(os.listdir("/proc/self/fd")) == len(descriptors)
    for address in group:
        again = member_at(address, tmp_path / "again" / address)
        again.start()
        again.close()


def test_a_member_may_be_closed_from_its_own_callback(tmp_path: Path) -> None:
    closed = threading.Event()
    address = free_raft_address()
    recorder = Recorder()
    made = RaftMember(address, (), SECRET, tmp_path / "m", recorder.callbacks())
    made.start()

    def done(_: object) -> None:
        made.close()
        closed.set()

    made.propose(b"last", done)
    assert closed.wait(20)
    until(lambda: made.status().role == "closed")
    until(lambda: not any(thread.name == "replkernel-raft" for thread in threading.enumerate()))


def test_a_lost_port_is_told_at_once(tmp_path: Path) -> None:
    address = free_raft_address()
    release_raft_address(address)
    host, _, port = address.rpartition(":")
    with socket.socket() as other:
        other.bind((host, int(port)))
        other.listen()
        started_at = time.monotonic()
        with pytest.raises(RaftAddressLost, match="add it again under a free address"):
            member_at(address, tmp_path / "m").start()
        assert time.monotonic() - started_at < 60.0
    again = member_at(address, tmp_path / "m")
    again.start()
    again.close()


def test_a_port_that_a_child_keeps_for_a_moment_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that is being started has all sockets of the process that starts it, until it runs."""
    monkeypatch.setattr(raft_addresses, "CLAIM_S", 60.0)
    address = free_raft_address()
    holder, _ = raft_addresses._held[address]
    with subprocess.Popen(["sleep", "0.5"], pass_fds=[holder.fileno()]):
        made = member_at(address, tmp_path / "m")
        made.start()
        made.close()


def test_an_address_that_is_no_address_is_told(tmp_path: Path) -> None:
    with pytest.raises(RaftAddressLost, match="not an IP address"):
        free_raft_address("no-such-host")
    with pytest.raises(RaftAddressLost, match="set REPLKERNEL_BIND to one"):
        free_raft_address("203.0.113.7")


def test_a_range_of_ports_that_is_used_up_is_named_with_its_setting() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(RaftAddressLost, match=f"{port}-{port} .*: set REPLKERNEL_PORTS to a range"):
            free_raft_address(reach=Reach(port_first=port, port_last=port))


def test_addresses_are_distinct_and_held(tmp_path: Path) -> None:
    addresses = [free_raft_address() for _ in range(50)]
    assert len(set(addresses)) == 50
    host, _, port = addresses[0].rpartition(":")
    with socket.socket() as other, pytest.raises(OSError):
        other.bind((host, int(port)))
    for address in addresses:
        release_raft_address(address)
    assert HELD_MAX >= 50


@pytest.mark.parametrize("name", ["raft.snapshot", "raft.journal", "raft.journal.meta"])
def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    address = free_raft_address()
    made = member_at(address, tmp_path / "m")
    made.start()
    made.close()
    damaged = (tmp_path / "m" / name).read_bytes() if name == "raft.journal" else b""
    (tmp_path / "m" / name).write_bytes(damaged[:40] + b"\xff" * 64)
    if name == "raft.journal":
        (tmp_path / "m" / name).write_bytes(damaged[:36] + struct.pack("<I", 4000) + b"\xff" * 64)
    with pytest.raises(JournalDamaged, match="remove the member's directory"):
        member_at(address, tmp_path / "m").start()


def test_the_files_of_a_member_are_for_its_owner_alone(member: RaftMember, tmp_path: Path) -> None:
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o700
