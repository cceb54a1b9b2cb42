"""A job's log in pieces: no character is cut, and nothing is missing."""

from __future__ import annotations

from pathlib import Path

from replkernel.jobs.words import LOG, JobPlace, Record

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
