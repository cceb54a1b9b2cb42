"""The object store: write-once blobs named by their content, small named documents, one clear error.

Keys below the URL's prefix: ``blobs/<aa>/<digest>`` and ``kernels/<kernel_id>/<name>``. Any number of
kernels and hosts may share a store. Law: nothing enters or leaves a store without matching its digest.
The methods block and are called from worker threads. Libraries are imported by the backends alone.
"""

from __future__ import annotations

import contextlib
import importlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from blake3 import blake3

from replkernel.errors import BlobDamaged, BlobMissing, DocumentUnfit, SettingError, StoreError, StoreRefused
from replkernel.objects.backend import (
    OBJECT_BYTES_MAX,
    Backend,
    KeepsFiles,
    MakesOnce,
    NoSuchObject,
    StoreFault,
    TellsExposure,
    TellsRoom,
    TellsSizes,
    UnfitObject,
    Withdraws,
)
from replkernel.objects.cache import CHUNK_BYTES_MAX, is_digest
from replkernel.objects.packing import Unreadable, Way, is_packed, pack, unpack
from replkernel.objects.url import is_segment, redact, scheme_of, setting_error
from replkernel.records import Digest

ENTRY_POINTS = "replkernel.object_stores"
"""The entry point group of backends: the name is the URL's scheme, the object an `OpenBackend`."""

DOCUMENT_BYTES_MAX = OBJECT_BYTES_MAX
DOCUMENT_SEGMENTS_MAX = 4

OpenBackend = Callable[[str, Mapping[str, str]], Backend]
"""What opens a backend: takes the URL and the environment, connects to nothing yet."""

BUILT_IN = {
    "file": "replkernel.objects.backends.file:open_backend",
    "memory": "replkernel.objects.backends.memory:open_backend",
    "s3": "replkernel.objects.backends.s3:open_backend",
    "redis": "replkernel.objects.backends.redis:open_backend",
    "rediss": "replkernel.objects.backends.redis:open_backend",
    "hdfs": "replkernel.objects.backends.hdfs:open_backend",
}
EXTRAS = {"s3": "s3", "redis": "redis", "rediss": "redis", "hdfs": "hdfs"}


