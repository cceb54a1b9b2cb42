"""The buffers of one payload, each read when it is asked for, or straight into the memory where it is to lie;
and those of a component that a cell may need soon, read ahead.

Law: the digest of a buffer is taken of what came, before anything that is built from it may change it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from replkernel.errors import ReplkernelError
from replkernel.objects.cache import BlobCache
from replkernel.records import BlobRef, ComponentId, ComponentRecord, payload_blobs
from replkernel.state.capture.dump import BufferDigests
from replkernel.state.process.own_threads import own_thread


class Incoming(Sequence[Any]):
    """The buffers of one payload by their numbers."""

    def __init__(self, items: Sequence[bytes | BlobRef], reader: BlobReader) -> None:
        self._items = items
        self._reader = reader
        self._read: dict[int, Any] = {}
        self._digests: dict[int, bytes] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._items)

    def __getitem__(self, number: Any) -> Any:
        """Return a buffer, the same one each time."""
        item = self._items[number]
        if not isinstance(item, BlobRef):
            return item
        if number not in self._read:
            data = self._read[number] = self._reader.read_blob(item)
            self._note(number, memoryview(data))
        return self._read[number]

    def fill(self, number: int, target: memoryview, own_map: int | None) -> None:
        """Fill memory with a buffer; `own_map` as `BlobCache.fill` says."""
        item = self._items[number]
        if number in self._read or not isinstance(item, BlobRef):
            target[:] = self[number]
        else:
            self._reader.fill(item, target, own_map)
            self._note(number, target)

    def digests(self) -> list[bytes]:
        """Return the digests of all buffers; what nobody has asked for is read."""
        for number in range(len(self._items)):
            if number not in self._digests:
                data = self[number]
                if number not in self._digests:
                    self._note(number, memoryview(data))
        return [self._digests[number] for number in range(len(self._items))]

    def _note(self, number: int, data: memoryview) -> None:
        self._digests[number] = BufferDigests().of(data, None)


_COPIED = frozenset({"torch", "pyarrow", "polars"})
"""What has memory that nothing can be mapped over."""


THREAD = "Read ahead"
"""The name of the thread that reads."""


class BlobReader(Protocol):
    """Gives the bytes of blobs that are on this host."""

    def read_blob(self, ref: BlobRef) -> bytearray:
        """Return a blob in a buffer of the caller's own."""
        ...

    def fill(self, ref: BlobRef, target: memoryview, own_map: int | None = None) -> None:
        """Fill memory with a blob, as `BlobCache.fill` does."""
        ...


def _is_mapped(record: ComponentRecord) -> bool:
    """Tell whether what is large of a component is numpy's alone: its arrays map their chunks."""
    return "numpy" in record.modules and _COPIED.isdisjoint(record.modules)


class ReadAhead:
    """Stands before the host's blob cache, with the blobs of one component read by a thread of its own.

    Memory: never more than one component's bytes, which are handed out once.
    """

    def __init__(self, cache: BlobCache) -> None:
        self._cache = cache
        self._lock = threading.Lock()
        self._refs: frozenset[BlobRef] = frozenset()
        self._read: dict[BlobRef, bytearray] = {}
        self._thread: threading.Thread | None = None
        self.cid: ComponentId | None = None
        """The component that is being read, or was read last."""

    @property
    def busy(self) -> bool:
        """Tell whether a component is being read."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, record: ComponentRecord, bring: Callable[[], None], done: Callable[[], None]) -> None:
        """Read a component's blobs, after `bring` has seen to it that they are on this host.

        Both are called on a thread of their own; `done` also when the bytes could not be had.
        """
        if self.busy:
            return
        self.forget()
        self.cid = record.cid
        self._refs = frozenset(payload_blobs(record.payload))
        thread = own_thread(self._work, THREAD, (bring, done, _is_mapped(record)))
        thread.start()
        self._thread = thread  # Not before: a subshell may ask meanwhile, and only what runs can be joined.

    def forget(self) -> None:
        """Let go of what was read and not asked for."""
        with self._lock:
            self._read.clear()
            self.cid = None

    def _work(self, bring: Callable[[], None], done: Callable[[], None], mapped: bool) -> None:
        try:
            bring()
            for ref in self._refs:
                if mapped and self._cache.look_at(ref):
                    continue
                data = self._cache.read_blob(ref)
                with self._lock:
                    self._read[ref] = data
        except (ReplkernelError, OSError):
            pass  # Whoever needs the component meets the same error, and says so.
        done()

    def read_blob(self, ref: BlobRef) -> bytearray:
        """Return a blob in a buffer of the caller's own, as the cache does."""
        data = self._handed_out(ref)
        return self._cache.read_blob(ref) if data is None else data

    def fill(self, ref: BlobRef, target: memoryview, own_map: int | None = None) -> None:
        """Fill memory with a blob, as the cache does."""
        data = self._handed_out(ref)
        if data is None:
            self._cache.fill(ref, target, own_map)
        else:
            target[:] = data

    def _handed_out(self, ref: BlobRef) -> bytearray | None:
        thread = self._thread
        if thread is not None and ref in self._refs:
            thread.join()
        with self._lock:
            return self._read.pop(ref, None)

    def missing(self, ref: BlobRef) -> Sequence[Any]:
        """Return the chunks that the cache lacks."""
        return self._cache.missing(ref)
