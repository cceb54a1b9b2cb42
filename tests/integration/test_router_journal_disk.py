"""The output journal on a disk that refuses: that costs what could not be written, never the router."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from replkernel.router.core.journal import Journal
from replkernel.router.core.journal_notes import Message
from replkernel.router.io.journal_disk import JournalDisk
from tests.support.journal_memory import request


class Kept:
    """A journal on a disk, with what the disk's owner was told."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.told: list[str] = []
        self.journal, self.disk = Journal(0), JournalDisk(directory, self.told.append)
        self.disk.load(self.journal)

    def cell(self, msg_id: str = "m1", text: bytes = b"out") -> Path:
        """Have a cell run and print; return the file of its output."""
        self.journal.accept(request(msg_id))
        self.journal.publish(msg_id, Message("stream", b"{}", b"{}", text))
        self.journal.end(msg_id, "ok", 1.0)
        self.disk.write(self.journal)
        kept = self.journal.find(msg_id)
        assert kept is not None
        return self.directory / f"{kept.number}.1.jrnl"

    def printed(self, msg_id: str) -> list[bytes]:
        """Return what is kept of a cell's output."""
        kept = self.journal.find(msg_id)
        assert kept is not None
        return [message.content for _, _, message in self.disk.messages(kept)]


def keeps_its_file(file: Path) -> None:
    """Have a disk that does not remove a file, not for root either."""
    file.unlink()
    (file / "in the way").mkdir(parents=True)


def test_a_disk_that_does_not_remove_what_a_saved_notebook_holds_is_complained_of(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    keeps_its_file(kept.cell())
    kept.journal.saved(["m1"])
    kept.disk.write(kept.journal)
    (told,) = kept.told
    assert str(tmp_path) in told
    kept.cell("m2")
    assert kept.printed("m2") == [b"out"], "all else is written"
    kept.disk.close()


def test_the_next_router_reads_a_journal_whose_old_files_are_not_removed(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.cell("m1")
    kept.journal.saved(["m1"])
    kept.disk.write(kept.journal)
    kept.disk.close()
    stale = tmp_path / "1.1.jrnl"
    (stale / "in the way").mkdir(parents=True)
    (tmp_path / "notes.jrnl").unlink()
    after = Kept(tmp_path)
    assert len(after.told) == 1
    assert after.cell("m2") != stale, "what is nobody's is not taken for a new cell's"
    assert after.printed("m2") == [b"out"]
    after.disk.close()


def test_a_file_that_cannot_be_closed_is_complained_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS tells at the closing that the quota is used up."""
    kept = Kept(tmp_path)
    kept.cell()
    for file in kept.disk._files.values():
        os.close(file._handle)
        monkeypatch.setattr(file, "_handle", -1)
    kept.disk.rewrite(kept.journal)
    kept.journal.saved(["m1"])
    kept.disk.write(kept.journal)
    assert len(set(kept.told)) == 1
    kept.disk.close()
