"""Turns a dumped unit into a component record: small bytes inline, large ones into the blob cache.

Law: a chunk whose local digest is known is neither hashed again by BLAKE3 nor written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import msgspec
from blake3 import blake3

from replkernel.namespace.class_registry import ROOT_PREFIX
from replkernel.namespace.dump import Dump
from replkernel.namespace.fingerprint import DIGEST_BYTES
from replkernel.namespace.stream import join_head
from replkernel.objects.cache import BlobCache
from replkernel.records import BlobRef, ChunkRef, ComponentId, ComponentRecord, Digest, Payload, Seq

PINS_MAX = 100
"""No more pins of one component are told; the tombstones are all there."""

Marks = list[tuple[bytes, ChunkRef]]


class Known(msgspec.Struct):
    """The chunks of a component's payload as last written: of its head, of each buffer."""

    head: Marks = msgspec.field(default_factory=list)
    buffers: list[Marks] = msgspec.field(default_factory=list)


class Shipper:
    """Writes payloads for one process."""

    def __init__(self, cache: BlobCache, inline_bytes_max: int) -> None:
        self._cache = cache
        self._inline_bytes_max = inline_bytes_max

    def ship(self, cid: ComponentId, dump: Dump, seq: Seq, known: Known) -> tuple[ComponentRecord, Known]:
        """Return the record of a unit, and what is known of its chunks from now on."""
        head = join_head(dump.head(), dump.parts)
        now = Known()
        digest = blake3(head)
        refs: list[BlobRef | bytes] = []
        for index, buffer in enumerate(dump.buffers):
            before = known.buffers[index] if index < len(known.buffers) else None
            view = buffer.host() if hasattr(buffer, "host") else buffer
            ref, marks = self._cache.write_chunks(view, before)
            now.buffers.append(marks)
            refs.append(ref)
            for chunk in ref.chunks:
                digest.update(chunk.digest.encode())
        payload, now.head = self._payload(head, tuple(refs), known.head)
        names = (*dump.roots, *(ROOT_PREFIX + class_id for class_id in dump.own_classes))
        record = ComponentRecord(
            cid=cid,
            names=names,
            seq=seq,
            payload=payload,
            digest=Digest(digest.hexdigest()),
            state_bytes=len(head) + sum(len(buffer) for buffer in dump.buffers),
            modules=packages(dump.modules),
            pins=tuple(loss.pin() for loss in dump.losses[:PINS_MAX]),
        )
        return record, now

    def ship_part(self, cid: ComponentId, data: bytes, seq: Seq) -> ComponentRecord:
        """Return the record of a process part."""
        payload, _ = self._payload(data, (), [])
        digest = Digest(blake3(data).hexdigest())
        return ComponentRecord(cid, (), seq, payload, digest, len(data))

    def _payload(self, head: bytes, buffers: tuple[Any, ...], known: Marks) -> tuple[Payload, Marks]:
        if len(head) <= self._inline_bytes_max:
            return Payload(head=head, buffers=buffers), []
        ref, marks = self._cache.write_chunks(head, known)
        return Payload(head_blob=ref, buffers=buffers), marks


def packages(modules: Iterable[str]) -> tuple[str, ...]:
    """Return the top-level packages beyond the standard library."""
    tops = {module.partition(".")[0] for module in modules}
    return tuple(sorted(tops - sys.stdlib_module_names - {"__main__", "replkernel", ""}))


def packages_present(record: ComponentRecord) -> bool:
    """Tell whether everything that rebuilding `record` imports is imported already."""
    return all(package in sys.modules for package in record.modules)


def known_chunks(record: ComponentRecord, dump: Dump) -> Known:
    """Return what is known of the chunks of a component rebuilt here: its blobs, with local digests."""
    known = Known()
    refs = [ref for ref in record.payload.buffers if isinstance(ref, BlobRef)]
    sizes = [len(buffer) for buffer in dump.buffers]
    if [ref.size for ref in refs] != sizes:
        return known
    for ref, digests, buffer in zip(refs, dump.digests, dump.buffers, strict=True):
        if isinstance(buffer, memoryview):
            starts = range(0, len(ref.chunks) * DIGEST_BYTES, DIGEST_BYTES)
            pieces = [digests[start : start + DIGEST_BYTES] for start in starts]
            known.buffers.append(list(zip(pieces, ref.chunks, strict=True)))
        else:
            known.buffers.append([])
    return known
