"""The fingerprint of a captured unit: local digests of its stream and of its buffers, chunk by chunk.

Law: a fingerprint says "unchanged" in the process that made it and is never compared with another's.
"""

from __future__ import annotations

import _thread
from typing import Any

from xxhash import xxh3_128_digest

from replkernel.namespace.giving_way import OPEN_GATE, Gate
from replkernel.objects.cutting import CHUNK_BYTES

DIGEST_BYTES = 16
SHARED_BYTES = 8 << 20
"""A buffer of so many bytes is worth a second thread, which costs as much as hashing 2 MB."""


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
            digests = _of_chunks(view, self._gate) if size < SHARED_BYTES else _of_halves(view, self._gate)
        digests += size_mark(size)
        if key is not None:
            self._known[key] = digests
        return digests


def _of_chunks(view: Any, gate: Gate) -> bytes:
    pieces = []
    for start in range(0, len(view), CHUNK_BYTES):
        gate.check()
        pieces.append(xxh3_128_digest(view[start : start + CHUNK_BYTES]))
    return b"".join(pieces)


class _LaterHalf:
    """The digests of a view's chunks, made by a thread that user code which lists threads does not meet.

    Law: the thread has let go of the view before anybody is told that it is done.
    """

    def __init__(self, view: Any) -> None:
        """Begin; raises RuntimeError when the system has no thread to give."""
        self._view = view
        self._stopped = False
        self._pieces: list[bytes] = []
        self._error: Exception | None = None
        self._done = _thread.allocate_lock()
        self._done.acquire()
        _thread.start_new_thread(self._work, ())

    def _work(self) -> None:
        try:
            for start in range(0, len(self._view), CHUNK_BYTES):
                if self._stopped:
                    break
                self._pieces.append(xxh3_128_digest(self._view[start : start + CHUNK_BYTES]))
        except Exception as error:  # of whoever asked for the digests
            self._error = error
        finally:
            self._view = None
            self._done.release()

    def take(self) -> bytes:
        """Return the digests once they are there."""
        with self._done:
            if self._error is not None:
                raise self._error
            return b"".join(self._pieces)

    def stop(self) -> None:
        """End it before it is done, or not."""
        self._stopped = True
        with self._done:
            self._pieces.clear()


def _of_halves(view: Any, gate: Gate) -> bytes:
    """Return the digests of the chunks; a second thread takes the later half, for memory feeds two."""
    half = len(view) // CHUNK_BYTES // 2 * CHUNK_BYTES
    try:
        later = _LaterHalf(view[half:])
    except RuntimeError:
        return _of_chunks(view, gate)
    try:
        return _of_chunks(view[:half], gate) + later.take()
    finally:
        later.stop()


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
