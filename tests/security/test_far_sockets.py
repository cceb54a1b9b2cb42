"""Clients without the key at the sockets for other machines: they hold neither memory nor the listener.

A huge frame announced before the handshake is over, many silent connections, and both at once beside a client
that has the key. Agents and kernel processes listen by the same two ways, which are what is attacked here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from replkernel.agent.io.peers import PeerSocket
from replkernel.hosts import far_sockets, far_strangers
from replkernel.hosts.far_sockets import FarListener, connect, new_keys
from replkernel.hosts.reach import Reach
from replkernel.protocol.message import encode
from replkernel.protocol.router_to_agent import RouterHello, RouterToAgent
from replkernel.records import KernelId
from tests.conftest import ROOT
from tests.support.live import eventually

MEBIBYTE = 1024 * 1024
HELD_MAX = 40 * MEBIBYTE
ANSWER_MS = 50_000
LATE_S = 60.0
"""So much later a busy machine may do something."""
HOARD = ("CURVE", "60", "10")
"""600 MiB before anything was proven."""


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def place_of(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.removeprefix("curve://").partition("/")[0].rpartition(":")
    return host, int(port)


@contextlib.contextmanager
def hoarding(endpoint: str) -> Iterator[None]:
    host, port = place_of(endpoint)
    command = [sys.executable, "-m", "tests.security.hoard", host, str(port), *HOARD]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as started:
        try:
            yield
        finally:
            started.kill()


@contextlib.contextmanager
def silent(endpoint: str, count: int) -> Iterator[list[socket.socket]]:
    made = [socket.create_connection(place_of(endpoint), timeout=LATE_S) for _ in range(count)]
    try:
        yield made
    finally:
        for each in made:
            each.close()


class Listener:
    """A kernel process's way: a ROUTER socket opened for other machines, read by a thread."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.listener = FarListener(Reach())
        self.endpoint = self.listener.open(self.socket)
        self.listener.guard()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._echo)
        self._thread.start()

    def _echo(self) -> None:
        while not self._ends.is_set():
            if self.socket.poll(50):
                self.socket.send_multipart(self.socket.recv_multipart())

    def close(self) -> None:
        self._ends.set()
        self._thread.join()
        self.socket.close(linger=0)
        self.context.term()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


def answered(endpoint: str, message: bytes) -> bytes:
    with zmq.Context() as context, context.socket(zmq.DEALER) as client:
        client.linger = 0
        connect(client, endpoint)
        client.send(message)
        assert client.poll(ANSWER_MS), "the client with the key got no answer"
        return client.recv()


def test_a_client_without_the_key_makes_a_process_hold_next_to_nothing(listener: Listener) -> None:
    before = resident_bytes()
    with hoarding(listener.endpoint):
        time.sleep(3.0)
        assert resident_bytes() - before < HELD_MAX


def test_who_has_the_key_is_answered_beside_silent_and_greedy_ones(listener: Listener) -> None:
    with hoarding(listener.endpoint), silent(listener.endpoint, 100):
        assert answered(listener.endpoint, b"who has the key") == b"who has the key"
        assert answered(listener.endpoint, b"x" * 20 * MEBIBYTE) == b"x" * 20 * MEBIBYTE


def test_who_follows_a_guarded_socket_hears_of_each_connection_and_of_its_end() -> None:
    heard = []
    with zmq.Context() as context:
        with context.socket(zmq.ROUTER) as socket:
            far = FarListener(Reach())
            endpoint = far.open(socket)
            with far.follow(socket) as told:
                guard = far.guard()
                for _ in range(20):
                    with context.socket(zmq.DEALER) as client:
                        connect(client, endpoint)
                        client.send(b"")
                    while not heard or heard[-1] != zmq.EVENT_DISCONNECTED:
                        assert told.poll(LATE_S * 1000), "it stays deaf"
                        heard.append(struct.unpack("=hi", told.recv_multipart()[0])[0])
                    heard.append(0)
        guard.join(LATE_S)
    assert heard == [zmq.EVENT_ACCEPTED, zmq.EVENT_DISCONNECTED, 0] * 20


def test_silent_connections_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_strangers, "HANDSHAKE_S", 600.0)  # None of them leaves for its age.
    monkeypatch.setattr(far_sockets, "HANDSHAKE_MS_MAX", 600_000)
    with contextlib.closing(Listener()) as listener, silent(listener.endpoint, 100) as strangers:
        eventually(lambda: sum(not _closed(each) for each in strangers) <= 32, "few are kept", LATE_S)
        assert sum(not _closed(each) for each in strangers) > 0


def test_silent_connections_end(listener: Listener) -> None:
    with silent(listener.endpoint, 100) as strangers:
        eventually(lambda: all(_closed(each) for each in strangers), "they end", LATE_S)


def _closed(stranger: socket.socket) -> bool:
    stranger.setblocking(False)
    try:
        while True:
            if stranger.recv(4096) == b"":
                return True
    except BlockingIOError:
        return False
    except OSError:
        return True


async def test_a_client_without_the_key_makes_an_agent_hold_next_to_nothing(short_dir: Path) -> None:
    took: list[object] = []
    peers = PeerSocket(
        short_dir / "a.sock",
        RouterToAgent,
        lambda _, message: took.append(message),
        lambda _, __: None,
        lambda _: None,
    )
    try:
        endpoint = peers.listen_far(Reach(), 0, new_keys())
        before = resident_bytes()
        with hoarding(endpoint), zmq.Context() as context, context.socket(zmq.DEALER) as client:
            await asyncio.sleep(3.0)
            assert resident_bytes() - before < HELD_MAX
            with silent(endpoint, 100):
                client.linger = 0
                connect(client, endpoint, beats=True)
                client.send(encode(RouterHello("", KernelId("k"), "", 0)))
                ends_at = time.monotonic() + ANSWER_MS / 1000
                while not took and time.monotonic() < ends_at:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert took
    finally:
        peers.close()
