"""Another user of the machine makes, links or swaps the directory of the sockets: nothing is sent to them."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from replkernel.agent.io.lookup import agent_dir, find_agent, find_or_start, stop_agent
from replkernel.client.inquiry import ask_agents
from replkernel.errors import AgentUnavailable
from replkernel.hosts.own_dir import DirectoryUnsafe, check_own_dir, make_own_dir
from replkernel.hosts.places import data_place
from tests.support.live import AGENT_S
from tests.support.second_user import ATTACKER, NOBODY, Attack, as_user, needs_root

HOST = "doors"
CLONE_NEWUSER = 0x10000000
PR_SET_DUMPABLE = 4


@pytest.fixture
def shared_tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory like /tmp, in which everybody may make something; sockets are where they are by default."""
    directory = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    directory.chmod(0o1777)
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.delenv("REPLKERNEL_SOCKET_DIR")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    yield directory
    stop_agent(HOST, os.environ)
    shutil.rmtree(directory, ignore_errors=True)


def predicted(shared: Path) -> Path:
    """Return the socket directory that the first release used: anybody can work it out."""
    mark = hashlib.sha256(os.path.normpath(data_place(os.environ)).encode()).hexdigest()[:8]
    return shared / f"rk-{os.getuid()}-{mark}"


def make_open(directory: Path) -> None:
    directory.mkdir(mode=0o777)
    (directory / "k").mkdir(mode=0o777)


def swap_and_listen(directory: Path, said: str) -> bytes:
    """Put a directory in the place of an agent's, listen there, and return what is sent."""
    if directory.exists():
        directory.rename(directory.with_name("was"))
    directory.mkdir(mode=0o777)
    return listen(directory / "agent.sock", said)


def listen(path: Path, said: str) -> bytes:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as door:
        door.bind(f"ipc://{path}")
        path.chmod(0o777)
        Path(said).write_text("listens")
        heard = b"".join(door.recv_multipart()) if door.poll(4000) else b""
        door.linger = 0
    return heard


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + AGENT_S
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@needs_root
@pytest.mark.parametrize("attacker", [ATTACKER, NOBODY])
def test_whoever_made_the_directory_first_is_not_sent_the_token(shared_tmp: Path, attacker: int) -> None:
    as_user(attacker, make_open, predicted(shared_tmp))
    address = find_or_start(HOST, os.environ)
    said = shared_tmp / "said"
    attack = Attack(attacker, swap_and_listen, predicted(shared_tmp) / HOST, str(said))
    wait_for(said)
    status = ask_agents(os.environ, AGENT_S)
    assert address.token.encode() not in attack.result()
    assert [host.state for host in status.hosts] == ["up"], "the agent listens where nobody could be first"


@needs_root
def test_a_link_of_somebody_else_is_not_followed(shared_tmp: Path) -> None:
    theirs = shared_tmp / "theirs"
    as_user(ATTACKER, make_open, theirs)
    as_user(ATTACKER, os.symlink, theirs, predicted(shared_tmp))
    find_or_start(HOST, os.environ)
    assert not (theirs / HOST).exists()


@needs_root
def test_a_socket_in_a_directory_of_somebody_else_is_sent_nothing(shared_tmp: Path) -> None:
    """The file that says where the agent listens is ours, the directory is not any more."""
    address = find_or_start(HOST, os.environ)
    place, theirs = agent_dir(HOST, os.environ) / "agent.json", shared_tmp / "theirs" / HOST
    as_user(ATTACKER, make_open, theirs.parent)
    said = shared_tmp / "said"
    attack = Attack(ATTACKER, swap_and_listen, theirs, str(said))
    wait_for(said)
    ours = place.read_bytes()
    place.write_text(json.dumps(json.loads(ours) | {"router_endpoint": f"ipc://{theirs}/agent.sock"}))
    try:
        with pytest.raises(AgentUnavailable, match=f"{theirs} belongs to user {ATTACKER}"):
            find_agent(HOST, os.environ)
        (shown,) = ask_agents(os.environ, AGENT_S).hosts
        assert f"belongs to user {ATTACKER}" in shown.state
    finally:
        place.write_bytes(ours)
    assert address.token.encode() not in attack.result()


@needs_root
def test_a_listener_of_somebody_else_is_sent_nothing_wherever_it_is(short_dir: Path) -> None:
    """The directory is ours now; who listens in it began before it was."""
    address = find_or_start(HOST, os.environ)
    place, said = agent_dir(HOST, os.environ) / "agent.json", short_dir / "said"
    short_dir.chmod(0o777)
    attack = Attack(ATTACKER, listen, short_dir / "agent.sock", str(said))
    wait_for(said)
    short_dir.chmod(0o700)
    ours = place.read_bytes()
    place.write_text(json.dumps(json.loads(ours) | {"router_endpoint": f"ipc://{short_dir}/agent.sock"}))
    try:
        with pytest.raises(AgentUnavailable, match=f"user {ATTACKER}"):
            find_agent(HOST, os.environ)
    finally:
        place.write_bytes(ours)
        stop_agent(HOST, os.environ)
    assert address.token.encode() not in attack.result()


