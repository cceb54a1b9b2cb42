"""Jupyter messages on the wire: split, verify, read what routing needs, and build the router's own.

Law: what a client sent is believed only after its signature was checked; what a replica sent passes verbatim.
Pure but for the clock in a new message's date.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.protocol.envelope import ENVELOPE_MARK
from replkernel.records import ReplicaId
from replkernel.router.core.events import Channel, ClientRequest, Header, ReplicaChannel, ReplicaMessage

DELIMITER = b"<IDS|MSG>"
PROTOCOL_VERSION = "5.4"
STALE_S = 3.0
"""So long after its start a router may meet interrupts from before; later, a client's clock may be behind."""
DIGESTS_MAX = 2**16
"""How many signatures are remembered, so that a recorded message cannot be played again."""

SIGNED_FRAMES = 4
"""Header, parent header, metadata, content; buffers are not signed."""
_SIGNED = slice(1, 1 + SIGNED_FRAMES)
"""The frames after the signature that it covers: header, parent header, metadata, content."""


class WireError(ReplkernelError):
    """A message is malformed, unsigned, or signed with another key."""


class ConnectionKeyError(ReplkernelError):
    """The signature scheme of the connection file is not one that this Python offers."""


class _Parent(msgspec.Struct, frozen=True):
    msg_id: str = ""


class _ReplicaHeader(msgspec.Struct, frozen=True):
    msg_type: str


_headers = msgspec.json.Decoder(Header)
_parents = msgspec.json.Decoder(_Parent)
_replica_headers = msgspec.json.Decoder(_ReplicaHeader)


def pack(value: object) -> bytes:
    """Encode a JSON value; text that is not valid Unicode is escaped rather than refused."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, TypeError, ValueError):
        return json.dumps(value, default=str).encode()


def unpack(data: bytes) -> dict[str, Any]:
    """Decode a JSON object; bytes that are not UTF-8 are replaced, as the stock session does.

    What is none, as what a cell's own code sends may be, has no fields.
    """
    try:
        value = json.loads(data.decode("utf8", "replace"))
    except UNREADABLE:
        return {}
    return value if isinstance(value, dict) else {}


class Signer:
    """Signs message frames by the connection file's key; an empty key means that nothing is signed."""

    def __init__(self, key: bytes, scheme: str) -> None:
        kind, _, digest = scheme.partition("-")
        if kind != "hmac" or digest not in hashlib.algorithms_available:
            raise ConnectionKeyError(
                f"The connection file's signature_scheme {scheme!r} is unknown: use hmac-sha256, "
                "or another hmac- scheme whose hash Python's hashlib offers."
            )
        self._auth = hmac.new(key, digestmod=digest) if key else None

    @property
    def signs(self) -> bool:
        """Tell whether messages are signed at all."""
        return self._auth is not None

    def sign(self, frames: Sequence[bytes]) -> bytes:
        """Return the signature of the four signed frames."""
        if self._auth is None:
            return b""
        auth = self._auth.copy()
        for frame in frames:
            auth.update(frame)
        return auth.hexdigest().encode()


class _Dated(msgspec.Struct, frozen=True):
    date: datetime | None = None


MOMENT_S = 0.25
"""Two messages of different clients that are closer than this by their dates came in the order of these."""


def _made_at(header: bytes) -> float | None:
    """Return when a client made a message, in Unix time by its clock; None where it does not say."""
    try:
        made = msgspec.json.decode(header, type=_Dated).date
    except UNREADABLE:
        return None
    return None if made is None or made.tzinfo is None else made.timestamp()


def made_before(first: ClientRequest, second: ClientRequest) -> bool:
    """Tell whether `first` was made before `second`: by one client's clock, or a moment before by two clocks.

    Clocks of two machines differ, so of different clients only what is closer than `MOMENT_S` is believed.
    """
    earlier, later = _made_at(first.header_frame), _made_at(second.header_frame)
    if earlier is None or later is None or earlier >= later:
        return False
    return first.header.session == second.header.session or later - earlier < MOMENT_S


