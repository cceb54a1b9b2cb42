"""The state file: a zip of stored entries (manifest.json, state.msgpack, blobs/<digest>, signature.json).

Law: everything in a file that is read is hostile. Its table of contents is bounded before it is read, nothing
is unpacked (entries are stored, so a file never grows), only known names count, and every byte that is given
out has the digest that the state names.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec
from blake3 import blake3

from replkernel.carrying.manifest import FORMAT, Manifest
from replkernel.carrying.signature import SIGNATURE_BYTES_MAX, Signature
from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.objects.cache import CHUNK_BYTES_MAX
from replkernel.records import ChunkRef, Digest

MANIFEST, STATE, SIGNATURE, BLOBS = "manifest.json", "state.msgpack", "signature.json", "blobs/"
MANIFEST_BYTES_MAX = 32 * 2**20
STATE_BYTES_MAX = 256 * 2**20
ENTRIES_MAX = 500_000
CONTENTS_BYTES_MAX = 96 * 2**20
"""The zip's table of contents is no longer: it is read as a whole."""

_BLOB = re.compile(r"blobs/([0-9a-f]{64})")
_END = struct.Struct("<4s4H2LH")
_END64_PLACE = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")


class NotAState(ReplkernelError):
    """A file is no state of a kernel, or not one that can be trusted to be whole."""


class StateWriter:
    """Writes a state file, entry by entry."""

    def __init__(self, file: IO[bytes]) -> None:
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True)

    def add(self, name: str, data: bytes) -> None:
        """Add one entry."""
        self._zip.writestr(zipfile.ZipInfo(name), data)

    def close(self) -> None:
        """Write the table of contents."""
        self._zip.close()


@contextlib.contextmanager
def fresh_file(path: Path, *, replace: bool) -> Iterator[IO[bytes]]:
    """Yield a file of the owner's alone that gets its name once all is written; else nothing is left.

    It has no name before that where the file system allows, so that not even SIGKILL leaves anything.
    """
    if not replace and os.path.lexists(path):
        raise ReplkernelError(f"{path} exists: choose another name, or --force to replace it.")
    name = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        handle, named = os.open(path.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600), False
    except OSError:
        handle, named = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), True
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if not named:
                os.link(f"/proc/self/fd/{file.fileno()}", name, src_dir_fd=file.fileno())
                named = True
        if replace:
            name.replace(path)
        else:
            os.link(name, path)
            name.unlink()
    except FileExistsError as error:
        name.unlink(missing_ok=True)
        raise ReplkernelError(f"{path} exists: choose another name, or --force to replace it.") from error
    except BaseException:
        if named:
            name.unlink(missing_ok=True)
        raise


class StateFile:
    """A state file that is open for reading. Raises NotAState wherever it is not what it says."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise ReplkernelError(f"{path} cannot be read: {error.strerror}.") from error
        self.path = path
        try:
            self._open()
        except BaseException:
            self._file.close()
            raise

    def _open(self) -> None:
        size = os.fstat(self._file.fileno()).st_size
        _check_contents(self._file, size)
        try:
            self._zip = zipfile.ZipFile(self._file)
            entries = self._zip.infolist()
        except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, struct.error) as error:
            raise NotAState(f"{self.path.name} does not hold a kernel's state: {error}.") from error
        self._entries = {entry.filename: entry for entry in entries}
        if len(self._entries) != len(entries):
            raise self._bad("two entries have one name")
        if sum(entry.file_size for entry in entries) > size:
            raise self._bad("its entries are larger than the file")
        for entry in entries:
            self._check(entry)
        data = self._read(MANIFEST)
        try:
            self.manifest = msgspec.json.decode(data, type=Manifest)
        except UNREADABLE as error:
            raise self._bad(f"its manifest cannot be read ({error})") from error
        if self.manifest.format != FORMAT:
            raise self._bad(f"it has format {self.manifest.format}, this release reads {FORMAT}")
        self.manifest_digest = blake3(data).digest()

    def _check(self, entry: zipfile.ZipInfo) -> None:
        limits = {MANIFEST: MANIFEST_BYTES_MAX, STATE: STATE_BYTES_MAX, SIGNATURE: SIGNATURE_BYTES_MAX}
        limit = CHUNK_BYTES_MAX if _BLOB.fullmatch(entry.filename) else limits.get(entry.filename)
        if limit is None:
            raise self._bad(f"an entry is called {entry.filename[:80]!r}")
        stored = entry.compress_type == zipfile.ZIP_STORED and entry.compress_size == entry.file_size
        if not stored or entry.flag_bits & 1 or entry.file_size > limit:
            raise self._bad(f"{entry.filename} is packed, encrypted or too long")

    def _bad(self, why: str) -> NotAState:
        return NotAState(f"{self.path.name} does not hold a kernel's state, or was changed: {why}.")

    def _read(self, name: str) -> bytes:
        entry = self._entries.get(name)
        if entry is None:
            raise self._bad(f"{name} is missing")
        try:
            with self._zip.open(entry) as file:
                data = file.read(entry.file_size + 1)
        except (
            zipfile.BadZipFile,
            EOFError,
            OSError,
            ValueError,
            NotImplementedError,
            struct.error,
        ) as error:
            raise self._bad(f"{name} cannot be read ({error})") from error
        if len(data) != entry.file_size:
            raise self._bad(f"{name} is cut short")
        return data

    def signature(self) -> Signature | None:
        """Return who signed the file; None where nobody did. Raises when the signature is not right."""
        if SIGNATURE not in self._entries:
            return None
        return Signature.read(self._read(SIGNATURE), self.manifest_digest)

    def state(self) -> bytes:
        """Return the state, which has the digest that the manifest names."""
        data = self._read(STATE)
        if blake3(data).hexdigest() != self.manifest.state_digest:
            raise self._bad(f"{STATE} is not what the manifest names")
        return data

    def has_chunk(self, digest: Digest) -> bool:
        """Tell whether the file has an entry for a chunk."""
        return f"{BLOBS}{digest}" in self._entries

    def chunk(self, chunk: ChunkRef) -> bytes:
        """Return the bytes of a chunk, verified."""
        data = self._read(f"{BLOBS}{chunk.digest}")
        if len(data) != chunk.size or blake3(data).hexdigest() != chunk.digest:
            raise self._bad(f"chunk {chunk.digest[:12]}… has other bytes than its name says")
        return data

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __enter__(self) -> StateFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_contents(file: IO[bytes], size: int) -> None:
    """Look how long the table of contents says it is, before anybody reads it as a whole."""
    refused = NotAState(
        "The file does not hold a kernel's state: its table of contents is missing, or too long."
    )
    if size < _END.size:
        raise refused
    file.seek(size - _END.size)
    mark, *_numbers, entries, length, _start, comment = _END.unpack(file.read(_END.size))
    if mark != b"PK\5\6" or comment:
        raise refused
    if entries == 0xFFFF or length == 0xFFFFFFFF or _start == 0xFFFFFFFF:
        before = _END.size + _END64_PLACE.size + _END64.size
        if size < before:
            raise refused
        file.seek(size - before)
        mark, *_more, _all, entries, length, _start = _END64.unpack(file.read(_END64.size))
        if mark != b"PK\6\6":
            raise refused
    if entries > ENTRIES_MAX or length > min(CONTENTS_BYTES_MAX, size):
        raise refused
    file.seek(0)
