"""Sockets between machines: how they listen and connect, and what their addresses look like.

Owns the form of such an address (`curve://HOST:PORT/KEY`) and the options of both ends. Law: what leaves the
machine is sealed by CURVE, and a listener answers nobody who does not know its key; as the key is told on
private or sealed ways alone, to know it is the right to connect.
"""

from __future__ import annotations

import contextlib
import errno
import struct
import threading
import time
from typing import Any

import msgspec
import zmq
from zmq.utils import z85

from replkernel.errors import AgentUnavailable
from replkernel.hosts.far_strangers import COMINGS, LOOK_MS, FarStrangers
from replkernel.hosts.places import FAR
from replkernel.hosts.reach import Reach

MESSAGE_BYTES_MAX = 256 * 1024 * 1024
"""No message from another machine to a kernel process is larger, whether its sender is let in or not."""

CONNECT_MS_MAX = 5_000
HANDSHAKE_MS_MAX = 6_000
"""`far_strangers` is stricter; this is for the time in which it does not get its turn."""
BACKLOG = 128
BEAT_MS = 1_000
BEATLESS_MS = 5_000
"""An agent and a router of different machines that hear nothing for so long have lost each other."""
KEEPALIVE_IDLE_S, KEEPALIVE_EVERY_S, KEEPALIVE_TRIES = 60, 60, 14
"""A router and a kernel process bear 15 minutes, as TCP does: what is under way arrives after that."""


class Keys(msgspec.Struct, frozen=True):
    """A CURVE key pair, as ZMQ writes keys."""

    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        """Show nothing: the public half opens the listener as well."""
        return "<Keys>"


def new_keys() -> Keys:
    """Return a key pair of chance."""
    return Keys(*zmq.curve_keypair())


def is_far(endpoint: str) -> bool:
    """Tell whether an address leads to another machine."""
    return endpoint.startswith(FAR)


def far_endpoint(host: str, port: int, public: bytes) -> str:
    """Return the address of a listener for other machines."""
    return f"{FAR}{_bracketed(host)}:{port}/{z85.decode(public).hex()}"


def listen_far(
    socket: zmq.Socket[Any], reach: Reach, keys: Keys, *, port: int = 0, beats: bool = False
) -> str:
    """Have a socket listen for other machines too, at `port` or one of the range; return its address.

    What the socket is bound to already stays as it is. Raises AgentUnavailable when no port is free.
    """
    socket.curve_publickey, socket.curve_secretkey = keys.public, keys.secret
    socket.curve_server = True
    socket.handshake_ivl = HANDSHAKE_MS_MAX
    socket.backlog = BACKLOG
    if int(socket.maxmsgsize) < 0:
        socket.maxmsgsize = MESSAGE_BYTES_MAX
    _keep_alive(socket, beats=beats)
    _allow_family(socket, reach.bind)
    problem = ""
    for chosen in [port] if port else reach.ports():
        try:
            socket.bind(f"tcp://{_bracketed(reach.bind)}:{chosen}")
        except zmq.ZMQError as error:
            problem = error.strerror or str(error)
            if error.errno == errno.EADDRINUSE:
                continue
            break
        return far_endpoint(reach.advertise, chosen, keys.public)
    where = f"port {port}" if port else f"any of the ports {reach.port_first}-{reach.port_last}"
    setting = "REPLKERNEL_AGENT_PORT" if port else "REPLKERNEL_PORTS"
    raise AgentUnavailable(
        f"This machine cannot listen for others at {reach.bind}, {where} ({problem}): "
        f"set {setting} to what is free, and REPLKERNEL_BIND to an address of this machine."
    )


