"""One listening ROUTER socket of the agent: decoded messages in, encoded ones out, nobody waits for anybody.

Law: a message is bounded, decoded as one of the expected kinds or refused; a peer that does not read has
a bounded queue of its own, and is dropped when that is full.
The socket is served by its descriptor in the loop: futures of `zmq.asyncio` cost several times as much.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable
from pathlib import Path

import zmq

from replkernel.errors import UNREADABLE
from replkernel.hosts.far_sockets import Keys, listen_far
from replkernel.hosts.far_strangers import COMINGS, LOOK_MS, FarStrangers
from replkernel.hosts.reach import Reach
from replkernel.protocol.message import MESSAGE_BYTES_MAX, Message, decoder, encode

log = logging.getLogger(__name__)

QUEUE_MESSAGES_MAX = 4096
"""Beyond ZMQ's own buffers, so many messages wait for a slow peer; then it is dropped."""

QUEUE_RETRY_S = 0.05

TURN_MESSAGES_MAX = 64
"""So many messages are taken before others in the loop have their turn."""

_NOW = int(zmq.DONTWAIT)
_NOW_MORE = int(zmq.DONTWAIT) | int(zmq.SNDMORE)
_MORE = int(zmq.RCVMORE)
_EVENTS = int(zmq.EVENTS)
_READABLE = int(zmq.POLLIN)
_ACCEPTED = int(zmq.EVENT_ACCEPTED)


class Connections:
    """By which connection a peer's last message came, and when the connection of one that is watched ends."""

    def __init__(self, socket: zmq.Socket[bytes], on_gone: Callable[[bytes], None]) -> None:
        self._socket = socket
        self._on_gone = on_gone
        self._last: tuple[bytes, int] = (b"", -1)
        self._open: set[int] = set()
        self._watched: dict[int, bytes] = {}
        self._strangers = FarStrangers()
        self._look: asyncio.TimerHandle | None = None
        self._monitor: zmq.Socket[bytes] = socket.get_monitor_socket(COMINGS)
        self._fd = int(self._monitor.getsockopt(zmq.FD))
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._take_ends)
        self._take_ends()  # The descriptor tells of what comes after one has looked.

    def receive(self, flags: int) -> bytes:
        """Return the first frame of the next message: the identity of its sender."""
        frame: zmq.Frame = self._socket.recv(flags, copy=False)
        number = frame.get(zmq.SRCFD)
        identity = bytes(frame.buffer)
        self._last = identity, number if isinstance(number, int) else -1
        return identity

    def watch(self, identity: bytes) -> None:
        """Watch the connection of the peer whose message was received last."""
        self._take_ends()  # What ended before has given its number away.
        if self._last[0] != identity or self._last[1] not in self._open:
            self._loop.call_soon(self._on_gone, identity)  # It ended before its message was taken.
        else:
            self._watched[self._last[1]] = identity

    def unwatch(self, identity: bytes) -> None:
        """Watch a peer's connection no longer."""
        for number in [number for number, watched in self._watched.items() if watched == identity]:
            del self._watched[number]

    def _take_ends(self) -> None:
        while not self._monitor.closed and int(self._monitor.getsockopt(_EVENTS)) & _READABLE:
            event, number = struct.unpack("=hi", self._monitor.recv_multipart(_NOW)[0])
            self._strangers.note(event, number, self._loop.time())
            if event == _ACCEPTED:
                self._open.add(number)
                continue
            self._open.discard(number)
            gone = self._watched.pop(number, None)
            if gone is not None:
                self._on_gone(gone)
        if self._look is None:
            self._look_at_strangers()

    def _look_at_strangers(self) -> None:
        more = self._strangers.look(self._loop.time())
        self._look = self._loop.call_later(LOOK_MS / 1000, self._look_at_strangers) if more else None

    def close(self) -> None:
        """Watch nobody any more."""
        if self._look is not None:
            self._look.cancel()
        self._loop.remove_reader(self._fd)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)


