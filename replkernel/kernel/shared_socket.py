"""A ZMQ socket of which one thread waits for messages while any may send.

Law: whoever uses the socket holds its lock; and as use takes ZMQ's news of messages away, the thread asks for
them before it waits, and whoever else sends tells it what came meanwhile.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from typing import Any

import zmq

# As plain numbers: `&` of an enum member costs as much as a receipt.
_EVENTS, _FD, _MORE = int(zmq.EVENTS), int(zmq.FD), int(zmq.RCVMORE)
_IN, _OUT = int(zmq.POLLIN), int(zmq.POLLOUT)
_NOW = int(zmq.DONTWAIT)


def has_news(socket: zmq.Socket[Any]) -> bool:
    """Tell whether a socket that one thread alone uses has a message."""
    return bool(int(socket.getsockopt(_EVENTS)) & _IN)


def descriptor(socket: zmq.Socket[Any]) -> int:
    """Return the descriptor that tells of a socket's news, of each only once."""
    return int(socket.getsockopt(_FD))


def monitored(socket: zmq.Socket[Any]) -> Iterator[tuple[int, int]]:
    """Yield what a monitor tells that one thread alone uses: events, and their values. It waits for nothing.

    Nor for the address behind an event: had somebody else read that, nothing would be heard any more.
    """
    while has_news(socket):
        frame = socket.recv(_NOW)
        if socket.getsockopt(_MORE):
            yield struct.unpack("=hi", frame)


class SharedSocket:
    """A DEALER socket behind a lock."""

    def __init__(self, socket: zmq.Socket[Any]) -> None:
        self._socket = socket
        self._lock = threading.Lock()

    def send(self, frame: bytes) -> bool:
        """Send without waiting; return False when the peer takes no more for now or the socket is closed."""
        with self._lock:
            if self._socket.closed:
                return False
            try:
                self._socket.send(frame, _NOW)
            except zmq.Again:
                return False
            return True

    def receive(self) -> bytes | None:
        """Return the next message, or None when there is none."""
        with self._lock:
            try:
                return bytes(self._socket.recv(_NOW))
            except zmq.Again:
                return None

    def wants(self, *, sending: bool) -> bool:
        """Tell whether there is a message, or with `sending` whether one can be sent."""
        with self._lock:
            if self._socket.closed:
                return False
            return bool(int(self._socket.getsockopt(_EVENTS)) & (_IN | _OUT if sending else _IN))

    def close(self) -> None:
        """Close the socket and its monitor."""
        with self._lock:
            self._socket.disable_monitor()
            self._socket.close()