class FarListener:
    """What the sockets of one process have in common that other machines reach: its keys, and their guard.

    Law: a socket has one monitor, which the guard alone reads; who wants its news has them from the guard.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach, self._keys = reach, new_keys()
        self._opened: dict[zmq.Socket[Any], _Guarded] = {}

    def open(self, socket: zmq.Socket[Any]) -> str:
        """Have a socket listen for other machines too; return its address."""
        self._opened[socket] = _Guarded(socket)
        return listen_far(socket, self._reach, self._keys)

    def follow(self, socket: zmq.Socket[Any]) -> zmq.Socket[Any]:
        """Return what tells of connections to an open socket as its monitor would; before `guard` only."""
        told: zmq.Socket[Any] = socket.context.socket(zmq.PAIR)
        self._opened[socket].tell(told)
        return told

    def guard(self) -> threading.Thread:
        """Keep strangers within bounds from now on, on the thread returned, until the sockets are closed."""
        guarded, self._opened = list(self._opened.values()), {}
        thread = threading.Thread(target=_guard, args=(guarded,), name="replkernel-far-listener", daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """Close the monitors, if nobody guards them: where a socket found no port, nobody does."""
        for each in self._opened.values():
            each.close()
        self._opened = {}


class _Guarded:
    """An open socket: its monitor, the strangers there, and the way to whoever else is told of comings."""

    def __init__(self, socket: zmq.Socket[Any]) -> None:
        self.monitor = socket.get_monitor_socket(COMINGS | int(zmq.EVENT_MONITOR_STOPPED))
        self.strangers = FarStrangers()
        self._teller: zmq.Socket[Any] | None = None

    def tell(self, told: zmq.Socket[Any]) -> None:
        """Tell another socket of the same process from now on."""
        self._teller = told.context.socket(zmq.PAIR)
        place = f"inproc://far-{id(self)}"
        self._teller.bind(place)
        told.connect(place)

    def hear(self) -> bool:
        """Take the monitor's next event; tell whether there will be more."""
        frames = self.monitor.recv_multipart()
        event, number = struct.unpack("=hi", frames[0])
        if event == zmq.EVENT_MONITOR_STOPPED:
            return False
        self.strangers.note(event, number, time.monotonic())
        if self._teller is not None:
            with contextlib.suppress(zmq.Again):
                self._teller.send_multipart(frames, zmq.NOBLOCK)
        return True

    def close(self) -> None:
        for socket in (self.monitor, self._teller):
            if socket is not None:
                socket.close(linger=0)


def _guard(guarded: list[_Guarded]) -> None:
    """Serve sockets' monitors until each has said that it stopped, or the context ends."""
    poller, looks = zmq.Poller(), False
    watched = {each.monitor: each for each in guarded}
    for monitor in watched:
        poller.register(monitor, zmq.POLLIN)
    while watched:
        try:
            ready = poller.poll(LOOK_MS if looks else None)
            for monitor, _ in ready:
                if not watched[monitor].hear():
                    poller.unregister(monitor)
                    watched.pop(monitor).close()
        except zmq.ContextTerminated:
            break
        looks = sum(each.strangers.look(time.monotonic()) for each in watched.values()) > 0
    for each in watched.values():
        each.close()


def connect(socket: zmq.Socket[Any], endpoint: str, *, beats: bool = False) -> None:
    """Connect a socket to a listener of this machine or another."""
    if not is_far(endpoint):
        socket.connect(endpoint)
        return
    place, _, key = endpoint.removeprefix(FAR).rpartition("/")
    own = new_keys()
    socket.curve_publickey, socket.curve_secretkey = own.public, own.secret
    socket.curve_serverkey = z85.encode(bytes.fromhex(key))
    socket.connect_timeout = CONNECT_MS_MAX
    _keep_alive(socket, beats=beats)
    _allow_family(socket, place.rpartition(":")[0].strip("[]"))
    socket.connect(f"tcp://{place}")


def _keep_alive(socket: zmq.Socket[Any], *, beats: bool) -> None:
    socket.tcp_keepalive = 1
    socket.tcp_keepalive_idle = KEEPALIVE_IDLE_S
    socket.tcp_keepalive_intvl = KEEPALIVE_EVERY_S
    socket.tcp_keepalive_cnt = KEEPALIVE_TRIES
    if beats:
        socket.heartbeat_ivl = BEAT_MS
        socket.heartbeat_timeout = BEATLESS_MS
        socket.heartbeat_ttl = BEATLESS_MS


def _allow_family(socket: zmq.Socket[Any], host: str) -> None:
    if ":" in host:
        socket.ipv6 = True


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
