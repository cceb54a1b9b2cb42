"""What a kernel stored goes with it, and nothing else does, on a store of files."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest
from blake3 import blake3

from replkernel.agent.stock import Stock
from replkernel.errors import StoreError
from replkernel.objects.cache import BlobCache
from replkernel.objects.collect import forget_kernel, write_mark
from replkernel.objects.store import ObjectStore, open_store
from replkernel.objects.withdrawal import end_kernel, read_made, withdraw, write_made
from replkernel.protocol import KernelSpec
from replkernel.records import Digest, KernelId
from tests.support.live import eventually

K1, K2 = KernelId("k1"), KernelId("k2")


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(f"file://{tmp_path / 'store'}", {})


def chunk(tmp_path: Path, data: bytes) -> tuple[Digest, Path]:
    path = tmp_path / f"source-{data.decode()}"
    path.write_bytes(data)
    return Digest(blake3(data).hexdigest()), path


def test_of_many_makers_one_has_made_a_chunk(store: ObjectStore, tmp_path: Path) -> None:
    digest, path = chunk(tmp_path, b"x")
    assert [store.make_chunk(digest, path) for _ in range(3)] == [True, False, False]
    assert store.get_chunk(digest) == b"x"


def test_an_end_deletes_what_nobody_else_names(store: ObjectStore, tmp_path: Path) -> None:
    alone, path = chunk(tmp_path, b"alone")
    shared, other = chunk(tmp_path, b"shared")
    for digest, source in ((alone, path), (shared, other)):
        assert store.make_chunk(digest, source)
    write_mark(store, K1, [alone, shared], name="k1/mark-one")
    store.put_document("k1/checkpoint-one-000001-0000000000000001", b"c")
    write_mark(store, K2, [shared], name="k2/mark-two-shared-host")
    assert end_kernel(store, K1, "one", [alone, shared]) == 1
    assert not store.has(alone)
    assert store.get_chunk(shared) == b"shared"
    assert set(store.list_documents()) == {"k2/mark-two-shared-host"}
    assert not list((tmp_path / "store").glob("**/.part-*"))


def test_what_hosts_noted_before_a_rest_goes_when_the_kernel_is_forgotten(
    store: ObjectStore, tmp_path: Path
) -> None:
    digest, path = chunk(tmp_path, b"x")
    store.make_chunk(digest, path)
    write_made(store, K1, "one", "host", {digest})
    assert read_made(store, K1, "one") == {digest}
    assert read_made(store, K1, "two") == set()
    assert end_kernel(store, K1, "one") == 1
    assert not store.has(digest)
    assert store.list_documents() == {}


def test_a_chunk_claimed_while_it_is_out_of_sight_comes_back(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, path = chunk(tmp_path, b"x")
    store.make_chunk(digest, path)
    hide = store.hide

    def hide_and_be_claimed(wanted: Digest) -> str | None:
        token = hide(wanted)
        assert not store.has(digest)
        write_mark(store, K2, [digest])
        return token

    monkeypatch.setattr(store, "hide", hide_and_be_claimed)
    assert withdraw(store, [digest]) == 0
    assert store.get_chunk(digest) == b"x"


def test_nothing_goes_while_a_mark_cannot_be_read(store: ObjectStore, tmp_path: Path) -> None:
    digest, path = chunk(tmp_path, b"x")
    store.make_chunk(digest, path)
    store.put_document("k2/mark", b"damaged")
    with pytest.raises(StoreError):
        withdraw(store, [digest])
    assert store.has(digest)


def test_another_incarnation_under_the_same_id_keeps_its_documents(store: ObjectStore) -> None:
    for name in ("mark-one", "checkpoint-one-000001-0000000000000001", "made-one-host", "mark-two"):
        store.put_document(f"k1/{name}", b"")
    forget_kernel(store, K1, "one")
    assert set(store.list_documents("k1")) == {"k1/mark-two"}


def noted(store: ObjectStore, digest: Digest) -> bool:
    return digest in read_made(store, K1, "one")


async def test_what_a_killed_agent_stored_goes_with_its_kernel(store: ObjectStore, tmp_path: Path) -> None:
    cache = BlobCache(tmp_path / "cache")
    url = f"file://{tmp_path / 'store'}"
    spec = KernelSpec(K1, "one", "secret-key", "hmac-sha256", "python", {}, "/", url, 3)
    killed, next_one = (Stock(spec, "host", cache, print) for _ in range(2))
    for stock, data in ((killed, b"one"), (killed, b"two"), (next_one, b"three")):
        await stock.opened(30.0)
        blob = cache.write_blob(data)
        await stock.upload([blob], print)
        digest = blob.chunks[0].digest
        await asyncio.to_thread(eventually, partial(noted, store, digest), "the note of what was made", 15.0)
    killed.close()
    await next_one.forget(collecting=False)
    assert store.list_documents() == {}
    assert store.list_digests() == {}
