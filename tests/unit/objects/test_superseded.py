"""When what a kernel has superseded leaves its store: after a rest, and only when that is worth it."""

from __future__ import annotations

from replkernel.objects.superseded import BYTES_MIN, REST_S, ROOM_SHARE, Superseded
from replkernel.records import Digest

A, B, C = (Digest(letter * 64) for letter in "abc")
MADE = {A: 100, B: 200, C: 300}
NONE: frozenset[Digest] = frozenset()
SHORT = 100


def looked(needed: set[Digest], made: dict[Digest, int] = MADE) -> Superseded:
    book = Superseded()
    book.look(made, needed, 0.0)
    return book


def test_what_is_needed_never_goes() -> None:
    assert not looked({A, B, C}).any
    assert looked({A, B, C}).due(0, REST_S) == []
    assert looked({A}).due(0, REST_S) == [B, C]


def test_nothing_goes_before_it_has_rested() -> None:
    book = looked({A})
    assert book.due(SHORT, REST_S - 1) == []
    assert book.unripe(REST_S - 1)
    assert book.due(SHORT, REST_S) == [B, C]
    assert not book.unripe(REST_S)


def test_what_is_needed_again_rests_anew() -> None:
    book = looked({A})
    book.look(MADE, {A, B}, 10.0)
    book.look(MADE, {A}, 20.0)
    assert book.due(SHORT, REST_S) == [C]
    assert book.due(SHORT, REST_S + 20) == [B, C]


def test_little_is_left_while_there_is_room() -> None:
    book = looked({A})
    assert book.due(int(500 / ROOM_SHARE) + 1, REST_S) == []
    assert book.due(int(500 / ROOM_SHARE), REST_S) == [B, C]
    assert book.due(None, REST_S) == []


def test_much_goes_however_much_room_there_is_once_it_exceeds_what_lives() -> None:
    made = {A: 2 * BYTES_MIN, B: BYTES_MIN, C: BYTES_MIN}
    assert looked({A}, made).due(1 << 60, REST_S) == [B, C]
    assert looked({A, B}, made).due(1 << 60, REST_S) == []
    assert looked({B, C}, made).due(None, REST_S) == [A]


def test_what_is_not_made_here_is_nobodys_to_give() -> None:
    book = looked(set(), {})
    assert not book.any
    book.look({A: 5}, NONE, 0.0)
    book.look({}, NONE, REST_S)
    assert book.due(0, 2 * REST_S) == []
