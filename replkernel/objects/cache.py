"""A host's blob cache: chunks in files named by the BLAKE3 of their bytes, shared by all its processes.

Law: a file under a chunk's name never changes and is verified whenever it is read; a chunk that no store
holds yet (mode 0600) is never evicted, one that a store holds (mode 0400) may be.
Nothing is synced to disk here: surviving a power loss is the store's and the log's part.
Imports stay light (no fsspec), because kernel processes use this module.
"""

from __future__ import annotations

import errno
import itertools
import os
import pickle
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from blake3 import blake3
from xxhash import xxh3_128_digest

from replkernel.errors import BlobDamaged, BlobMissing, StoreError
from replkernel.objects.eviction import SAVED_MODE, UNSAVED_MODE, sweep
from replkernel.records import BlobRef, ChunkRef, Digest

if TYPE_CHECKING:
    from typing_extensions import Buffer

CHUNK_BYTES = 1 << 20
"""Blobs are cut every so many bytes, counted from the start of the buffer."""

CHUNK_BYTES_MAX = 16 << 20
"""No chunk that a peer names is believed to be larger than this."""

PARALLEL_CHUNKS = 4
"""From so many chunks on, a blob is hashed, written and read by as many threads."""

REST_S = 300.0
"""A chunk used within this many seconds is not evicted: a blob being rebuilt stays whole."""

SWEEP_PART = 16
"""A process looks for chunks to evict each time it has written this part of the bound."""

DIRECTORY_MODE = 0o700

_HEX_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

Known = Sequence[tuple[bytes, ChunkRef]]
Item = TypeVar("Item")
Result = TypeVar("Result")


def is_digest(text: str) -> bool:
    """Tell whether `text` is a digest: 64 lower-case hexadecimal digits, and so safe in a path."""
    return _HEX_DIGEST.match(text) is not None


