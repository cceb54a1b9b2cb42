"""Turns a dumped unit into a component record: small bytes inline, large ones into the blob cache.

Law: a chunk whose local digest is known is neither hashed again by BLAKE3 nor written; a unit that changed
between its fingerprint and its writing counts as changed at the next capture.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from blake3 import blake3
from msgspec.structs import replace

from replkernel.objects.cache import BlobCache, Marks
from replkernel.objects.cutting import CHUNK_BYTES, looks_like_text
from replkernel.records import (
    BlobRef,
    ChunkRef,
    ComponentId,
    ComponentRecord,
    Digest,
    Making,
    Payload,
    Seq,
    payload_blobs,
)
from replkernel.state.analysis.mentions import ANYTHING, LOOKERS, names_of
from replkernel.state.capture.dump import DIGEST_BYTES, BufferDigests, Dump, size_mark
from replkernel.state.capture.memo_table import object_at
from replkernel.state.component_table import Devices
from replkernel.state.format.set_order import OBJECTS_MAX, Recipe, recipes_for
from replkernel.state.format.stream import head_bytes
from replkernel.state.python.class_registry import ROOT_PREFIX

PINS_MAX = 100
"""No more pins of one component are told; the tombstones are all there."""

ANY = frozenset({ANYTHING})

TEXT_CHANGE_BYTES = 4 * CHUNK_BYTES
"""A piece that changed is in chunks of no more than this, where cuts follow the content."""

CHANGED_MEANWHILE = b"changed while it was written"
"""The fingerprint of a unit that another thread changed meanwhile: no later one is equal to it."""

Check = Callable[[], None]


class KnownBuffer(msgspec.Struct, frozen=True):
    """A buffer as last written: its local digests then, its blob, its chunks' digests if cuts are fixed."""

    digests: bytes
    blob: BlobRef
    marks: Marks = []

    def start(self, digests: bytes) -> list[ChunkRef]:
        """Return the chunks with which a buffer of these digests begins as well, where cuts follow it."""
        if self.marks:
            return []
        same = 0
        for at in range(0, len(self.digests) - DIGEST_BYTES, DIGEST_BYTES):
            if self.digests[at : at + DIGEST_BYTES] != digests[at : at + DIGEST_BYTES]:
                break
            same += CHUNK_BYTES
        kept: list[ChunkRef] = []
        end = 0
        for chunk in self.blob.chunks:
            end += chunk.size
            if end > same or end == self.blob.size:
                break
            kept.append(chunk)
        return kept


class Known(msgspec.Struct):
    """A component's payload as last written: the chunks of its head, and each buffer."""

    head: Marks = msgspec.field(default_factory=list)
    buffers: list[KnownBuffer] = msgspec.field(default_factory=list)


class Shipper:
    """Writes payloads for one process."""

    def __init__(self, cache: BlobCache, inline_bytes_max: int, devices: Devices | None = None) -> None:
        self._cache = cache
        self._inline_bytes_max = inline_bytes_max
        self._devices = devices or Devices()

    def ship(
        self,
        cid: ComponentId,
        dump: Dump,
        seq: Seq,
        known: Known,
        check: Check = lambda: None,
        *,
        cell: int = 0,
        made: tuple[Making, ...] = (),
    ) -> tuple[ComponentRecord, Known]:
        """Return the record of a unit, and what is known of its chunks from now on.

        `check` is called before each chunk; what it raises ends the writing.
        """
        now = Known(buffers=self._buffers(dump, known.buffers, check))
        blobs = tuple(buffer.blob for buffer in now.buffers)
        parts = (head_bytes(replace(dump.head(), sets=set_recipes(dump))), *dump.parts)
        payload, now.head = self._payload(parts, blobs, known.head, check)
        names = (*dump.roots, *(ROOT_PREFIX + class_id for class_id in dump.own_classes))
        record = ComponentRecord(
            cid=cid,
            names=names,
            seq=seq,
            payload=payload,
            digest=_digest_of(payload),
            state_bytes=sum(map(len, parts)) + sum(len(buffer) for buffer in dump.buffers),
            modules=packages(dump.modules),
            pins=tuple(loss.pin() for loss in dump.losses[:PINS_MAX]),
            reads=reads_of(dump),
            gpus=dump.gpus if self._devices.leased else 0,
            cell=cell,
            made=made,
        )
        return record, now

    def new_bytes(self, dump: Dump, known: Known, others: Iterable[Known] = ()) -> int:
        """Return how many bytes of a unit the store may lack: pieces that did not change are in it.

        So are whole buffers of `others`.
        """
        same = {buffer.digests for one in (known, *others) for buffer in one.buffers}
        total = sum(map(len, dump.parts))
        needed = total if total > self._inline_bytes_max else 0
        for index, (buffer, digests) in enumerate(zip(dump.buffers, dump.digests, strict=True)):
            if digests not in same:
                before = known.buffers[index] if index < len(known.buffers) else None
                needed += _changed_bytes(len(buffer), digests, before)
        return needed

    def ship_part(self, cid: ComponentId, data: bytes, seq: Seq) -> ComponentRecord:
        """Return the record of a process part."""
        payload, _ = self._payload((data,), (), [])
        return ComponentRecord(cid, (), seq, payload, _digest_of(payload), len(data))

    def _payload(
        self, parts: Sequence[bytes], buffers: tuple[BlobRef, ...], known: Marks, check: Check = lambda: None
    ) -> tuple[Payload, Marks]:
        if sum(map(len, parts)) <= self._inline_bytes_max:
            return Payload(head=b"".join(parts), buffers=buffers), []
        blob, marks = self._cache.write_stream(parts, known, check)
        return Payload(head_blob=blob, buffers=buffers), marks

    def _buffers(self, dump: Dump, known: Sequence[KnownBuffer], check: Check) -> list[KnownBuffer]:
        """Write a unit's buffers; one that is as some buffer was before is not looked at."""
        same = {buffer.digests: buffer for buffer in known}
        pieces_of_stream = {number for _, number in dump.cuts}
        now: list[KnownBuffer] = []
        for index, (buffer, digests) in enumerate(zip(dump.buffers, dump.digests, strict=True)):
            told = same.get(digests)
            if told is None:
                before = known[index] if index < len(known) else None
                told = self._buffer(buffer, digests, before, index in pieces_of_stream, check)
                if told.digests != digests:
                    dump.fingerprint = CHANGED_MEANWHILE
            now.append(told)
        return now

    def _buffer(
        self, buffer: Any, digests: bytes, before: KnownBuffer | None, text: bool, check: Check
    ) -> KnownBuffer:
        """Write one buffer; the digests of what is returned are other ones when it changed meanwhile."""
        marks = before.marks if before is not None else None
        if hasattr(buffer, "batches"):
            blob, marks = self._cache.write_changed(buffer, digests, marks, check)
            return KnownBuffer(digests, blob, marks)
        if hasattr(buffer, "host"):
            blob, marks = self._cache.write_chunks(buffer.host(), marks, check)
            return KnownBuffer(digests, blob, marks)
        if text or _is_text(buffer, before):
            start = before.start(digests) if before is not None else ()
            blob = self._cache.write_text(buffer, start, check)
            return KnownBuffer(digests if text else BufferDigests().of(buffer, None), blob)
        blob, marks = self._cache.write_chunks(buffer, marks, check, digests=digests)
        return KnownBuffer(b"".join(local for local, _ in marks) + size_mark(len(buffer)), blob, marks)


