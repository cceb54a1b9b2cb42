"""A chunk as it lies in a store on another machine: packed where samples say that it pays, else as it is.

A packed chunk begins with a mark, the codec's number and the plain size. Law: a chunk's name is the digest of
its plain bytes, which alone decides; what is unpacked is bounded before; what was stored plain reads on.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

MARK = b"\x93replkernel\x00"

PLAIN = 1
WIDTHS = (2, 4, 8)
"""The codecs: zstd of the bytes as they are, and of the first, second … bytes of all numbers of a width.

The exponents of floats and the upper bytes of integers are alike; between the others zstd does not see it.
"""

LEVEL = 1
"""Higher levels of zstd cost more time than a network of 100 MB/s gives back."""

_HEADER = struct.Struct("<BI")
_HEAD_BYTES = len(MARK) + _HEADER.size

PACKED_BYTES_MIN = 4096
"""Smaller chunks are stored as they are."""

SAMPLES = 4
SAMPLE_BYTES = 8 * 1024

PACKED_PART_MAX = 0.9
"""What was packed is kept when the whole shrank below this part."""

RATES = ((0.05, 1400e6), (0.7, 350e6), (0.95, 1000e6))
NOISE_RATE = 3000e6
"""Bytes that a thread packs in a second, by the part below which they shrink; what hardly does is skipped."""
SHUFFLE_RATE = 1700e6
"""Bytes that it takes apart in a second."""

FIRST_RATE, FIRST_BYTES = 200e6, 32e6
"""A store is taken for so fast until more than a few times as many bytes have shown otherwise."""
WAY_BYTES_MIN = 256 * 1024
WAY_KEPT = 0.95


class Unreadable(ValueError):
    """The bytes are marked as packed, and are not what this process can unpack."""


class Way:
    """How fast chunks have gone into a store lately, one after the other, as far as they tell."""

    def __init__(self) -> None:
        self._bytes, self._seconds = FIRST_BYTES, FIRST_BYTES / FIRST_RATE

    @property
    def rate(self) -> float:
        """Return the bytes that go in a second."""
        return self._bytes / self._seconds

    def went(self, size: int, seconds: float) -> None:
        """Note in how many seconds so many bytes went; what is small tells of the answer's time alone."""
        if size >= WAY_BYTES_MIN and seconds > 0:
            self._bytes, self._seconds = WAY_KEPT * self._bytes + size, WAY_KEPT * self._seconds + seconds


def pack(data: bytes, rate: float = FIRST_RATE) -> bytes:
    """Return `data` packed, or as it is when that does not pay on a way of so many bytes a second."""
    if len(data) < PACKED_BYTES_MIN:
        return data
    import zstandard

    zstd = zstandard.ZstdCompressor(level=LEVEL, write_content_size=True)
    sample, parts = _sample(data), {}
    for codec in (PLAIN, *WIDTHS):
        planes = [sample[start::codec] for start in range(codec)]
        parts[codec] = [len(zstd.compress(plane)) / len(plane) for plane in planes]
    codec = codec_for(parts, rate)
    if not codec:
        return data
    packed = zstd.compress(_shuffled(data, codec))
    if len(packed) > PACKED_PART_MAX * len(data):
        return data
    return MARK + _HEADER.pack(codec, len(data)) + packed


def codec_for(parts: Mapping[int, Sequence[float]], rate: float) -> int:
    """Return the codec with which a chunk is stored soonest, 0 where that is as it is.

    `parts` tells of each codec to which part its planes shrink; `rate` is how many bytes go to the store in
    a second.
    """
    times = {codec: sum(planes) / len(planes) / rate + _pack_s(planes) for codec, planes in parts.items()}
    best = min(times, key=lambda codec: times[codec])
    return best if times[best] < 1 / rate else 0


def _pack_s(planes: Sequence[float]) -> float:
    """Return in how many seconds a byte is packed, by the part to which each plane shrinks."""
    rates = [next((rate for below, rate in RATES if part < below), NOISE_RATE) for part in planes]
    mean_s = sum(1 / rate for rate in rates) / len(rates)
    return mean_s + (1 / SHUFFLE_RATE if len(planes) > 1 else 0.0)


def is_packed(stored: bytes) -> bool:
    """Tell whether the bytes say that they are packed; plain bytes may say so by chance."""
    return stored.startswith(MARK)


def unpack(stored: bytes, size_max: int) -> bytes:
    """Return the plain bytes of what `is_packed`; raise Unreadable, before anything large is made."""
    import zstandard

    if len(stored) < _HEAD_BYTES:
        raise Unreadable("it ends in its header")
    codec, size = _HEADER.unpack_from(stored, len(MARK))
    if codec not in (PLAIN, *WIDTHS):
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
    return _put_back(data, codec)


def _sample(data: bytes) -> bytes:
    step = max(SAMPLE_BYTES, (len(data) - SAMPLE_BYTES) // (SAMPLES - 1) // max(WIDTHS) * max(WIDTHS))
    return b"".join(data[at : at + SAMPLE_BYTES] for at in range(0, SAMPLES * step, step))


def _shuffled(data: bytes, width: int) -> bytes:
    """Return the first bytes of all numbers, then the second ones …; what is left over is dealt out too."""
    return data if width == PLAIN else b"".join([data[start::width] for start in range(width)])


def _put_back(data: bytes, width: int) -> bytes:
    """Return what `_shuffled` was given."""
    if width == PLAIN:
        return data
    plain, at = bytearray(len(data)), 0
    for start in range(width):
        length = len(range(start, len(data), width))
        plain[start::width] = data[at : at + length]
        at += length
    return bytes(plain)