class PeerSocket:
    """Receives from and sends to any number of peers by their ZMQ identities.

    `on_message(identity, message)`; `on_nonsense(identity, why)`; `on_dropped(identity)`.
    """

    def __init__(
        self,
        path: Path | None,
        union: object,
        on_message: Callable[[bytes, object], None],
        on_nonsense: Callable[[bytes, str], None],
        on_dropped: Callable[[bytes], None],
        waiting_max: int = 1_000,
    ) -> None:
        """Listen at `path`, if any; so many messages of each peer are held that nobody has taken yet."""
        self.endpoint = "" if path is None else f"ipc://{path}"
        self._decoder = decoder(union)
        self._on_message = on_message
        self._on_nonsense = on_nonsense
        self._on_dropped = on_dropped
        self._queues: dict[bytes, deque[bytes]] = {}
        self._retry: asyncio.TimerHandle | None = None
        if path is not None:
            path.unlink(missing_ok=True)
        self._loop = asyncio.get_running_loop()
        self._turn: asyncio.Handle | None = None
        self._paused = False
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
        for option, value in (
            (zmq.LINGER, 200),
            (zmq.RCVHWM, waiting_max),
            (zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX),
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.ROUTER_HANDOVER, 1),
        ):
            self._socket.setsockopt(option, value)
        if self.endpoint:
            self._socket.bind(self.endpoint)
        self._fd = int(self._socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._fd, self._receive)
        self._connections: Connections | None = None
        self._look_again()

    def listen_far(self, reach: Reach, port: int, keys: Keys) -> str:
        """Listen for other machines too, sealed; return the address. From now on peers can be watched."""
        connections = Connections(self._socket, self._on_dropped)
        try:
            endpoint = listen_far(self._socket, reach, keys, port=port, beats=True)
        except BaseException:
            connections.close()
            raise
        self._connections = connections
        return endpoint

    def watch(self, identity: bytes) -> None:
        """Tell of the end of the connection that this peer's last message came by (`on_dropped`)."""
        if self._connections is not None:
            self._connections.watch(identity)

    def unwatch(self, identity: bytes) -> None:
        """Tell of it no longer."""
        if self._connections is not None:
            self._connections.unwatch(identity)

    def pause(self) -> None:
        """Take no more messages: peers that have enough under way wait."""
        if not self._paused:
            self._paused = True
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        """Take messages again."""
        if self._paused and not self._socket.closed:
            self._paused = False
            self._loop.add_reader(self._fd, self._receive)
            self._look_again()

    def _look_again(self) -> None:
        """Look for messages soon: the descriptor does not tell again what a call on the socket has seen."""
        if self._turn is None and not self._socket.closed and self._readable():
            self._turn = self._loop.call_soon(self._receive)

    def _readable(self) -> bool:
        return bool(int(self._socket.getsockopt(_EVENTS)) & _READABLE)

    def _receive(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        for _ in range(TURN_MESSAGES_MAX):
            if self._paused or self._socket.closed or not self._readable():
                return
            try:
                if self._connections is None:
                    frames = [self._socket.recv(_NOW)]
                else:
                    frames = [self._connections.receive(_NOW)]
                while self._socket.getsockopt(_MORE):
                    frames.append(self._socket.recv(_NOW))
            except zmq.Again:
                return
            self._take(frames)
        self._look_again()

    def _take(self, frames: list[bytes]) -> None:
        identity = frames[0]
        try:
            message = self._decoder.decode(frames[-1])
        except UNREADABLE as error:
            self._on_nonsense(identity, f"a message of {len(frames[-1])} bytes does not fit: {error}")
            return
        try:
            self._on_message(identity, message)
        except Exception:
            log.exception("handling %s failed", type(message).__name__)

    def send(self, identity: bytes, message: Message) -> None:
        """Send without ever blocking; to a peer that is gone, nothing is sent."""
        data = encode(message)
        queue = self._queues.get(identity)
        if queue is None and self._try(identity, data):
            return
        queue = self._queues.setdefault(identity, deque())
        queue.append(data)
        if len(queue) > QUEUE_MESSAGES_MAX:
            log.warning("a peer does not read its messages and is dropped")
            del self._queues[identity]
            self._on_dropped(identity)
        elif self._retry is None:
            self._arm()

    def _try(self, identity: bytes, data: bytes) -> bool:
        """Send one message; return False when the peer's buffer is full."""
        try:
            self._socket.send(identity, _NOW_MORE)
            self._socket.send(data, _NOW)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
        finally:
            self._look_again()
        return True

    def _arm(self) -> None:
        self._retry = self._loop.call_later(QUEUE_RETRY_S, self._flush)

    def _flush(self) -> None:
        self._retry = None
        for identity, queue in list(self._queues.items()):
            while queue and self._try(identity, queue[0]):
                queue.popleft()
            if not queue:
                del self._queues[identity]
        if self._queues:
            self._arm()

    def close(self) -> None:
        """Stop listening."""
        for pending in (self._turn, self._retry):
            if pending is not None:
                pending.cancel()
        if not self._socket.closed:
            self._loop.remove_reader(self._fd)
        if self._connections is not None:
            self._connections.close()
        self._socket.close()
