"""What an agent and its zygote say to each other: length-prefixed msgpack frames over a socket pair."""

from __future__ import annotations

import socket
import struct
from typing import TypeAlias

import msgspec

FRAME_BYTES_MAX = 16 * 1024 * 1024
"""A birth carries an environment and paths; nothing sane comes near this."""

_LENGTH = struct.Struct("!I")


class ZygoteMessage(msgspec.Struct, frozen=True, tag=True):
    """The base of the zygote's messages."""


class ForkKernel(ZygoteMessage, frozen=True):
    """Fork a kernel process from `birth` (a msgpack `Birth`); `tag` names the request."""

    tag: int
    birth: bytes


class ZygoteReady(ZygoteMessage, frozen=True):
    """Everything is imported; `skipped` are preload packages that could not be, with the reason."""

    skipped: dict[str, str]


class KernelForked(ZygoteMessage, frozen=True):
    """The kernel process of request `tag` exists."""

    tag: int
    pid: int


class ForkRefused(ZygoteMessage, frozen=True):
    """The kernel process of request `tag` could not be made."""

    tag: int
    why: str


class KernelExited(ZygoteMessage, frozen=True):
    """A kernel process ended: its raw wait status, its largest memory in KiB, and when (monotonic)."""

    pid: int
    wait_status: int
    rss_max_kib: int
    at: float


ZygoteReport: TypeAlias = ZygoteReady | KernelForked | ForkRefused | KernelExited

report_decoder = msgspec.msgpack.Decoder(ZygoteReport)
request_decoder = msgspec.msgpack.Decoder(ForkKernel)
_encoder = msgspec.msgpack.Encoder()


def frame(message: ZygoteMessage) -> bytes:
    """Return the frame of one message.

    Raises ValueError when it is larger than FRAME_BYTES_MAX.
    """
    body = _encoder.encode(message)
    if len(body) > FRAME_BYTES_MAX:
        raise ValueError(f"a message to the zygote of {len(body)} bytes; the limit is {FRAME_BYTES_MAX}")
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Cut a byte stream into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take more bytes; return the frames that are now whole. Raises ValueError for an absurd length."""
        self._buffer += data
        frames: list[bytes] = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > FRAME_BYTES_MAX:
                raise ValueError(f"a frame of {length} bytes; the limit is {FRAME_BYTES_MAX}")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            frames.append(bytes(self._buffer[_LENGTH.size : end]))
            del self._buffer[:end]
        return frames


def send_frame(link: socket.socket, message: ZygoteMessage) -> None:
    """Send one message, blocking until the peer's buffer has room."""
    link.sendall(frame(message))
