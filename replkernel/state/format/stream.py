"""A payload's head: what the pickle stream needs beside its bytes, and a reader that puts large pieces back.

Large `bytes` and `str` objects leave the stream as buffers of their own; `cuts` says where they belong.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from replkernel.errors import UNREADABLE
from replkernel.state.format.set_order import Recipe

FORMAT_VERSION = 3
"""3 names loaders by id, 2 (release 0.1) by module and function."""
READABLE = (2, 3)
OUT_OF_BAND_BYTES = 64 * 1024
"""Buffers from this size on leave the stream."""

_LENGTH = struct.Struct("<I")


class Head(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """What stands in front of the stream.

    `roots` are the names that the payload binds: of variables, of classes (``class:…``). `single` tells
    that the stream is the one root's value itself. `cuts` are (offset in the stream, number of the buffer
    that belongs there), ascending. `native` are the numbers of the buffers that NEXT_BUFFER takes, in order.
    `sets` tell how to bring back the order of sets that unpickling would bring into another.
    """

    version: int
    roots: tuple[str, ...]
    single: bool = True
    cuts: tuple[tuple[int, int], ...] = ()
    native: tuple[int, ...] = ()
    sets: tuple[Recipe, ...] = ()


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Head)


def head_bytes(head: Head) -> bytes:
    """Return the bytes that stand in front of the stream."""
    encoded = _encoder.encode(head)
    return _LENGTH.pack(len(encoded)) + encoded


def join_head(head: Head, stream: Sequence[bytes]) -> bytes:
    """Return the bytes of head and stream."""
    return b"".join((head_bytes(head), *stream))


def split_head(data: bytes | bytearray | memoryview) -> tuple[Head, memoryview]:
    """Return the head and the stream; raise ValueError when the bytes are not ours."""
    view = memoryview(data)
    (length,) = _LENGTH.unpack_from(view)
    try:
        head = _decoder.decode(view[_LENGTH.size : _LENGTH.size + length])
    except UNREADABLE as error:
        raise ValueError(f"the payload's head cannot be read ({error})") from error
    if head.version not in READABLE:
        raise ValueError(
            f"the payload has format {head.version}, this process reads {READABLE[0]} to {READABLE[-1]}: "
            "install the same release of replkernel on every host"
        )
    return head, view[_LENGTH.size + length :]


class StreamReader(io.RawIOBase):
    """Reads the pieces of a stream, one after the other, as the unpickler asks for them."""

    def __init__(self, pieces: Sequence[Any]) -> None:
        self._pieces = [memoryview(piece).cast("B") for piece in pieces if len(piece)]
        self._index = 0
        self._offset = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, target: Any) -> int:
        """Fill `target` across pieces; fewer bytes come only at the end."""
        out = memoryview(target).cast("B")
        done = 0
        while done < len(out) and self._index < len(self._pieces):
            piece = self._pieces[self._index]
            take = min(len(out) - done, len(piece) - self._offset)
            out[done : done + take] = piece[self._offset : self._offset + take]
            done += take
            self._offset += take
            if self._offset == len(piece):
                self._index += 1
                self._offset = 0
        return done

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, all that is left when negative."""
        if size < 0:
            size = sum(len(piece) for piece in self._pieces[self._index :]) - self._offset
        out = bytearray(size)
        done = self.readinto(out)
        return bytes(memoryview(out)[:done])


def reader_of(head: Head, stream: memoryview, preamble: bytes, buffers: Sequence[Any]) -> Any:
    """Return a file object with the preamble and the whole stream."""
    if not head.cuts:
        return io.BytesIO(preamble + bytes(stream))
    pieces: list[Any] = [preamble]
    position = 0
    for offset, number in head.cuts:
        pieces += [stream[position:offset], buffers[number]]
        position = offset
    pieces.append(stream[position:])
    return StreamReader(pieces)
