"""The blob cache on a real disk: what it keeps, what it gives back, what it refuses, what it lets go."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from xxhash import xxh3_128_digest

from replkernel.errors import BlobDamaged, BlobMissing, StoreError
from replkernel.objects import eviction
from replkernel.objects.cache import CHUNK_BYTES, BlobCache
from replkernel.objects.eviction import (
    SAVED_MODE,
    SCRAP_AGE_MAX_S,
    UNSAVED_AGE_MAX_S,
    CachedChunk,
    victims,
)
from replkernel.records import BlobRef, ChunkRef, Digest
from tests.support.small_disk import small_disk


@pytest.fixture
def cache(tmp_path: Path) -> BlobCache:
    return BlobCache(tmp_path / "cache")


def files(cache: BlobCache) -> set[str]:
    return {path.name for path in cache.directory.glob("??/*")}


def age(cache: BlobCache, ref: BlobRef, seconds: float) -> None:
    """Make the blob's chunks look unused for so long."""
    for chunk in ref.chunks:
        moment = time.time() - seconds
        os.utime(cache.chunk_path(chunk.digest), (moment, moment))


def store(cache: BlobCache, *refs: BlobRef) -> None:
    cache.mark_stored(chunk.digest for ref in refs for chunk in ref.chunks)


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 7 * CHUNK_BYTES + 3])
def test_a_blob_comes_back_as_it_was(cache: BlobCache, size: int) -> None:
    data = os.urandom(size)
    ref = cache.write_blob(data)
    assert ref.size == size
    assert [chunk.digest for chunk in ref.chunks] == [
        blake3(data[start : start + CHUNK_BYTES]).hexdigest() for start in range(0, size, CHUNK_BYTES)
    ]
    assert cache.missing(ref) == []
    assert cache.read_blob(ref) == data


@pytest.mark.parametrize(
    "array", [np.arange(1e6), np.asfortranarray(np.ones((30, 40))), np.zeros((0, 3)), np.float32(3)]
)
def test_any_contiguous_buffer_is_taken_and_a_writable_one_given(cache: BlobCache, array: np.ndarray) -> None:
    back = np.frombuffer(cache.read_blob(cache.write_blob(array)), dtype=array.dtype)
    assert np.array_equal(back, np.asarray(array).ravel(order="K"))
    assert back.flags.writeable


def test_only_changed_chunks_are_written_again(cache: BlobCache) -> None:
    data = bytearray(os.urandom(5 * CHUNK_BYTES + 10))
    ref, known = cache.write_chunks(data, None)
    assert ref == cache.write_blob(data)
    for name in files(cache):
        (cache.directory / name[:2] / name).unlink()
    data[2 * CHUNK_BYTES] ^= 1
    data += b"tail"
    changed, known = cache.write_chunks(data, known)
    assert files(cache) == {changed.chunks[2].digest, changed.chunks[5].digest}
    assert changed == BlobCache(cache.directory.parent / "other").write_blob(data)
    shorter, _ = cache.write_chunks(data[: CHUNK_BYTES + 1], known)
    assert cache.missing(shorter) == [known[0][1]]


def test_files_are_for_their_owner_alone(cache: BlobCache) -> None:
    (chunk,) = cache.write_blob(b"data").chunks
    path = cache.chunk_path(chunk.digest)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(cache.directory.stat().st_mode) == 0o700


def test_a_chunk_that_is_not_there_is_missing(cache: BlobCache) -> None:
    ref = cache.write_blob(os.urandom(3 * CHUNK_BYTES))
    cache.chunk_path(ref.chunks[1].digest).unlink()
    assert cache.missing(ref) == [ref.chunks[1]]
    with pytest.raises(BlobMissing, match=ref.chunks[1].digest[:12]):
        cache.read_blob(ref)


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 100, b"x" * 101])
def test_a_damaged_chunk_is_told_and_removed(cache: BlobCache, damage: bytes) -> None:
    ref = cache.write_blob(os.urandom(100))
    path = cache.chunk_path(ref.chunks[0].digest)
    path.write_bytes(damage)
    with pytest.raises(BlobDamaged):
        cache.read_blob(ref)
    assert cache.missing(ref) == list(ref.chunks)