class Gate:
    """Checks what clients send, and remembers it, so that a replay is told apart.

    A router that takes over at `began` (Unix time) finds an interrupt in its port that is not for it: the
    restarter of Jupyter sends one before it kills what is dead already. For STALE_S their dates count.
    """

    def __init__(self, signer: Signer, began: float = 0.0) -> None:
        self._signer = signer
        self._began = began
        self._seen: dict[bytes, None] = {}

    def read(self, channel: Channel, frames: list[bytes]) -> ClientRequest:
        """Return the request in `frames`.

        Raises WireError when it is malformed or its signature is missing or wrong.
        """
        identities, message = split(frames)
        repeated = False
        if self._signer.signs:
            repeated = self._check(message[1:])
        try:
            header = _headers.decode(message[2])
        except UNREADABLE:
            header = _lenient_header(message[2])
        return ClientRequest(
            channel=channel,
            identities=tuple(identities),
            header=header,
            header_frame=message[2],
            content=message[5],
            frames=message,
            repeated=repeated,
            stale=header.msg_type == "interrupt_request" and self._is_stale(message[2]),
        )

    def _is_stale(self, header: bytes) -> bool:
        if not 0 <= time.time() - self._began < STALE_S:
            return False
        made = _made_at(header)
        return made is not None and made < self._began

    def _check(self, body: list[bytes]) -> bool:
        signature = body[0]
        if not signature:
            raise WireError("a client's message carries no signature")
        if not hmac.compare_digest(signature, self._signer.sign(body[_SIGNED])):
            raise WireError("a client's message is signed with another key")
        if signature in self._seen:
            return True
        self._seen[signature] = None
        if len(self._seen) > DIGESTS_MAX:
            del self._seen[next(iter(self._seen))]
        return False


def _lenient_header(frame: bytes) -> Header:
    try:
        fields = unpack(frame)
        return Header(str(fields["msg_id"]), str(fields["msg_type"]), str(fields.get("session", "")))
    except KeyError as error:
        raise WireError(f"a client's message has no readable header ({type(error).__name__})") from None


def split(frames: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return the frames before the delimiter, and the message from the delimiter on.

    Raises WireError when there is no delimiter or fewer frames behind it than a message has.
    """
    try:
        at = frames.index(DELIMITER)
    except ValueError:
        raise WireError("a message has no delimiter") from None
    message = frames[at:]
    if len(message) < 6:
        raise WireError("a message has fewer frames than a Jupyter message")
    return frames[:at], message


def read_replica(replica: ReplicaId, channel: ReplicaChannel, frames: list[bytes]) -> ReplicaMessage:
    """Return a replica's message with what routing needs, its prefix free of our envelope."""
    prefix, message = split(frames)
    try:
        msg_type = _replica_headers.decode(message[2]).msg_type
        parent_id = _parents.decode(message[3]).msg_id
    except UNREADABLE as error:
        raise WireError(f"a replica's message has no readable header ({error})") from None
    if channel == "iopub" and msg_type == "execute_reply":
        # Held for the next router: the identity that it was sent to first, the last router's, is still there.
        channel, prefix = "shell", prefix[1:]
    return ReplicaMessage(
        replica=replica,
        channel=channel,
        msg_type=msg_type,
        parent_id=parent_id,
        prefix=tuple(frame for frame in prefix if not frame.startswith(ENVELOPE_MARK)),
        content=message[5],
        frames=message,
    )


def parent_of(header: bytes) -> str:
    """Return the id of the message with this header, or an empty string."""
    try:
        return _parents.decode(header).msg_id
    except UNREADABLE:
        return ""


def timestamp() -> str:
    """Return now as Jupyter writes dates: ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


class Builder:
    """Builds the messages that the router itself originates, under the `session` of its replicas."""

    def __init__(self, signer: Signer, username: str, session: str) -> None:
        self.session = session
        self._signer = signer
        self._username = username
        self._mark = os.urandom(4).hex()
        """What tells our messages from those of others that speak under the same session."""
        self._count = 0

    def build(self, msg_type: str, parent: bytes, content: bytes, metadata: bytes = b"{}") -> list[bytes]:
        """Return a message's frames from the delimiter on."""
        header = {
            "msg_id": f"{self.session}_{self._mark}_{self._count}",
            "msg_type": msg_type,
            "username": self._username,
            "session": self.session,
            "date": timestamp(),
            "version": PROTOCOL_VERSION,
        }
        self._count += 1
        return self.sign([pack(header), parent or b"{}", metadata, content])

    def sign(self, body: list[bytes]) -> list[bytes]:
        """Return the frames, from the delimiter on, of a message whose header says who made it."""
        return [DELIMITER, self._signer.sign(body[:SIGNED_FRAMES]), *body]
