"""The journal's files below the kernel's directory: ``outputs/notes.jrnl``, and ``outputs/<n>.<part>.jrnl``.

Written once a turn of the router's loop and never synced: they are to outlive the router, not the machine.
Law: only ever readable by their owner; a disk that refuses costs what could not be written, never a cell.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

from replkernel.router.core.journal import Append, Journal, Remove
from replkernel.router.core.journal_notes import Message, read_messages, read_notes, write_message, write_note
from replkernel.router.core.kept import Kept

NOTES_BYTES_MAX = 4 * 1024 * 1024
"""Notes are written anew when they have grown to this, and to twice of what they were written anew with."""
OPEN_MAX = 8
JOIN_BYTES_MAX = 64 * 1024
"""Pieces up to this size are written together."""
_NOTES = "notes.jrnl"
_PART = re.compile(r"([1-9][0-9]*)\.([1-9][0-9]*)\.jrnl")


class _File:
    """A file that is only ever appended to, by whole records."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.size = os.fstat(self._handle).st_size

    def append(self, pieces: list[bytes]) -> None:
        """Append pieces; all of them, or on an error that is raised none."""
        wanted = self.size
        try:
            for data in _joined(pieces):
                view = memoryview(data)
                wanted += len(view)
                while view:
                    view = view[os.write(self._handle, view) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, self.size)
            raise
        self.size = wanted

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def _joined(pieces: list[bytes]) -> Iterator[bytes]:
    """Put small pieces together, so that few calls write them and large ones are not copied."""
    small: list[bytes] = []
    for piece in pieces:
        if len(piece) <= JOIN_BYTES_MAX:
            small.append(piece)
            continue
        yield b"".join(small)
        small = []
        yield piece
    yield b"".join(small)


class JournalDisk:
    """The files of one kernel's journal. `complain` is told once when they cannot be written."""

    def __init__(self, directory: Path, complain: Callable[[str], None]) -> None:
        self._directory = directory
        self._complain = complain
        self._files: OrderedDict[str, _File] = OrderedDict()
        self._rewrite_at = NOTES_BYTES_MAX

    def load(self, journal: Journal) -> None:
        """Have a journal continue what a router before this one wrote."""
        for note in read_notes(self._bytes(_NOTES)):
            journal.take(note)
        for path in self._directory.glob("*.jrnl"):
            match = _PART.fullmatch(path.name)
            if match is None:
                continue
            try:
                if not journal.found(int(match[1]), int(match[2]), path.stat().st_size):
                    path.unlink(missing_ok=True)
            except OSError as error:
                self._refused(error)
        for kept in journal.executions():
            if not kept.over and kept.parts:
                self._end_whole(kept)
        journal.pending.clear()
        self.rewrite(journal)

    def _end_whole(self, kept: Kept) -> None:
        """Cut off a message that a killed router left half written: more will follow it."""
        last = kept.parts[-1]
        whole = max((end for part, end, _ in self.messages(kept, last.number)), default=0)
        with contextlib.suppress(OSError):
            os.truncate(self._directory / f"{kept.number}.{last.number}.jrnl", whole)

    def clear(self) -> None:
        """Remove what another incarnation of the kernel left."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def write(self, journal: Journal) -> None:
        """Write what is pending; what the disk refuses is given up."""
        pending, journal.pending = journal.pending, []
        name = ""
        pieces: list[bytes] = []
        for write in pending:
            if isinstance(write, Append):
                target, data = f"{write.number}.{write.part}.jrnl", write_message(write.message)
            elif isinstance(write, Remove):
                target, data = "", []
            else:
                target, data = _NOTES, [write_note(write)]
            if target != name:
                self._append(name, pieces)
                name, pieces = target, []
            pieces += data
            if isinstance(write, Remove):
                self._remove(f"{write.number}.{write.part}.jrnl")
        self._append(name, pieces)
        if _NOTES in self._files and self._files[_NOTES].size > self._rewrite_at:
            self.rewrite(journal)

    def _append(self, name: str, pieces: list[bytes]) -> None:
        if not pieces:
            return
        try:
            self._open(name).append(pieces)
        except OSError as error:
            self._refused(error)

    def _refused(self, error: OSError) -> None:
        self._complain(
            f"The output journal cannot be written below {self._directory} ({error.strerror}): output "
            "that no notebook has saved will not outlive this kernel's router; make room there."
        )

    def _open(self, name: str) -> _File:
        file = self._files.get(name)
        if file is None:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = self._files[name] = _File(self._directory / name)
            while len(self._files) > OPEN_MAX:
                self._close(self._files.popitem(last=False)[1])
        self._files.move_to_end(name)
        return file

    def _remove(self, name: str) -> None:
        self._close(self._files.pop(name, None))
        try:
            (self._directory / name).unlink(missing_ok=True)
        except OSError as error:
            self._refused(error)

    def _close(self, file: _File | None) -> None:
        """Close a file; a network's disk may tell only now that it refuses what was written."""
        try:
            if file is not None:
                file.close()
        except OSError as error:
            self._refused(error)

    def rewrite(self, journal: Journal) -> None:
        """Write the notes anew, without those that no longer matter."""
        fresh = self._directory / f".{_NOTES}.new"
        self._close(self._files.pop(_NOTES, None))
        with contextlib.suppress(OSError):
            if not len(journal) and not (self._directory / _NOTES).exists():
                return
            fresh.unlink(missing_ok=True)
            made = _File(fresh)
            try:
                made.append([write_note(note) for note in journal.rewritten()])
            finally:
                made.close()
            fresh.replace(self._directory / _NOTES)
            self._rewrite_at = max(NOTES_BYTES_MAX, 2 * made.size)

    def messages(self, kept: Kept, part: int = 0, at: int = 0) -> Iterator[tuple[int, int, Message]]:
        """Return an execution's messages from a place on, each with its part and where the next begins."""
        for stretch in kept.parts:
            if stretch.number < part:
                continue
            start = at if stretch.number == part else 0
            data = self._bytes(f"{kept.number}.{stretch.number}.jrnl", start)
            for message, end in read_messages(data):
                yield stretch.number, start + end, message

    def _bytes(self, name: str, start: int = 0) -> bytes:
        try:
            with (self._directory / name).open("rb") as file:
                file.seek(start)
                return file.read()
        except OSError:
            return b""

    def close(self) -> None:
        """Close the files."""
        while self._files:
            self._close(self._files.popitem()[1])
