"""The ZMQ links of a router: one to each host's agent, five to each replica's kernel process.

Law: sending on a link never waits; a link to a peer that is gone is closed, not retried into the void.
"""

from __future__ import annotations

import zmq

from replkernel.hosts.far_sockets import connect, is_far
from replkernel.protocol.confirmation import Confirmation, confirmation_frame
from replkernel.protocol.kernel_spec import Endpoints
from replkernel.protocol.message import MESSAGE_BYTES_MAX
from replkernel.router.core.events import ReplicaChannel, RequestChannel

ROUTER_IDENTITY = b"rk-router"
"""The routing id of every router at its replicas: the next router receives what was meant for the last."""

QUEUED_MESSAGES_MAX = 10_000
OUTPUT_MESSAGES_MAX = 100_000
"""How many messages of a replica wait to be published; beyond that its own kernel process drops them."""
COPY_BYTES_MAX = 64 * 1024
"""Frames beyond this size are handed to ZMQ without another copy."""

CONFIRM_MESSAGES = 200
"""A process is told what has arrived after so many messages, and when the router rests."""
_SUBSCRIBE = b"\x01"
_NOT_LET_IN = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)

Socket = zmq.Socket[bytes]

# As plain numbers: `|` of two enum members alone costs as much as a send, once for every frame.
_NOW = int(zmq.NOBLOCK)
_NOW_MORE = int(zmq.NOBLOCK) | int(zmq.SNDMORE)
_MORE = int(zmq.RCVMORE)
_EVENTS = int(zmq.EVENTS)
_READABLE = int(zmq.POLLIN)
_SOURCE = int(zmq.SRCFD)


def send(socket: Socket, frames: list[bytes]) -> bool:
    """Send without ever waiting; return False when the peer takes no more or is gone."""
    write, last = socket.send, len(frames) - 1
    try:
        for number, frame in enumerate(frames):
            write(frame, _NOW_MORE if number < last else _NOW, len(frame) < COPY_BYTES_MAX)
    except zmq.ZMQError as error:
        if error.errno in (zmq.EAGAIN, zmq.EHOSTUNREACH):
            return False
        raise
    return True


def readable(socket: Socket) -> bool:
    """Tell whether there is a message; cheaper than an empty-handed `receive`."""
    return bool(int(socket.getsockopt(_EVENTS)) & _READABLE)


def receive(socket: Socket) -> list[bytes] | None:
    """Return the next message's frames, or None when there is none."""
    read, more = socket.recv, socket.getsockopt
    try:
        frames = [read(_NOW)]
        while more(_MORE):
            frames.append(read(_NOW))
    except zmq.Again:
        return None
    return frames


class ClientSocket:
    """The receiving of clients' messages, which tells whose connection the last one came by."""

    def __init__(self) -> None:
        self.connection: int | None = None

    def receive(self, socket: Socket) -> list[bytes] | None:
        """Return the next message's frames, or None when there is none."""
        try:
            first: zmq.Frame = socket.recv(_NOW, copy=False)
        except zmq.Again:
            return None
        connection = first.get(_SOURCE)
        self.connection = connection if isinstance(connection, int) and connection >= 0 else None
        frames = [bytes(first.buffer)]
        while socket.getsockopt(_MORE):
            frames.append(socket.recv(_NOW))
        return frames


class ReplicaLink:
    """The sockets to one kernel process; its output is what the iopub subscription delivers."""

    def __init__(self, context: zmq.Context[Socket], endpoints: Endpoints) -> None:
        self.sockets: dict[ReplicaChannel | RequestChannel, Socket] = {}
        dealers: tuple[tuple[RequestChannel, str], ...] = (
            ("shell", endpoints.shell),
            ("control", endpoints.control),
            ("stdin", endpoints.stdin),
            ("executions", endpoints.executions),
        )
        for channel, endpoint in dealers:
            if not endpoint:
                continue
            dealer = context.socket(zmq.DEALER)
            dealer.routing_id = ROUTER_IDENTITY
            dealer.sndhwm = dealer.rcvhwm = QUEUED_MESSAGES_MAX
            dealer.linger = 0
            connect(dealer, endpoint)
            self.sockets[channel] = dealer
        listener = context.socket(zmq.XSUB)
        listener.rcvhwm = OUTPUT_MESSAGES_MAX
        listener.linger = 0
        connect(listener, endpoints.iopub)
        listener.send(_SUBSCRIBE)
        self.sockets["iopub"] = listener
        self.unconfirmed = 0
        """How many messages of the process it has not been told have arrived."""
        self._last = b""
        self._replies: list[bytes] = []

    def to(self, channel: RequestChannel) -> Socket:
        """Return the socket for requests of a channel; a process without a direct way has the shell's."""
        return self.sockets[channel] if channel in self.sockets else self.sockets["shell"]

    def took(self, header: bytes, *, reply: bool) -> None:
        """Take note of output, or of a reply to an execution, by its header."""
        self.unconfirmed += 1
        if reply:
            self._replies.append(header)
        else:
            self._last = header

    def confirm(self) -> None:
        """Tell the process what has arrived: it holds everything else for the next router."""
        send(self.sockets["iopub"], [confirmation_frame(Confirmation(self._last, self._replies))])
        self.unconfirmed = 0
        self._replies = []

    def close(self) -> None:
        """Close all sockets at once."""
        for socket in self.sockets.values():
            socket.close(linger=0)


class AgentLink:
    """The socket to one host's agent, and the monitor that tells when the agent goes away, or is not there.

    An agent that was found may die before it is connected: nothing would ever be disconnected then.
    """

    def __init__(self, context: zmq.Context[Socket], endpoint: str, linger_ms: int) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = linger_ms
        self.socket.sndhwm = self.socket.rcvhwm = QUEUED_MESSAGES_MAX
        self.socket.maxmsgsize = MESSAGE_BYTES_MAX
        self.monitor: Socket = self.socket.get_monitor_socket(
            zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECT_RETRIED | _NOT_LET_IN
        )
        connect(self.socket, endpoint, beats=is_far(endpoint))

    def close(self) -> None:
        """Close the link; what was sent still leaves, within its linger time."""
        self.socket.disable_monitor()
        self.monitor.close(linger=0)
        self.socket.close()
