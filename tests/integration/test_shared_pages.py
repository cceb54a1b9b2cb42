"""Large arrays that came from chunks: their pages are the cache's files until somebody changes them."""

from __future__ import annotations

import ctypes
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from replkernel.errors import BlobDamaged
from replkernel.objects import mapping
from replkernel.objects.cache import BlobCache
from replkernel.objects.cutting import CHUNK_BYTES
from replkernel.records import BlobRef
from tests.support.notebook import Notebook

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="chunks are mapped on Linux")

FILL = "import numpy as np\nbig = np.random.default_rng(0).random((5, 1_048_576 + 17))"
SIZE = 5 * (1_048_576 + 17) * 8
IS_MAPPED = 2
"""What glibc notes before memory that is a mapping of its own."""


@pytest.fixture(autouse=True)
def _no_room_in_the_heap() -> Iterator[None]:
    """Take what the allocator has free and would give in the place of a mapping, after other tests."""
    held = [np.empty(SIZE + mapping.PAGE, np.uint8)]
    while not ctypes.c_size_t.from_address(held[-1].ctypes.data - 8).value & IS_MAPPED and len(held) < 100:
        held.append(np.empty(SIZE + mapping.PAGE, np.uint8))
    yield
    held.clear()


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Return a directory for a cache, on a disk whose files are mapped."""
    probe = tmp_path / "probe"
    with probe.open("w+b") as file:
        if not mapping.may_be_mapped(file.fileno(), os.fstat(file.fileno())):
            pytest.skip("the disk of temporary files is none of those that are mapped")
    return tmp_path / "cache"


def maps_of(path: Path) -> int:
    """Return how many maps of files below a directory this process has."""
    return sum(str(path) in line for line in Path("/proc/self/maps").read_text().splitlines())


def taken(here: Path, fill: str = FILL) -> tuple[Notebook, Notebook]:
    """Return a notebook that ran a cell, and another that has its state by way of one cache of files."""
    first, second = (Notebook(name, cache=BlobCache(here)) for name in ("r1", "r2"))
    assert second.take(first.run(fill, 1)).failed == ()
    return first, second


def test_a_large_array_is_mapped_and_is_what_it_was(here: Path) -> None:
    first, second = taken(here)
    big = second["big"]
    assert maps_of(here) == -(-SIZE // CHUNK_BYTES)
    assert np.array_equal(big, first["big"])
    assert big.flags.owndata
    assert big.flags.writeable
    assert big.base is None
    assert np.array_equal(pickle.loads(pickle.dumps(big)), big)


def test_a_change_of_shared_pages_is_its_notebooks_alone_and_is_captured(here: Path) -> None:
    first, second = Notebook("r1", cache=BlobCache(here)), Notebook("r2", cache=BlobCache(here))
    made = first.run(FILL, 1)
    second.take(made)
    before = first["big"].copy()
    change = second.run("big[3, 7] = -1.0", 2)
    (was,), (now,) = ([*delta.blobs()] for delta in (made, change))
    assert sum(ours != theirs for ours, theirs in zip(now.chunks, was.chunks, strict=True)) == 1
    third = Notebook("r3", cache=BlobCache(here))
    assert third.take(change).failed == ()
    assert third["big"][3, 7] == -1.0
    third["big"][3, 7] = before[3, 7]
    assert np.array_equal(third["big"], before)
    assert np.array_equal(first["big"], before)
    for chunk in was.chunks:
        BlobCache(here).read_chunk(chunk)


def test_a_mapped_array_can_be_resized_and_let_go_of(here: Path) -> None:
    _, second = taken(here)
    big = second.namespace.pop("big")
    first_row = big[0].copy()
    big.resize((6, big.shape[1]), refcheck=False)
    assert np.array_equal(big[0], first_row)
    assert not big[5].any()
    assert maps_of(here) == 0
    _, third = taken(here)
    assert maps_of(here)
    third.namespace.clear()
    third.state.rebuild(everything=True, fetch=lambda refs: None)
    del third
    assert maps_of(here) == 0


def test_the_array_stays_when_its_chunks_are_evicted(here: Path) -> None:
    first, second = taken(here)
    for path in here.glob("??/*"):
        path.unlink()
    assert np.array_equal(second["big"], first["big"])


def test_a_chunk_that_was_damaged_before_the_machine_was_started_is_told(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, data = BlobCache(here), np.random.default_rng(1).random(2 * CHUNK_BYTES)
    ref = cache.write_blob(data)
    path = cache.chunk_path(ref.chunks[1].digest)
    path.write_bytes(bytes(ref.chunks[1].size))
    monkeypatch.setattr(mapping, "_running_since", lambda: b"another run of the machine")
    with pytest.raises(BlobDamaged):
        fill_pages(cache, ref)
    assert cache.missing(ref) == [ref.chunks[1]]


def test_a_chunk_cut_short_is_never_mapped(here: Path) -> None:
    cache = BlobCache(here)
    ref = cache.write_blob(np.random.default_rng(1).random(2 * CHUNK_BYTES))
    os.truncate(cache.chunk_path(ref.chunks[1].digest), CHUNK_BYTES - 8)
    with pytest.raises(BlobDamaged):
        fill_pages(cache, ref)


def test_a_file_that_others_can_write_is_read_and_not_mapped(here: Path) -> None:
    cache, data = BlobCache(here), np.random.default_rng(1).random(CHUNK_BYTES // 8)
    ref = cache.write_blob(data)
    cache.chunk_path(ref.chunks[0].digest).chmod(0o620)
    assert fill_pages(cache, ref) == data.tobytes()
    assert maps_of(here) == 0


@pytest.mark.parametrize("why", ["no room for maps", "another disk", "the system refuses"])
def test_where_nothing_can_be_mapped_the_bytes_are_read(
    here: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    refusals: dict[str, tuple[str, Callable[..., bool]]] = {
        "no room for maps": ("replkernel.objects.cache.has_room", lambda maps: False),
        "another disk": ("replkernel.objects.mapping.may_be_mapped", lambda file, status: False),
        "the system refuses": ("replkernel.objects.mapping.lay_over", lambda *place: False),
    }
    monkeypatch.setattr(*refusals[why])
    first, second = taken(here)
    assert np.array_equal(second["big"], first["big"])
    assert maps_of(here) == 0


def fill_pages(cache: BlobCache, ref: BlobRef) -> bytes:
    """Fill pages of an own mapping with a blob; return their bytes."""
    import mmap

    with mmap.mmap(-1, ref.size + mapping.PAGE, flags=mmap.MAP_PRIVATE) as pages:
        address = ctypes.addressof(held := ctypes.c_char.from_buffer(pages))
        try:
            cache.fill(ref, mapping.bytes_at(address, ref.size), address)
            return bytes(mapping.bytes_at(address, ref.size))
        finally:
            del held
