"""Members that one thread drives talk without a socket: each hands the other a copy of its message.

A connection of two such members stands in for PySyncObj's TcpConnection, with as much of its interface as its
transport uses. Law: no member runs on another's stack, so what is handed over waits until that one is done.
It comes in order, and what both hold of it cannot be changed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any

from pysyncobj.tcp_connection import CONNECTION_STATE
from pysyncobj.transport import TCPTransport

from replkernel.replication.raft_thread import MemberPoller

if TYPE_CHECKING:
    from pysyncobj.node import Node


_UNCHANGEABLE = frozenset((bytes, str, int, float, bool, NoneType))


def copied(value: Any) -> object:
    """Return `value` with its containers copied; what cannot be changed is shared, such as an entry."""
    kind = type(value)
    if kind in _UNCHANGEABLE:
        return value
    if kind is dict:
        return {key: copied(each) for key, each in value.items()}
    if kind is list:
        return [copied(each) for each in value]
    if kind is tuple:
        return tuple([copied(each) for each in value])
    return pickle.loads(pickle.dumps(value, 5))


class NearConnection:
    """One end of a connection between two members of a thread."""

    sendRandKey = recvRandKey = encryptor = None  # noqa: N815 - PySyncObj's names

    def __init__(self, poller: MemberPoller, instead: Any) -> None:
        """Make the end of the member with this poller; `instead` is its call by TCP, if it makes one."""
        self.state: int = CONNECTION_STATE.CONNECTED
        self.instead = instead
        self.other: NearConnection | None = None
        self._poller = poller
        self._on_message: Callable[[Any], None] | None = None
        self._on_lost: Callable[[], None] | None = None

    def join(self, other: NearConnection) -> None:
        """Make this the other end of `other`."""
        self.other, other.other = other, self

    def tell(self, on_message: Callable[[Any], None], on_lost: Callable[[], None]) -> None:
        """Say whom to tell of messages, and of the end."""
        self._on_message, self._on_lost = on_message, on_lost

    def send(self, message: Any) -> None:
        """Hand a copy of a message over."""
        if self.state == CONNECTION_STATE.CONNECTED and self.other is not None:
            self.other.hand(partial(self.other.receive, copied(message)))

    def hand(self, job: Callable[[], None]) -> None:
        """Have `job` run at this end, after what was handed over before."""
        self._poller.hand(job)

    def receive(self, message: Any) -> None:
        """Take a message, unless the connection has ended."""
        if self.state == CONNECTION_STATE.CONNECTED and self._on_message is not None:
            self._on_message(message)

    def disconnect(self) -> None:
        """End the connection here at once, and at the other end after what was sent before."""
        if self.state == CONNECTION_STATE.DISCONNECTED:
            return
        self.state = CONNECTION_STATE.DISCONNECTED
        other, self.other = self.other, None
        if other is not None:
            other.hand(other.disconnect)
        if self._on_lost is not None:
            self._on_lost()


class NearTransport(TCPTransport):  # type: ignore[misc]
    """PySyncObj's transport, which needs no socket to a member of its group that the same thread drives."""

    def open_near(self) -> None:
        """Let members of this thread find this one: it listens."""
        self._near[self._selfNode.address] = self

    @property
    def _near(self) -> dict[str, Any]:
        return self._own_poller.near

    @property
    def _own_poller(self) -> MemberPoller:
        poller: MemberPoller = self._syncObj._poller
        return poller

    def destroy(self) -> None:
        """Be found no longer, and leave all peers."""
        if self._near.get(self._selfNode.address) is self:
            del self._near[self._selfNode.address]
        super().destroy()

    def _connectIfNecessarySingle(self, node: Node) -> bool:  # noqa: N802 - PySyncObj's name
        connection = self._connections.get(node)
        if connection is not None and connection.state != CONNECTION_STATE.DISCONNECTED:
            return True
        if self._shouldConnect(node) and self._meet(node):
            return True
        return bool(super()._connectIfNecessarySingle(node))

    def _meet(self, node: Node) -> bool:
        """Connect to a peer of this thread; False if it is none, has another secret or does not know us."""
        peer = self._near.get(node.address)
        if peer is None or peer._syncObj.conf.password != self._syncObj.conf.password:
            return False
        if self._selfNode.address not in peer._nodeAddrToNode:
            return False
        here = NearConnection(self._own_poller, self._connections.get(node))
        there = NearConnection(peer._own_poller, None)
        here.join(there)
        self._connections[node] = here
        here.tell(partial(self._onMessageReceived, node), partial(self._near_lost, here))
        there.hand(partial(peer._take_near, self._selfNode.address, there))
        self._onNodeConnected(node)
        return True

    def _take_near(self, address: str, connection: NearConnection) -> None:
        """Take the connection of a peer that has just met us, unless it has left the group since."""
        node = self._nodeAddrToNode.get(address)
        if node is None:
            connection.disconnect()
            return
        before = self._connections.get(node)
        if before is not None:
            before.disconnect()  # While it is the peer's: what was on its way there starts anew on this one.
        self._connections[node] = connection
        connection.tell(partial(self._onMessageReceived, node), partial(self._near_lost, connection))
        self._onNodeConnected(node)

    def _near_lost(self, connection: NearConnection) -> None:
        """Tell of the loss, and look for the peer again: here, or by TCP."""
        node = self._connToNode(connection)
        if node is None:
            return
        if connection.instead is not None:
            self._connections[node] = connection.instead
        self._onNodeDisconnected(node)
        self._connectIfNecessarySingle(node)
