"""A Raft port: how many may wait at it before they show the kernel's secret, and the listener.

Law: the listener stays, whatever becomes of one connection, and whatever the process has run out of.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from replkernel.replication.raft_wire import BoundedConnection

if TYPE_CHECKING:
    from pysyncobj.poller import Poller


HANDSHAKE_S = 5.0
"""From the connection to the member's name; a healthy peer takes two round trips."""
STRANGERS_MAX = 64
STRANGERS_OF_ADDRESS_MAX = 32
BACKLOG = 128
ACCEPTED_AT_ONCE = 8
"""Connections taken before those that are here already are read: a storm of them leaves these their turn."""
PAUSE_S = 0.5
READ, FAILED = 1, 4
_SPENT = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class RaftListener:
    """A Raft port; stands in for PySyncObj's TcpServer, which is gone for good after one failed accept."""

    def __init__(
        self,
        poller: Poller,
        host: str,
        port: int | str,
        onNewConnection: Callable[[Any], None],  # noqa: N803 - PySyncObj's names, here and below
        sendBufferSize: int,  # noqa: N803
        recvBufferSize: int,  # noqa: N803
        connectionTimeout: float,  # noqa: N803
    ) -> None:
        self._poller = poller
        self._place = (host, int(port))
        self._on_new = onNewConnection
        self._buffers = (sendBufferSize, recvBufferSize)
        self._timeout_s = connectionTimeout
        self._socket: socket.socket | None = None
        self.paused_at: float | None = None

    def bind(self) -> None:
        """Listen; raise OSError when the port is another's."""
        family = socket.AF_INET6 if ":" in self._place[0] else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._set_options(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(self._place)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
        self._socket = listener
        self._poller.subscribe(listener.fileno(), self._on_event, READ | FAILED)

    def unbind(self) -> None:
        """Listen no more."""
        listener, self._socket = self._socket, None
        if listener is not None:
            self._poller.unsubscribe(listener.fileno())
            listener.close()

    def resume(self, now: float) -> None:
        """Go on after a pause for want of descriptors, once it was long enough."""
        if self.paused_at is not None and self._socket is not None and now - self.paused_at >= PAUSE_S:
            self.paused_at = None
            self._poller.subscribe(self._socket.fileno(), self._on_event, READ | FAILED)

    def _on_event(self, _: int, __: int) -> None:
        for _turn in range(ACCEPTED_AT_ONCE):
            if self._socket is None or not self._accept(self._socket):
                return

    def _accept(self, listener: socket.socket) -> bool:
        """Take one connection; tell whether there may be another."""
        try:
            accepted, came_from = listener.accept()
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _SPENT:
                return True  # It was reset before it was taken.
            self.paused_at = monotonic()
            self._poller.unsubscribe(listener.fileno())
            return False
        try:
            self._set_options(accepted)
            arrived_at = accepted.getsockname()
        except OSError:
            accepted.close()
            return True
        send, receive = self._buffers
        made = BoundedConnection(
            self._poller,
            socket=accepted,
            timeout=self._timeout_s,
            sendBufferSize=send,
            recvBufferSize=receive,
        )
        made.ends = (came_from[:2], arrived_at[:2])
        self._on_new(made)
        return True

    def _set_options(self, made: socket.socket) -> None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._buffers[0])
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._buffers[1])
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setblocking(False)
