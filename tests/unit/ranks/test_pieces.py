"""What a process writes is told in whole lines, or after a while; nothing is lost and no character is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from replkernel.ranks.pieces import LONG_CHARS, UNFINISHED_S, Pieces


def test_whole_lines_are_told_at_once_and_the_rest_waits() -> None:
    pieces = Pieces()
    assert pieces.take(b"one\ntwo\nthr", 0.0) == "one\ntwo\n"
    assert pieces.take(b"ee\n", 0.1) == "three\n"
    assert pieces.rest() == ""


def test_a_progress_bar_and_a_prompt_are_told_while_they_stand() -> None:
    pieces = Pieces()
    assert pieces.take(b"\r 10%", 0.0) == "\r"
    assert pieces.late(UNFINISHED_S / 2) == ""
    assert pieces.take(b"|", 0.15) == ""
    assert pieces.late(0.15 + UNFINISHED_S / 2) == "", "it is written just now"
    assert pieces.late(0.15 + 2 * UNFINISHED_S) == " 10%|"
    assert pieces.late(9.0) == ""
    assert pieces.take(b"\r 20%", 9.0) == "\r"


def test_a_long_line_is_told_in_pieces() -> None:
    pieces = Pieces()
    assert pieces.take(b"x" * LONG_CHARS, 0.0) == "x" * LONG_CHARS
    assert pieces.take(b"x", 0.0) == ""
    assert pieces.rest() == "x"


@given(st.text(), st.lists(st.integers(1, 5)))
def test_nothing_is_lost_and_no_character_is_cut(text: str, sizes: list[int]) -> None:
    data, pieces, told = text.encode(), Pieces(), ""
    for size in sizes:
        told += pieces.take(data[:size], 0.0) + pieces.late(1.0)
        data = data[size:]
    assert told + pieces.take(data, 2.0) + pieces.rest() == text