class ObjectStore:
    """Blobs and documents in one store. Raises StoreError, and StoreRefused when the store said no."""

    def __init__(self, url: str, backend: Backend) -> None:
        self.url = redact(url)
        """The store's URL without secrets, as messages name it."""
        self.warning = backend.warning
        """A sentence for the user about what this kind of store cannot do, or an empty string."""
        self._backend = backend
        self.exposed = backend.exposed if isinstance(backend, TellsExposure) else ""
        """For the administrator, when others on the network can read what is stored; else empty."""
        self._files = backend if isinstance(backend, KeepsFiles) else None
        self._makes_once = False
        self._way = Way()
        self._withdraws = backend if isinstance(backend, Withdraws) else None

    # -- blobs -------------------------------------------------------------------------------------

    def put_chunk(self, digest: Digest, source: Path | bytes) -> None:
        """Store a chunk from its bytes or its file; doing so again makes it young for garbage collection.

        Raises BlobMissing when the file is gone, and BlobDamaged when the bytes are not the digest's.
        """
        key = self._blob_key(digest)
        data = self._read(digest, source)
        packed = data if self._files is not None else pack(data, self._way.rate)
        began = time.perf_counter()
        with self._told():
            if isinstance(source, bytes) or packed is not data:
                self._backend.put(key, packed)
            else:
                self._backend.put_file(key, source, data)
        self._way.went(len(packed), time.perf_counter() - began)

    def _read(self, digest: Digest, source: Path | bytes) -> bytes:
        """Return the bytes of a chunk that is to be stored, verified."""
        if isinstance(source, bytes):
            data = source
        else:
            try:
                data = source.read_bytes()
            except FileNotFoundError:
                problem = f"cannot be given chunk {digest[:12]}…, which this host's blob cache does not hold"
                raise BlobMissing(self.url, problem, "run the cell that made the data again") from None
        if blake3(data).hexdigest() != digest:
            raise self._damaged(digest, "was to be given")
        return data

    @property
    def can_withdraw(self) -> bool:
        """Tell whether the store knows who made a chunk, so that it can go with its kernel (`withdrawal`).

        Of a server that is known once it was probed.
        """
        return self._withdraws is not None or self._makes_once

    @property
    def hides(self) -> bool:
        """Tell whether a chunk can be taken out of sight and brought back."""
        return self._withdraws is not None

    @property
    def deletes_by_request(self) -> bool:
        """Tell whether each deletion is a request to a server, so that it is better to have many together."""
        return self._files is None

    def make_chunk(self, digest: Digest, source: Path) -> bool:
        """Store a chunk unless the store holds it; tell whether this call made it. Raises as `put_chunk`."""
        if self._withdraws is None:
            if self._makes_once and self._make(digest, source):
                return True
            self.put_chunk(digest, source)  # It may be there: this makes it young, and it counts as others'.
            return False
        data = self._read(digest, source)
        with self._told():
            return self._withdraws.make_file(self._blob_key(digest), source, data)

    def _make(self, digest: Digest, source: Path) -> bool:
        assert isinstance(self._backend, MakesOnce)
        data = pack(self._read(digest, source), self._way.rate)
        began = time.perf_counter()
        with self._told():
            made = self._backend.make(self._blob_key(digest), data)
        if made:
            self._way.went(len(data), time.perf_counter() - began)
        return made

    def hide(self, digest: Digest) -> str | None:
        """Take a chunk out of sight; return what brings it back, None when there is none to take."""
        assert self._withdraws is not None
        with self._told():
            return self._withdraws.hide(self._blob_key(digest))

    def show(self, digest: Digest, token: str) -> bool:
        """Bring back a chunk that is out of sight; False when somebody has stored it anew meanwhile."""
        assert self._withdraws is not None
        with self._told():
            return self._withdraws.show(self._blob_key(digest), token)

    def drop(self, token: str) -> None:
        """Delete a chunk that is out of sight."""
        assert self._withdraws is not None
        with self._told():
            self._withdraws.drop(token)

    def settle(self) -> None:
        """Return when every chunk put so far survives a loss of power on the store's host."""
        with self._told():
            self._backend.settle()

    def get_chunk(self, digest: Digest) -> bytes:
        """Return a chunk's bytes, unpacked and verified; raises BlobMissing or BlobDamaged."""
        with self._told():
            try:
                stored = self._backend.get(self._blob_key(digest))
            except NoSuchObject:
                raise self._missing(digest) from None
            except UnfitObject:
                raise self._damaged(digest, "holds") from None
        if len(stored) > CHUNK_BYTES_MAX:
            raise self._damaged(digest, "holds")
        if is_packed(stored):
            with contextlib.suppress(Unreadable):
                data = unpack(stored, CHUNK_BYTES_MAX)
                if blake3(data).hexdigest() == digest:
                    return data
        if blake3(stored).hexdigest() != digest:
            raise self._damaged(digest, "holds")
        return stored

    def file_of(self, digest: Digest) -> Path | None:
        """Return the file in which a store on this machine keeps a chunk, plain; None for other stores."""
        return None if self._files is None else self._files.file_of(self._blob_key(digest))

    def age_s(self, digest: Digest) -> float | None:
        """Return the seconds since the chunk was last put, or None when the store lacks it."""
        with self._told():
            return self._backend.age_s(self._blob_key(digest))

    def has(self, digest: Digest) -> bool:
        """Tell whether the store holds the chunk."""
        return self.age_s(digest) is not None

    def delete(self, digest: Digest) -> None:
        """Remove a chunk if it is there. Garbage collection alone may decide that."""
        with self._told():
            self._backend.delete(self._blob_key(digest))

    def list_digests(self) -> dict[Digest, float]:
        """Return the age in seconds of every chunk in the store."""
        found: dict[Digest, float] = {}
        with self._told():
            for key, age_s in self._backend.walk("blobs"):
                name = key.rpartition("/")[2]
                if is_digest(name):
                    found[Digest(name)] = age_s
        return found

    def list_sizes(self) -> dict[Digest, int]:
        """Return the bytes that every chunk takes in the store; raises StoreError where it cannot tell."""
        if not isinstance(self._backend, TellsSizes):
            raise StoreError(self.url, "cannot tell how large its objects are", "use its own tools")
        with self._told():
            found = [(key.rpartition("/")[2], size) for key, size in self._backend.sizes("blobs")]
        return {Digest(name): size for name, size in found if is_digest(name)}

    # -- documents ---------------------------------------------------------------------------------

    def put_document(self, name: str, data: bytes) -> None:
        """Store a document in place of the last one of that name; readers see the old or the new one.

        `name` is ``<kernel_id>/<what>``; a document is durable when this returns.
        """
        if len(data) > DOCUMENT_BYTES_MAX:
            limit = f"of {DOCUMENT_BYTES_MAX >> 20} MiB"
            raise StoreError(
                self.url, f"takes no document above the limit {limit}", "keep large data in blobs"
            )
        with self._told():
            self._backend.put(self._document_key(name), data)
            self._backend.settle()

    def get_document(self, name: str) -> bytes | None:
        """Return a document, or None when there is none of that name; raises DocumentUnfit as well."""
        with self._told():
            try:
                return self._backend.get(self._document_key(name))
            except NoSuchObject:
                return None
            except UnfitObject as error:
                fix = "remove it, and find out who may write there"
                raise DocumentUnfit(self.url, f"holds {name}, which is no document: {error}", fix) from None

    def list_documents(self, kernel_id: str = "") -> dict[str, float]:
        """Return name and age in seconds of the documents of one kernel, or of all."""
        under = self._document_key(kernel_id) if kernel_id else "kernels"
        with self._told():
            walk = dict(self._backend.walk(under))
        return {key.partition("/")[2]: age_s for key, age_s in walk.items()}

    def delete_document(self, name: str) -> None:
        """Remove a document if it is there."""
        with self._told():
            self._backend.delete(self._document_key(name))

    # -- the store as a whole ----------------------------------------------------------------------

    def probe(self) -> None:
        """Write, read back and delete a small object; raise StoreError in bounded time when that fails."""
        key, data = f"probe/{secrets.token_hex(8)}", secrets.token_bytes(64)
        with self._told():
            self._backend.put(key, data)
            try:
                intact = self._backend.get(key) == data
            except NoSuchObject:
                intact = False
            self._backend.delete(key)
            self._makes_once = intact and self._try_to_make_twice(f"{key}-once")
        if not intact:
            raise StoreError(
                self.url, "did not give back what was written to it", "check or replace the server"
            )

    def _try_to_make_twice(self, key: str) -> bool:
        """Tell whether the server stores an object only if there is none, when it is asked to."""
        backend = self._backend
        if not isinstance(backend, MakesOnce):
            return False
        try:
            return backend.make(key, b"first") and not backend.make(key, b"second")
        except StoreFault:
            return False
        finally:
            backend.delete(key)

    def free_bytes(self) -> int | None:
        """Return how many bytes more the store takes, None where it cannot know."""
        if not isinstance(self._backend, TellsRoom):
            return None
        with self._told():
            return self._backend.free_bytes()

    def close(self) -> None:
        """Let go of connections."""
        self._backend.close()

    # -- keys and faults ---------------------------------------------------------------------------

    def _blob_key(self, digest: Digest) -> str:
        if not is_digest(digest):
            raise BlobDamaged(
                self.url, f"was asked for {digest[:80]!r}, which is no digest", "restart the kernel"
            )
        return f"blobs/{digest[:2]}/{digest}"

    def _document_key(self, name: str) -> str:
        segments = name.split("/")
        if len(segments) > DOCUMENT_SEGMENTS_MAX or not all(map(is_segment, segments)):
            problem = f"takes no document named {name[:200]!r}"
            raise StoreError(self.url, problem, "use letters, digits, dots, dashes and underscores")
        return f"kernels/{name}"

    def _missing(self, digest: Digest) -> BlobMissing:
        fix = "name the store that the notebook was last used with, or run the cell that made the data again"
        return BlobMissing(self.url, f"does not hold chunk {digest[:12]}…", fix)

    def _damaged(self, digest: Digest, verb: str) -> BlobDamaged:
        fix = "check its disk, and run the cell that made the data again"
        return BlobDamaged(
            self.url, f"{verb} chunk {digest[:12]}… with bytes that its name does not match", fix
        )

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Turn a backend's fault into the error that the user reads."""
        try:
            yield
        except StoreFault as fault:
            kind = StoreRefused if fault.refused else StoreError
            raise kind(self.url, fault.problem, fault.fix) from fault


