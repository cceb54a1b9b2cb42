"""A chunk as it lies in a store on another machine: packed where samples say that it pays, else as it is.

A packed chunk begins with a mark, the codec's number and the plain size. Law: a chunk's name is the digest of
its plain bytes, which alone decides; what is unpacked is bounded before; what was stored plain reads on.
"""

from __future__ import annotations

import struct

MARK = b"\x93replkernel\x00"
ZSTD = 1
LEVEL = 1
"""Higher levels of zstd cost more time than a network of 100 MB/s gives back."""

_HEADER = struct.Struct("<BI")
_HEAD_BYTES = len(MARK) + _HEADER.size

PACKED_BYTES_MIN = 4096
"""Smaller chunks are stored as they are."""

SAMPLES = 4
SAMPLE_BYTES = 8 * 1024
SAMPLE_PART_MAX = 0.8
"""A chunk is packed when its samples shrink below this part; random numbers stay above 0.9."""

PACKED_PART_MAX = 0.9
"""What was packed is kept when the whole shrank below this part."""


class Unreadable(ValueError):
    """The bytes are marked as packed, and are not what this process can unpack."""


def pack(data: bytes) -> bytes:
    """Return `data` packed, or as it is when that does not pay."""
    if len(data) < PACKED_BYTES_MIN:
        return data
    import zstandard

    codec = zstandard.ZstdCompressor(level=LEVEL, write_content_size=True)
    sample = _sample(data)
    if len(codec.compress(sample)) > SAMPLE_PART_MAX * len(sample):
        return data
    packed = codec.compress(data)
    if len(packed) > PACKED_PART_MAX * len(data):
        return data
    return MARK + _HEADER.pack(ZSTD, len(data)) + packed


def is_packed(stored: bytes) -> bool:
    """Tell whether the bytes say that they are packed; plain bytes may say so by chance."""
    return stored.startswith(MARK)


def unpack(stored: bytes, size_max: int) -> bytes:
    """Return the plain bytes of what `is_packed`; raise Unreadable, before anything large is made."""
    import zstandard

    if len(stored) < _HEAD_BYTES:
        raise Unreadable("it ends in its header")
    codec, size = _HEADER.unpack_from(stored, len(MARK))
    if codec != ZSTD:
        raise Unreadable(f"it is packed by codec {codec}, which this release does not know")
    if size > size_max:
        raise Unreadable(f"it says that it holds {size:,} bytes")
    frame = memoryview(stored)[_HEAD_BYTES:]
    try:
        if zstandard.get_frame_parameters(frame).content_size != size:
            raise Unreadable("its sizes do not agree")
        data = zstandard.ZstdDecompressor(max_window_size=size_max).decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise Unreadable(str(error)) from error
    return bytes(data)


def _sample(data: bytes) -> bytes:
    step = max(SAMPLE_BYTES, (len(data) - SAMPLE_BYTES) // (SAMPLES - 1))
    return b"".join(data[at : at + SAMPLE_BYTES] for at in range(0, SAMPLES * step, step))
