"""What comes in at a Raft port, from who lacks the group's secret and from who has it.

Behind the secret only frames and the handshake are fuzzed: whoever has it may send pickles, which are code.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import pysyncobj.pickle
from pysyncobj.tcp_connection import CONNECTION_STATE

from replkernel.hosts.strangers import Strangers
from replkernel.replication.raft_fit import fit_pysyncobj
from replkernel.replication.raft_node import Transport
from replkernel.replication.raft_wire import HANDSHAKE_BYTES_MAX, BoundedConnection, sealed_channel
from tests.fuzz.pieces import cut, joined

STRANGER, MEMBER = range(2)
SECRET = "a secret of the fuzzer, thirty-two"
READ = 1


class Poller:
    """Stands in for what waits for sockets."""

    def subscribe(self, *_: object) -> None:
        """Wait for nothing."""

    unsubscribe = subscribe


class Node:
    """Stands in for the member whose port it is; nobody's message may reach it."""

    def __init__(self) -> None:
        self.encryptor = sealed_channel(SECRET)
        self.heard: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a stranger's words reached {name}")


def _sealed(value: object) -> bytes:
    data = sealed_channel(SECRET).encrypt_at_time(pysyncobj.pickle.dumps(value), 1 << 20)
    return len(data).to_bytes(4, "little") + data


def seeds() -> list[bytes]:
    """Return a handshake as members do it, and what others send."""
    fit_pysyncobj()
    hello = _sealed(b"r" * 32)
    plain = pysyncobj.pickle.dumps("readonly")
    return [
        joined(STRANGER, len(plain).to_bytes(4, "little") + plain),
        joined(STRANGER, hello[:20], b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f"),
        joined(MEMBER, b"\x00" * 32, b"a:1"),
        joined(MEMBER, b"r", b"readonly"),
        joined(MEMBER, b"r", b"nobody:1"),
    ]


def fuzz(data: bytes) -> None:
    """Have a port take the pieces, one after the other, as TCP brings them."""
    fit_pysyncobj()
    number, pieces = cut(data)
    transport: Any = Transport.__new__(Transport)
    transport._watcher = transport._syncObj = Node()
    transport._strangers = Strangers(in_all=4, of_address=4, limit_s=5.0)
    transport._unknownConnections, transport._calls, transport._nodeAddrToNode = set(), {}, {}
    transport._onUtilityMessageCallbacks, transport._connections, transport._readonlyNodes = {}, {}, set()
    transport._preventConnectNodes, transport._nodes = set(), set()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        ours.setblocking(False)
        made = BoundedConnection(
            Poller(), socket=ours, timeout=60.0, sendBufferSize=1 << 16, recvBufferSize=1 << 16
        )
        made.ends = (("::1", 1), ("::1", 2))
        transport._onNewIncomingConnection(made)
        for piece in pieces:
            said = _sealed(_text(piece)) if number % 2 == MEMBER else piece
            with contextlib.suppress(OSError):
                theirs.send(said)
            if made.state == CONNECTION_STATE.DISCONNECTED:
                break
            made._TcpConnection__processConnection(made.fileno(), READ)
            assert len(made._TcpConnection__readBuffer) <= HANDSHAKE_BYTES_MAX
        assert not transport._connections
        made.disconnect()


def _text(piece: bytes) -> object:
    return piece if len(piece) == 32 else piece.decode("utf-8", "replace")
