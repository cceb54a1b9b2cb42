"""Object stores in directories of this machine."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.errors import StoreError
from replkernel.objects.backends.file import FileBackend
from replkernel.objects.cache import BlobCache
from replkernel.objects.collect import GRACE_S, collect, write_mark
from replkernel.objects.store import ObjectStore, open_store
from replkernel.records import KernelId
from tests.contracts.object_store import ObjectStoreContract, named
from tests.support.small_disk import small_disk


class TestFileStore(ObjectStoreContract):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> FileBackend:
        return FileBackend(tmp_path / "a store")


@pytest.fixture
def full_soon(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    with small_disk(tmp_path / "small", mebibytes=4) as disk:
        yield disk


def put_all(store: ObjectStore, chunks: list[bytes]) -> None:
    for chunk in chunks:
        store.put_chunk(named(chunk), chunk)


def test_a_cached_chunk_is_stored_without_a_copy_and_for_its_owner_alone(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path / "cache")
    store = open_store(f"file://{tmp_path}/store", {})
    (chunk,) = cache.write_blob(b"x" * 5000).chunks
    path = cache.chunk_path(chunk.digest)
    store.put_chunk(chunk.digest, path)
    stored = tmp_path / "store" / "blobs" / chunk.digest[:2] / chunk.digest
    assert os.path.samefile(path, stored)
    assert stat.S_IMODE(stored.stat().st_mode) & 0o077 == 0
    assert stat.S_IMODE(stored.parent.stat().st_mode) == 0o700
    store.put_chunk(chunk.digest, path)
    assert [entry.name for entry in stored.parent.iterdir()] == [chunk.digest]


def test_storing_a_chunk_again_makes_it_young(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path / "cache")
    store = open_store(f"file://{tmp_path}/store", {})
    (chunk,) = cache.write_blob(b"x" * 5000).chunks
    for source in (cache.chunk_path(chunk.digest), b"x" * 5000):
        store.put_chunk(chunk.digest, source)
        os.utime(tmp_path / "store" / "blobs" / chunk.digest[:2] / chunk.digest, (1, 1))
        assert (store.age_s(chunk.digest) or 0) > GRACE_S
        store.put_chunk(chunk.digest, source)
        assert (store.age_s(chunk.digest) or 0) < 60


def test_another_file_system_gets_a_copy(full_soon: Path, tmp_path: Path) -> None:
    cache = BlobCache(tmp_path / "cache")
    store = open_store(f"file://{full_soon}/store", {})
    (chunk,) = cache.write_blob(b"y" * 5000).chunks
    store.put_chunk(chunk.digest, cache.chunk_path(chunk.digest))
    assert store.get_chunk(chunk.digest) == b"y" * 5000


def test_a_full_disk_is_told_and_leaves_no_half_chunk(full_soon: Path) -> None:
    store = open_store(f"file://{full_soon}/store", {})
    chunks = [os.urandom(1 << 20) for _ in range(5)]
    with pytest.raises(StoreError, match=r"has no room left .*; free some space .*REPLKERNEL_STORE"):
        put_all(store, chunks)
    assert all(store.get_chunk(digest) for digest in store.list_digests())
    store.delete(named(chunks[0]))
    store.put_chunk(named(chunks[-1]), chunks[-1])
    assert store.has(named(chunks[-1]))


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot be used .*Not a directory.*REPLKERNEL_STORE"):
        open_store(f"file://{tmp_path}/file/store", {})


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="make the directory writable"):
        open_store(f"file://{tmp_path}/store", {})


def test_collection_deletes_what_is_old_and_unnamed(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}", {})
    long_ago = time.time() - GRACE_S - 60
    for data in (b"old", b"old and named", b"young", b"old and refreshed"):
        store.put_chunk(named(data), data)
        if data != b"young":
            digest = named(data)
            os.utime(tmp_path / "blobs" / digest[:2] / digest, (long_ago, long_ago))
    write_mark(store, KernelId("k1"), [named(b"old and named")])
    store.put_chunk(named(b"old and refreshed"), b"old and refreshed")
    found = collect(store)
    assert (found.stored, found.named, found.deleted) == (4, 1, 1)
    assert set(store.list_digests()) == {
        named(b"old and named"),
        named(b"young"),
        named(b"old and refreshed"),
    }


def test_half_written_files_of_dead_processes_go(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}", {})
    store.put_chunk(named(b"x"), b"x")
    scrap = tmp_path / "blobs" / named(b"x")[:2] / ".part-0123"
    scrap.write_bytes(b"half")
    store.list_digests()
    assert scrap.exists()
    os.utime(scrap, (1, 1))
    assert set(store.list_digests()) == {named(b"x")}
    assert not scrap.exists()
