"""What a router says to a kernel process upstream on iopub: which of its output has arrived."""

from __future__ import annotations

import msgspec

from replkernel.errors import UNREADABLE

CONFIRMS = b"\x02"
"""The first byte of a `Confirmation`, as 1 is that of a subscription and 0 that of its end."""


class Confirmation(msgspec.Struct, frozen=True, array_like=True):
    """What has reached the router, by its headers: all output up to `last`, and the `replies` to executions.

    The process holds everything else, for the router after this one.
    """

    last: bytes
    replies: list[bytes]


_encoder = msgspec.msgpack.Encoder()
_confirmation_decoder = msgspec.msgpack.Decoder(Confirmation)


def confirmation_frame(confirmation: Confirmation) -> bytes:
    """Return the frame that carries `confirmation`."""
    return CONFIRMS + _encoder.encode(confirmation)


def read_confirmation(frame: bytes) -> Confirmation | None:
    """Return the confirmation that a frame carries, or None when it carries none that can be read."""
    if not frame.startswith(CONFIRMS):
        return None
    try:
        return _confirmation_decoder.decode(frame[len(CONFIRMS) :])
    except UNREADABLE:
        return None
