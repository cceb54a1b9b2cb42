"""A job's log in pieces: no character is cut, and nothing is missing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from replkernel.jobs.supervisor import Supervisor
from replkernel.jobs.words import LOG, LOG_BYTES_MAX, JobPlace, Record

TEXT = "Ähre 日本 🙂 ok\n"


def test_a_log_in_small_pieces_has_whole_characters_and_all_of_them(tmp_path: Path) -> None:
    place = JobPlace(tmp_path)
    (tmp_path / LOG).write_text(TEXT)
    for most in range(4, 12):
        at, found = 0, ""
        while (piece := place.log_from(at, most))[1]:
            at = piece[0] + len(piece[1])
            found += piece[1].decode()
        assert found == TEXT


def test_a_character_that_is_written_in_part_comes_with_its_rest(tmp_path: Path) -> None:
    place, words = JobPlace(tmp_path), TEXT.encode()
    (tmp_path / LOG).write_bytes(words[:8])
    begin, data = place.log_from(0, 100)
    assert (begin, data.decode()) == (0, "Ähre ")
    (tmp_path / LOG).write_bytes(words)
    assert place.log_from(len(data), 100)[1].decode() == TEXT.removeprefix("Ähre ")


def test_bytes_that_are_no_text_do_not_stop_a_log(tmp_path: Path) -> None:
    (tmp_path / LOG).write_bytes(b"\x80" * 40)
    assert JobPlace(tmp_path).log_from(0, 100) == (0, b"\x80" * 40)


def test_a_log_whose_beginning_is_gone_begins_with_a_character(tmp_path: Path) -> None:
    place, words = JobPlace(tmp_path), TEXT.encode()
    place.write(Record(log_base=1))
    (tmp_path / LOG).write_bytes(words[1:])
    assert place.log_from(0, 100) == (2, words[2:])


def test_what_a_program_writes_while_its_full_log_is_put_aside_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = JobPlace(tmp_path)
    log, late = tmp_path / LOG, [b"first\n", b"second\n"]
    log.write_bytes(b"x" * (LOG_BYTES_MAX + 1))
    opened = os.fdopen

    class Slow:
        """What the log is copied to: before each write the program writes a line."""

        def __init__(self, fd: int, mode: str) -> None:
            self._file = opened(fd, mode)

        def __enter__(self) -> Slow:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def write(self, data: bytes) -> None:
            if late:
                with log.open("ab") as program:
                    program.write(late.pop(0))
            self._file.write(data)

    supervisor = Supervisor(place, "h1")
    try:
        monkeypatch.setattr(os, "fdopen", Slow)
        supervisor._bound_log()
    finally:
        monkeypatch.undo()
        supervisor.close()
    assert (tmp_path / f"{LOG}.1").read_bytes().endswith(b"x" + b"first\nsecond\n")
    assert (log.read_bytes(), place.record().log_base) == (b"", LOG_BYTES_MAX + 1 + 13)
