"""The output journal without a disk, and requests as clients send them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from replkernel.router.core.events import ClientRequest, Header
from replkernel.router.core.journal import Append, Journal, Remove
from replkernel.router.core.journal_notes import Message, read_messages, write_message
from replkernel.router.core.kept import Kept


class Memory:
    """The journal's disk, in memory."""

    def __init__(self) -> None:
        self.parts: dict[tuple[int, int], bytes] = {}

    def write(self, journal: Journal) -> None:
        """Write what is pending."""
        for write in journal.pending:
            if isinstance(write, Append):
                key = (write.number, write.part)
                self.parts[key] = self.parts.get(key, b"") + b"".join(write_message(write.message))
            elif isinstance(write, Remove):
                del self.parts[write.number, write.part]
        journal.pending = []

    def messages(self, kept: Kept, part: int = 0, at: int = 0) -> Iterator[tuple[int, int, Message]]:
        """Return an execution's messages from a place on."""
        for stretch in kept.parts:
            if stretch.number >= part:
                start = at if stretch.number == part else 0
                for message, end in read_messages(self.parts[kept.number, stretch.number], start):
                    yield stretch.number, end, message


def request(msg_id: str, code: str = "pass", *, silent: bool = False) -> ClientRequest:
    """Return an execute_request."""
    header = json.dumps({"msg_id": msg_id, "msg_type": "execute_request", "session": "s"}).encode()
    metadata, content = (
        json.dumps({"cellId": f"cell {msg_id}"}).encode(),
        json.dumps({"code": code, "silent": silent}).encode(),
    )
    frames = [b"<IDS|MSG>", b"sig", header, b"{}", metadata, content]
    return ClientRequest("shell", (b"s",), Header(msg_id, "execute_request", "s"), header, content, frames)
