"""What PySyncObj keeps on disk, replaced: the journal, the term and vote, the snapshot's way to a peer.

Each class keeps PySyncObj's own interface; `raft_fit` puts them in place. Law: a kill at any moment
leaves files that hold everything acknowledged, and a damaged file is an error.
"""

from __future__ import annotations

import contextlib
import io
import os
from typing import IO, Any

import msgspec
from pysyncobj.journal import FileJournal, ResizableFile
from pysyncobj.serializer import Serializer

LogEntry = tuple[bytes, int, int]
"""An entry as PySyncObj has it: the command, its index, its term."""
TERM_MAX = 2**53
RECORD_FRAME_BYTES = 24
"""What the journal adds to a command: two lengths, its index and its term."""
RESERVE_BYTES_MAX = 1024 * 1024
"""So much room is taken ahead, at most, where there is any."""
SMALL_BYTES = 1024
LAST_BYTES = 16 * 1024
"""On a full disk so much of a journal is left to small entries: claims, and a leader's first word."""


class TidyJournal(FileJournal):  # type: ignore[misc]
    """A journal that compacts by renaming a new file over the old one, and rests when nothing changes.

    PySyncObj's empties the file and writes the tail back, and a kill in between loses acknowledged
    entries; it also stores its meta file every second, and syncs to disk when it closes.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._reserved = 0
        self._FileJournal__journalFile: Any
        self._FileJournal__currentOffset: int
        fresh = not os.path.exists(path)
        try:
            super().__init__(path)
            self._check()
        except BaseException:
            file = getattr(self, "_FileJournal__journalFile", None)
            if file is not None:
                _close_file(file)
            if fresh and os.path.exists(path):
                os.unlink(path)
            raise

    def _check(self) -> None:
        indexes = [index for _, index, _ in self[:]]
        terms = [term for _, _, term in self[:]]
        if indexes and indexes != list(range(indexes[0], indexes[0] + len(indexes))):
            raise ValueError("its entries are not numbered in a row")
        if terms != sorted(terms) or any(term > TERM_MAX for term in terms):
            raise ValueError("its terms do not grow")
        if self._FileJournal__currentOffset != self._FileJournal__getLastRecordOffset():
            raise ValueError("its last entry is cut off")

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append an entry, once the disk has room for it; what is not small leaves room for what is."""
        left = LAST_BYTES if len(command) > SMALL_BYTES else 0
        self._reserve(len(command) + RECORD_FRAME_BYTES + left)
        super().add(command, idx, term)

    def _reserve(self, size: int) -> None:
        """Take room on the disk before it is written to: where there is none, a mapped write kills."""
        file = self._FileJournal__journalFile
        needed = self._FileJournal__currentOffset + size
        if needed <= self._reserved:
            return
        descriptor, mapped = file._ResizableFile__f.fileno(), file._ResizableFile__mm
        room = max(mapped.size(), needed + min(max(needed, LAST_BYTES), RESERVE_BYTES_MAX))
        try:
            os.posix_fallocate(descriptor, 0, room)
        except OSError:
            room = max(mapped.size(), needed)
            os.posix_fallocate(descriptor, 0, room)
        mapped.resize(room)
        self._reserved = room

    def setRaftCommitIndex(self, index: int) -> None:  # noqa: N802 - PySyncObj's name
        """Note the commit index if it is a new one."""
        if index != self.getRaftCommitIndex():
            super().setRaftCommitIndex(index)

    def onOneSecondTimer(self) -> None:  # noqa: N802 - PySyncObj's name
        """Store the commit index, which a member learns anew; on a full disk later, for no tick may fail."""
        with contextlib.suppress(OSError):
            super().onOneSecondTimer()

    def deleteEntriesTo(self, entry_to: int) -> None:  # noqa: N802 - PySyncObj's name
        """Drop the first `entry_to` entries."""
        kept = self[entry_to:]
        fresh_path = self._path + ".new"
        if os.path.exists(fresh_path):
            os.unlink(fresh_path)
        fresh = TidyJournal(fresh_path)
        try:
            for entry in kept:
                fresh.add(*entry)
        except OSError:
            os.unlink(fresh_path)
            raise
        finally:
            _close_file(fresh._FileJournal__journalFile)
        os.replace(fresh_path, self._path)
        _close_file(self._FileJournal__journalFile)
        self._FileJournal__journalFile = ResizableFile(self._path)
        self._FileJournal__journal = kept
        self._FileJournal__currentOffset = fresh._FileJournal__currentOffset
        self._reserved = 0

    def _destroy(self) -> None:
        self.onOneSecondTimer()
        _close_file(self._FileJournal__journalFile)


