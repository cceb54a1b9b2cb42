"""When what a kernel has superseded leaves its store: once a checkpoint does without it, and after a rest."""

from __future__ import annotations

from replkernel.objects.superseded import HERE, ROOM_SHARE, Place, Superseded
from replkernel.records import Digest

A, B, C = (Digest(letter * 64) for letter in "abc")
MIB = 2**20
MADE = {A: 100 * MIB, B: 200 * MIB, C: 300 * MIB}
SMALL = {A: 100, B: 200, C: 300}
NONE: frozenset[Digest] = frozenset()
EARLY, SEEN, LATE = (Place((1, entry)) for entry in (9, 10, 11))
REST_S = HERE.after_s


def looked(needed: set[Digest], made: dict[Digest, int] = MADE) -> Superseded:
    book = Superseded()
    book.look(made, needed, SEEN, 0.0)
    return book


def test_a_needed_chunk_never_goes() -> None:
    assert not looked({A, B, C}).any
    assert looked({A, B, C}).due(LATE, 0, HERE, REST_S) == []
    assert looked({A}).due(LATE, 0, HERE, REST_S) == [B, C]


def test_nothing_goes_before_a_checkpoint_does_without_it() -> None:
    book = looked({A})
    assert book.due(EARLY, 0, HERE, 1e6) == []
    assert book.due((0, 99), 0, HERE, 1e6) == []
    assert book.due(SEEN, None, HERE, REST_S) == [B, C]


def test_nothing_goes_before_it_has_rested_and_it_is_looked_again_right_then() -> None:
    book = looked({A})
    assert book.due(LATE, 0, HERE, REST_S - 1) == []
    assert book.next_look_s(LATE, HERE, REST_S - 1) == 1.0
    assert book.due(LATE, 0, HERE, REST_S) == [B, C]
    assert book.next_look_s(EARLY, HERE, REST_S - 1) == HERE.little_after_s


def test_a_chunk_needed_again_rests_anew() -> None:
    book = looked({A})
    book.look(MADE, {A, B}, LATE, 10.0)
    book.look(MADE, {A}, LATE, 20.0)
    assert book.due(LATE, None, HERE, 20.0) == [C]
    assert book.due(LATE, None, HERE, 20.0 + REST_S) == [B, C]
    assert book.due(SEEN, None, HERE, 20.0 + REST_S) == [C]


def test_little_rests_longer_unless_room_is_short() -> None:
    book = looked({A}, SMALL)
    assert book.due(LATE, None, HERE, REST_S) == []
    assert book.due(LATE, int(500 / ROOM_SHARE) + 1, HERE, REST_S) == []
    assert book.due(LATE, int(500 / ROOM_SHARE), HERE, REST_S) == [B, C]
    assert book.due(LATE, None, HERE, HERE.little_after_s) == [B, C]


def test_a_chunk_not_made_here_is_nobodys_to_give() -> None:
    book = looked(set(), {})
    assert not book.any
    book.look({A: 5}, NONE, SEEN, 0.0)
    book.look({}, NONE, SEEN, REST_S)
    assert book.due(LATE, 0, HERE, 2 * REST_S) == []
    assert book.bytes == 0