@needs_root
def test_a_file_of_somebody_else_does_not_say_where_the_agent_is(short_dir: Path) -> None:
    address = find_or_start(HOST, os.environ)
    place = agent_dir(HOST, os.environ) / "agent.json"
    try:
        os.chown(place, ATTACKER, ATTACKER)
        assert find_agent(HOST, os.environ) is None
    finally:
        os.chown(place, 0, 0)
        stop_agent(HOST, os.environ)
    assert address.name == HOST


@needs_root
def test_a_recorded_directory_that_somebody_else_has_now_is_given_up(shared_tmp: Path) -> None:
    first = Path(find_or_start(HOST, os.environ).endpoint.removeprefix("ipc://")).parent
    stop_agent(HOST, os.environ)
    shutil.rmtree(first.parent)
    as_user(ATTACKER, make_open, first.parent)
    second = Path(find_or_start(HOST, os.environ).endpoint.removeprefix("ipc://")).parent
    assert second.parent != first.parent
    assert second.stat().st_uid == os.getuid()


@needs_root
@pytest.mark.parametrize("deed", ["owner", "link", "part"])
def test_a_given_directory_that_is_not_ours_alone_is_refused(
    shared_tmp: Path, monkeypatch: pytest.MonkeyPatch, deed: str
) -> None:
    given, theirs = shared_tmp / "given", shared_tmp / "theirs"
    if deed == "owner":
        as_user(ATTACKER, make_open, given)
    elif deed == "link":
        as_user(ATTACKER, make_open, theirs)
        as_user(ATTACKER, os.symlink, theirs, given)
    else:
        as_user(ATTACKER, make_open, theirs)
        given = theirs / "given"
        given.mkdir(mode=0o700)
    monkeypatch.setenv("REPLKERNEL_SOCKET_DIR", str(given))
    with pytest.raises(AgentUnavailable, match=f"belongs to user {ATTACKER}") as raised:
        find_or_start(HOST, os.environ)
    assert "set REPLKERNEL_SOCKET_DIR" in str(raised.value)
    assert str(raised.value).count(". ") <= 1
    monkeypatch.delenv("REPLKERNEL_SOCKET_DIR")


@pytest.mark.parametrize(("mode", "fix"), [(0o777, "chmod go-w"), (0o770, "chmod go-w")])
def test_a_given_directory_that_others_may_write_to_is_refused(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, mode: int, fix: str
) -> None:
    given = short_dir / "s"
    given.mkdir()
    if os.geteuid() == 0:
        os.chown(given, -1, ATTACKER)
    given.chmod(mode)
    monkeypatch.setenv("REPLKERNEL_SOCKET_DIR", str(given))
    try:
        with pytest.raises(AgentUnavailable, match=fix):
            find_or_start(HOST, os.environ)
    finally:
        given.chmod(0o700)
        stop_agent(HOST, os.environ)


def test_a_private_runtime_directory_is_used(shared_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = shared_tmp / "run"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert find_or_start(HOST, os.environ).endpoint.startswith(f"ipc://{runtime}/")


def test_a_runtime_directory_that_others_can_enter_is_not(
    shared_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = shared_tmp / "run"
    runtime.mkdir(mode=0o755)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    directory = Path(find_or_start(HOST, os.environ).endpoint.removeprefix("ipc://")).parent
    assert not directory.is_relative_to(runtime)
    assert directory.stat().st_mode & 0o777 == 0o700


def test_the_next_agent_listens_where_the_last_one_did(
    shared_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernel processes that outlive their agent know no other place to greet the next one."""
    first = find_or_start(HOST, os.environ).endpoint
    stop_agent(HOST, os.environ)
    runtime = shared_tmp / "run"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert find_or_start(HOST, os.environ).endpoint == first
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(first.removeprefix("ipc://"))


def own_dir_in_a_container(shared: Path) -> str:
    """Make a directory where the system's root is nobody we know, as in containers without root."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    if libc.unshare(CLONE_NEWUSER):
        return "this machine allows no user namespaces"
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{ATTACKER} {ATTACKER} 1")
    Path("/proc/self/gid_map").write_text(f"{ATTACKER} {ATTACKER} 1")
    assert os.stat("/").st_uid not in (0, ATTACKER)
    make_own_dir(str(shared / "own"))
    try:
        check_own_dir("/root")
    except DirectoryUnsafe:
        return ""
    return "the directory of root was taken for our own"


@needs_root
def test_a_container_without_root_has_safe_directories(shared_tmp: Path) -> None:
    said = as_user(ATTACKER, own_dir_in_a_container, shared_tmp)
    if "allows no" in said:
        pytest.skip(said)
    assert said == ""
