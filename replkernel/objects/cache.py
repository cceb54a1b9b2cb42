"""A host's blob cache: chunks in files named by the BLAKE3 of their bytes, shared by all its processes.

Law: a file under a chunk's name never changes and is verified whenever it is read; a chunk that no store
holds yet (mode 0600) is never evicted, one that a store holds (mode 0400) may be.
Nothing is synced to disk here: surviving a power loss is the store's and the log's part.
Imports stay light (no fsspec), because kernel processes use this module.
"""

from __future__ import annotations

import itertools
import pickle
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from blake3 import blake3
from xxhash import xxh3_128_digest

from replkernel.errors import NO_ROOM
from replkernel.hosts.disk_path import DiskPath
from replkernel.objects.chunk_files import ChunkFiles, is_digest
from replkernel.objects.crew import each
from replkernel.objects.cutting import CHUNK_BYTES, cut, cut_by_content, windows_of
from replkernel.objects.eviction import SAVED_MODE, UNSAVED_MODE, forget_saved, sweep, sweep_unsaved
from replkernel.objects.mapping import PAGE, WORTH_BYTES, blank, has_room
from replkernel.objects.unnamed import Unnamed
from replkernel.records import BlobRef, ChunkRef, Digest

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["CHUNK_BYTES", "CHUNK_BYTES_MAX", "BlobCache", "Known", "Marks", "Progress", "is_digest"]

CHUNK_BYTES_MAX = 16 << 20
"""No chunk that a peer names is believed to be larger than this."""

FULL_REST_S = 10.0
"""A chunk used within this time stays even when the disk is full: a cell is about to read it."""

REST_S = 300.0
"""A chunk used within this many seconds is not evicted: a blob being rebuilt stays whole."""

LOCAL_BYTES = 16
"""How long a chunk's local digest is."""

SWEEP_PART = 16
"""A process looks for chunks to evict each time it has written this part of the bound."""

Marks = list[tuple[bytes, ChunkRef]]
Known = Sequence[tuple[bytes, ChunkRef]]
Progress = Callable[[], None]
"""Called between chunks by whoever writes; it may raise, and what was written until then stays as it is."""

Announce = Callable[[ChunkRef], None]
"""Told of each chunk that a blob needs, as soon as the cache holds it, by the thread that wrote it."""


class Batched(Protocol):
    """Bytes on a device, which come to the host in batches of chunks."""

    def __len__(self) -> int:
        """Return how many there are."""

    def batches(self, wanted: Sequence[int]) -> Iterator[list[tuple[int, memoryview]]]:
        """Yield these chunks by their numbers; a batch is good until the next one is asked for."""


Withdrawn = Callable[[Sequence[Digest]], None]
"""Told of the chunks that the cache withdrew because no delta will name them."""


