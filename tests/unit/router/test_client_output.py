"""What leaves for a client is in the journal before that: who takes over says nothing twice."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from replkernel.records import KernelId
from replkernel.router.core import events
from replkernel.router.core.journal import Journal
from replkernel.router.core.replay import Audience
from replkernel.router.core.wire import DELIMITER, Builder, Signer, pack
from replkernel.router.io.client_output import ClientOutput
from replkernel.router.io.connection import Ports
from replkernel.router.io.journal_disk import JournalDisk
from replkernel.router.io.telling import SAVED
from tests.support.journal_memory import Memory, request


class Client:
    """A socket that takes note of what the journal's disk did not have yet when it was sent something."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.sent: list[bytes] = []
        self.unwritten: list[Any] = []

    def send(self, frame: bytes, _flags: int, _copy: bool) -> None:
        """Take one frame."""
        self.sent.append(frame)
        self.unwritten += self._journal.pending


def client_output_of(journal: Journal, client: Client, audience: Audience) -> ClientOutput:
    """Return the way to a client."""
    return ClientOutput(
        cast(
            "Ports",
            SimpleNamespace(sockets={f"{name}_port": client for name in ("shell", "control", "iopub")}),
        ),
        Builder(Signer(b"key", "hmac-sha256"), "user", "session"),
        journal,
        cast("JournalDisk", Memory()),
        audience,
        lambda socket: None,
        KernelId("k"),
    )


def test_a_closed_page_misses_nothing_that_a_saved_notebook_holds() -> None:
    journal, audience = Journal(0), Audience(time.monotonic())
    client = Client(journal)
    client_output = client_output_of(journal, client, audience)
    cell = request("1")
    client_output.accept(events.Accepted(cell))
    client_output.publish(events.Publish("stream", cell.header_frame, pack({"name": "stdout", "text": "x"})))
    client_output.publish(events.Publish("status", cell.header_frame, pack({"execution_state": "idle"})))
    client_output.answer(
        events.Answer("shell", (b"s",), "execute_reply", cell.header_frame, pack({"status": "ok"}))
    )
    missed_by = journal.executions()[0].client
    assert audience.owes(missed_by)
    saved = msgspec.structs.replace(
        request("2"),
        channel="control",
        header=events.Header("2", SAVED, "s"),
        content=pack({"msg_ids": ["1"]}),
    )
    client_output.ask(events.AskJournal(saved))
    assert not audience.owes(missed_by)


@pytest.mark.parametrize("content", [{"status": "ok", "execution_count": 1}, {"status": "error"}])
def test_a_reply_is_written_before_it_is_sent(content: dict[str, Any]) -> None:
    journal, asked = Journal(0), request("1")
    client = Client(journal)
    client_output = client_output_of(journal, client, Audience(time.monotonic()))
    client_output.accept(events.Accepted(asked))
    header = pack({"msg_id": "r", "msg_type": "execute_reply"})
    body = [DELIMITER, b"signature", header, asked.header_frame, b"{}", pack(content)]
    client_output.pass_to_client(events.PassToClient("shell", [b"s", *body], "execute_reply", "1"))
    assert client.sent == [b"s", *body]
    assert client.unwritten == []
