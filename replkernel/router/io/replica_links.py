"""The router's links to all replicas' processes: opened, read, written, confirmed to, closed.

Law: what a process sent is confirmed only after the turn in which it was dealt with and written down.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import zmq

from replkernel.records import ReplicaId
from replkernel.router.core import events
from replkernel.router.core.events import ReplicaChannel, RequestChannel
from replkernel.router.core.wire import WireError, read_replica
from replkernel.router.io.links import ReplicaLink, Socket
from replkernel.router.io.log import RouterLog
from replkernel.router.io.sent_to import SentTo
from replkernel.router.io.sources import Sources

LINK_ORDER: tuple[tuple[ReplicaChannel | RequestChannel, ReplicaChannel], ...] = (
    ("iopub", "iopub"),
    ("control", "control"),
    ("stdin", "stdin"),
    ("executions", "shell"),
    ("shell", "shell"),
)
"""A replica's sockets, each with the channel that its messages are of.

Output is taken before the reply that followed it, as a stock kernel's clients expect.
"""


class ReplicaLinks:
    """All replicas' links; `send` sends without waiting, `feed` takes what a replica says."""

    def __init__(
        self,
        context: zmq.Context[Socket],
        sources: Sources,
        log: RouterLog,
        send: Callable[[Socket, list[bytes]], bool],
        feed: Callable[[events.Event], None],
    ) -> None:
        self._context = context
        self._sources = sources
        self._log = log
        self._send = send
        self._feed = feed
        self._links: dict[ReplicaId, ReplicaLink] = {}
        self._processes: dict[ReplicaId, SentTo] = {}

    @property
    def unconfirmed(self) -> bool:
        """Tell whether a process waits to be told what has arrived."""
        return any(link.unconfirmed for link in self._links.values())

    def confirm(self, least: int) -> None:
        """Tell the processes of which so many messages have arrived that they need not be held any more."""
        for link in self._links.values():
            if link.unconfirmed >= least:
                link.confirm()
                self._sources.used(link.sockets["iopub"])

    def connect(self, effect: events.ConnectReplica) -> None:
        """Open the links to a replica's process, closing older ones."""
        self.drop(events.DropReplica(effect.replica))
        link = self._links[effect.replica] = ReplicaLink(self._context, effect.endpoints)
        self._forget(effect.replica)
        self._processes[effect.replica] = SentTo(effect.pid)
        for turn, (kind, told_as) in enumerate(LINK_ORDER, start=10):
            if kind in link.sockets:
                take = partial(self._take, effect.replica, link, told_as)
                self._sources.listen(turn, link.sockets[kind], take)

    def end_of(self, name: ReplicaId) -> str:
        """Return in a clause how the last process of a replica ended, if it has and that can be seen here."""
        process = self._processes.get(name)
        return "" if process is None else process.end()

    def signal(self, effect: events.SignalProcess) -> None:
        """Signal a replica's process, and whatever it has started in its process group."""
        process = self._processes.get(effect.replica)
        if process is None or not process.signal(effect.number):
            self._log.write(f"signal {effect.number} for {effect.replica} found no process")

    def _forget(self, name: ReplicaId) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.close()

    def drop(self, effect: events.DropReplica) -> None:
        """Close the links to a replica's process."""
        link = self._links.pop(effect.replica, None)
        if link is not None:
            for source in link.sockets.values():
                self._sources.deafen(source)
            link.close()

    def pass_on(self, effect: events.ToReplica) -> None:
        """Send a replica a client's message.

        Whether its process is dead is asked before that: what dies after it may have begun the execution.
        """
        link = self._links.get(effect.replica)
        process = self._processes.get(effect.replica)
        too_late = bool(effect.msg_id) and process is not None and process.is_over()
        if link is None or not self._send(link.to(effect.channel), effect.frames):
            self._log.write(
                f"a message for {effect.replica} could not be sent ({effect.channel})", shown=True
            )
        if too_late:
            self._feed(events.Undelivered(effect.replica, effect.msg_id))

    def _take(self, name: ReplicaId, link: ReplicaLink, channel: ReplicaChannel, frames: list[bytes]) -> None:
        try:
            message = read_replica(name, channel, frames)
        except WireError as error:
            self._log.write(f"{error}; it was dropped ({name}, {channel})")
            return
        if channel == "iopub" or message.msg_type == "execute_reply":
            link.took(message.frames[2], reply=message.channel != "iopub")
        self._feed(message)

    def close(self) -> None:
        """Close all links."""
        for name in list(self._links):
            self.drop(events.DropReplica(name))
        for name in list(self._processes):
            self._forget(name)
