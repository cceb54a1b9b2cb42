"""What all messages between replkernel's processes share: their base, their limit, their encoding.

msgpack by msgspec, one message a ZMQ frame. What comes from a peer is decoded with `decoder`, one for each
direction; a message that does not fit is refused by name, and so is a peer of another protocol version.
"""

from __future__ import annotations

import msgspec

from replkernel.errors import ProtocolMismatch

PROTOCOL_VERSION = 2

MESSAGE_BYTES_MAX = 64 * 1024 * 1024
"""No message between our own processes is larger than this."""


class Message(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The base of all messages; the tag is the class name."""


_encoder = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    """Encode one message for the wire."""
    return _encoder.encode(message)


def decoder(union: object) -> msgspec.msgpack.Decoder[object]:
    """Return a decoder for the union of one direction (``decoder(RouterToAgent)``)."""
    return msgspec.msgpack.Decoder(union)


def check_version(version: int, peer: str) -> None:
    """Raise ProtocolMismatch when a peer's protocol version is not ours."""
    if version != PROTOCOL_VERSION:
        raise ProtocolMismatch(
            f"The {peer} speaks protocol version {version}, this process {PROTOCOL_VERSION}: "
            "install the same release of replkernel on every host and restart the agent."
        )
