"""The fingerprint of a captured unit: local digests of its stream and of its buffers, chunk by chunk.

Law: a fingerprint says "unchanged" in the process that made it and is never compared with another's.
"""

from __future__ import annotations

import _thread
import collections
import contextlib
from collections.abc import Iterator
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
        digests = bytes(xxh3_128_digest(view)) if size <= CHUNK_BYTES else _of_chunks(view, self._gate)
        digests += size_mark(size)
        if key is not None:
            self._known[key] = digests
        return digests


class _Helper:
    """A thread, which user code that lists threads does not meet, that makes some of a view's digests.

    Law: the thread has let go of the view before anybody is told that it is done.
    """

    def __init__(self, view: Any, starts: Iterator[int], digests: dict[int, bytes]) -> None:
        """Begin to take chunks from `starts`; raises RuntimeError when the system has no thread to give."""
        self._view: Any = view
        self._starts = starts
        self._digests = digests
        self._began = False
        self._error: Exception | None = None
        self._done = _thread.allocate_lock()
        self._done.acquire()
        _thread.start_new_thread(self._work, ())

    def _work(self) -> None:
        self._began = True
        view, self._view = self._view, None
        try:
            if view is not None:
                _take_chunks(view, self._starts, self._digests, OPEN_GATE)
        except Exception as error:  # of whoever asked for the digests
            self._error = error
        finally:
            view = None
            self._done.release()

    def end(self) -> None:
        """Wait until it has let go of the view; raises what it met. One that has not begun never will."""
        self._view = None
        if self._began:
            with self._done:
                if self._error is not None:
                    raise self._error


def _take_chunks(view: Any, starts: Iterator[int], digests: dict[int, bytes], gate: Gate) -> None:
    for start in starts:
        gate.check()
        digests[start] = xxh3_128_digest(view[start : start + CHUNK_BYTES])


def _of_chunks(view: Any, gate: Gate) -> bytes:
    """Return the digests of the chunks.

    Of a large view a second thread makes some, for memory feeds two: each takes the next chunk that nobody
    has taken, so that neither waits for the other, whenever the system lets the second one begin.
    """
    size = len(view)
    starts = iter(range(0, size, CHUNK_BYTES))  # The next of a range is one step, whatever thread asks.
    digests: dict[int, bytes] = {}
    helper: _Helper | None = None
    if size >= SHARED_BYTES:
        with contextlib.suppress(RuntimeError):
            helper = _Helper(view, starts, digests)
    try:
        _take_chunks(view, starts, digests, gate)
    finally:
        if helper is not None:
            collections.deque(starts, maxlen=0)  # Nothing is left to take when this thread was stopped.
            helper.end()
    return b"".join([digests[start] for start in range(0, size, CHUNK_BYTES)])


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
