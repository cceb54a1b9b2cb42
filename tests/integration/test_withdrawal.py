"""What a kernel stored goes with it, and nothing else does, on a store of files."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from replkernel.agent.io import kernel_store as store_module
from replkernel.agent.io.admission import Admission
from replkernel.agent.io.kernel_store import KernelStore
from replkernel.errors import StoreError
from replkernel.objects import superseded
from replkernel.objects.cache import BlobCache
from replkernel.objects.collect import forget_kernel, read_marks, write_mark
from replkernel.objects.store import ObjectStore, open_store
from replkernel.objects.withdrawal import end_kernel, read_made, withdraw, write_made
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.records import BlobRef, ChunkRef, ComponentId, ComponentRecord, Digest, KernelId, Payload, Seq
from replkernel.replication.checkpoint import Place
from tests.support.live import eventually

K1, K2 = KernelId("k1"), KernelId("k2")


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(f"file://{tmp_path / 'store'}", {})


def digest_of(data: bytes) -> Digest:
    return Digest(blake3(data).hexdigest())


def chunk(tmp_path: Path, data: bytes) -> tuple[Digest, Path]:
    path = tmp_path / f"source-{data.decode()}"
    path.write_bytes(data)
    return digest_of(data), path


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
    assert end_kernel(store, K1, "one", [alone, shared]) == {alone}
    assert not store.has(alone)
    assert store.get_chunk(shared) == b"shared"
    assert set(store.list_documents()) == {"k2/mark-two-shared-host"}
    assert not list((tmp_path / "store").glob("**/.part-*"))


def test_chunks_noted_before_a_rest_go_when_the_kernel_is_forgotten(
    store: ObjectStore, tmp_path: Path
) -> None:
    digest, path = chunk(tmp_path, b"x")
    store.make_chunk(digest, path)
    write_made(store, K1, "one", "host", {digest})
    assert read_made(store, K1, "one") == {digest}
    assert read_made(store, K1, "two") == set()
    assert end_kernel(store, K1, "one") == {digest}
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
    gone: set[Digest] = set()
    withdraw(store, [digest], gone)
    assert not gone
    assert store.get_chunk(digest) == b"x"


def test_a_chunk_stored_anew_and_claimed_while_it_is_out_of_sight_is_its_new_makers(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, path = chunk(tmp_path, b"x")
    store.make_chunk(digest, path)
    hide = store.hide

    def hide_and_be_stored(wanted: Digest) -> str | None:
        token = hide(wanted)
        assert store.make_chunk(digest, path)
        write_mark(store, K2, [digest])
        return token

    monkeypatch.setattr(store, "hide", hide_and_be_stored)
    gone: set[Digest] = set()
    withdraw(store, [digest], gone)
    assert gone == {digest}
    assert store.get_chunk(digest) == b"x"
    assert not list((tmp_path / "store").glob("**/.part-*"))


def test_chunks_come_back_into_sight_when_another_cannot_be_hidden(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = dict(chunk(tmp_path, data) for data in (b"x", b"y"))
    digests = list(sources)
    assert all(store.make_chunk(digest, path) for digest, path in sources.items())
    hide = store.hide

    def hide_one(wanted: Digest) -> str | None:
        if wanted != digests[0]:
            raise StoreError(store.url, "does not answer", "look at it")
        return hide(wanted)

    monkeypatch.setattr(store, "hide", hide_one)
    gone: set[Digest] = set()
    with pytest.raises(StoreError, match="does not answer"):
        withdraw(store, digests, gone)
    assert not gone
    assert [store.get_chunk(digest) for digest in digests] == [b"x", b"y"]


def test_nothing_goes_while_a_mark_cannot_be_read(store: ObjectStore, tmp_path: Path) -> None:
    digest, path = chunk(tmp_path, b"x")
    store.make_chunk(digest, path)
    store.put_document("k2/mark", b"damaged")
    with pytest.raises(StoreError):
        withdraw(store, [digest], set())
    assert store.has(digest)


def test_another_incarnation_under_the_same_id_keeps_its_documents(store: ObjectStore) -> None:
    for name in ("mark-one", "checkpoint-one-000001-0000000000000001", "made-one-host", "mark-two"):
        store.put_document(f"k1/{name}", b"")
    forget_kernel(store, K1, "one")
    assert set(store.list_documents("k1")) == {"k1/mark-two"}


def noted(store: ObjectStore, digest: Digest) -> bool:
    return digest in read_made(store, K1, "one")


async def test_chunks_stored_by_a_killed_agent_go_with_its_kernel(store: ObjectStore, tmp_path: Path) -> None:
    cache = BlobCache(tmp_path / "cache")
    url = f"file://{tmp_path / 'store'}"
    spec = KernelSpec(K1, "one", "secret-key", "hmac-sha256", "python", {}, "/", url, 3)
    killed, next_one = (KernelStore(spec, "host", cache, print) for _ in range(2))
    for kernel_store, data in ((killed, b"one"), (killed, b"two"), (next_one, b"three")):
        await kernel_store.opened(30.0)
        blob = cache.write_blob(data)
        await kernel_store.upload([blob], print)
        digest = blob.chunks[0].digest
        await asyncio.to_thread(eventually, partial(noted, store, digest), "the note of what was made", 15.0)
    killed.close()
    await next_one.forget(collecting=False)
    assert store.list_documents() == {}
    assert store.list_digests() == {}


class Shop:
    """One host's part of a kernel on a store of files, whose superseded chunks rest for no time."""

    def __init__(self, tmp_path: Path, name: str = "one", host: str = "host") -> None:
        self.cache = BlobCache(tmp_path / f"cache-{host}", rest_s=0.0)
        url = f"file://{tmp_path / 'store'}"
        spec = KernelSpec(KernelId(f"k-{name}"), name, "secret-key", "hmac-sha256", "python", {}, "/", url, 3)
        self.kernel_store = KernelStore(spec, host, self.cache, print)
        self.needed: set[Digest] = set()
        self.on_their_way: set[Digest] = set()
        self.kernel_store.serve(lambda: set(self.needed), lambda: set(self.on_their_way), lambda: Place(1, 1))

    async def put(self, data: bytes) -> Digest:
        await self.kernel_store.opened(30.0)
        blob = self.cache.write_blob(data)
        await self.kernel_store.upload([blob], print)
        return blob.chunks[0].digest


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have superseded chunks go at once, however little they are worth."""
    monkeypatch.setattr(store_module, "TIDY_EVERY_S", 0.05)
    monkeypatch.setattr(store_module, "TIDY_REST", 0.0)
    monkeypatch.setattr(superseded, "HERE", superseded.Rest(0.0, 0, 0.0))


def checkpoint(store: ObjectStore, name: str = "one") -> None:
    """Put a checkpoint of the state in which everything has been superseded that is."""
    store.put_document(f"k-{name}/checkpoint-{name}-000001-0000000000000001", b"")


async def gone(store: ObjectStore, digest: Digest) -> None:
    await asyncio.to_thread(eventually, lambda: not store.has(digest), "the end of what is superseded", 15.0)


@pytest.mark.usefixtures("hasty")
async def test_superseded_chunks_leave_store_and_cache_while_the_kernel_lives(
    store: ObjectStore, tmp_path: Path
) -> None:
    checkpoint(store)
    shop = Shop(tmp_path)
    contents = (b"old", b"new", b"named", b"coming")
    old, new, named, coming = map(digest_of, contents)
    shop.needed, shop.on_their_way = {new}, {coming}
    write_mark(store, KernelId("k-one"), [named], name="k-one/mark-one-000001-0000000000000001")
    for data in contents:
        await shop.put(data)
    await gone(store, old)
    assert {digest for digest in (new, named, coming) if store.has(digest)} == {new, named, coming}
    cached = shop.cache.chunk_path(old)  # It goes right after the store's.
    await asyncio.to_thread(eventually, lambda: not cached.exists(), "the end of the cache's copy", 15.0)
    assert shop.cache.chunk_path(new).exists()
    shop.needed.add(old)
    assert await shop.put(b"old") == old
    assert store.get_chunk(old) == b"old"
    shop.kernel_store.close()


async def test_the_end_of_a_kernel_takes_its_data_out_of_the_cache_too_but_for_what_others_use(
    tmp_path: Path,
) -> None:
    one, two = Shop(tmp_path), Shop(tmp_path, "two", "other")
    alone, shared = await one.put(b"alone"), await one.put(b"shared")
    assert await two.put(b"shared") == shared
    two.needed.add(shared)
    await two.kernel_store.note_made()
    asked_again = await one.put(b"asked again")
    one.cache.write_blob(b"asked again")
    await one.kernel_store.forget(collecting=False)
    kept = {digest for digest in (alone, shared, asked_again) if one.cache.chunk_path(digest).exists()}
    assert kept == {shared, asked_again}
    two.kernel_store.close()


@pytest.mark.usefixtures("hasty")
async def test_a_chunk_made_anew_survives_the_end_of_the_kernel_that_gave_it_up(
    store: ObjectStore, tmp_path: Path
) -> None:
    checkpoint(store)
    one, two = Shop(tmp_path), Shop(tmp_path, "two", "other")
    old = digest_of(b"old")
    one.needed = {old}
    await one.put(b"old")
    await one.kernel_store.note_made()
    assert old in read_made(store, KernelId("k-one"), "one")
    one.needed = set()
    await gone(store, old)
    two.needed.add(old)
    assert await two.put(b"old") == old
    await one.kernel_store.forget(collecting=False)
    assert store.get_chunk(old) == b"old"
    two.kernel_store.close()


@pytest.mark.usefixtures("hasty")
async def test_a_chunk_that_another_host_has_noted_as_well_stays(store: ObjectStore, tmp_path: Path) -> None:
    checkpoint(store)
    one = Shop(tmp_path)
    await one.kernel_store.opened(30.0)
    blob = one.cache.write_blob(b"old")
    write_made(store, KernelId("k-one"), "one", "elsewhere", {blob.chunks[0].digest})
    old, gone_for_sure = await one.put(b"old"), await one.put(b"other")
    await gone(store, gone_for_sure)
    assert store.has(old)
    one.kernel_store.close()


async def test_chunks_that_wait_for_their_commit_are_marked_until_then(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MARK_EVERY_S", 0.05)
    shop = Shop(tmp_path)
    shop.on_their_way = {Digest("a" * 64)}
    waiting = await shop.put(b"waiting")
    shop.on_their_way.add(waiting)
    named = partial(read_marks, store)
    await asyncio.to_thread(eventually, lambda: waiting in named(), "the mark of what waits", 15.0)
    shop.on_their_way, shop.needed = set(), {await shop.put(b"next")}
    await asyncio.to_thread(eventually, lambda: named() == shop.needed, "the mark of what is committed", 15.0)
    shop.kernel_store.close()


async def test_a_store_that_was_emptied_is_filled_again_and_what_cannot_be_had_is_named(
    store: ObjectStore, tmp_path: Path
) -> None:
    shop, told = Shop(tmp_path), []
    shop.kernel_store._on_notice = told.append
    digests = [await shop.put(data) for data in (b"here", b"gone")]
    components = [
        ComponentRecord(
            ComponentId(name), (name,), Seq(1), Payload(head_blob=blob_of(digest)), digest, state_bytes=4
        )
        for name, digest in zip(("here", "gone"), digests, strict=True)
    ]
    for digest in digests:
        store.delete(digest)
    shop.cache.chunk_path(digests[1]).unlink()
    await shop.kernel_store.refill(components)
    assert [store.has(digest) for digest in digests] == [True, False]
    (sentence,) = told
    assert "somebody emptied it" in sentence
    assert "`gone` could not be" in sentence
    assert "`here`" not in sentence
    shop.kernel_store.close()


def blob_of(digest: Digest) -> BlobRef:
    return BlobRef(4, (ChunkRef(digest, 4),))


async def test_stores_are_collected_while_kernels_live_on(tmp_path: Path) -> None:
    searched: list[str] = []

    class Living:
        def __init__(self, url: str) -> None:
            self.spec = KernelSpec(K1, "one", "secret-key", "hmac-sha256", "python", {}, "/", url, 3)

        async def collect_store(self) -> None:
            searched.append(self.spec.store_url)

    class Hosting(Admission):
        def alive(self) -> Any:
            return {KernelId(str(number)): Living(url) for number, url in enumerate(("a://", "b://", "a://"))}

    hosting = Hosting("host", tmp_path / "a" / "host", tmp_path, "127.0.0.1", None, None)  # type: ignore[arg-type]
    hosting.collect_stores()
    await asyncio.sleep(0)
    assert searched == ["a://", "b://"]
    hosting.collect_stores()
    await asyncio.sleep(0)
    assert searched == ["a://", "b://"], "not again so soon"
    await hosting.leave()


@pytest.mark.usefixtures("hasty")
async def test_what_is_superseded_stays_until_a_checkpoint_does_without_it(
    store: ObjectStore, tmp_path: Path
) -> None:
    shop = Shop(tmp_path)
    old = await shop.put(b"old")
    await asyncio.sleep(0.5)
    assert store.has(old)
    checkpoint(store)
    shop.kernel_store.checkpointed()
    await gone(store, old)
    shop.kernel_store.close()


async def test_chunks_stored_for_nothing_leave_store_and_cache_with_the_kernel(
    store: ObjectStore, tmp_path: Path
) -> None:
    shop = Shop(tmp_path)
    await shop.put(b"named")
    (early, given_up, wanted) = (
        shop.cache.write_blob(data).chunks for data in (b"early", b"given up", b"wanted")
    )
    await shop.kernel_store.store_early([*early, *given_up, *wanted])
    await shop.kernel_store.withdraw([given_up[0].digest])
    assert not store.has(given_up[0].digest)
    assert not shop.cache.chunk_path(given_up[0].digest).exists()
    BlobCache(shop.cache.directory).write_blob(b"wanted")
    await shop.kernel_store.forget(collecting=False)
    assert store.list_digests() == {}
    left = {path.name for path in shop.cache.directory.glob("??/*")}
    assert left == {wanted[0].digest}, "another kernel's process has asked for it"


async def test_a_kernel_at_rest_leaves_nothing_that_no_delta_names(
    store: ObjectStore, tmp_path: Path
) -> None:
    shop = Shop(tmp_path)
    named = await shop.put(b"named")
    (early,) = shop.cache.write_blob(b"early").chunks
    await shop.kernel_store.store_early([early])
    await shop.kernel_store.rest()
    assert set(store.list_digests()) == {named}
    assert not shop.cache.chunk_path(early.digest).exists()
    shop.kernel_store.close()


@pytest.mark.usefixtures("hasty")
async def test_a_checkpoint_that_comes_during_a_look_is_not_missed(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(superseded, "HERE", superseded.Rest(0.0, 0, 60.0))
    shop, loop = Shop(tmp_path), asyncio.get_running_loop()
    look = shop.kernel_store._look_at_store

    def look_before_the_checkpoint(looked_at: ObjectStore) -> tuple[int | None, Place]:
        found = look(looked_at)
        if not store.list_documents("k-one").keys() & {"k-one/checkpoint-one-000001-0000000000000001"}:
            checkpoint(store)
            loop.call_soon_threadsafe(shop.kernel_store.checkpointed)
        return found

    monkeypatch.setattr(shop.kernel_store, "_look_at_store", look_before_the_checkpoint)
    await gone(store, await shop.put(b"old"))
    shop.kernel_store.close()
