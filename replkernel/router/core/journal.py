"""The output journal: what each execution published, until a notebook that contains it has been saved.

Pure: what is to be written gathers in `pending`, for whoever owns the disk. Law: bounded in executions and
bytes; of a long output the beginning and the end are kept; versions only grow, so that whoever asks again is
told of what changed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from replkernel.errors import UNREADABLE
from replkernel.router.core import journal_notes as notes
from replkernel.router.core.comms import COMM_TYPES
from replkernel.router.core.contents import ExecuteOptions, ExecuteOutcome, read
from replkernel.router.core.events import ClientRequest
from replkernel.router.core.journal_notes import AnyNote, Message
from replkernel.router.core.kept import Kept, Outcome, Part, Receiver
from replkernel.router.core.outputs_fold import KINDS as OUTPUT_KINDS
from replkernel.router.core.outputs_fold import display_of
from replkernel.router.core.wire import pack, unpack

EXECUTION_BYTES_MAX = 16 * 1024 * 1024
PARTS_MAX = 4
"""An execution's messages lie in so many parts at most: the first two, and the last two."""
JOURNAL_BYTES_MAX = 64 * 1024 * 1024
EXECUTIONS_MAX = 1000
DISPLAYS_MAX = 10_000
REQUEST_BYTES_MAX = 1024 * 1024
"""A request up to this size is kept while it waits, so that the next router can still have it run."""
REPLY_BYTES_MAX = 64 * 1024
"""A reply up to this size is kept as it was; of a larger one, how the execution ended."""


class Append(msgspec.Struct, frozen=True):
    """Write a message at the end of a part of an execution."""

    number: int
    part: int
    message: Message


class Remove(msgspec.Struct, frozen=True):
    """Remove a part of an execution."""

    number: int
    part: int


Write: TypeAlias = Append | Remove | AnyNote


class _CellMetadata(msgspec.Struct, frozen=True):
    cellId: str = ""  # noqa: N815 (JupyterLab's name for it)


_cell_metadata = msgspec.json.Decoder(_CellMetadata)


