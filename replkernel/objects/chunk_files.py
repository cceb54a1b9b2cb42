"""The files of a blob cache: one a chunk, named by the BLAKE3 of its bytes, written once and by rename.

Law: a file under a chunk's name never changes, and is verified whenever it is read; when it is mapped, once
while the machine runs (`mapping.note_whole`). Faults are one sentence.
"""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import mmap
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from blake3 import blake3

from replkernel.errors import NO_ROOM, BlobDamaged, BlobMissing, StoreError
from replkernel.hosts.disk_path import DiskPath
from replkernel.objects import mapping
from replkernel.objects.eviction import SAVED_MODE, SHARED_MODE, UNSAVED_MODE
from replkernel.records import ChunkRef, Digest

DIRECTORY_MODE = 0o700


_HEX_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES})


def is_digest(text: str) -> bool:
    """Tell whether `text` is a digest: 64 lower-case hexadecimal digits, and so safe in a path."""
    return _HEX_DIGEST.match(text) is not None


class ChunkFiles:
    """The chunks below one directory, for any number of threads and processes. Raises StoreError, named."""

    def __init__(self, directory: Path) -> None:
        self._base = str(directory)
        self._serial = itertools.count()
        try:
            os.makedirs(directory, mode=DIRECTORY_MODE, exist_ok=True)
            os.chmod(directory, DIRECTORY_MODE)
        except OSError as error:
            raise self.trouble(error) from error

    def path(self, digest: Digest) -> str:
        """Return the file of a chunk; raise BlobDamaged when `digest` is none."""
        if not is_digest(digest):
            raise self.damaged(f"a chunk under a name that is no digest ({digest[:80]!r})")
        return f"{self._base}/{digest[:2]}/{digest}"

    def touch(self, chunk: ChunkRef, *, unsaved: bool = False, own: bool = False) -> bool:
        """Tell whether a whole chunk is there, and count it as used; `unsaved` keeps it until stored.

        Unless it is the caller's `own`, whoever wrote it cannot withdraw it from now on.
        """
        path = self.path(chunk.digest)
        try:
            status = os.stat(path)
            if status.st_size != chunk.size:
                return False
            mode = stat.S_IMODE(status.st_mode)
            if (mode == UNSAVED_MODE and not own) or (unsaved and mode == SAVED_MODE):
                os.chmod(path, SHARED_MODE)
            os.utime(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self.trouble(error) from error
        return True

    def write(self, digest: Digest, data: bytes | memoryview, mode: int) -> bool:
        """Write the file of a chunk of this digest; raises OSError. It is on its way to the disk at once.

        Tells whether the file is this call's own: an unsaved one that nobody else wrote meanwhile.
        """
        scratch = self._scratch(digest)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            file = os.open(scratch, flags, UNSAVED_MODE)
        except FileNotFoundError:
            self._make_parent(digest)
            file = os.open(scratch, flags, UNSAVED_MODE)
        try:
            try:
                written = os.write(file, data)
                while written < len(data):
                    written += os.write(file, data[written:])
                _begin_write_back(file)
                mapping.note_whole(file)
                if mode != UNSAVED_MODE:
                    os.fchmod(file, mode)
            finally:
                os.close(file)
            if mode == UNSAVED_MODE and self._place(scratch, ChunkRef(digest, len(data))):
                return True
            if os.path.exists(scratch):
                os.rename(scratch, self.path(digest))
            return False
        except BaseException:
            os.unlink(scratch)
            raise

    def _place(self, scratch: str, chunk: ChunkRef) -> bool:
        """Give a scratch file its name unless a whole one bears it; the scratch stays where neither is so."""
        try:
            os.link(scratch, self.path(chunk.digest))
        except OSError as error:
            if error.errno == errno.EEXIST and self.touch(chunk, unsaved=True):
                os.unlink(scratch)
            elif error.errno not in _NO_LINK | {errno.EEXIST}:
                raise
            return False
        os.unlink(scratch)
        return True

    def withdraw(self, digest: Digest) -> bool:
        """Remove a chunk unless others than its writer asked for it; tell whether it went. Raises OSError."""
        path, aside = self.path(digest), self._scratch(digest)
        try:
            if stat.S_IMODE(os.stat(path).st_mode) != UNSAVED_MODE:
                return False
            os.rename(path, aside)
        except FileNotFoundError:
            return False
        own = stat.S_IMODE(os.stat(aside).st_mode) == UNSAVED_MODE
        if not own:
            with contextlib.suppress(FileExistsError):
                os.link(aside, path)
        os.unlink(aside)
        return own

    def link(self, chunk: ChunkRef, source: Path) -> bool:
        """Have the cache share the file at `source`; False when the file system cannot. Raises OSError."""
        scratch = self._scratch(chunk.digest)
        try:
            try:
                os.link(source, scratch)
            except FileNotFoundError:
                self._make_parent(chunk.digest)
                os.link(source, scratch)
        except OSError as error:
            if error.errno in _NO_LINK:
                return False
            raise
        try:
            os.rename(scratch, self.path(chunk.digest))
        finally:
            DiskPath(scratch).unlink(missing_ok=True)
        return True

    def read_into(self, chunk: ChunkRef, target: memoryview) -> None:
        """Fill `target` with a chunk; raises BlobMissing, or BlobDamaged after removing the file."""
        with self._open(chunk) as file:
            got = file.readinto(target)
            while 0 < got < len(target) and (more := file.readinto(target[got:])):
                got += more
            whole = got == len(target) and not file.read(1)
        if not whole or blake3(target).hexdigest() != chunk.digest:
            raise self._thrown_out(chunk)

    def map_over(self, chunk: ChunkRef, address: int) -> bool:
        """Map a chunk over a mapping of the caller's; False where it must be read. Raises as `read_into`."""
        with self._open(chunk) as file:
            number, status = file.fileno(), os.fstat(file.fileno())
            if status.st_size != chunk.size:
                raise self._thrown_out(chunk)
            if not mapping.may_be_mapped(number, status) or not mapping.lay_over(number, address, chunk.size):
                return False
            self._see_whole(chunk, number, mapping.bytes_at(address, chunk.size))
        return True

    def look_at(self, chunk: ChunkRef) -> bool:
        """Tell whether a chunk can be mapped; see to it that it is whole. Raises as `read_into`."""
        with self._open(chunk) as file:
            number, status = file.fileno(), os.fstat(file.fileno())
            if status.st_size != chunk.size:
                raise self._thrown_out(chunk)
            if not mapping.may_be_mapped(number, status):
                return False
            with mmap.mmap(number, chunk.size, access=mmap.ACCESS_READ) as pages, memoryview(pages) as view:
                self._see_whole(chunk, number, view)
        return True

    def _see_whole(self, chunk: ChunkRef, file: int, mapped: memoryview) -> None:
        """Verify a mapped chunk unless somebody has, since the machine was started."""
        if not mapping.is_whole(file):
            if blake3(mapped).hexdigest() != chunk.digest:
                raise self._thrown_out(chunk)
            mapping.note_whole(file)

    @contextlib.contextmanager
    def _open(self, chunk: ChunkRef) -> Iterator[io.FileIO]:
        try:
            with open(self.path(chunk.digest), "rb", buffering=0) as file:
                yield file
        except FileNotFoundError:
            raise BlobMissing(
                self._base,
                f"does not hold chunk {chunk.digest[:12]}…",
                "fetch it from the object store",
                place="The blob cache",
            ) from None
        except OSError as error:
            raise self.trouble(error) from error

    def _thrown_out(self, chunk: ChunkRef) -> BlobDamaged:
        """Remove a chunk's file, whose bytes are others; return the error."""
        DiskPath(self.path(chunk.digest)).unlink(missing_ok=True)
        return self.damaged(f"a damaged chunk {chunk.digest[:12]}…, which was removed")

    def set_mode(self, digest: Digest, mode: int) -> None:
        """Give a chunk's file a mode, if it is there."""
        try:
            os.chmod(self.path(digest), mode)
        except FileNotFoundError:
            return

    def damaged(self, what: str) -> BlobDamaged:
        """Return the error for bytes that are not what their name says."""
        fix = "it is fetched again from the object store when it is needed"
        return BlobDamaged(self._base, f"was given {what}", fix, place="The blob cache")

    def trouble(self, error: OSError) -> StoreError:
        """Return the error for a directory that cannot be used."""
        if error.errno in NO_ROOM:
            problem, fix = "has no room left on its disk", "free some space there or move it to a larger disk"
        else:
            problem = f"cannot be used ({os.strerror(error.errno or 0)})"
            fix = "make it a directory that this user can write, or name another data directory"
        return StoreError(self._base, problem, fix, place="The blob cache", setting="JUPYTER_DATA_DIR")

    def _make_parent(self, digest: Digest) -> None:
        os.makedirs(f"{self._base}/{digest[:2]}", mode=DIRECTORY_MODE, exist_ok=True)

    def _scratch(self, digest: Digest) -> str:
        self.path(digest)
        return f"{self._base}/{digest[:2]}/.{digest}.{os.getpid()}.{next(self._serial)}"


def _begin_write_back(file: int) -> None:
    """Have the system begin to write the file to its disk, without waiting: a store will ask for it soon."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
