"""The way out to the clients: every message for them passes here, is kept in the journal, and is sent.

Law: what is sent to all is sent at once; what a client missed is sent to those who came since, and to nobody
twice; a reply that has no way to its client waits for it.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

import msgspec
import zmq

from replkernel.errors import UNREADABLE
from replkernel.protocol.message_session import message_session
from replkernel.records import KernelId
from replkernel.router.core import events
from replkernel.router.core.journal import Journal, client_of
from replkernel.router.core.journal_notes import Message
from replkernel.router.core.kept import Receiver
from replkernel.router.core.replay import Audience, Publication, is_detached
from replkernel.router.core.wire import DELIMITER, Builder, parent_of
from replkernel.router.io.connection import Ports
from replkernel.router.io.journal_disk import JournalDisk
from replkernel.router.io.links import Socket, send
from replkernel.router.io.telling import SAVED, Telling

REPLIES_MAX = 1000
REPLY_BYTES_MAX = 16 * 1024 * 1024
RETRY_S = 0.5
"""How often a reply is tried that had no way to its client."""
_PRIVATE = b"\0"
"""The first byte of the topics by which single subscribers are reached; no other topic begins with it."""
_PUBLIC = tuple(bytes([first]) for first in range(1, 256))


class _Stream(msgspec.Struct):
    """The content of a stream message."""

    name: str
    text: str


_streams = msgspec.json.Decoder(_Stream)


class ClientOutput:
    """Sends to the clients of one kernel. `used` is told of every socket that something was sent on."""

    def __init__(
        self,
        ports: Ports,
        builder: Builder,
        journal: Journal,
        disk: JournalDisk,
        audience: Audience,
        used: Callable[[Socket], None],
        kernel_id: KernelId,
    ) -> None:
        self._ports = ports
        self._builder = builder
        self._journal = journal
        self._disk = disk
        self._audience = audience
        self._telling = Telling(journal, disk)
        self._used = used
        self._kernel_id = kernel_id
        self._topic = b"kernel." + os.urandom(8).hex().encode() + b"."
        self._replies: OrderedDict[str, list[bytes]] = OrderedDict()
        """Replies that had no way to their clients, by their requests."""
        self._reply_bytes = 0
        self._retry_at = 0.0
        self._known: set[bytes] = set()
        """Headers of messages that the router before this one published: a process may send them again."""

    def speak_for(self, effect: events.SpeakFor) -> None:
        """Send our own messages under the session of another incarnation from now on."""
        self._builder.session = message_session(self._kernel_id, effect.incarnation)

    def know(self, headers: Iterable[bytes]) -> None:
        """Know messages by their headers that are not to be published again."""
        self._known.update(headers)

    # -- what clients do ----------------------------------------------------------------------------

    def subscription(self, frame: bytes, now: float) -> bytes | None:
        """Take a subscriber's coming or going; return the topic that reaches a new one, None for others.

        It must be answered before the next one is read: ZMQ knows the subscriber only until then.
        """
        topic = frame[1:]
        if frame[:1] == b"\0":
            if not topic:
                self._audience.left(now)
                self._journal.listening(self._audience.listeners)
            return None
        if frame[:1] != b"\x01":
            return None
        socket = self._ports.sockets["iopub_port"]
        if topic:
            socket.setsockopt(zmq.SUBSCRIBE, topic)
            return topic
        number, public = self._audience.joined(now)
        self._journal.listening(self._audience.listeners)
        way = _way(number)
        for prefix in (*(_PUBLIC if public else ()), way):
            socket.setsockopt(zmq.SUBSCRIBE, prefix)
        return way

    def heard(self, request: events.ClientRequest, connection: int | None, now: float) -> None:
        """Take note that a client is there; `connection` is its own to the shell port."""
        client = client_of(request)
        named = client == request.header.session != ""
        self._audience.heard(client, now, named=named, connection=connection)
        if self._replies and request.channel == "shell":
            self._retry_at = now

    def dropped(self, connection: int, now: float) -> None:
        """Take note that a client's connection ended."""
        self._audience.dropped(connection, now)

    # -- executions ---------------------------------------------------------------------------------

    def accept(self, effect: events.Accepted) -> None:
        """Keep an execution that was asked for."""
        self._journal.accept(effect.request)

    def give(self, effect: events.Given) -> None:
        """Keep that an execution is about to be sent to a replica: written before it is."""
        to = Receiver(effect.replica, effect.process, effect.seq, effect.fence, effect.lease, effect.had)
        self._journal.give(effect.msg_id, to, time.time())
        self._disk.write(self._journal)

    def give_page(self, effect: events.PageGiven) -> None:
        """Keep that a page's message is about to be sent as an execution: written before it is."""
        self._journal.give_page(effect.replica, effect.process, effect.seq, effect.fence)
        self._disk.write(self._journal)

    def take_back(self, effect: events.TakenBack) -> None:
        """Keep at once that an execution waits again: until then the next router takes it for begun."""
        self._journal.take_back(effect.msg_id, begun=effect.begun, ends=effect.ends)
        self._disk.write(self._journal)

    def ask(self, effect: events.AskJournal) -> None:
        """Answer a question for the journal; no status goes with it, for the kernel does nothing."""
        request = effect.request
        content = self._telling.answer(request.header.msg_type, request.content)
        if request.header.msg_type == SAVED:
            self._audience.keep_only(lambda msg_id: self._journal.find(msg_id) is not None)
        msg_type = request.header.msg_type.removesuffix("_request") + "_reply"
        frames = self._builder.build(msg_type, request.header_frame, content)
        self._send(f"{request.channel}_port", [*request.identities, *frames])

    def built(self, effect: events.AnswerReplica) -> list[bytes]:
        """Return the frames of the router's own answer to a kernel process."""
        return self._builder.build(effect.msg_type, effect.parent, effect.content)

    # -- to one client ------------------------------------------------------------------------------

    def pass_to_client(self, effect: events.PassToClient) -> None:
        """Send a replica's message to a client."""
        if effect.msg_type != "execute_reply":
            self._send(f"{effect.channel}_port", effect.frames)
            return
        body = effect.frames[effect.frames.index(DELIMITER) :]
        kept = self._journal.find(effect.parent_id)
        if kept is not None and kept.answer == (body[5], body[4]):
            return
        self._journal.answer(effect.parent_id, body[5], body[4], time.time())
        self._reply(effect.parent_id, effect.frames)

    def answer(self, effect: events.Answer) -> None:
        """Send a client a reply of the router's own."""
        frames = self._builder.build(effect.msg_type, effect.parent, effect.content, effect.metadata)
        frames = [*effect.identities, *frames]
        if effect.msg_type != "execute_reply":
            self._send(f"{effect.channel}_port", frames)
            return
        parent_id = parent_of(effect.parent)
        self._journal.answer(parent_id, effect.content, effect.metadata, time.time())
        self._reply(parent_id, frames)

    def _reply(self, msg_id: str, frames: list[bytes]) -> None:
        self._write()  # Before it is sent: a cell whose reply is not found is gone on with.
        kept = self._journal.find(msg_id)
        if self._send("shell_port", frames) or (kept is not None and is_detached(kept.client)):
            self._journal.replied(msg_id)
            return
        self._journal.missing(msg_id)
        self.hold(msg_id, frames)

    def hold(self, msg_id: str, frames: list[bytes]) -> None:
        """Keep a reply until there is a way to its client."""
        self._replies[msg_id] = frames
        self._reply_bytes += sum(map(len, frames))
        while len(self._replies) > REPLIES_MAX or self._reply_bytes > REPLY_BYTES_MAX:
            self._reply_bytes -= sum(map(len, self._replies.popitem(last=False)[1]))

    def _retry(self, now: float) -> None:
        """Send the replies that have a way again."""
        self._retry_at = now + RETRY_S
        for msg_id, frames in list(self._replies.items()):
            if self._send("shell_port", frames):
                del self._replies[msg_id]
                self._reply_bytes -= sum(map(len, frames))
                self._journal.replied(msg_id)
                kept = self._journal.find(msg_id)
                if kept is not None and not self._audience.owes(kept.client):
                    self._journal.seen(msg_id)

    # -- to all -------------------------------------------------------------------------------------

    def pass_to_iopub(self, effect: events.PassToIopub) -> None:
        """Publish a replica's message as it came."""
        self._publish(effect.frames, effect.msg_type, effect.parent_id)

    def publish(self, effect: events.Publish) -> None:
        """Publish a message of the router's own making, or send it to the one subscriber of its topic."""
        frames = self._builder.build(effect.msg_type, effect.parent, effect.content)
        topic = self._topic + effect.msg_type.encode() if effect.topic is None else effect.topic
        frames = [topic, *frames] if topic else frames
        if effect.msg_type == "iopub_welcome" or topic[:1] == _PRIVATE:
            self._send("iopub_port", frames)
        else:
            self._publish(frames, effect.msg_type, parent_of(effect.parent))

    def _publish(self, frames: list[bytes], kind: str, parent_id: str) -> None:
        if frames[0][:1] in (b"", _PRIVATE):
            frames = [b"-", *frames[frames.index(DELIMITER) :]]
        kept = self._journal.find(parent_id)
        if kept is None and not self._audience.divided:
            self._send("iopub_port", frames)
            return
        missed = kept is not None and self._audience.may_miss(kept.client)
        body = frames[frames.index(DELIMITER) :]
        if kept is not None:
            if self._known and body[2] in self._known:
                return
            message = Message(kind, body[2], body[4], body[5], body[6:], missed)
            self._journal.publish(parent_id, message)
            self._write()  # Before it is seen: what the next router does not find here, it publishes again.
        self._send("iopub_port", frames)
        client, place = ("", (0, 0)) if kept is None else (kept.client, kept.place)
        publication = Publication(body, kind, parent_id, client, place)
        late = self._audience.published(publication, time.monotonic(), missed=missed)
        for number in late:
            self._send("iopub_port", [_way(number), *body])
        if missed and (late or self._audience.complete):
            self._journal.resent(parent_id, place)

    # -- what is sent again -------------------------------------------------------------------------

    def turn(self, now: float) -> None:
        """End a turn of the loop: write what is to be written, send again what is due."""
        self._write()
        due = self.deadline()
        if due is None or due > now:
            return
        for number, publications in self._audience.advance(now):
            for body in self._merged(publications):
                self._send("iopub_port", [_way(number), *body])
            for publication in publications:
                self._journal.resent(publication.parent_id, publication.place)
            self._write()
        for msg_id in self._audience.settle(now):
            if msg_id not in self._replies:
                self._journal.seen(msg_id)
        if self._replies and self._retry_at <= now:
            self._retry(now)

    def _write(self) -> None:
        if self._journal.pending:
            self._disk.write(self._journal)

    def deadline(self) -> float | None:
        """Return when `turn` has something to do beside writing."""
        due = self._audience.deadline()
        if not self._replies:
            return due
        return self._retry_at if due is None else min(due, self._retry_at)

    def _merged(self, publications: list[Publication]) -> list[list[bytes]]:
        """Return the messages of a portion, streams next to each other as one, signed anew."""
        bodies: list[list[bytes]] = []
        texts: list[str] = []
        before: tuple[str, str] | None = None
        for publication in publications:
            stream = _read_stream(publication)
            mark = None if stream is None else (publication.parent_id, stream.name)
            if mark is None or mark != before:
                self._finish(bodies, texts, before)
                bodies.append(publication.frames)
                texts = []
            if stream is not None:
                texts.append(stream.text)
            before = mark
        self._finish(bodies, texts, before)
        return bodies

    def _finish(self, bodies: list[list[bytes]], texts: list[str], mark: tuple[str, str] | None) -> None:
        """Make the last message one of all the texts that followed each other."""
        if mark is not None and len(texts) > 1:
            content = msgspec.json.encode(_Stream(mark[1], "".join(texts)))
            bodies[-1] = self._builder.sign([*bodies[-1][2:5], content])

    def _send(self, port: str, frames: list[bytes]) -> bool:
        socket = self._ports.sockets[port]
        sent = send(socket, frames)
        self._used(socket)
        return sent

    def close(self) -> None:
        """Write what is left and close the journal."""
        self._disk.write(self._journal)
        self._disk.close()


def _way(number: int) -> bytes:
    """Return the topic that reaches one subscriber."""
    return b"%b%d." % (_PRIVATE, number)


def _read_stream(publication: Publication) -> _Stream | None:
    if publication.kind != "stream":
        return None
    try:
        return _streams.decode(publication.frames[5])
    except UNREADABLE:
        return None