class Journal:
    """The executions of one kernel whose outputs no notebook holds yet, oldest first."""

    def __init__(self, version: int) -> None:
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._numbers: dict[int, Kept] = {}
        self._holders: OrderedDict[str, set[str]] = OrderedDict()
        """Which executions hold a display."""
        self._next_number = 1
        self._version = version
        self.size = 0
        self.listeners = 0
        """How many listened when that was last noted."""
        self.page: notes.PageGiven | None = None
        """The last message of a page that was an execution."""
        self.pending: list[Write] = []

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, msg_id: str) -> Kept | None:
        """Return an execution that is kept."""
        return self._kept.get(msg_id)

    def executions(self) -> list[Kept]:
        """Return all executions that are kept, oldest first."""
        return list(self._kept.values())

    def listening(self, count: int) -> None:
        """Take note of how many subscribers listen: so many come back to the next router."""
        if count != self.listeners:
            self._write(notes.Listening(0, count))

    def give_page(self, replica: str, process: str, seq: int, fence: int) -> None:
        """Take note that a replica is about to be sent a page's message as an execution."""
        self._write(notes.PageGiven(0, replica, process, seq, fence))

    # -- what happens to an execution ---------------------------------------------------------------

    def accept(self, request: ClientRequest) -> None:
        """Take note of an execution that was asked for, unless it is a silent one."""
        options = read(ExecuteOptions, request.content)
        msg_id = request.header.msg_id
        if options.silent or msg_id in self._kept or not self._make_room():
            return
        frames = [*request.identities, *request.frames]
        self._write(
            notes.Accepted(
                number=self._next_number,
                msg_id=msg_id,
                session=request.header.session,
                client=client_of(request),
                cell_id=_cell_id(request.frames[4]),
                code_digest=options.code_digest,
                header=request.header_frame,
                frames=frames if sum(map(len, frames)) <= REQUEST_BYTES_MAX else [],
            )
        )

    def give(self, msg_id: str, to: Receiver, at: float) -> None:
        """Take note that a replica is about to be sent an execution; `at` is the wall clock's time."""
        kept = self._kept.get(msg_id)
        if kept is not None and not kept.over:
            place = (kept.number, to.replica, to.process, to.seq, to.fence, at)
            self._write(notes.Given(*place, to.lease, to.had))

    def take_back(self, msg_id: str, *, begun: bool = False, ends: bool = False) -> None:
        """Take note that whom an execution was given to never began it; `begun`: clients have seen `busy`.

        `ends`: that process ends for another one to take over.
        """
        kept = self._kept.get(msg_id)
        if kept is not None and not kept.over and kept.given is not None:
            by = (kept.given.replica, kept.given.process) if ends else ("", "")
            self._write(notes.TakenBack(kept.number, begun, by))

    def publish(self, msg_id: str, message: Message) -> None:
        """Take a message of an execution; a status is only kept for a client that missed it."""
        kept = self._kept.get(msg_id)
        if kept is None:
            return
        if message.missed:
            self.missing(msg_id)
        if message.kind in OUTPUT_KINDS:
            self._append(kept, message)
            if message.kind != "stream" and b'"display_id"' in message.content:
                self._follow_display(kept, message)
        elif message.missed or message.kind in COMM_TYPES:
            self._append(kept, message)
        if message.kind == "status":
            if not kept.idle and b'"idle"' in message.content:
                self._write(notes.Idled(kept.number))
        elif message.kind == "execute_input":
            count = read(ExecuteOutcome, message.content).execution_count
            if count is not None:
                self._write(notes.Counted(kept.number, count))

    def answer(self, msg_id: str, content: bytes, metadata: bytes, at: float) -> None:
        """Take note of an execution's reply."""
        outcome = read(ExecuteOutcome, content)
        if len(content) + len(metadata) > REPLY_BYTES_MAX:
            content, metadata = _short(outcome), b"{}"
        state: Outcome = "ok" if outcome.status == "ok" else "error"
        self.end(msg_id, state, at, outcome.execution_count, (content, metadata))

    def end(
        self,
        msg_id: str,
        state: Outcome,
        at: float,
        execution_count: int | None = None,
        answer: tuple[bytes, bytes] = (b"", b""),
    ) -> None:
        """Take note that an execution is over; what it was first is what counts."""
        kept = self._kept.get(msg_id)
        if kept is not None and not kept.over:
            self._write(notes.Ended(kept.number, state, execution_count, at, *answer))

    def replied(self, msg_id: str) -> None:
        """Take note that the reply of an execution was sent to a client that is there."""
        kept = self._kept.get(msg_id)
        if kept is not None and kept.over and not kept.replied:
            self._write(notes.Replied(kept.number))

    def missing(self, msg_id: str) -> None:
        """Take note that the client of an execution may not have seen all of it."""
        kept = self._kept.get(msg_id)
        if kept is not None and not kept.misses:
            self._write(notes.Missing(kept.number))

    def seen(self, msg_id: str) -> None:
        """Take note that the client of an execution has been sent what it missed."""
        kept = self._kept.get(msg_id)
        if kept is not None and kept.misses:
            self._write(notes.Seen(kept.number))

    def resent(self, msg_id: str, place: tuple[int, int]) -> None:
        """Take note that what was missed of an execution has been sent again up to a place."""
        kept = self._kept.get(msg_id)
        if kept is not None and kept.misses and place > kept.resent:
            self._write(notes.Resent(kept.number, *place))

    def saved(self, msg_ids: Iterable[str]) -> None:
        """Drop the executions that a saved notebook contains, as far as they are over.

        What ran before them in their cells goes too: a later page would take it for the newest.
        """
        held = [kept for msg_id in msg_ids if (kept := self._kept.get(msg_id)) is not None and kept.over]
        by_age = sorted(held, key=lambda kept: kept.number)
        newest = {kept.cell_id: kept.number for kept in by_age if kept.cell_id}
        named = {kept.msg_id for kept in held}
        for kept in self.executions():
            older = kept.over and kept.number < newest.get(kept.cell_id, 0)
            if older or kept.msg_id in named:
                self._drop(kept)

    # -- bounds -------------------------------------------------------------------------------------

    def _append(self, kept: Kept, message: Message) -> None:
        size = message.size
        if size > EXECUTION_BYTES_MAX or len(message.buffers) > notes.BUFFERS_MAX:
            self._write(notes.Cut(kept.number, -1, size))
            return
        parts = kept.parts
        if not parts or parts[-1].size + size > EXECUTION_BYTES_MAX // PARTS_MAX:
            parts.append(Part(parts[-1].number + 1 if parts else 1))
        part = parts[-1]
        part.size += size
        self.size += size
        self._touch(kept)
        self.pending.append(Append(kept.number, part.number, message))
        while kept.size > EXECUTION_BYTES_MAX or len(kept.parts) > PARTS_MAX:
            gone = kept.parts[min(PARTS_MAX // 2, len(kept.parts) - 2)]
            self._write(notes.Cut(kept.number, gone.number, gone.size))
            self.pending.append(Remove(kept.number, gone.number))
        while self.size > JOURNAL_BYTES_MAX and self._drop_oldest(besides=kept):
            pass

    def _make_room(self) -> bool:
        """Make room for one more execution; False when all that are kept are under way."""
        return len(self._kept) < EXECUTIONS_MAX or self._drop_oldest()

    def _drop_oldest(self, besides: Kept | None = None) -> bool:
        """Drop the oldest execution that is over, or that is at least not this one."""
        others = [kept for kept in self._kept.values() if kept is not besides]
        oldest = next((kept for kept in others if kept.over), None)
        if oldest is None and besides is not None:
            oldest = next((kept for kept in others if kept.parts), None)
        if oldest is None:
            return False
        self._drop(oldest)
        return True

    def _drop(self, kept: Kept) -> None:
        self.pending += [Remove(kept.number, part.number) for part in kept.parts]
        self._write(notes.Dropped(kept.number))

    def _follow_display(self, kept: Kept, message: Message) -> None:
        """Note that an execution holds a display, and update those of the same id that others hold."""
        display_id = display_of(unpack(message.content))
        if not display_id:
            return
        for msg_id in self._holders.get(display_id, set()) - {kept.msg_id}:
            other = self._kept[msg_id]
            update = msgspec.structs.replace(message, kind="update_display_data", missed=False)
            self._append(other, update)
        if message.kind != "update_display_data" and display_id not in kept.displays:
            self._write(notes.Displayed(kept.number, display_id))

    # -- notes --------------------------------------------------------------------------------------

    def _write(self, note: AnyNote) -> None:
        self.take(note)
        self.pending.append(note)

    def take(self, note: AnyNote) -> None:
        """Let a note take effect: one of now, or one that a router before this one wrote."""
        if isinstance(note, notes.Accepted):
            self._take_accepted(note)
            return
        if isinstance(note, notes.Listening):
            self.listeners = note.count
            return
        if isinstance(note, notes.PageGiven):
            self.page = note
            return
        kept = self._numbers.get(note.number)
        if kept is None:
            return
        self._touch(kept)
        before = kept.size
        kept.take(note)
        self.size += kept.size - before
        if isinstance(note, notes.Displayed):
            self._follow(kept, note.display_id)
        elif isinstance(note, notes.Dropped):
            self._forget(kept)

    def _take_accepted(self, note: notes.Accepted) -> None:
        self._version += 1
        self._next_number = max(self._next_number, note.number + 1)
        kept = Kept(
            number=note.number,
            msg_id=note.msg_id,
            session=note.session,
            client=note.client,
            cell_id=note.cell_id,
            code_digest=note.code_digest,
            header=note.header,
            version=self._version,
            frames=note.frames,
        )
        self._kept[note.msg_id] = self._numbers[note.number] = kept

    def _follow(self, kept: Kept, display_id: str) -> None:
        self._holders.setdefault(display_id, set()).add(kept.msg_id)
        if len(self._holders) > DISPLAYS_MAX:
            oldest, holders = self._holders.popitem(last=False)
            for msg_id in holders:
                self._kept[msg_id].displays.discard(oldest)

    def _forget(self, kept: Kept) -> None:
        del self._kept[kept.msg_id], self._numbers[kept.number]
        self.size -= kept.size
        for display_id in kept.displays:
            self._holders[display_id].discard(kept.msg_id)
            if not self._holders[display_id]:
                del self._holders[display_id]

    def found(self, number: int, part: int, size: int) -> bool:
        """Take note of a part that a router before this one wrote; False when it is nobody's.

        No other execution gets its number: it may be there still.
        """
        self._next_number = max(self._next_number, number + 1)
        kept = self._numbers.get(number)
        if kept is None:
            return False
        kept.parts.append(Part(part, size))
        kept.parts.sort(key=lambda part: part.number)
        self.size += size
        return True

    def rewritten(self) -> list[AnyNote]:
        """Return notes from which the same journal is read as from all that were written."""
        made: list[AnyNote] = [note for kept in self._kept.values() for note in kept.notes()]
        page = [] if self.page is None else [self.page]
        return [notes.Listening(0, self.listeners), *page, *made]

    def _touch(self, kept: Kept) -> None:
        self._version += 1
        kept.version = self._version

    def check_invariants(self) -> None:
        """Assert the bounds, and that the sums and indexes agree with the executions."""
        assert len(self._kept) <= EXECUTIONS_MAX
        assert self.size == sum(kept.size for kept in self._kept.values())
        assert all(kept.size <= EXECUTION_BYTES_MAX for kept in self._kept.values())
        assert all(len(kept.parts) <= PARTS_MAX for kept in self._kept.values())
        assert {kept.number for kept in self._kept.values()} == set(self._numbers)
        assert len(self._holders) <= DISPLAYS_MAX
        for display_id, holders in self._holders.items():
            assert holders == {name for name, kept in self._kept.items() if display_id in kept.displays}


def _short(outcome: ExecuteOutcome) -> bytes:
    """Return the content of a reply that says no more than how an execution ended."""
    fault = {"ename": "", "evalue": "", "traceback": []} if outcome.status == "error" else {}
    counted = {"status": outcome.status, "execution_count": outcome.execution_count}
    return pack({**counted, **fault, "user_expressions": {}, "payload": []})


def client_of(request: ClientRequest) -> str:
    """Return by what a client is known: its ZMQ identity."""
    return request.identities[0].decode("latin-1") if request.identities else ""


def _cell_id(metadata: bytes) -> str:
    try:
        return _cell_metadata.decode(metadata).cellId
    except UNREADABLE:
        return ""
