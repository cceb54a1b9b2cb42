"""The buffers of one payload, each read when it is asked for, or straight into the memory where it is to lie.

Law: the digest of a buffer is taken of what came, before anything that is built from it may change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from replkernel.records import BlobRef
from replkernel.state.capture.fingerprint import BufferDigests
from replkernel.state.restore.left_behind import BlobReader


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
