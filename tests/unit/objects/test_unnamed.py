"""Which chunks that a capture wrote and no delta names are given up, and when."""

from __future__ import annotations

from replkernel.objects.unnamed import CELLS_KEPT, Unnamed
from replkernel.records import Digest

A, B, C = (Digest(letter * 64) for letter in "abc")


def wrote(*digests: Digest) -> Unnamed:
    book = Unnamed()
    for digest in digests:
        book.wrote(digest)
    return book


def test_a_chunk_that_a_delta_names_is_not_ours_to_give_up() -> None:
    book = wrote(A, B)
    book.named([A, C])
    assert A not in book
    assert book.ended(cell=True, whole=True) == [B]
    assert B not in book


def test_a_capture_that_gave_way_keeps_what_its_audits_may_go_on_with() -> None:
    book = wrote(A)
    assert book.ended(cell=True, whole=False) == []
    for _ in range(5):
        assert book.ended(cell=False, whole=False) == []
    assert A in book


def test_a_chunk_that_no_capture_saw_for_some_cells_is_given_up() -> None:
    book = wrote(A, B)
    given_up = []
    for _ in range(CELLS_KEPT):
        given_up += book.ended(cell=True, whole=False)
        book.wrote(B)
    assert given_up == [A]
    assert B in book


def test_a_whole_audit_leaves_nothing_unnamed() -> None:
    book = wrote(A)
    book.ended(cell=True, whole=False)
    book.wrote(B)
    assert set(book.ended(cell=False, whole=True)) == {A, B}


def test_a_failed_capture_gives_everything_up() -> None:
    book = wrote(A, B)
    assert book.take() == [A, B]
    assert book.take() == []
