"""Digests of buffers: the same however many threads make them; nothing keeps a buffer once they are made."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
from xxhash import xxh3_128_digest

from replkernel.objects.cutting import CHUNK_BYTES
from replkernel.state.capture import dump
from replkernel.state.capture.budget import Gate, GiveWay, Terms
from replkernel.state.capture.dump import DIGEST_BYTES, SHARED_BYTES, BufferDigests

SIZES = [SHARED_BYTES - 1, SHARED_BYTES, SHARED_BYTES + 1, SHARED_BYTES + CHUNK_BYTES, 3 * SHARED_BYTES + 7]


@pytest.mark.parametrize("size", SIZES)
def test_every_chunk_has_the_digest_that_it_has_alone(size: int) -> None:
    data = bytearray(random.Random(size).randbytes(size))
    whole = BufferDigests().of(memoryview(data), None)
    chunks = [data[start : start + CHUNK_BYTES] for start in range(0, size, CHUNK_BYTES)]
    alone = [BufferDigests().of(memoryview(chunk), None)[:DIGEST_BYTES] for chunk in chunks]
    assert whole == b"".join(alone) + size.to_bytes(8, "little")


@pytest.mark.parametrize("place", [0, SHARED_BYTES // 2, SHARED_BYTES])
def test_one_byte_changes_the_digest_of_its_chunk_alone(place: int) -> None:
    data = bytearray(SHARED_BYTES + 1)
    before = BufferDigests().of(memoryview(data), None)
    data[place] = 1
    after = BufferDigests().of(memoryview(data), None)
    changed = {index // DIGEST_BYTES for index in range(len(before)) if before[index] != after[index]}
    assert changed == {place // CHUNK_BYTES}


def test_the_owner_can_resize_the_buffer_at_once() -> None:
    data = bytearray(SHARED_BYTES)
    for number in range(200):
        BufferDigests().of(memoryview(data), None)
        data.append(number % 256)


@pytest.fixture
def somebody_waits(monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Return who tells that this thread is waited for: no chunk is hashed before he was asked.

    The second thread may have hashed all of them by then otherwise.
    """
    asked = threading.Event()

    def tell() -> bool:
        asked.set()
        return True

    def digest(chunk: memoryview) -> bytes:
        assert asked.wait(60)
        return xxh3_128_digest(chunk)

    monkeypatch.setattr(dump, "xxh3_128_digest", digest)
    return tell


def test_who_gives_way_leaves_no_hold_of_the_buffer_and_no_thread(
    somebody_waits: Callable[[], bool],
) -> None:
    data = bytearray(SHARED_BYTES)
    before = threading.active_count()
    with pytest.raises(GiveWay):
        BufferDigests(Gate(Terms(stop=somebody_waits))).of(memoryview(data), None)
    data.append(1)
    assert threading.active_count() == before


def test_a_buffer_hashed_beside_others_has_the_digests_that_it_has_alone() -> None:
    views = [memoryview(bytearray(random.Random(size).randbytes(size))) for size in (*SIZES, 100)]
    together = BufferDigests()
    together.begin(views)
    assert [together.of(view, None) for view in views] == [BufferDigests().of(view, None) for view in views]
    assert all(together.seconds(view) > 0 for view in views[:-1])
    together.end()
    assert [together.of(view, None) for view in views] == [BufferDigests().of(view, None) for view in views]


def test_the_owner_can_resize_what_was_begun_when_it_was_ended() -> None:
    buffers = [bytearray(SHARED_BYTES) for _ in range(4)]
    for number in range(200):
        views = [memoryview(each) for each in buffers]
        digests = BufferDigests()
        digests.begin(views)
        if number % 2:
            digests.of(views[number % 4], None)
        digests.end()
        del views
        for each in buffers:
            each.append(number % 256)


def test_who_gives_way_takes_no_more_of_what_was_begun(somebody_waits: Callable[[], bool]) -> None:
    views = [memoryview(bytearray(SHARED_BYTES)) for _ in range(4)]
    digests = BufferDigests(Gate(Terms(stop=somebody_waits, every_s=0)))
    digests.begin(views)
    with pytest.raises(GiveWay):
        digests.of(views[0], None)
    digests.end()
    for view in views:
        view.release()


def test_a_buffer_that_cannot_be_hashed_fails_whoever_asks_for_it_alone() -> None:
    good = memoryview(bytearray(SHARED_BYTES))
    bad = memoryview(bytearray(2 * SHARED_BYTES))[::2]
    digests = BufferDigests()
    digests.begin([good, bad])
    digests.finish()
    assert digests.of(good, None) == BufferDigests().of(good, None)
    with pytest.raises(BufferError):
        digests.of(bad, None)
    digests.end()