class BlobCache:
    """The chunks of a host, at most about `bytes_max` bytes beside those that no store holds yet.

    Safe with several threads and several processes on one directory. Raises StoreError when the
    directory cannot be used, naming it and the fix.
    """

    def __init__(self, directory: Path, bytes_max: int = 20 * 2**30, *, rest_s: float = REST_S) -> None:
        self.directory = directory
        self.bytes_max = bytes_max
        self.announce: Announce | None = None
        self.on_withdrawn: Withdrawn | None = None
        self._unnamed = Unnamed()
        """What this process wrote, and no delta names yet."""
        self._rest_s = rest_s
        self._files = ChunkFiles(directory)
        self._protected: Counter[Digest] = Counter()
        self._written_since_sweep = 0
        self._lock = threading.Lock()
        self._windows = threading.local()

    # -- blobs -------------------------------------------------------------------------------------

    def write_blob(self, data: Buffer) -> BlobRef:
        """Cut `data` into chunks, put those that are new into the cache, and return the reference."""
        return self.write_chunks(data, None)[0]

    def write_chunks(
        self,
        data: Buffer,
        known: Known | None,
        progress: Progress | None = None,
        *,
        digests: bytes = b"",
    ) -> tuple[BlobRef, Marks]:
        """Like `write_blob`, where `known` is what the last call returned for an earlier state of `data`.

        A chunk whose local digest is as in `known` is neither hashed by BLAKE3 nor written. `digests` are the
        local digests of `data`, one after the other, where the caller has them. What is returned tells the
        digests of what was written, also when another thread changes `data` meanwhile.
        """
        view = _flat(data)
        with view:
            before = known or ()
            width = len(before[0][0]) if before else 0

            def write(item: tuple[int, memoryview]) -> tuple[bytes, ChunkRef]:
                index, piece = item
                with piece:
                    if index < len(before) and before[index][1].size == len(piece):
                        local = digests[index * width : (index + 1) * width] or xxh3_128_digest(piece)
                        if before[index][0] == local:
                            return before[index]
                    return self._write_copy(piece)

            marks = list(each(write, enumerate(cut(view)), progress))
            return BlobRef(len(view), tuple(chunk for _, chunk in marks)), marks

    def write_changed(
        self, data: Batched, digests: bytes, known: Known | None, progress: Progress | None = None
    ) -> tuple[BlobRef, Marks]:
        """Like `write_chunks` of bytes that are elsewhere: only chunks whose digests changed are fetched.

        `digests` are those of all chunks of `data`, one after the other, of 16 bytes each.
        """
        size, before = len(data), known or ()
        locals_ = [digests[at : at + LOCAL_BYTES] for at in range(0, len(digests) - LOCAL_BYTES, LOCAL_BYTES)]
        marks: dict[int, tuple[bytes, ChunkRef]] = {}
        for index, local in enumerate(locals_):
            length = min(CHUNK_BYTES, size - index * CHUNK_BYTES)
            if index < len(before) and before[index][0] == local and before[index][1].size == length:
                marks[index] = before[index]

        def write(item: tuple[int, memoryview]) -> tuple[int, ChunkRef]:
            return item[0], self._write_piece(item[1])

        for batch in data.batches([index for index in range(len(locals_)) if index not in marks]):
            for index, chunk in each(write, batch, progress):
                marks[index] = locals_[index], chunk
        found = [marks[index] for index in range(len(locals_))]
        return BlobRef(size, tuple(chunk for _, chunk in found)), found

    def write_text(
        self,
        data: Buffer,
        keep: Sequence[ChunkRef] = (),
        progress: Progress | None = None,
    ) -> BlobRef:
        """Like `write_blob`, with chunks cut by content; `keep` are chunks with which `data` begins."""
        view = _flat(data)
        with view:

            def write(piece: memoryview) -> ChunkRef:
                with piece:
                    return self._write_copy(piece)[1]

            pieces = cut_by_content(view, sum(chunk.size for chunk in keep))
            return BlobRef(len(view), (*keep, *each(write, pieces, progress)))

    def write_stream(
        self,
        parts: Iterable[bytes],
        known: Known | None,
        progress: Progress | None = None,
    ) -> tuple[BlobRef, Marks]:
        """Like `write_chunks` for bytes in many parts, which are never put together as a whole."""
        before = known or ()

        def write(item: tuple[int, bytes]) -> tuple[bytes, ChunkRef]:
            index, piece = item
            local = xxh3_128_digest(piece)
            if index < len(before) and before[index][0] == local and before[index][1].size == len(piece):
                return before[index]
            return local, self._write_piece(memoryview(piece))

        marks = list(each(write, enumerate(windows_of(parts)), progress))
        return BlobRef(sum(chunk.size for _, chunk in marks), tuple(chunk for _, chunk in marks)), marks

    def read_blob(self, ref: BlobRef) -> bytearray:
        """Return the bytes of `ref` in a writable buffer, verified.

        Raises BlobMissing when a chunk is not in the cache, and BlobDamaged when one does not match its
        digest (it is then removed, so that `missing` names it).
        """
        self._check_size(ref)
        out = blank(ref.size)
        with memoryview(out) as view:
            self.fill(ref, view)
        return out

    def fill(self, ref: BlobRef, target: memoryview, own_map: int | None = None) -> None:
        """Fill `target` with the bytes of `ref`, verified; raises as `read_blob` does.

        `own_map` is the address of `target` where that begins a page of a mapping which holds nothing else.
        Chunks are then mapped there, copy on write, where they can be: all processes of the host share them.
        """
        self._check_size(ref)
        if ref.size != target.nbytes:
            raise self._files.damaged("a blob that is not as long as the memory that it is for")
        base = own_map if own_map is not None and _in_pages(ref) else None
        ends = list(itertools.accumulate(chunk.size for chunk in ref.chunks))
        jobs = [(chunk, target[end - chunk.size : end]) for chunk, end in zip(ref.chunks, ends, strict=True)]

        def take(job: tuple[int, tuple[ChunkRef, memoryview]]) -> None:
            end, (chunk, part) = job
            if base is None or not self._files.map_over(chunk, base + end - chunk.size):
                self._files.read_into(chunk, part)

        try:
            for _ in each(take, zip(ends, jobs, strict=True)):
                pass
        finally:
            for _, part in jobs:
                part.release()

    def look_at(self, ref: BlobRef) -> bool:
        """Tell whether a blob can be mapped; its chunks are then verified, once while the machine runs."""
        worth = ref.size >= WORTH_BYTES and _in_pages(ref)
        return worth and all(list(each(self._files.look_at, ref.chunks)))

    def _check_size(self, ref: BlobRef) -> None:
        if ref.size != sum(chunk.size for chunk in ref.chunks):
            raise self._files.damaged("a blob whose chunks do not add up to its size")

    def missing(self, ref: BlobRef) -> list[ChunkRef]:
        """Return the chunks of `ref` that are not in the cache; the others count as used just now."""
        return [chunk for chunk in dict.fromkeys(ref.chunks) if not self._files.touch(chunk)]

    # -- chunks ------------------------------------------------------------------------------------

    def chunk_path(self, digest: Digest) -> Path:
        """Return the file of a chunk; raise BlobDamaged when `digest` is none."""
        return DiskPath(self._files.path(digest))

    def read_chunk(self, chunk: ChunkRef) -> bytes:
        """Return one chunk's bytes, verified; raises as `read_blob` does."""
        return bytes(self.read_blob(BlobRef(chunk.size, (chunk,))))

    def write_stored_chunk(self, chunk: ChunkRef, data: bytes, source: Path | None = None) -> None:
        """Put a chunk that came from a store into the cache; raise BlobDamaged when it is another's bytes.

        With `source`, a file that holds these bytes and never changes, no byte is copied where the file
        system can have two names for one file.
        """
        if len(data) != chunk.size or blake3(data).hexdigest() != chunk.digest:
            raise self._files.damaged(f"other bytes than chunk {chunk.digest[:12]}… names")
        if source is not None and self._link(chunk, source):
            return
        self._write_file(chunk.digest, data, SAVED_MODE)

    def protect(self, digests: Iterable[Digest]) -> None:
        """Keep these chunks from eviction by this process until `release` was called as often."""
        with self._lock:
            self._protected.update(digests)

    def release(self, digests: Iterable[Digest]) -> None:
        """Take one protection back."""
        with self._lock:
            for digest in digests:
                self._protected[digest] -= 1
                if self._protected[digest] <= 0:
                    del self._protected[digest]

    def mark_stored(self, digests: Iterable[Digest]) -> None:
        """Note, for all processes, that a store holds these chunks: from now on they may be evicted."""
        for digest in digests:
            self._files.set_mode(digest, SAVED_MODE)

    def named(self, blobs: Iterable[BlobRef]) -> None:
        """Note that a delta names these blobs: what they consist of stays."""
        with self._lock:
            self._unnamed.named(chunk.digest for blob in blobs for chunk in blob.chunks)

    def captured(self, *, cell: bool, whole: bool) -> None:
        """Note the end of a capture (`Unnamed.ended`); the agent removes what no delta will name."""
        with self._lock:
            left = self._unnamed.ended(cell=cell, whole=whole)
        if left and self.on_withdrawn is not None:
            self.on_withdrawn(left)

    def withdraw(self) -> int:
        """Remove what this process wrote, no delta names and nobody else asked for; return the number."""
        with self._lock:
            unnamed = self._unnamed.take()
        gone = self.remove_unsaved(unnamed)
        if gone and self.on_withdrawn is not None:
            self.on_withdrawn(gone)
        return len(gone)

    def remove_unsaved(self, digests: Iterable[Digest]) -> list[Digest]:
        """Remove chunks that no store is known to hold and that one process alone asked for; return them."""
        try:
            return [digest for digest in digests if self._files.withdraw(digest)]
        except OSError as error:
            raise self._files.trouble(error) from error

    def forget_unsaved(self, before: float) -> None:
        """Remove what no store holds and nobody has asked for since `before`: whoever wrote it is gone."""
        try:
            sweep_unsaved(self.directory, before)
        except OSError as error:
            raise self._files.trouble(error) from error

    def forget(self, digests: Iterable[Digest]) -> None:
        """Remove chunks that a store held and nobody names any more; what was asked for meanwhile stays."""
        with self._lock:
            wanted = [digest for digest in digests if digest not in self._protected]
        try:
            for digest in wanted:
                forget_saved(self.directory, digest)
        except OSError as error:
            raise self._files.trouble(error) from error

    def evict(self, wanted_bytes: int = 0) -> int:
        """Bring the cache back below its bound (or free `wanted_bytes`); return the bytes freed."""
        with self._lock:
            self._written_since_sweep = 0
            protected = frozenset(self._protected)
        rest_s = min(FULL_REST_S, self._rest_s) if wanted_bytes else self._rest_s
        try:
            return sweep(self.directory, protected, self.bytes_max, rest_s, wanted_bytes=wanted_bytes)
        except OSError as error:
            raise self._files.trouble(error) from error

    # -- one chunk ---------------------------------------------------------------------------------

    def _write_copy(self, piece: memoryview) -> tuple[bytes, ChunkRef]:
        """Write one piece of a buffer that may change meanwhile; return its local digest as well.

        The piece is copied into this thread's window, so that digests, name and file say the same.
        """
        window: bytearray | None = getattr(self._windows, "bytes", None)
        if window is None or len(window) < len(piece):
            window = self._windows.bytes = bytearray(max(CHUNK_BYTES, len(piece)))
        with memoryview(window) as whole, whole[: len(piece)] as copy:
            copy[:] = piece
            return xxh3_128_digest(copy), self._write_piece(copy)

    def _write_piece(self, piece: memoryview) -> ChunkRef:
        chunk = ChunkRef(Digest(blake3(piece).hexdigest()), len(piece))
        own = chunk.digest in self._unnamed
        there = self._files.touch(chunk, unsaved=True, own=own)
        if own if there else self._write_file(chunk.digest, piece, UNSAVED_MODE):
            with self._lock:
                self._unnamed.wrote(chunk.digest)
        if self.announce is not None:
            self.announce(chunk)
        return chunk

    def _write_file(self, digest: Digest, data: bytes | memoryview, mode: int) -> bool:
        try:
            own = self._files.write(digest, data, mode)
        except OSError as error:
            if error.errno not in NO_ROOM or not self.evict(wanted_bytes=len(data)):
                raise self._files.trouble(error) from error
            try:
                own = self._files.write(digest, data, mode)
            except OSError as again:
                raise self._files.trouble(again) from again
        self._count(len(data))
        return own

    def _link(self, chunk: ChunkRef, source: Path) -> bool:
        try:
            linked = self._files.link(chunk, source)
            if linked:
                self._files.set_mode(chunk.digest, SAVED_MODE)
        except OSError:
            return False  # The store's file has gone, or is another user's: its bytes are at hand.
        if linked:
            self._count(chunk.size)
        return linked

    def _count(self, size: int) -> None:
        with self._lock:
            self._written_since_sweep += size
            due = self._written_since_sweep > self.bytes_max // SWEEP_PART
        if due:
            self.evict()


def _in_pages(ref: BlobRef) -> bool:
    """Tell whether a blob's chunks fill whole pages, and this process may have so many maps more."""
    return not any(chunk.size % PAGE for chunk in ref.chunks[:-1]) and has_room(len(ref.chunks))


def _flat(data: Buffer) -> memoryview:
    """Return the bytes of a contiguous buffer, of whatever shape and type, without a copy."""
    return pickle.PickleBuffer(data).raw()
