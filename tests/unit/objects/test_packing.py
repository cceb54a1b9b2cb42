"""Packed chunks: smaller where that pays, the same bytes back, and nothing hostile gets large or wrong."""

from __future__ import annotations

import os
import struct

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from replkernel.objects.packing import MARK, PACKED_BYTES_MIN, ZSTD, Unreadable, is_packed, pack, unpack

LIMIT = 16 << 20
TEXT = b"one line of a text, and another\n" * 20_000


def framed(size: int, frame: bytes, codec: int = ZSTD) -> bytes:
    return MARK + struct.pack("<BI", codec, size) + frame


@given(st.binary(max_size=200), st.integers(0, 400))
def test_the_bytes_come_back(block: bytes, times: int) -> None:
    data = block * times
    stored = pack(data)
    assert stored is data or (is_packed(stored) and unpack(stored, LIMIT) == data)
    assert len(stored) <= len(data)


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


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_damaged_chunk_is_told_or_gives_other_bytes(position: int, flip: int) -> None:
    stored = bytearray(pack(TEXT))
    stored[len(MARK) + position % (len(stored) - len(MARK))] ^= flip
    try:
        data = unpack(bytes(stored), LIMIT)
    except Unreadable:
        return
    assert len(data) <= LIMIT


def test_what_would_get_large_is_refused_before_it_does() -> None:
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