class BlobCache:
    """The chunks of a host, at most about `bytes_max` bytes beside those that no store holds yet.

    Safe with several threads and several processes on one directory. Raises StoreError when the
    directory cannot be used, naming it and the fix.
    """

    def __init__(self, directory: Path, bytes_max: int = 20 * 2**30, *, rest_s: float = REST_S) -> None:
        self.directory = directory
        self.bytes_max = bytes_max
        self._rest_s = rest_s
        self._base = str(directory)
        self._protected: Counter[Digest] = Counter()
        self._written_since_sweep = 0
        self._lock = threading.Lock()
        self._serial = itertools.count()
        try:
            os.makedirs(directory, mode=DIRECTORY_MODE, exist_ok=True)
            os.chmod(directory, DIRECTORY_MODE)
        except OSError as error:
            raise self._trouble(error) from error

    # -- blobs -------------------------------------------------------------------------------------

    def write_blob(self, data: Buffer) -> BlobRef:
        """Cut `data` into chunks, put those that are new into the cache, and return the reference."""
        view = _flat(data)
        with view:
            pieces = _cut(view)
            return BlobRef(len(view), tuple(_each(self._write_piece, pieces)))

    def write_chunks(self, data: Buffer, known: Known | None) -> tuple[BlobRef, list[tuple[bytes, ChunkRef]]]:
        """Like `write_blob`, where `known` is what the last call returned for an earlier state of `data`.

        A chunk whose local digest is as in `known` is neither hashed by BLAKE3 nor written.
        """
        before: Known = known or ()
        view = _flat(data)
        with view:
            numbered = list(enumerate(_cut(view)))

            def write(item: tuple[int, memoryview]) -> tuple[bytes, ChunkRef]:
                index, piece = item
                local = xxh3_128_digest(piece)
                if index < len(before) and before[index][0] == local and before[index][1].size == len(piece):
                    return local, before[index][1]
                return local, self._write_piece(piece)

            marks = _each(write, numbered)
            return BlobRef(len(view), tuple(chunk for _, chunk in marks)), marks

    def read_blob(self, ref: BlobRef) -> bytearray:
        """Return the bytes of `ref` in a writable buffer, verified.

        Raises BlobMissing when a chunk is not in the cache, and BlobDamaged when one does not match its
        digest (it is then removed, so that `missing` names it).
        """
        if ref.size != sum(chunk.size for chunk in ref.chunks):
            raise self._damaged("a blob whose chunks do not add up to its size")
        out = bytearray(ref.size)
        ends = list(itertools.accumulate(chunk.size for chunk in ref.chunks))
        with memoryview(out) as view:
            jobs = [
                (chunk, view[end - chunk.size : end]) for chunk, end in zip(ref.chunks, ends, strict=True)
            ]
            try:
                _each(lambda job: self._read_into(*job), jobs)
            finally:
                for _, part in jobs:
                    part.release()
        return out

    def missing(self, ref: BlobRef) -> list[ChunkRef]:
        """Return the chunks of `ref` that are not in the cache; the others count as used just now."""
        return [chunk for chunk in dict.fromkeys(ref.chunks) if not self._touch(chunk)]

    # -- chunks ------------------------------------------------------------------------------------

    def chunk_path(self, digest: Digest) -> Path:
        """Return the file of a chunk; raise BlobDamaged when `digest` is none."""
        return Path(self._path(digest))

    def read_chunk(self, chunk: ChunkRef) -> bytes:
        """Return one chunk's bytes, verified; raises as `read_blob` does."""
        return bytes(self.read_blob(BlobRef(chunk.size, (chunk,))))

    def write_stored_chunk(self, chunk: ChunkRef, data: bytes) -> None:
        """Put a chunk that came from a store into the cache; raise BlobDamaged when it is another's bytes."""
        if len(data) != chunk.size or blake3(data).hexdigest() != chunk.digest:
            raise self._damaged(f"other bytes than chunk {chunk.digest[:12]}… names")
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
            try:
                os.chmod(self._path(digest), SAVED_MODE)
            except FileNotFoundError:
                continue

    def evict(self, wanted_bytes: int = 0) -> int:
        """Bring the cache back below its bound (or free `wanted_bytes`); return the bytes freed."""
        with self._lock:
            self._written_since_sweep = 0
            protected = frozenset(self._protected)
        rest_s = 0.0 if wanted_bytes else self._rest_s
        try:
            return sweep(self.directory, protected, self.bytes_max, rest_s, wanted_bytes=wanted_bytes)
        except OSError as error:
            raise self._trouble(error) from error

    # -- files -------------------------------------------------------------------------------------

    def _path(self, digest: Digest) -> str:
        if not is_digest(digest):
            raise self._damaged(f"a chunk under a name that is no digest ({digest[:80]!r})")
        return f"{self._base}/{digest[:2]}/{digest}"

    def _write_piece(self, piece: memoryview) -> ChunkRef:
        chunk = ChunkRef(Digest(blake3(piece).hexdigest()), len(piece))
        if not self._touch(chunk, unsaved=True):
            self._write_file(chunk.digest, piece, UNSAVED_MODE)
        return chunk

    def _touch(self, chunk: ChunkRef, *, unsaved: bool = False) -> bool:
        """Tell whether a whole chunk is there, and count it as used; `unsaved` keeps it until stored."""
        path = self._path(chunk.digest)
        try:
            status = os.stat(path)
            if status.st_size != chunk.size:
                return False
            if unsaved and not status.st_mode & 0o200:
                os.chmod(path, UNSAVED_MODE)
            os.utime(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._trouble(error) from error
        return True

    def _write_file(self, digest: Digest, data: bytes | memoryview, mode: int) -> None:
        try:
            self._write_once(digest, data, mode)
        except OSError as error:
            if error.errno not in _FULL or not self.evict(wanted_bytes=len(data)):
                raise self._trouble(error) from error
            try:
                self._write_once(digest, data, mode)
            except OSError as again:
                raise self._trouble(again) from again
        with self._lock:
            self._written_since_sweep += len(data)
            due = self._written_since_sweep > self.bytes_max // SWEEP_PART
        if due:
            self.evict()

    def _write_once(self, digest: Digest, data: bytes | memoryview, mode: int) -> None:
        path = self._path(digest)
        scratch = f"{self._base}/{digest[:2]}/.{digest}.{os.getpid()}.{next(self._serial)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            file = os.open(scratch, flags, mode)
        except FileNotFoundError:
            os.makedirs(f"{self._base}/{digest[:2]}", mode=DIRECTORY_MODE, exist_ok=True)
            file = os.open(scratch, flags, mode)
        try:
            try:
                written = os.write(file, data)
                while written < len(data):
                    written += os.write(file, data[written:])
            finally:
                os.close(file)
            os.rename(scratch, path)
        except BaseException:
            os.unlink(scratch)
            raise

    def _read_into(self, chunk: ChunkRef, target: memoryview) -> None:
        path = self._path(chunk.digest)
        try:
            with open(path, "rb", buffering=0) as file:
                got = file.readinto(target)
                while 0 < got < len(target) and (more := file.readinto(target[got:])):
                    got += more
                whole = got == len(target) and not file.read(1)
        except FileNotFoundError:
            raise BlobMissing(
                self._base,
                f"does not hold chunk {chunk.digest[:12]}…",
                "fetch it from the object store",
                place="The blob cache",
            ) from None
        except OSError as error:
            raise self._trouble(error) from error
        if not whole or blake3(target).hexdigest() != chunk.digest:
            Path(path).unlink(missing_ok=True)
            raise self._damaged(f"a damaged chunk {chunk.digest[:12]}…, which was removed")

    # -- faults ------------------------------------------------------------------------------------

    def _damaged(self, what: str) -> BlobDamaged:
        fix = "it is fetched again from the object store when it is needed"
        return BlobDamaged(self._base, f"was given {what}", fix, place="The blob cache")

    def _trouble(self, error: OSError) -> StoreError:
        if error.errno in _FULL:
            problem, fix = "has no room left on its disk", "free some space there or move it to a larger disk"
        else:
            problem = f"cannot be used ({os.strerror(error.errno or 0)})"
            fix = "make it a directory that this user can write, or name another data directory"
        return StoreError(self._base, problem, fix, place="The blob cache", setting="JUPYTER_DATA_DIR")


def _flat(data: Buffer) -> memoryview:
    """Return the bytes of a contiguous buffer, of whatever shape and type, without a copy."""
    return pickle.PickleBuffer(data).raw()


def _cut(view: memoryview) -> list[memoryview]:
    return [view[start : start + CHUNK_BYTES] for start in range(0, len(view), CHUNK_BYTES)]


def _each(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return `work` of each item in order; many items share a few threads (hashing and I/O drop the GIL)."""
    if len(items) < PARALLEL_CHUNKS:
        return [work(item) for item in items]
    with ThreadPoolExecutor(PARALLEL_CHUNKS, thread_name_prefix="blob-cache") as pool:
        return list(pool.map(work, items))
