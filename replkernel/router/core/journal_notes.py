"""What the journal writes: notes on executions in one file, their messages in parts of their own.

Pure. Law: a reader takes whole notes and messages only; what a killed router left half written ends the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from replkernel.errors import UNREADABLE
from replkernel.leasing.request import GpuRequest
from replkernel.leasing.wire import GrantedLease

_LENGTH = struct.Struct(">I")
_MESSAGE = struct.Struct(">BBHIII")
BUFFERS_MAX = 0xFFFF
"""A message of more buffers cannot be written."""
MISSED = 1
"""The flag of a message that its client may not have seen."""

KINDS = (
    "stream",
    "display_data",
    "update_display_data",
    "execute_result",
    "error",
    "clear_output",
    "status",
    "execute_input",
    "comm_open",
    "comm_msg",
    "comm_close",
    "",
)
"""The types of message as they are numbered on disk; the last stands for all others."""
_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}


class Note(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The base of the notes: each is of one execution, by its number; number 0 is no execution's."""

    number: int


class Accepted(Note, frozen=True):
    """An execution was asked for; `frames` are the client's, identities first; none where they are large."""

    msg_id: str
    session: str
    client: str
    cell_id: str
    code_digest: str
    header: bytes
    frames: list[bytes]


class Given(Note, frozen=True):
    """A replica's process, named by its address, is about to be sent the execution."""

    replica: str
    process: str
    seq: int
    fence: int
    at: float
    lease: GrantedLease | None = None
    had: GpuRequest | None = None


class PageGiven(Note, frozen=True):
    """A replica's process is about to be sent a page's message as an execution; of no client's execution."""

    replica: str
    process: str
    seq: int
    fence: int


class TakenBack(Note, frozen=True):
    """The process that the execution was given to was dead, or declined it: it has not begun, and waits.

    `begun`: clients have seen `busy` of it. `ends` is the replica, and the address of its process, that has
    sent it back to end for another one; empty when none has.
    """

    begun: bool = False
    ends: tuple[str, str] = ("", "")


class Counted(Note, frozen=True):
    """The execution got its number in the notebook."""

    execution_count: int


class Displayed(Note, frozen=True):
    """The execution holds a display that others may update."""

    display_id: str


class Cut(Note, frozen=True):
    """A part from the middle of the execution's messages was given up."""

    part: int
    size: int


class Missing(Note, frozen=True):
    """The execution's client may not have seen its messages with the flag MISSED."""


class Seen(Note, frozen=True):
    """The execution's client has now been sent what it missed."""


class Resent(Note, frozen=True):
    """Somebody who came back has been sent what was missed up to this place: a part, and where it was."""

    part: int
    at: int


class Ended(Note, frozen=True):
    """The execution was answered; content and metadata are the reply's, empty where they are large."""

    state: Literal["ok", "error", "lost"]
    execution_count: int | None
    at: float
    content: bytes
    metadata: bytes


class Replied(Note, frozen=True):
    """The execution's reply was on its way to its client, whose connection was there."""


class Idled(Note, frozen=True):
    """The status that closes the execution was published."""


class Listening(Note, frozen=True):
    """So many subscribers listen; of no execution."""

    count: int


class Dropped(Note, frozen=True):
    """Nothing of the execution is kept any more."""


AnyNote: TypeAlias = (
    Accepted
    | Given
    | PageGiven
    | TakenBack
    | Counted
    | Displayed
    | Cut
    | Missing
    | Seen
    | Resent
    | Ended
    | Replied
    | Idled
    | Listening
    | Dropped
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(AnyNote)


class Message(msgspec.Struct, frozen=True, array_like=True):
    """A message of an execution, but for its parent, which is the execution's header."""

    kind: str
    header: bytes
    metadata: bytes
    content: bytes
    buffers: Sequence[bytes] = ()
    missed: bool = False

    @property
    def size(self) -> int:
        """Return how many bytes the message takes on disk."""
        fixed = _MESSAGE.size + 4 * len(self.buffers)
        return fixed + len(self.header) + len(self.metadata) + len(self.content) + sum(map(len, self.buffers))


def write_note(note: AnyNote) -> bytes:
    """Return a note's bytes."""
    body = _encoder.encode(note)
    return _LENGTH.pack(len(body)) + body


def read_notes(data: bytes) -> Iterator[AnyNote]:
    """Return the notes in `data`, up to the first that is not whole or cannot be read."""
    at = 0
    while at + _LENGTH.size <= len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if at + size > len(data):
            return
        try:
            yield _decoder.decode(memoryview(data)[at : at + size])
        except UNREADABLE:
            return
        at += size


def write_message(message: Message) -> list[bytes]:
    """Return a message's bytes, its frames as they are."""
    buffers = message.buffers
    head = _MESSAGE.pack(
        _NUMBERS.get(message.kind, len(KINDS) - 1),
        MISSED if message.missed else 0,
        len(buffers),
        len(message.header),
        len(message.metadata),
        len(message.content),
    )
    if not buffers:
        return [head, message.header, message.metadata, message.content]
    sizes = struct.pack(f">{len(buffers)}I", *map(len, buffers))
    return [head, sizes, message.header, message.metadata, message.content, *buffers]


def read_messages(data: bytes, at: int = 0) -> Iterator[tuple[Message, int]]:
    """Return the messages in `data` from `at` on, each with where the next one begins."""
    while at + _MESSAGE.size <= len(data):
        number, flags, buffers, *fixed = _MESSAGE.unpack_from(data, at)
        at += _MESSAGE.size
        if at + 4 * buffers > len(data) or number >= len(KINDS):
            return
        sizes = [*fixed, *struct.unpack_from(f">{buffers}I", data, at)]
        at += 4 * buffers
        if at + sum(sizes) > len(data):
            return
        frames = []
        for size in sizes:
            frames.append(data[at : at + size])
            at += size
        header, metadata, content, *rest = frames
        yield Message(KINDS[number], header, metadata, content, tuple(rest), bool(flags & MISSED)), at
