"""Packed chunks: smaller where that pays, the same bytes back, and nothing hostile gets large or wrong."""

from __future__ import annotations

import os
import random
import struct

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from replkernel.objects.packing import (
    FIRST_RATE,
    MARK,
    PACKED_BYTES_MIN,
    PLAIN,
    WIDTHS,
    Unreadable,
    Way,
    codec_for,
    is_packed,
    pack,
    unpack,
)

LIMIT = 16 << 20
TEXT = b"one line of a text, and another\n" * 20_000


def framed(size: int, frame: bytes, codec: int = PLAIN) -> bytes:
    return MARK + struct.pack("<BI", codec, size) + frame


SLOW = 20e6
"""A way on which packing pays soon."""


def weights(count: int) -> bytes:
    """Return float32 numbers as a model has them."""
    chance = random.Random(0)
    return struct.pack(f"{count}f", *(chance.gauss(0, 0.03) for _ in range(count)))


def codec_of(stored: bytes) -> int:
    return stored[len(MARK)] if is_packed(stored) else 0


@given(st.binary(max_size=200), st.integers(0, 400), st.sampled_from([SLOW, FIRST_RATE, 1e12]))
def test_the_bytes_come_back(block: bytes, times: int, rate: float) -> None:
    data = block * times
    stored = pack(data, rate)
    assert stored is data or (is_packed(stored) and unpack(stored, LIMIT) == data)
    assert len(stored) <= len(data)


@pytest.mark.parametrize("more", range(9))
def test_numbers_come_back_whatever_is_behind_them(more: int) -> None:
    data = weights(50_000) + b"\xff" * more
    stored = pack(data, SLOW)
    assert codec_of(stored) in WIDTHS
    assert unpack(stored, LIMIT) == data


@pytest.mark.parametrize(("kind", "width"), [("q", 8), ("i", 4), ("h", 2)])
def test_whole_numbers_are_packed_byte_by_byte(kind: str, width: int) -> None:
    data = struct.pack(f"100000{kind}", *(n * 7 % 30_000 for n in range(100_000)))
    stored = pack(data)
    assert codec_of(stored) in WIDTHS
    assert len(stored) < 0.7 * len(data)
    assert unpack(stored, LIMIT) == data


def test_floats_are_packed_on_a_slow_way_only() -> None:
    data = weights(100_000)
    assert pack(data, FIRST_RATE) is data
    assert len(pack(data, SLOW)) < 0.87 * len(data)


def test_the_way_that_stores_sooner_decides_about_packing() -> None:
    weights = {1: [0.92], 2: [1.0, 0.78], 4: [1.0, 1.0, 0.95, 0.4]}
    assert [codec_for(weights, rate) for rate in (20e6, 90e6, 200e6)] == [4, 4, 0]
    integers = {1: [0.2], 2: [0.45, 0.03], 8: [1.0, 0.26, *[0.01] * 6]}
    assert [codec_for(integers, rate) for rate in (20e6, 200e6, 1e9)] == [8, 8, 0]
    text = {1: [0.3], 2: [0.46, 0.46], 4: [0.56] * 4}
    assert [codec_for(text, rate) for rate in (20e6, 200e6, 1e9)] == [1, 1, 0]


def test_a_way_is_as_fast_as_it_has_shown_lately() -> None:
    way = Way()
    assert way.rate == FIRST_RATE
    way.went(1000, 1.0)
    assert way.rate == FIRST_RATE, "what is small tells of the answer's time alone"
    for _ in range(200):
        way.went(2 << 20, 0.1)
    assert way.rate == pytest.approx((2 << 20) / 0.1, rel=0.01)


def test_chunks_of_releases_that_knew_plain_zstd_alone_are_read() -> None:
    assert unpack(framed(len(TEXT), zstandard.ZstdCompressor().compress(TEXT), 1), LIMIT) == TEXT


def test_text_shrinks_and_noise_stays() -> None:
    assert len(pack(TEXT)) < len(TEXT) / 10
    noise = os.urandom(1 << 20)
    assert pack(noise) is noise
    floats = struct.pack("50000d", *(int.from_bytes(os.urandom(6), "big") / 2**48 for _ in range(50_000)))
    assert pack(floats) is floats
    assert pack(b"x" * (PACKED_BYTES_MIN - 1)) == b"x" * (PACKED_BYTES_MIN - 1)


@given(st.integers(0, 4000))
def test_a_truncated_chunk_is_told(length: int) -> None:
    stored = pack(TEXT)
    with pytest.raises(Unreadable):
        unpack(stored[: len(MARK) + length % (len(stored) - len(MARK))], LIMIT)


@given(st.integers(0, 10**6), st.integers(1, 255), st.sampled_from([pack(TEXT), pack(weights(50_000), SLOW)]))
def test_a_damaged_chunk_is_told_or_gives_other_bytes(position: int, flip: int, packed: bytes) -> None:
    stored = bytearray(packed)
    stored[len(MARK) + position % (len(stored) - len(MARK))] ^= flip
    try:
        data = unpack(bytes(stored), LIMIT)
    except Unreadable:
        return
    assert len(data) <= LIMIT


def test_a_chunk_that_would_get_large_is_refused_before_it_does() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    assert len(bomb) < 10_000
    with pytest.raises(Unreadable, match="says that it holds"):
        unpack(framed(64 << 20, bomb), LIMIT)
    with pytest.raises(Unreadable, match="do not agree"):
        unpack(framed(1000, bomb), LIMIT)
    nameless = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(64 << 20))
    with pytest.raises(Unreadable, match="do not agree"):
        unpack(framed(1000, nameless), LIMIT)


def test_another_codec_is_not_guessed_at() -> None:
    with pytest.raises(Unreadable, match="codec 9"):
        unpack(framed(10, b"0123456789", codec=9), LIMIT)