def test_a_truncated_chunk_is_written_again(cache: BlobCache) -> None:
    data = os.urandom(5000)
    ref = cache.write_blob(data)
    os.truncate(cache.chunk_path(ref.chunks[0].digest), 10)
    assert cache.missing(ref) == list(ref.chunks)
    assert cache.read_blob(cache.write_blob(data)) == data


def test_names_and_sizes_from_elsewhere_are_not_believed(cache: BlobCache) -> None:
    for name in ("../../../etc/passwd", "A" * 64, "", "0" * 63 + "/"):
        with pytest.raises(BlobDamaged, match="no digest"):
            cache.read_blob(BlobRef(1, (ChunkRef(Digest(name), 1),)))
    ref = cache.write_blob(b"data")
    with pytest.raises(BlobDamaged, match="add up"):
        cache.read_blob(BlobRef(10**15, ref.chunks))
    with pytest.raises(BlobDamaged):
        cache.write_stored_chunk(ChunkRef(ref.chunks[0].digest, 4), b"evil")


def test_the_least_recently_used_stored_chunks_go_first(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 400_000, rest_s=60)
    refs = [cache.write_blob(os.urandom(100_000)) for _ in range(6)]
    store(cache, *refs)
    for number, ref in enumerate(refs):
        age(cache, ref, 1000 - number)
    cache.missing(refs[0])
    assert cache.evict() > 0
    assert [bool(cache.missing(ref)) for ref in refs] == [False, True, True, True, False, False]


def test_a_chunk_that_no_store_holds_is_never_evicted(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 200_000, rest_s=0)
    unsaved = [cache.write_blob(os.urandom(100_000)) for _ in range(5)]
    saved = cache.write_blob(os.urandom(100_000))
    store(cache, saved)
    for ref in (*unsaved, saved):
        age(cache, ref, 3600)
    BlobCache(tmp_path, 200_000, rest_s=0).evict()
    assert [cache.missing(ref) for ref in unsaved] == [[]] * 5
    assert cache.missing(saved)


def test_a_stored_chunk_that_is_written_again_counts_as_unsaved(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 1000, rest_s=0)
    data = os.urandom(5000)
    ref = cache.write_blob(data)
    store(cache, ref)
    cache.write_blob(data)
    age(cache, ref, 3600)
    cache.evict()
    assert cache.missing(ref) == []


def test_protected_and_resting_chunks_stay(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 1000, rest_s=300)
    protected, resting = cache.write_blob(os.urandom(5000)), cache.write_blob(os.urandom(5000))
    store(cache, protected, resting)
    age(cache, protected, UNSAVED_AGE_MAX_S * 2)
    digests = [chunk.digest for chunk in protected.chunks]
    cache.protect(digests)
    cache.protect(digests)
    cache.release(digests)
    cache.evict()
    assert len(files(cache)) == 2
    cache.release(digests)
    cache.evict()
    assert files(cache) == {resting.chunks[0].digest}


def test_files_left_by_dead_processes_go_in_the_end(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 1000)
    orphan = cache.write_blob(os.urandom(5000))
    age(cache, orphan, UNSAVED_AGE_MAX_S + 60)
    scrap = cache.chunk_path(orphan.chunks[0].digest).with_name(".half.1.1")
    scrap.write_bytes(b"half")
    os.utime(scrap, (time.time() - SCRAP_AGE_MAX_S - 60,) * 2)
    cache.evict()
    assert files(cache) == set()


def test_writing_keeps_the_bound_by_itself(tmp_path: Path) -> None:
    cache = BlobCache(tmp_path, 1_000_000, rest_s=0)
    for _ in range(60):
        store(cache, cache.write_blob(os.urandom(100_000)))
    assert sum(path.stat().st_size for path in tmp_path.glob("??/*")) < 1_300_000


