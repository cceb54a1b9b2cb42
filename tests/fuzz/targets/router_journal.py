"""What a router writes down of a kernel's output, and reads when it takes over; what it tells pages of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from replkernel.router.core.journal import Journal
from replkernel.router.core.journal_notes import AnyNote, Message, read_messages, write_message
from replkernel.router.core.wire import DELIMITER, Gate, Signer, WireError
from replkernel.router.io.journal_disk import JournalDisk
from replkernel.router.io.telling import Telling
from tests.fuzz.examples import packed
from tests.fuzz.pieces import cut, filled, joined
from tests.fuzz.targets.router import ANSWERS, _json

NOTES, MESSAGES, OUTPUT, QUESTION = range(4)
HEADER = b'{"msg_id": "m", "msg_type": "execute_request", "session": "s"}'
DIRECTORY = Path(tempfile.gettempdir()) / f"replkernel-fuzz-outputs-{os.getpid()}"


def seeds() -> list[bytes]:
    """Return notes, messages and questions."""
    notes = b"".join(len(note).to_bytes(4, "big") + note for note in packed(AnyNote))
    outputs = [Message(kind, b"{}", b"{}", _json(content)) for kind, content in ANSWERS.items()]
    messages = b"".join(piece for output in outputs for piece in write_message(output))
    asked = (b'{"since": 0, "msg_ids": ["m"]}', b'{"since": 0}', b'{"msg_ids": ["m"]}')
    told = [joined(OUTPUT, output.kind.encode(), output.content) for output in outputs]
    told += [joined(QUESTION, question) for question in asked]
    return [*told, joined(NOTES, notes, messages), joined(MESSAGES, messages)]


def fuzz(data: bytes) -> None:
    """Have a router go on from the pieces, or keep and tell them."""
    number, pieces = cut(data)
    match number % 4:
        case 0:
            _load(*filled(pieces, 2))
        case 1:
            for _ in read_messages(filled(pieces, 1)[0]):
                pass
        case 2:
            _publish(pieces)
        case _:
            _ask(pieces)


def _begun() -> tuple[Journal, JournalDisk]:
    disk = JournalDisk(DIRECTORY, _complain)
    disk.clear()
    journal = Journal(1)
    gate = Gate(Signer(b"", "hmac-sha256"))
    try:
        journal.accept(gate.read("shell", [b"c", DELIMITER, b"", HEADER, b"{}", b"{}", b"{}"]))
    except WireError as error:  # It is no input of ours.
        raise AssertionError from error
    return journal, disk


def _complain(why: str) -> None:
    raise AssertionError(why)


def _load(notes: bytes, messages: bytes) -> None:
    disk = JournalDisk(DIRECTORY, _complain)
    disk.clear()
    DIRECTORY.mkdir(exist_ok=True)
    (DIRECTORY / "notes.jrnl").write_bytes(notes)
    for part in (1, 2):
        (DIRECTORY / f"1.{part}.jrnl").write_bytes(messages)
    journal = Journal(1)
    try:
        disk.load(journal)
        journal.check_invariants()
        Telling(journal, disk).answer("replkernel_outputs_request", b'{"since": 0}')
    finally:
        disk.close()


def _publish(pieces: list[bytes]) -> None:
    journal, disk = _begun()
    try:
        for kind, content in zip(pieces[0::2], pieces[1::2], strict=False):
            journal.publish("m", Message(kind.decode("utf-8", "replace"), b"{}", b"{}", content))
        journal.check_invariants()
        Telling(journal, disk).answer("replkernel_outputs_request", b'{"since": 0}')
    finally:
        disk.close()


def _ask(pieces: list[bytes]) -> None:
    journal, disk = _begun()
    try:
        telling = Telling(journal, disk)
        for piece in pieces[:4]:
            telling.answer("replkernel_outputs_request", piece)
            telling.answer("replkernel_outputs_saved", piece)
    finally:
        disk.close()
