"""What a store gives for a chunk, and how stores are named."""

from __future__ import annotations

import tempfile
from pathlib import Path

from blake3 import blake3

from replkernel.errors import ReplkernelError
from replkernel.objects.backends import redis
from replkernel.objects.chunk_files import ChunkFiles, is_digest
from replkernel.objects.collect import decode_digests
from replkernel.objects.packing import MARK, Unreadable, is_packed, pack, unpack
from replkernel.objects.store import open_store
from replkernel.objects.url import clear_text, prefix_of, redact, scheme_of
from replkernel.records import ChunkRef, Digest
from tests.fuzz.pieces import cut, filled, joined

PACKED, STORED, CACHED, URL, LIST = range(5)
PLAIN_BYTES_MAX = 1 << 20
SLOW = 1e6
URLS = (
    b"file:///data/store",
    b"memory://here",
    b"s3://bucket/prefix?endpoint=http://localhost:9000",
    b"redis://user:secret@host:6379/0/prefix",
    b"rediss://:p%40ss@[::1]:6380/1",
    b"hdfs://namenode:8020/path",
)


def seeds() -> list[bytes]:
    """Return packed chunks of each codec, plain ones, and URLs."""
    numbers = b"".join(number.to_bytes(4, "little") for number in range(2048))
    chunks = [pack(data, SLOW) for data in (b"text " * 2000, numbers, bytes(8192))]
    told = [joined(kind, chunk) for kind in (PACKED, STORED, CACHED) for chunk in chunks]
    return [*told, *(joined(URL, url) for url in URLS), joined(LIST, bytes(64))]


def fuzz(data: bytes) -> None:
    """Have a host fetch the first piece as a chunk, or be told to use it as a store."""
    number, pieces = cut(data)
    piece, name = filled(pieces, 2)
    try:
        (_unpack, _stored, _cached, _url, _list)[number % 5](piece, name)
    except ReplkernelError:
        return


def _unpack(stored: bytes, _: bytes) -> None:
    if not is_packed(stored):
        stored = MARK + stored
    try:
        plain = unpack(stored, PLAIN_BYTES_MAX)
    except Unreadable:
        return
    assert len(plain) <= PLAIN_BYTES_MAX


def _stored(stored: bytes, name: bytes) -> None:
    """Have somebody put `stored` where a chunk was, and the chunk be asked for."""
    store = open_store("memory://fuzz-chunks", {})
    digest = Digest(blake3(b"what was stored").hexdigest())
    store._backend.put(store._blob_key(digest), stored)
    try:
        assert blake3(store.get_chunk(digest)).hexdigest() == digest
    finally:
        store.delete(digest)
    store.get_chunk(Digest(name.decode("utf-8", "replace")))


def _cached(stored: bytes, name: bytes) -> None:
    files = ChunkFiles(DIRECTORY)
    digest = Digest(blake3(b"what was cached").hexdigest())
    path = Path(files.path(digest))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(stored)
    files.path(Digest(name.decode("utf-8", "replace")) if name else digest)
    files.read_into(ChunkRef(digest, len(stored)), memoryview(bytearray(len(stored))))


def _url(piece: bytes, _: bytes) -> None:
    url = piece.decode("utf-8", "replace")
    if scheme_of(url) in ("redis", "rediss"):
        redis.open_backend(url, {}).close()
    redact(url)
    clear_text(url, "")
    prefix_of(url, url.partition("://")[2])


def _list(document: bytes, _: bytes) -> None:
    try:
        found = decode_digests(document)
    except ValueError:
        return
    assert all(map(is_digest, found))


DIRECTORY = Path(tempfile.mkdtemp(prefix="rk-fuzz-chunks-"))