def test_a_chunk_written_again_after_it_was_chosen_for_eviction_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = BlobCache(tmp_path, 1000, rest_s=0)
    wanted, unwanted = os.urandom(5000), os.urandom(5000)
    refs = [cache.write_blob(wanted), cache.write_blob(unwanted)]
    store(cache, *refs)
    for ref in refs:
        age(cache, ref, 3600)

    def choose_and_be_overtaken(*arguments: Any) -> list[CachedChunk]:
        chosen = victims(*arguments)
        BlobCache(tmp_path).write_blob(wanted)
        return chosen

    monkeypatch.setattr(eviction, "victims", choose_and_be_overtaken)
    cache.evict()
    assert cache.read_blob(refs[0]) == wanted
    assert files(cache) == {refs[0].chunks[0].digest}


WRITER = """
import sys
from pathlib import Path
from replkernel.objects.cache import BlobCache
cache = BlobCache(Path(sys.argv[1]))
for number in range(40):
    ref = cache.write_blob(bytes([number]) * 1_500_000)
    assert cache.read_blob(ref) == bytes([number]) * 1_500_000
"""


def test_processes_write_the_same_chunks_at_once(cache: BlobCache) -> None:
    command = [sys.executable, "-c", WRITER, str(cache.directory)]
    writers = [subprocess.Popen(command, env=_env()) for _ in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert all(len(name) == 64 for name in files(cache))


def test_threads_write_the_same_chunks_at_once(cache: BlobCache) -> None:
    with ThreadPoolExecutor(8) as pool:
        refs = list(pool.map(cache.write_blob, [b"the same" * 300_000] * 16))
    assert len(set(refs)) == 1
    assert cache.read_blob(refs[0]) == b"the same" * 300_000


SHARER = """
import os, sys
from pathlib import Path
from replkernel.objects.cache import BlobCache
cache = BlobCache(Path(sys.argv[1]), 1 << 40, rest_s=0)
refs = [cache.write_blob(os.urandom(100_000)) for _ in range(40)]
cache.mark_stored(chunk.digest for ref in refs for chunk in ref.chunks)
"""


def test_the_bound_is_the_hosts_however_many_processes_write(tmp_path: Path) -> None:
    agents = BlobCache(tmp_path, 1_000_000, rest_s=0)
    shared = bytes(100_000)
    command = [sys.executable, "-c", SHARER, str(tmp_path)]
    writers = [subprocess.Popen(command, env=_env()) for _ in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    unsaved = agents.write_blob(shared)
    assert BlobCache(tmp_path).missing(unsaved) == [], "a replica does not see what another has"
    agents.evict()
    assert sum(path.stat().st_size for path in tmp_path.glob("??/*")) <= 1_000_000
    assert agents.read_blob(unsaved) == shared


LIMITED = """
import resource, sys
from pathlib import Path
from replkernel.errors import StoreError
from replkernel.objects.cache import BlobCache
cache = BlobCache(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
try:
    cache.write_blob(bytes(5000))
except StoreError as error:
    print(error)
"""


def test_a_file_size_limit_is_told_as_lack_of_room(cache: BlobCache) -> None:
    command = [sys.executable, "-c", LIMITED, str(cache.directory)]
    told = subprocess.run(command, env=_env(), capture_output=True, text=True, check=True, timeout=30).stdout
    assert f"The blob cache {cache.directory} has no room left on its disk; free some space" in told
    assert files(cache) == set()


@pytest.fixture
def full_soon(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    with small_disk(tmp_path / "small", mebibytes=4) as disk:
        yield disk


def test_a_full_disk_takes_stored_chunks_first_and_then_is_told(full_soon: Path) -> None:
    cache = BlobCache(full_soon / "cache")
    stored = cache.write_blob(os.urandom(2 << 20))
    store(cache, stored)
    for chunk in stored.chunks:
        os.utime(cache.chunk_path(chunk.digest), (1, 1))
    kept = cache.write_blob(os.urandom(3 << 20))
    assert cache.missing(stored)
    assert cache.missing(kept) == []
    with pytest.raises(StoreError, match=r"has no room left on its disk; free some space .*JUPYTER_DATA_DIR"):
        cache.write_blob(os.urandom(2 << 20))
    assert cache.missing(kept) == []


def test_a_full_disk_never_costs_what_was_fetched_a_moment_ago(full_soon: Path) -> None:
    cache = BlobCache(full_soon / "cache")
    fetched = cache.write_blob(os.urandom(3 << 20))
    store(cache, fetched)
    with pytest.raises(StoreError, match="has no room left on its disk"):
        cache.write_blob(os.urandom(2 << 20))
    assert cache.missing(fetched) == []


def test_a_directory_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"The blob cache .*/file/cache cannot be used \(Not a directory\)"):
        BlobCache(tmp_path / "file" / "cache")


def test_importing_the_cache_is_cheap() -> None:
    heavy = "{'fsspec', 'asyncio', 'numpy', 's3fs', 'redis', 'pyarrow', 'logging'} & set(sys.modules)"
    command = [sys.executable, "-c", f"import sys, replkernel.objects.cache; print({heavy})"]
    loaded = subprocess.run(
        command, env=_env(), capture_output=True, text=True, check=True, timeout=30
    ).stdout
    assert set(eval(loaded)) <= {"logging"}


def _env() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ.get("PATH", "")}


def test_text_that_begins_as_before_is_not_looked_at_again(cache: BlobCache) -> None:
    text = b"".join(b"%d lines of text\n" % number for number in range(600_000))
    before = cache.write_text(text)
    longer = text + b"and one more\n"
    assert cache.write_text(longer, before.chunks[:5]) == cache.write_text(longer)
    edited = b"in front of it all " + text
    after = cache.write_text(edited)
    assert len(set(after.chunks) - set(before.chunks)) <= 2
    assert cache.read_blob(after) == edited


def test_many_parts_are_cut_as_their_whole_is(cache: BlobCache) -> None:
    parts = [os.urandom(size) for size in (1, CHUNK_BYTES - 1, 0, 3 * CHUNK_BYTES + 7, 100, CHUNK_BYTES)]
    ref, marks = cache.write_stream(parts, None)
    assert ref == cache.write_blob(b"".join(parts))
    for name in files(cache):
        (cache.directory / name[:2] / name).unlink()
    parts[4] = os.urandom(100)
    again, _ = cache.write_stream(parts, marks)
    assert files(cache) == {chunk.digest for chunk in again.chunks} - {chunk.digest for chunk in ref.chunks}
    assert cache.write_stream([], None)[0] == BlobRef(0, ())


class Stop(Exception):
    pass


def test_writing_that_is_stopped_leaves_whole_chunks(cache: BlobCache) -> None:
    data = os.urandom(20 * CHUNK_BYTES)
    calls = 0

    def progress() -> None:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise Stop

    with pytest.raises(Stop):
        cache.write_chunks(data, None, progress)
    for name in files(cache):
        assert blake3((cache.directory / name[:2] / name).read_bytes()).hexdigest() == name
    assert 0 < len(files(cache)) < 20
    ref, _ = cache.write_chunks(data, None, progress)
    assert cache.read_blob(ref) == data


def test_the_digest_told_of_a_chunk_is_of_the_bytes_written(
    cache: BlobCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytearray(CHUNK_BYTES)
    hashed = cache._write_piece

    def change_meanwhile(piece: memoryview) -> ChunkRef:
        data[:] = b"\1" * CHUNK_BYTES
        return hashed(piece)

    monkeypatch.setattr(cache, "_write_piece", change_meanwhile)
    ref, ((local, _),) = cache.write_chunks(data, None)
    assert cache.read_blob(ref) == bytes(CHUNK_BYTES)
    assert local == xxh3_128_digest(bytes(CHUNK_BYTES))


def test_each_new_chunk_is_announced_and_no_known_one(cache: BlobCache) -> None:
    told: list[ChunkRef] = []
    cache.announce = told.append
    data = bytearray(os.urandom(6 * CHUNK_BYTES))
    ref, known = cache.write_chunks(data, None)
    assert set(told) == set(ref.chunks)
    assert len(told) == 6
    told.clear()
    data[0] ^= 1
    changed, _ = cache.write_chunks(data, known)
    assert told == [changed.chunks[0]]


def test_a_chunk_in_a_directory_nearby_is_shared_with_it(cache: BlobCache, tmp_path: Path) -> None:
    data = os.urandom(5000)
    chunk = ChunkRef(Digest(blake3(data).hexdigest()), len(data))
    source = tmp_path / "of-the-store"
    source.write_bytes(data)
    cache.write_stored_chunk(chunk, data, source)
    assert cache.chunk_path(chunk.digest).samefile(source)
    assert stat.S_IMODE(source.stat().st_mode) == SAVED_MODE
    assert cache.read_chunk(chunk) == data


@pytest.mark.parametrize("fault", [errno.EXDEV, errno.EPERM, errno.ENOENT, errno.EMLINK])
def test_where_files_cannot_be_shared_they_are_copied(
    cache: BlobCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    def refuse(*args: Any) -> None:
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(os, "link", refuse)
    data = os.urandom(5000)
    chunk = ChunkRef(Digest(blake3(data).hexdigest()), len(data))
    cache.write_stored_chunk(chunk, data, tmp_path / "of-the-store")
    assert cache.read_chunk(chunk) == data


def test_chunks_that_a_capture_gave_up_leave_the_full_disk(full_soon: Path) -> None:
    cache = BlobCache(full_soon / "cache")
    told: list[str] = []
    cache.on_withdrawn = told.extend
    named = cache.write_blob(os.urandom(1 << 20))
    cache.named([named])
    with pytest.raises(StoreError, match="has no room left on its disk"):
        cache.write_blob(os.urandom(5 << 20))
    assert cache.withdraw() == len(told) > 0
    assert files(cache) == {chunk.digest for chunk in named.chunks}
    assert cache.missing(cache.write_blob(os.urandom(2 << 20))) == []


def test_chunks_that_others_asked_for_are_not_withdrawn(cache: BlobCache) -> None:
    other = BlobCache(cache.directory)
    written, again, looked_at, saved, alone = (os.urandom(1000) for _ in range(5))
    refs = [cache.write_blob(data) for data in (written, again, looked_at, saved, alone)]
    assert other.write_blob(again) == refs[1]
    assert other.missing(refs[2]) == []
    other.mark_stored([refs[3].chunks[0].digest])
    assert other.write_blob(written) == cache.write_blob(written)
    assert cache.withdraw() == 1
    assert [bool(other.missing(ref)) for ref in refs] == [False] * 4 + [True]
    assert other.withdraw() == 0


def test_unnamed_chunks_are_handed_over_and_those_others_asked_for_stay(cache: BlobCache) -> None:
    told: list[str] = []
    cache.on_withdrawn = told.extend
    left, shared, named = (cache.write_blob(os.urandom(1000)) for _ in range(3))
    cache.named([named])
    cache.captured(cell=True, whole=False)
    assert told == []
    cache.captured(cell=False, whole=True)
    assert set(told) == {chunk.digest for ref in (left, shared) for chunk in ref.chunks}
    BlobCache(cache.directory).missing(shared)
    assert cache.remove_unsaved(told) == [left.chunks[0].digest]
    assert [bool(cache.missing(ref)) for ref in (left, shared, named)] == [True, False, False]


def test_after_the_last_kernel_only_what_is_stored_stays(cache: BlobCache) -> None:
    since = time.time() - 5
    stored, unsaved, fresh = (cache.write_blob(os.urandom(1000)) for _ in range(3))
    cache.mark_stored([stored.chunks[0].digest])
    age(cache, unsaved, 60)
    cache.forget_unsaved(since)
    assert [bool(cache.missing(ref)) for ref in (stored, unsaved, fresh)] == [False, True, False]
