"""The fingerprint of a captured unit: local digests of its stream and of its buffers, chunk by chunk.

Law: a fingerprint says "unchanged" in the process that made it and is never compared with another's.
"""

from __future__ import annotations

from typing import Any

from xxhash import xxh3_128_digest

from replkernel.namespace.giving_way import OPEN_GATE, Gate
from replkernel.objects.cutting import CHUNK_BYTES

DIGEST_BYTES = 16


class BufferDigests:
    """The digests of the buffers met in one capture: a buffer in two dumps is hashed once."""

    def __init__(self, gate: Gate = OPEN_GATE) -> None:
        self._known: dict[tuple[int, int], bytes] = {}
        self._gate = gate

    def of(self, view: Any, key: tuple[int, int] | None) -> bytes:
        """Return the digests of the buffer's chunks, one after the other; `key` is (address, bytes).

        A buffer on a device hashes itself there.
        """
        if key is not None:
            known = self._known.get(key)
            if known is not None:
                return known
        if not isinstance(view, memoryview) and hasattr(view, "digest"):
            return bytes(view.digest())
        size = len(view)
        if size <= CHUNK_BYTES:
            digests = bytes(xxh3_128_digest(view))
        else:
            check = self._gate.check
            pieces = []
            for start in range(0, size, CHUNK_BYTES):
                check()
                pieces.append(xxh3_128_digest(view[start : start + CHUNK_BYTES]))
            digests = b"".join(pieces)
        digests += size_mark(size)
        if key is not None:
            self._known[key] = digests
        return digests


def size_mark(size: int) -> bytes:
    """Return what stands behind a buffer's digests: how many bytes it has."""
    return size.to_bytes(8, "little")


def digest_of_stream(parts: list[bytes]) -> bytes:
    """Return the local digest of a stream in pieces."""
    if len(parts) == 1:
        return bytes(xxh3_128_digest(parts[0]))
    from xxhash import xxh3_128

    state = xxh3_128()
    for part in parts:
        state.update(part)
    return bytes(state.digest())
