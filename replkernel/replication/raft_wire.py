"""What PySyncObj sends over its sockets, replaced: sealing, no compression, and bounded connections.

Each class keeps PySyncObj's own interface; `raft_fit` puts them in place.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections import deque
from functools import lru_cache
from typing import Any

import pysyncobj.pickle
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pysyncobj.monotonic import monotonic as raft_clock
from pysyncobj.tcp_connection import CONNECTION_STATE, TcpConnection

from replkernel.errors import AuthenticationFailed

SECRET_BYTES_MIN = 16
HANDSHAKE_BYTES_MAX = 4096
"""A peer that has not shown the secret yet may send this much."""
BUFFERED_BYTES_MAX = 128 * 1024 * 1024
"""A peer that has may not send a message larger than this."""
READ_WRITE_FAILED = 1 | 2 | 4

_NONCE_BYTES = 12
_TIME_BYTES = 8


class NoCompression:
    """Stands in for zlib: state is captured bytes that seldom shrink, and level 3 takes 30 ms a megabyte."""

    @staticmethod
    def compress(data: bytes, level: int) -> bytes:
        """Return `data` as it is."""
        return data

    @staticmethod
    def decompress(data: bytes) -> bytes:
        """Return `data` as it is."""
        return data


class SealedChannel:
    """Stands in for Fernet: AES-256-GCM, 1 µs instead of 25 a message and no base64.

    A message is its sender's time, a random nonce, and the sealed bytes, which cover the time too.
    """

    def __init__(self, key: bytes) -> None:
        self._aead = AESGCM(key)

    def encrypt_at_time(self, data: bytes, at: int) -> bytes:
        """Return `data` sealed, with the time `at` readable in front."""
        time_bytes = at.to_bytes(_TIME_BYTES, "big")
        nonce = os.urandom(_NONCE_BYTES)
        return time_bytes + nonce + self._aead.encrypt(nonce, data, time_bytes)

    def extract_timestamp(self, message: bytes) -> int:
        """Return the time in front of a message; it is proven by `decrypt`, which follows at once."""
        return int.from_bytes(message[:_TIME_BYTES], "big")

    def decrypt(self, message: bytes) -> bytes:
        """Return what was sealed; raise AuthenticationFailed when the secret is another one."""
        nonce = message[_TIME_BYTES : _TIME_BYTES + _NONCE_BYTES]
        try:
            return self._aead.decrypt(nonce, message[_TIME_BYTES + _NONCE_BYTES :], message[:_TIME_BYTES])
        except (InvalidTag, ValueError) as error:
            raise AuthenticationFailed("A Raft peer does not know this kernel's secret.") from error


@lru_cache(maxsize=256)
def sealed_channel(secret: str) -> SealedChannel:
    """Return the channel of a secret, made once: PySyncObj's own derivation takes 22 ms a member.

    Slow derivation protects guessable passwords; ours are random, and short ones are refused.
    """
    if len(secret.encode()) < SECRET_BYTES_MIN:
        raise AuthenticationFailed(
            f"A Raft secret needs at least {SECRET_BYTES_MIN} random bytes; make it with secrets.token_hex()."
        )
    key = hashlib.blake2b(secret.encode(), digest_size=32, person=b"replkernel-raft").digest()
    return SealedChannel(key)


class BoundedConnection(TcpConnection):  # type: ignore[misc]
    """A connection that limits what a peer can make us buffer, and sends the rest of a full buffer.

    PySyncObj leaves what the socket did not take until the next message, up to a heartbeat later, and
    copies all of it for each message that is added, which for a large snapshot takes seconds.
    """

    ends: tuple[tuple[str, int], tuple[str, int]]
    """Where an accepted connection comes from, and where it arrived."""

    def __init__(self, *args: Any, **options: object) -> None:
        self._backlog: deque[bytes] = deque()
        self._TcpConnection__writeBuffer: bytes
        super().__init__(*args, **options)

    def send(self, message: object) -> None:
        """Send a message, and ask to be called when the socket takes more."""
        sealed = (self.sendRandKey, message) if self.sendRandKey else message
        data = pysyncobj.pickle.dumps(sealed)
        if self.encryptor:
            data = self.encryptor.encrypt_at_time(data, int(raft_clock()))
        self._backlog.append(struct.pack("i", len(data)) + data)
        self._TcpConnection__trySendBuffer()
        if self.getSendBufferSize() and self.state == CONNECTION_STATE.CONNECTED:
            on_event = self._TcpConnection__processConnection
            self._TcpConnection__poller.subscribe(self.fileno(), on_event, READ_WRITE_FAILED)

    def disconnect(self) -> None:
        """Close the connection; what was not sent is gone."""
        self._backlog.clear()
        super().disconnect()

    def _TcpConnection__processSend(self) -> bool:  # noqa: N802 - the name that PySyncObj calls
        if self._backlog and not self._TcpConnection__writeBuffer:
            self._TcpConnection__writeBuffer = self._backlog.popleft()
        return bool(super()._TcpConnection__processSend())

    def _TcpConnection__processRead(self) -> bool:  # noqa: N802 - the name that PySyncObj calls
        more = bool(super()._TcpConnection__processRead())
        known = self.encryptor is None or self.recvRandKey is not None
        if len(self._TcpConnection__readBuffer) > (BUFFERED_BYTES_MAX if known else HANDSHAKE_BYTES_MAX):
            self.disconnect()
            return False
        return more
