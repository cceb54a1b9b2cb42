"""The way on which executions reach the main thread at once, instead of through the shell channel's thread.

Owns its socket, which the main thread alone uses. Law: messages are taken in the order of their arrival, and
none is left lying: whoever used the socket looks whether something came meanwhile.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import zmq

from replkernel.hosts.far_sockets import FarListener
from replkernel.protocol.envelope import EXPECT_QUESTIONS

if TYPE_CHECKING:
    import asyncio

    from zmq.eventloop.zmqstream import ZMQStream


LINGER_MS = 1000

# As plain numbers: `&` of an enum member costs as much as a receipt.
_EVENTS = int(zmq.EVENTS)
_READABLE = int(zmq.POLLIN)
_ALONE = 2
"""The frames of a message of one frame: the sender's routing id is before it."""


class DirectMessage(list[Any]):
    """The frames of a message that came on the direct way and is answered there."""


class DirectChannel:
    """A ROUTER socket that is read on the main thread's loop; a GUI's loop reads it with `flush`."""

    def __init__(self, context: zmq.Context[Any], endpoint: str, far: FarListener | None = None) -> None:
        self.endpoint = endpoint
        self.far_endpoint = ""
        self._socket = context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, LINGER_MS)
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._socket.bind(endpoint)
        if far is not None:
            self.far_endpoint = far.open(self._socket)
        self._take: Callable[[DirectMessage], None] | None = None
        self.expect_questions: Callable[[], None] = lambda: None
        """Called when a long cell runs in another process, so that questions may come to this one."""
        self._loop: Any = None
        self._will_look = False
        self._ahead: DirectMessage | None = None
        """A message that was read and not taken yet."""

    def start(self, loop: asyncio.AbstractEventLoop, take: Callable[[DirectMessage], None]) -> None:
        """Give every message to `take` from now on, on the thread of the asyncio loop."""
        self._take, self._loop = take, loop
        loop.add_reader(self.fileno(), self._read_all)
        self._look_again()

    def fileno(self) -> int:
        """Return the descriptor that tells of new messages, as ZMQ does it: of some only once."""
        return int(self._socket.getsockopt(zmq.FD))

    def flush(self, limit: int) -> int:
        """Take up to `limit` messages that are there; return how many there were."""
        taken = 0
        while taken < limit and self._read_one():
            taken += 1
        self._look_again()
        return taken

    def waiting(self) -> bool:
        """Tell whether a message is there, which is taken when the loop is next idle."""
        self._look_again()
        return self._will_look

    def ahead(self) -> DirectMessage | None:
        """Return the message that is taken next, and leave it there; None while there is none."""
        if self._ahead is None and self._has_news():
            self._ahead = self._receive()
        return self._ahead

    def send_multipart(self, frames: list[Any], **options: object) -> object:
        """Send a reply."""
        sent = self._socket.send_multipart(frames, **options)
        self._look_again()
        return sent

    def close(self) -> None:
        """Close the socket; what was sent still leaves."""
        if self._socket.closed:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self.fileno())
        self._socket.close()

    def _look_again(self) -> None:
        if not self._will_look and self._loop is not None and self._readable():
            self._will_look = True
            self._loop.call_soon(self._read_all)

    def _readable(self) -> bool:
        return self._ahead is not None or self._has_news()

    def _receive(self) -> DirectMessage:
        return DirectMessage(self._socket.recv_multipart(zmq.NOBLOCK, copy=False))

    def _has_news(self) -> bool:
        return not self._socket.closed and bool(int(self._socket.getsockopt(_EVENTS)) & _READABLE)

    def _read_all(self) -> None:
        self._will_look = False
        while self._read_one():
            pass

    def _read_one(self) -> bool:
        if self._take is None or not self._readable():
            return False
        message, self._ahead = self._ahead or self._receive(), None
        if message[-1].bytes == EXPECT_QUESTIONS and len(message) == _ALONE:
            self.expect_questions()
        else:
            self._take(message)
        return True


class MainShellStream:
    """What a GUI's loop watches for messages: the shell channel's stream and the direct way as one."""

    def __init__(self, stream: ZMQStream, direct: DirectChannel, taken: Callable[[], bool]) -> None:
        self._stream, self._direct, self._taken = stream, direct, taken
        self._both = select.epoll()
        for number in (int(stream.getsockopt(zmq.FD)), direct.fileno()):
            self._both.register(number, select.EPOLLIN)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def getsockopt(self, option: int) -> object:
        """Return an option of the stream; its descriptor is readable with news of either."""
        return self._both.fileno() if option == zmq.FD else self._stream.getsockopt(option)

    def flush(self, flag: int = zmq.POLLIN | zmq.POLLOUT, limit: int | None = None) -> int:
        """Take messages that are there, from the direct way first; return how many there were.

        One that was taken before counts as well while nobody has begun with it: the loop must give way to it.
        """
        taken = self._direct.flush(limit or 1)
        return taken or int(self._stream.flush(flag, limit)) or int(self._taken())

    def close(self, linger: int | None = None) -> None:
        """Close the stream; the direct way is closed by its owner."""
        self._both.close()
        self._stream.close(linger)
