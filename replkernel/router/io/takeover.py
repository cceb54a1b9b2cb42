"""What the router before this one left in the journal: answers, what runs, what waited, what was missed.

Law: an execution that had been given to a replica is never given to another, unless that one is known not to
have begun it (`TakenBack`); one that had not is run in its turn, as if nothing had happened.
"""

from __future__ import annotations

import time

from replkernel.records import Fence, ReplicaId, Seq
from replkernel.router.core import answers, events
from replkernel.router.core.answers import Fault
from replkernel.router.core.journal import Journal
from replkernel.router.core.kept import Kept
from replkernel.router.core.replay import Audience, Publication
from replkernel.router.core.waiting_cell import display_of
from replkernel.router.core.wire import Builder, Gate, WireError, pack, unpack
from replkernel.router.io.client_output import ClientOutput
from replkernel.router.io.journal_disk import JournalDisk

RECENT_S = 60.0
"""Of executions that ended longer ago, no process sends anything again to a router that takes over."""
NOT_BEGUN = Fault(
    "RouterLost", "this kernel's router was killed before the cell was begun; it has not run: run it again"
)


class Takeover:
    """Continues one kernel's journal."""

    def __init__(
        self,
        journal: Journal,
        disk: JournalDisk,
        builder: Builder,
        audience: Audience,
        client_output: ClientOutput,
    ) -> None:
        self._journal = journal
        self._disk = disk
        self._builder = builder
        self._audience = audience
        self._client_output = client_output

    def begin(self, gate: Gate, *, continues: bool) -> list[events.Event]:
        """Continue the journal, or begin an empty one; return what the router is to know before all else."""
        if not continues:
            self._disk.clear()
            return []
        self._disk.load(self._journal)
        executions = self._journal.executions()
        self._audience.expect(self._journal.listeners, {kept.client for kept in executions})
        found: list[events.Event] = []
        for kept in executions:
            if kept.ended is None or kept.ended > time.time() - RECENT_S:
                self._client_output.know(message.header for _, _, message in self._disk.messages(kept))
            if kept.misses:
                self._restore(kept)
            found += self._answered(kept) if kept.over else self._unfinished(kept, gate)
        page = self._journal.page
        if page is not None:
            seq, fence = Seq(page.seq), Fence(page.fence)
            found.append(events.PageGiven(ReplicaId(page.replica), page.process, seq, fence))
        return found

    def _answered(self, kept: Kept) -> list[events.Event]:
        if kept.answer is None or not kept.answer[0]:
            return []
        header = events.Header(kept.msg_id, "execute_request", kept.session)
        to, count = kept.given, kept.execution_count or 0
        if to is None:
            return [events.Answered(header, *kept.answer, None, kept.idle, count=count)]
        answer, metadata = kept.answer
        replica, seq, fence = ReplicaId(to.replica), Seq(to.seq), Fence(to.fence)
        return [
            events.Answered(
                header, answer, metadata, replica, kept.idle, to.process, seq, fence, count, to.lease
            )
        ]

    def _unfinished(self, kept: Kept, gate: Gate) -> list[events.Event]:
        request = self._request(kept, gate)
        to = kept.given
        if to is not None:
            shown = kept.execution_count is not None
            replica, seq, fence = ReplicaId(to.replica), Seq(to.seq), Fence(to.fence)
            count = kept.execution_count or 0
            return [
                events.Resumed(
                    request, replica, to.process, seq, fence, shown, count, to.lease, kept.idle, to.had
                )
            ]
        if kept.frames:
            line = display_of(kept.msg_id) in kept.displays
            return [events.Waited(request, line, kept.ends) if line or kept.begun else request]
        self._give_up(kept)
        return []

    def _request(self, kept: Kept, gate: Gate) -> events.ClientRequest:
        """Return the request of an execution; one that was too large to be kept has no code."""
        try:
            return gate.read("shell", kept.frames)
        except WireError:
            body = self._builder.sign([kept.header, b"{}", b"{}", b"{}"])
            return gate.read("shell", [kept.client.encode("latin-1"), *body])

    def _give_up(self, kept: Kept) -> None:
        """End an execution that waited and whose request was too large to be kept."""
        content = pack({"status": "error", **NOT_BEGUN.content()})
        self._journal.end(kept.msg_id, "lost", time.time())
        self._hold_reply(kept, content, b"{}")
        for msg_type, told in (("error", pack(NOT_BEGUN.content())), ("status", answers.IDLE)):
            self._client_output.publish(events.Publish(msg_type, kept.header, told))

    def _restore(self, kept: Kept) -> None:
        """Have what the client of an execution missed wait for it."""
        for part, end, message in self._disk.messages(kept):
            if message.missed and (part, end) > kept.resent:
                body = self._builder.sign(
                    [message.header, kept.header, _again(message.metadata), message.content, *message.buffers]
                )
                missed = Publication(body, message.kind, kept.msg_id, kept.client, (part, end))
                self._audience.missed(missed)
        if kept.over and not kept.replied and kept.answer is not None and kept.answer[0]:
            self._hold_reply(kept, *kept.answer)

    def _hold_reply(self, kept: Kept, content: bytes, metadata: bytes) -> None:
        frames = self._builder.build("execute_reply", kept.header, content, metadata)
        self._client_output.hold(kept.msg_id, [kept.client.encode("latin-1"), *frames])


def _again(metadata: bytes) -> bytes:
    """Return a message's metadata with a mark.

    A router that was killed right after it had sent the message could not note that: a client that has it
    takes one of the same signature for an attack.
    """
    return pack({**unpack(metadata), "replkernel_again": True})
