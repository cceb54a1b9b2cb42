"""Connections to a listener for other machines that have not shown its key: few, short, and next to silent.

ZMQ takes a frame of any allowed size before it knows who sends it. So Linux is asked how much each stranger
has sent, and whether it was sent more than ZMQ's greeting: that is for those alone who know the key.
Law: a stranger sends STRANGER_BYTES_MAX at most, give or take what comes in LOOK_MS; descriptors are
ZMQ's, and a connection is shut down only when it is still the one that was accepted.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from typing import Any

import msgspec
import zmq

from replkernel.hosts.strangers import Strangers, is_expected

STRANGERS_MAX = 128
STRANGERS_OF_ADDRESS_MAX = 32
HANDSHAKE_S = 5.0
STRANGER_BYTES_MAX = 8192
"""A handshake takes less than 1 KiB."""
LOOK_MS = 10
"""So often strangers are looked at, while there are any."""

COMINGS = int(zmq.EVENT_ACCEPTED) | int(zmq.EVENT_DISCONNECTED) | int(zmq.EVENT_CLOSED)
_ACCEPTED = int(zmq.EVENT_ACCEPTED)
_GREETING_BYTES = 72
"""ZMQ greets with 64 bytes; the kernel counts the SYN as well."""
_ACKNOWLEDGED_AND_RECEIVED = struct.Struct("=QQ")
_AT = 120
"""Where Linux's `tcp_info` has these two."""


class Traffic(msgspec.Struct, frozen=True):
    """What has gone over a connection: bytes that the other end has taken, and bytes that came."""

    taken: int
    came: int


class FarStrangers:
    """Keeps the strangers of one listening ZMQ socket within bounds; fed with its monitor's events."""

    def __init__(self) -> None:
        self._book: Strangers[int] = Strangers(
            in_all=STRANGERS_MAX, of_address=STRANGERS_OF_ADDRESS_MAX, limit_s=HANDSHAKE_S
        )
        self._ends: dict[int, Any] = {}

    def note(self, event: int, number: int, now: float) -> None:
        """Take note of a connection that came or went, by its descriptor."""
        self._forget(number)
        if event != _ACCEPTED:
            return
        with _connection(number) as made:
            ends = None if made is None else _ends_of(made)
        if ends is None:
            return
        self.look(now)
        self._ends[number] = ends
        expected = is_expected(ends[0][:2], ends[1][:2], ())
        for each in self._book.arrive(number, ends[0][0], expected=expected, now=now):
            self._shut(each)

    def look(self, now: float) -> bool:
        """Shut out who said too much or took too long; tell whether to look again after LOOK_MS."""
        for number in self._book:
            with _connection(number) as made:
                if made is None or _ends_of(made) != self._ends[number]:
                    self._forget(number)
                    continue
                traffic = traffic_of(made)
            if traffic.taken > _GREETING_BYTES:
                self._forget(number)
            elif traffic.came > STRANGER_BYTES_MAX:
                self._shut(number)
        for number in self._book.overdue(now):
            self._shut(number)
        return bool(self._book)

    def _forget(self, number: int) -> None:
        self._book.leave(number)
        self._ends.pop(number, None)

    def _shut(self, number: int) -> None:
        with _connection(number) as made, contextlib.suppress(OSError):
            if made is not None and _ends_of(made) == self._ends[number]:
                made.shutdown(socket.SHUT_RDWR)
        self._forget(number)


def traffic_of(made: socket.socket) -> Traffic:
    """Return what has gone over a connection; nothing where the kernel does not tell."""
    try:
        told = made.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _AT + _ACKNOWLEDGED_AND_RECEIVED.size)
        return Traffic(*_ACKNOWLEDGED_AND_RECEIVED.unpack_from(told, _AT))
    except (OSError, struct.error):
        return Traffic(0, 0)


@contextlib.contextmanager
def _connection(number: int) -> Any:
    """Give the connection of a descriptor, as one of our own for the moment; None when it has none."""
    try:
        made = socket.socket(fileno=os.dup(number))
    except OSError:
        yield None
        return
    with made:
        yield made


def _ends_of(made: socket.socket) -> Any:
    """Return from where a connection came and where it arrived, or None when it is over."""
    try:
        return made.getpeername(), made.getsockname()
    except OSError:
        return None