def drop_what_a_snapshot_holds(path: str, previous: LogEntry, last: LogEntry) -> None:
    """Begin a journal with the last two entries under its snapshot, as its compaction was to do.

    Where that did not come, PySyncObj takes the journal for another one's, and clears it with all that was
    acknowledged since the snapshot. What holds those two entries holds the snapshot's log (§5.3).
    """
    journal = TidyJournal(path)
    try:
        entries = journal[:]
        first = previous[1] - entries[0][1] if entries else 0
        if first > 0 and entries[first : first + 2] == [previous, last]:
            journal.deleteEntriesTo(first)
    finally:
        _close_file(journal._FileJournal__journalFile)


class MetaFile:
    """The file of a member's term and vote, as msgpack; a damaged one is an error, never a fresh start.

    PySyncObj's takes any fault for an empty file, upon which a member could vote twice in a term. The file of
    before stays as the next one's, so a member can vote when the disk is full.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def getMeta(self) -> dict[str, Any]:  # noqa: N802 - PySyncObj's name
        """Return what was stored last, or nothing for a new member."""
        try:
            with open(self._path, "rb") as file:
                return msgspec.msgpack.decode(file.read(), type=dict[str, Any])
        except FileNotFoundError:
            return {}

    def storeMeta(self, meta: dict[str, Any]) -> None:  # noqa: N802 - PySyncObj's name
        """Replace the file."""
        fresh_path, before_path = self._path + ".tmp", self._path + ".old"
        _write_over(fresh_path, msgspec.msgpack.encode(meta))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(before_path)
        with contextlib.suppress(FileNotFoundError):
            os.link(self._path, before_path)
        os.replace(fresh_path, self._path)
        try:
            os.replace(before_path, fresh_path)
        except FileNotFoundError:
            with contextlib.suppress(OSError):
                _write_over(fresh_path, msgspec.msgpack.encode(meta))  # The first: room for the second.

    def getPath(self) -> str:  # noqa: N802 - PySyncObj's name
        """Return where the file is."""
        return self._path


def _write_over(path: str, content: bytes) -> None:
    """Write a file into the room that it has, if it is there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.truncate()


_INCOMING = "_Serializer__incomingTransmissionFile"


class ReadySerializer(Serializer):  # type: ignore[misc]
    """A serializer whose snapshot can be sent as soon as it is written.

    Ours are written within one tick; PySyncObj would spin for a heartbeat period until it has noticed.
    """

    def getTransmissionData(self, peer: object) -> object:  # noqa: N802 - PySyncObj's name
        """Return the next chunk of the snapshot for `peer`."""
        state: int = self.__dict__["_Serializer__pid"]
        self._Serializer__pid = 0
        try:
            return super().getTransmissionData(peer)
        finally:
            self._Serializer__pid = state

    def close(self) -> None:
        """Close the file of a snapshot that has not arrived whole."""
        file, self._Serializer__incomingTransmissionFile = self.__dict__[_INCOMING], None
        if file is not None:
            file.close()


def open_whole(path: str, mode: str) -> IO[bytes]:
    """Open a file for PySyncObj's snapshots: one to be read is read at once, because it closes none."""
    if mode == "rb":
        with open(path, "rb") as file:
            return io.BytesIO(file.read())
    return open(path, mode)


def _close_file(file: Any) -> None:
    """Close a journal file without syncing it: what is in the page cache survives every kill."""
    file._ResizableFile__mm.close()
    file._ResizableFile__f.close()
