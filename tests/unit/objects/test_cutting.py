"""Where blobs are cut: nothing is lost, an edit of text moves few cuts, numbers are not taken for text."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replkernel.objects.cutting import (
    CHUNK_BYTES,
    TEXT_BYTES_MAX,
    cut,
    cut_by_content,
    looks_like_text,
)
from tests.support.examples import examples

WORDS = [bytes(random.Random(number).choices(range(97, 123), k=6)) for number in range(500)]


SPACED = np.frombuffer(b"".join(word + b" " for word in WORDS), np.uint8).reshape(len(WORDS), -1)


def prose(size: int, seed: int = 0) -> bytes:
    words = np.random.default_rng(seed).integers(len(WORDS), size=size // SPACED.shape[1] + 1)
    return SPACED[words].tobytes()[:size]


TEXT = prose(12 << 20)


def pieces(data: bytes, start: int = 0) -> list[bytes]:
    return [bytes(piece) for piece in cut_by_content(memoryview(data), start)]


@settings(max_examples=examples(15), deadline=None)
@given(size=st.integers(0, 3 * CHUNK_BYTES), seed=st.integers(0, 100))
def test_the_pieces_are_the_whole(size: int, seed: int) -> None:
    data = prose(size, seed)
    assert b"".join(pieces(data)) == data
    fixed = [bytes(piece) for piece in cut(memoryview(data))]
    assert b"".join(fixed) == data
    assert all(len(piece) == CHUNK_BYTES for piece in fixed[:-1])


def test_pieces_of_text_are_bounded() -> None:
    assert all(0 < len(piece) <= TEXT_BYTES_MAX for piece in pieces(bytes(20 << 20)))
    assert len(pieces(TEXT)) > 4


@settings(max_examples=examples(15), deadline=None)
@given(at=st.integers(0, len(TEXT)), taken=st.integers(0, 200), given=st.binary(min_size=0, max_size=200))
def test_an_edit_leaves_most_pieces_as_they_were(at: int, taken: int, given: bytes) -> None:
    edited = TEXT[:at] + given + TEXT[at + taken :]
    before, after = set(pieces(TEXT)), pieces(edited)
    assert b"".join(after) == edited
    assert sum(len(piece) for piece in after if piece not in before) <= 3 * TEXT_BYTES_MAX


@settings(max_examples=examples(15), deadline=None)
@given(number=st.integers(1, 4), tail=st.binary(max_size=100))
def test_cutting_goes_on_from_an_earlier_cut(number: int, tail: bytes) -> None:
    kept = pieces(TEXT)[:number]
    start = sum(map(len, kept))
    data = TEXT + tail
    assert kept + pieces(data, start) == pieces(data)


@pytest.mark.parametrize(
    "text",
    [TEXT, "größer ist besser, 日本語\n".encode() * 10_000, b"a,b\r\n1,2\r\n" * 50_000, b"x", b""],
    ids=["ascii", "unicode", "csv", "short", "empty"],
)
def test_text_looks_like_text(text: bytes) -> None:
    assert looks_like_text(memoryview(text))


@pytest.mark.parametrize(
    "numbers",
    [
        np.random.default_rng(0).random(100_000),
        np.arange(100_000),
        np.zeros(100_000),
        np.random.default_rng(0).random(100_000).astype("f4"),
        np.random.default_rng(0).integers(0, 256, 1_000_000, dtype="u1"),
    ],
    ids=["floats", "integers", "zeros", "small floats", "noise"],
)
def test_numbers_do_not_look_like_text(numbers: np.ndarray) -> None:
    assert not looks_like_text(numbers.data.cast("B"))


def test_where_nothing_is_compiled_cuts_are_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replkernel.objects.cutting._chunker", lambda: None)
    data = os.urandom(2 * CHUNK_BYTES + 5)
    assert [len(piece) for piece in pieces(data)] == [CHUNK_BYTES, CHUNK_BYTES, 5]
    assert pieces(data, CHUNK_BYTES) == [data[CHUNK_BYTES : 2 * CHUNK_BYTES], data[2 * CHUNK_BYTES :]]