def _changed_bytes(size: int, digests: bytes, before: KnownBuffer | None) -> int:
    """Return the bytes of the pieces of a buffer that are not as they were."""
    if before is None:
        return size
    starts = range(0, len(digests) - DIGEST_BYTES, DIGEST_BYTES)
    end = DIGEST_BYTES
    changed = sum(digests[at : at + end] != before.digests[at : at + end] for at in starts)
    return min(size, changed * (CHUNK_BYTES if before.marks else TEXT_CHANGE_BYTES))


def set_recipes(dump: Dump) -> tuple[Recipe, ...]:
    """Return how to bring back the order of a unit's sets; objects of very large units are not looked at."""
    if dump.objects() > OBJECTS_MAX or not any(pickle.EMPTY_SET in part for part in dump.parts):
        return ()
    if dump.table is not None:
        return recipes_for((number, object_at(key)) for key, number in dump.table.numbered())
    return recipes_for(dump.memo.values())


def _is_text(buffer: Any, before: KnownBuffer | None) -> bool:
    """Tell whether cuts follow the content; a buffer of the same size stays what it was."""
    if before is not None and before.blob.size == len(buffer):
        return not before.marks
    return looks_like_text(buffer)


def _digest_of(payload: Payload) -> Digest:
    """Return the name of a payload: of its inline bytes and its chunks' names."""
    digest = blake3(payload.head or b"")
    for blob in payload_blobs(payload):
        for chunk in blob.chunks:
            digest.update(chunk.digest.encode())
    return Digest(digest.hexdigest())


def reads_of(dump: Dump) -> tuple[str, ...]:
    """Return the globals that a unit's code mentions, and the notebook's classes that it refers to."""
    names: frozenset[str] = frozenset()
    if dump.codes:
        names = ANY if None in dump.codes else names_of(dump.codes)
    if dump.modules and not LOOKERS.isdisjoint(module.partition(".")[0] for module in dump.modules):
        names = ANY
    if not names and not dump.classes:
        return ()
    return (*sorted(names), *(ROOT_PREFIX + class_id for class_id in sorted(dump.classes)))


def packages(modules: Iterable[str]) -> tuple[str, ...]:
    """Return the top-level packages beyond the standard library."""
    tops = {module.partition(".")[0] for module in modules}
    return tuple(sorted(tops - sys.stdlib_module_names - {"__main__", "replkernel", ""}))


def packages_present(record: ComponentRecord) -> bool:
    """Tell whether everything that rebuilding `record` imports is imported already."""
    return all(package in sys.modules for package in record.modules)


def known_chunks(record: ComponentRecord, dump: Dump) -> Known:
    """Return what is known of the chunks of a component rebuilt here: its blobs, with local digests."""
    blobs = [item for item in record.payload.buffers if isinstance(item, BlobRef)]
    sizes = [len(buffer) for buffer in dump.buffers]
    if [blob.size for blob in blobs] != sizes:
        return Known()
    known = Known()
    for blob, digests, buffer in zip(blobs, dump.digests, dump.buffers, strict=True):
        marks: Marks = []
        fixed = isinstance(buffer, memoryview) or hasattr(buffer, "batches")
        if fixed and all(chunk.size == CHUNK_BYTES for chunk in blob.chunks[:-1]):
            starts = range(0, len(digests) - DIGEST_BYTES, DIGEST_BYTES)
            pieces = [digests[start : start + DIGEST_BYTES] for start in starts]
            if len(pieces) == len(blob.chunks):
                marks = list(zip(pieces, blob.chunks, strict=True))
        known.buffers.append(KnownBuffer(digests, blob, marks))
    return known
