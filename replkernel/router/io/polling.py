"""Waits for many sockets by their descriptors: ZMQ's own poll asks every socket each time, idle ones too.

A ZMQ descriptor tells of news once, and any call on its socket takes the news away unseen. Law: a socket
that was used since it was last asked is asked again before anybody waits.
"""

from __future__ import annotations

import select
from typing import TypeAlias

import zmq

Socket: TypeAlias = zmq.Socket[bytes]

_EVENTS = int(zmq.EVENTS)
_READABLE = int(zmq.POLLIN)


class SocketPoll:
    """The ZMQ sockets and plain descriptors that one thread reads from."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._sockets: dict[int, Socket | None] = {}
        self._numbers: dict[Socket, int] = {}
        self._used: set[Socket] = set()

    def register(self, source: Socket | int) -> None:
        """Watch a ZMQ socket, or a plain descriptor."""
        number = source if isinstance(source, int) else int(source.getsockopt(zmq.FD))
        self._sockets[number] = None if isinstance(source, int) else source
        if not isinstance(source, int):
            self._numbers[source] = number
            self._used.add(source)
        self._epoll.register(number, select.EPOLLIN)

    def unregister(self, source: Socket) -> None:
        """Watch a ZMQ socket no longer; it must still be open."""
        number = self._numbers.pop(source)
        del self._sockets[number]
        self._used.discard(source)
        self._epoll.unregister(number)

    def used(self, source: Socket) -> None:
        """Note that something was sent on a socket, or that not everything was read from it."""
        if source in self._numbers:
            self._used.add(source)

    def wait(self, timeout_ms: int) -> set[object]:
        """Return the sockets and descriptors that can be read: now, or else within the time.

        A socket may turn out to have nothing, for ZMQ's descriptors tell of other news as well.
        """
        ready: set[object] = {socket for socket in self._used if _readable(socket)}
        self._used.clear()
        for number, _ in self._epoll.poll(0 if ready else timeout_ms / 1000):
            socket = self._sockets.get(number)
            ready.add(number if socket is None else socket)
        return ready

    def close(self) -> None:
        """Watch nothing any more."""
        self._epoll.close()


def _readable(socket: Socket) -> bool:
    return not socket.closed and bool(int(socket.getsockopt(_EVENTS)) & _READABLE)
