"""One execution in the journal: whose it is, how it stands, and where its messages lie.

Pure. Law: the notes that were written of an execution make it what it is, whoever reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from replkernel.leasing.request import GpuRequest
from replkernel.leasing.wire import GrantedLease
from replkernel.router.core import journal_notes as notes
from replkernel.router.core.journal_notes import AnyNote

Outcome: TypeAlias = Literal["ok", "error", "lost"]
State: TypeAlias = Literal["waiting", "running"] | Outcome


class Receiver(msgspec.Struct, frozen=True):
    """Who is sent an execution: a replica, the address of its process, and what goes along.

    That is the execution's number and fence, and the lease on its GPUs, or what it `had` as it was paused.
    """

    replica: str
    process: str
    seq: int
    fence: int
    lease: GrantedLease | None = None
    had: GpuRequest | None = None


@dataclass(slots=True)
class Part:
    """A stretch of an execution's messages."""

    number: int
    size: int = 0


@dataclass(slots=True)
class Kept:
    """One execution: whose it is, how it stands, and where its messages lie.

    `frames` are the whole request until it is answered, for a router that takes over.
    """

    number: int
    msg_id: str
    session: str
    client: str
    cell_id: str
    code_digest: str
    header: bytes
    version: int
    frames: list[bytes] = field(default_factory=list)
    given: Receiver | None = None
    state: State = "waiting"
    execution_count: int | None = None
    started: float | None = None
    ended: float | None = None
    parts: list[Part] = field(default_factory=list)
    left_out: int = 0
    misses: bool = False
    resent: tuple[int, int] = (0, 0)
    """Up to which place, a part and where in it, what was missed has been sent again."""
    idle: bool = False
    begun: bool = False
    """Whether clients have seen `busy` of an execution that waits."""
    ends: tuple[str, str] = ("", "")
    """The replica, and its process's address, that sent it back to end for another one."""
    displays: set[str] = field(default_factory=set)
    answer: tuple[bytes, bytes] | None = None
    replied: bool = False

    @property
    def over(self) -> bool:
        """Tell whether the execution has been answered, or never will be."""
        return self.state not in ("waiting", "running")

    @property
    def place(self) -> tuple[int, int]:
        """Return where its messages end: a part, and how long that is."""
        return (self.parts[-1].number, self.parts[-1].size) if self.parts else (0, 0)

    @property
    def size(self) -> int:
        """Return how many bytes of messages are kept."""
        return sum(part.size for part in self.parts)

    def take(self, note: AnyNote) -> None:
        """Let a note on the execution take effect."""
        match note:
            case notes.Given():
                self.given = Receiver(note.replica, note.process, note.seq, note.fence, note.lease, note.had)
                self.state, self.started = "running", note.at
            case notes.TakenBack():
                self.given, self.state, self.started = None, "waiting", None
                self.begun, self.ends = note.begun, note.ends
            case notes.Counted():
                self.execution_count = note.execution_count
            case notes.Displayed():
                self.displays.add(note.display_id)
            case notes.Cut():
                self.left_out += note.size
                self.parts = [part for part in self.parts if part.number != note.part]
            case notes.Missing():
                self.misses = True
            case notes.Seen():
                self.misses = False
            case notes.Resent():
                self.resent = (note.part, note.at)
            case notes.Idled():
                self.idle = True
            case notes.Replied():
                self.replied = True
            case notes.Ended():
                self.state, self.ended = note.state, note.at
                self.answer, self.frames = (note.content, note.metadata), []
                if note.execution_count is not None:
                    self.execution_count = note.execution_count

    def notes(self) -> list[AnyNote]:
        """Return the notes that make the execution what it is now."""
        number = self.number
        found: list[AnyNote] = [
            notes.Accepted(
                number,
                self.msg_id,
                self.session,
                self.client,
                self.cell_id,
                self.code_digest,
                self.header,
                self.frames,
            )
        ]
        if self.given is not None:
            to, at = self.given, self.started or 0.0
            found.append(notes.Given(number, to.replica, to.process, to.seq, to.fence, at, to.lease, to.had))
        elif self.begun:
            found.append(notes.TakenBack(number, self.begun, self.ends))
        if self.execution_count is not None:
            found.append(notes.Counted(number, self.execution_count))
        found += [notes.Displayed(number, display_id) for display_id in sorted(self.displays)]
        if self.left_out:
            found.append(notes.Cut(number, 0, self.left_out))
        if self.misses:
            found.append(notes.Missing(number))
        if self.resent > (0, 0):
            found.append(notes.Resent(number, *self.resent))
        if self.ended is not None and self.state != "waiting" and self.state != "running":
            content, metadata = self.answer or (b"", b"")
            found.append(notes.Ended(number, self.state, self.execution_count, self.ended, content, metadata))
        if self.replied:
            found.append(notes.Replied(number))
        if self.idle:
            found.append(notes.Idled(number))
        return found
