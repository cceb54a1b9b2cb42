"""What leaves for a client is in the journal before that: who takes over says nothing twice."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from replkernel.records import KernelId
from replkernel.router.core import events
from replkernel.router.core.journal import Journal
from replkernel.router.core.replay import Audience
from replkernel.router.core.wire import DELIMITER, Builder, Signer, pack
from replkernel.router.io.client_output import ClientOutput
from replkernel.router.io.connection import Ports
from replkernel.router.io.journal_disk import JournalDisk
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


@pytest.mark.parametrize("content", [{"status": "ok", "execution_count": 1}, {"status": "error"}])
def test_a_reply_is_written_before_it_is_sent(content: dict[str, Any]) -> None:
    journal, asked = Journal(0), request("1")
    client = Client(journal)
    client_output = ClientOutput(
        cast("Ports", SimpleNamespace(sockets={"shell_port": client, "iopub_port": client})),
        Builder(Signer(b"key", "hmac-sha256"), "user", "session"),
        journal,
        cast("JournalDisk", Memory()),
        Audience(time.monotonic()),
        lambda socket: None,
        KernelId("k"),
    )
    client_output.accept(events.Accepted(asked))
    header = pack({"msg_id": "r", "msg_type": "execute_reply"})
    body = [DELIMITER, b"signature", header, asked.header_frame, b"{}", pack(content)]
    client_output.pass_to_client(events.PassToClient("shell", [b"s", *body], "execute_reply", "1"))
    assert client.sent == [b"s", *body]
    assert client.unwritten == []
