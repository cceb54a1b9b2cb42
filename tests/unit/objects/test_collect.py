"""Garbage collection against a store whose objects age as the test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from blake3 import blake3

from replkernel.errors import StoreError
from replkernel.objects.backend import NoSuchObject, StoreFault
from replkernel.objects.collect import GRACE_S, MARK, collect, write_mark
from replkernel.objects.store import ObjectStore
from replkernel.records import Digest, KernelId

OLD = GRACE_S + 1


class AgingBackend:
    """A dictionary of objects and their ages; `before_get` lets something happen in the midst of things."""

    warning = ""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.ages: dict[str, float] = {}
        self.ahead_s = 0.0
        self.before_get: Callable[[], None] = lambda: None

    def put(self, key: str, data: bytes) -> None:
        self.objects[key] = data
        self.ages[key] = 0.0

    def put_file(self, key: str, path: Path, data: bytes) -> None:
        self.put(key, data)

    def settle(self) -> None:
        pass

    def get(self, key: str) -> bytes:
        self.before_get()
        if key not in self.objects:
            raise NoSuchObject(key)
        return self.objects[key]

    def age_s(self, key: str) -> float | None:
        return self.ages[key] + self.ahead_s if key in self.ages else None

    def delete(self, key: str) -> None:
        self.objects.pop(key, None)
        self.ages.pop(key, None)

    def walk(self, under: str) -> Iterator[tuple[str, float]]:
        yield from [
            (key, self.ages[key] + self.ahead_s) for key in self.objects if key.startswith(f"{under}/")
        ]

    def close(self) -> None:
        pass


@pytest.fixture
def backend() -> AgingBackend:
    return AgingBackend()


@pytest.fixture
def store(backend: AgingBackend) -> ObjectStore:
    return ObjectStore("aging://", backend)


def put(store: ObjectStore, backend: AgingBackend, data: bytes, age_s: float) -> Digest:
    digest = Digest(blake3(data).hexdigest())
    store.put_chunk(digest, data)
    backend.ages[f"blobs/{digest[:2]}/{digest}"] = age_s
    return digest


def test_names_of_all_kernels_keep_their_chunks(store: ObjectStore, backend: AgingBackend) -> None:
    ours, theirs, nobodys = (put(store, backend, data, OLD) for data in (b"ours", b"theirs", b"nobody's"))
    write_mark(store, KernelId("k1"), [ours])
    write_mark(store, KernelId("k2"), [theirs])
    assert collect(store).deleted == 1
    assert set(store.list_digests()) == {ours, theirs}
    assert not store.has(nobodys)


def test_a_chunk_stored_again_in_the_midst_of_a_collection_stays(
    store: ObjectStore, backend: AgingBackend
) -> None:
    digest = put(store, backend, b"wanted again", OLD)
    write_mark(store, KernelId("k1"), [])
    backend.before_get = lambda: store.put_chunk(digest, b"wanted again")
    assert collect(store).deleted == 0
    assert store.has(digest)


def test_a_chunk_named_in_the_midst_of_a_collection_stays(store: ObjectStore, backend: AgingBackend) -> None:
    digest = put(store, backend, b"named late", OLD)
    late = backend.walk

    def walk(under: str) -> Iterator[tuple[str, float]]:
        found = list(late(under))
        if under == "blobs":
            write_mark(store, KernelId("k1"), [digest])
        yield from found

    backend.walk = walk  # type: ignore[method-assign]
    assert collect(store).deleted == 0


def test_nothing_goes_while_a_mark_cannot_be_read(store: ObjectStore, backend: AgingBackend) -> None:
    digest = put(store, backend, b"old", OLD)
    write_mark(store, KernelId("k1"), [])

    def fail() -> None:
        raise StoreFault("cannot be reached", "mend it")

    backend.before_get = fail
    with pytest.raises(StoreError, match="cannot be reached"):
        collect(store)
    backend.before_get = lambda: None
    backend.objects[f"kernels/k1/{MARK}"] = b"not a list of digests"
    with pytest.raises(StoreError, match="damaged mark 'k1/mark'"):
        collect(store)
    assert store.has(digest)


def test_a_host_whose_clock_is_days_ahead_deletes_nothing_that_is_young(
    store: ObjectStore, backend: AgingBackend
) -> None:
    backend.ahead_s = 3 * GRACE_S
    young = put(store, backend, b"young", 3600)
    old = put(store, backend, b"old", GRACE_S + 3600)
    assert collect(store).deleted == 1
    assert store.has(young)
    assert not store.has(old)
    assert store.list_documents() == {}


def test_a_grace_time_shorter_than_the_law_allows_is_refused(store: ObjectStore) -> None:
    with pytest.raises(ValueError, match="GRACE_MIN_S"):
        collect(store, grace_s=60)
