"""What the router reads from: sockets and descriptors, each with its turn and who takes what is there.

Law: nothing waits here; a source that always has more is left after BATCH messages, for the others' sake.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
from operator import itemgetter

from replkernel.router.io.links import Socket, readable, receive
from replkernel.router.io.polling import SocketPoll

BATCH = 200
"""How many messages of one socket are taken before the next socket has its turn."""

Receive = Callable[[Socket], list[bytes] | None]


class Sources:
    """The sources of one loop, until it has `ended`."""

    def __init__(self, poller: SocketPoll) -> None:
        self._poller = poller
        self._takers: dict[object, tuple[int, Callable[[], None]]] = {}
        self.ended = False

    def listen(
        self, turn: int, source: Socket, take: Callable[[list[bytes]], None], receive: Receive = receive
    ) -> None:
        """Have each message of a socket taken."""
        self.watch(turn, source, partial(self._drain, source, take, receive))

    def watch(self, turn: int, source: Socket | int, take: Callable[[], None]) -> None:
        """Have `take` called when there is something to read."""
        self._takers[source] = (turn, take)
        self._poller.register(source)

    def used(self, source: Socket) -> None:
        """Take note that something was sent on a socket, which takes its news away unseen."""
        self._poller.used(source)

    def deafen(self, source: Socket) -> None:
        """Read from a socket no longer; it must still be open."""
        self._takers.pop(source, None)
        self._poller.unregister(source)

    def take_all(self, ready: AbstractSet[object]) -> None:
        """Take what is there, in turn; a source that is closed meanwhile is passed over."""
        takers = [self._takers[source] for source in ready if source in self._takers]
        if len(takers) > 1:
            takers.sort(key=itemgetter(0))
        for _, take in takers:
            take()

    def _drain(self, source: Socket, take: Callable[[list[bytes]], None], receive: Receive) -> None:
        for _ in range(BATCH):
            if source.closed or self.ended:
                return
            frames = receive(source)
            if frames is None:
                return
            take(frames)
            if source.closed or not readable(source):
                return
        self._poller.used(source)