def open_store(url: str, env: Mapping[str, str]) -> ObjectStore:
    """Open the store that `url` names, with credentials from `env`; connects on first use (`probe`).

    Raises SettingError when the URL cannot be used or a package is missing, and StoreError when a
    directory cannot. May take a second (imports): call it from a worker thread.
    """
    scheme = scheme_of(url)
    if not scheme:
        raise setting_error(url, "not a URL", f"write file://{url if url.startswith('/') else '/path'}")
    opener = _find(url, scheme)
    try:
        return ObjectStore(url, opener(url, env))
    except ModuleNotFoundError as error:
        raise _uninstalled(url, scheme, error) from error
    except StoreFault as fault:
        kind = StoreRefused if fault.refused else StoreError
        raise kind(redact(url), fault.problem, fault.fix) from fault


def _find(url: str, scheme: str) -> OpenBackend:
    """Return what opens `scheme`: a built-in backend, also when nothing is installed, or a plug-in."""
    if scheme in BUILT_IN:
        module, _, name = BUILT_IN[scheme].partition(":")
        found: OpenBackend = getattr(importlib.import_module(module), name)
        return found
    from importlib.metadata import entry_points  # Its own imports take long, and few stores are plug-ins.

    for entry in entry_points(group=ENTRY_POINTS, name=scheme):
        try:
            plugged: OpenBackend = entry.load()
        except ModuleNotFoundError as error:
            raise _uninstalled(url, scheme, error) from error
        return plugged
    known = ", ".join(f"{name}://" for name in BUILT_IN)
    raise setting_error(
        url, f"unknown scheme {scheme!r}; known are {known}", "use one, or install its plug-in"
    )


def _uninstalled(url: str, scheme: str, error: ModuleNotFoundError) -> SettingError:
    extra = EXTRAS.get(scheme)
    fix = f'run pip install "replkernel[{extra}]"' if extra else f"install {error.name}"
    return setting_error(url, f"{scheme}:// needs the package {error.name}, which is not installed", fix)
