"""What every kind of object store must do; each backend's tests inherit this suite and give a `backend`."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from blake3 import blake3

from replkernel.errors import BlobDamaged, BlobMissing, StoreError
from replkernel.objects.backend import Backend, TellsSizes
from replkernel.objects.cache import BlobCache
from replkernel.objects.collect import LEAVING, collect, encode_digests, forget_kernel, read_marks, write_mark
from replkernel.objects.packing import MARK, pack
from replkernel.objects.store import ObjectStore
from replkernel.objects.transfer import Transfer
from replkernel.objects.withdrawal import end_kernel, withdraw
from replkernel.records import Digest, KernelId


def named(data: bytes) -> Digest:
    return Digest(blake3(data).hexdigest())


class ObjectStoreContract:
    """Inherit, and override the fixture `backend` with a fresh, empty one."""

    @pytest.fixture
    def backend(self) -> Backend:
        raise NotImplementedError

    @pytest.fixture
    def store(self, backend: Backend) -> ObjectStore:
        return ObjectStore("contract://store", backend)

    def test_probe_succeeds_and_leaves_nothing(self, store: ObjectStore, backend: Backend) -> None:
        store.probe()
        assert list(backend.walk("probe")) == []

    @pytest.mark.parametrize("size", [0, 1, 1 << 20, 9 << 20])
    def test_a_store_gives_back_what_was_put(self, store: ObjectStore, size: int) -> None:
        data = os.urandom(size)
        store.put_chunk(named(data), data)
        store.settle()
        assert store.has(named(data))
        assert store.get_chunk(named(data)) == data

    @pytest.mark.parametrize(
        "data",
        [b"a line of text\n" * 100_000, MARK, MARK + bytes(100_000), pack(b"packed already\n" * 10_000)],
    )
    def test_packable_bytes_come_back_as_they_were(self, store: ObjectStore, data: bytes) -> None:
        store.put_chunk(named(data), data)
        assert store.get_chunk(named(data)) == data

    def test_a_plain_chunk_of_an_earlier_release_reads_on(self, store: ObjectStore, backend: Backend) -> None:
        data = b"a line of text\n" * 100_000
        backend.put(f"blobs/{named(data)[:2]}/{named(data)}", data)
        assert store.get_chunk(named(data)) == data

    @pytest.mark.parametrize("damage", ["cut short", "one bit", "another chunk", "a bomb"])
    def test_a_damaged_packed_chunk_is_told_by_name(
        self, store: ObjectStore, backend: Backend, damage: str
    ) -> None:
        data = b"a line of text\n" * 100_000
        packed = pack(data)
        wrong = {
            "cut short": packed[: len(packed) // 2],
            "one bit": packed[:-20] + bytes([packed[-20] ^ 1]) + packed[-19:],
            "another chunk": pack(data[15:]),
            "a bomb": pack(bytes(64 << 20)),
        }[damage]
        backend.put(f"blobs/{named(data)[:2]}/{named(data)}", wrong)
        with pytest.raises(BlobDamaged, match=named(data)[:12]):
            store.get_chunk(named(data))

    def test_a_store_takes_a_file(self, store: ObjectStore, tmp_path: Path) -> None:
        data = os.urandom(70_000)
        source = tmp_path / "chunk"
        source.write_bytes(data)
        store.put_chunk(named(data), source)
        source.unlink()
        assert store.get_chunk(named(data)) == data

    def test_a_file_that_is_gone_is_missing(self, store: ObjectStore, tmp_path: Path) -> None:
        with pytest.raises(BlobMissing, match="blob cache does not hold"):
            store.put_chunk(named(b"x"), tmp_path / "gone")

    def test_bytes_that_are_not_the_digests_never_enter(self, store: ObjectStore, tmp_path: Path) -> None:
        source = tmp_path / "chunk"
        source.write_bytes(b"other")
        for wrong in (b"other", source):
            with pytest.raises(BlobDamaged):
                store.put_chunk(named(b"x"), wrong)
        assert not store.has(named(b"x"))

    def test_an_absent_object_is_missing(self, store: ObjectStore) -> None:
        assert not store.has(named(b"nobody put this"))
        assert store.age_s(named(b"nobody put this")) is None
        with pytest.raises(BlobMissing, match="contract://store"):
            store.get_chunk(named(b"nobody put this"))

    def test_damage_in_the_store_is_told(self, store: ObjectStore, backend: Backend) -> None:
        digest = named(b"as it was")
        store.put_chunk(digest, b"as it was")
        backend.put(f"blobs/{digest[:2]}/{digest}", b"as it is!")
        with pytest.raises(BlobDamaged):
            store.get_chunk(digest)
        store.put_chunk(digest, b"as it was")
        assert store.get_chunk(digest) == b"as it was"

    @pytest.mark.parametrize("wrong", ["", "../../etc/passwd", "A" * 64, "a" * 63, "a" * 64 + "\n"])
    def test_a_name_that_is_no_digest_is_refused(self, store: ObjectStore, wrong: str) -> None:
        with pytest.raises(BlobDamaged):
            store.get_chunk(Digest(wrong))

    def test_a_store_lists_chunks_with_their_ages_and_deletes_them(self, store: ObjectStore) -> None:
        chunks = [os.urandom(100) for _ in range(5)]
        for chunk in chunks:
            store.put_chunk(named(chunk), chunk)
        store.put_document("k1/checkpoint", b"not a chunk")
        listed = store.list_digests()
        assert set(listed) == {named(chunk) for chunk in chunks}
        assert all(0 <= age_s < 60 for age_s in listed.values())
        store.delete(named(chunks[0]))
        store.delete(named(chunks[0]))
        assert set(store.list_digests()) == {named(chunk) for chunk in chunks[1:]}

    def test_documents_are_replaced_listed_and_deleted(self, store: ObjectStore) -> None:
        assert store.get_document("k1/checkpoint") is None
        assert store.list_documents() == {}
        store.put_document("k1/checkpoint", b"one" * 10)
        store.put_document("k1/checkpoint", b"two")
        store.put_document("k1/marks/r1", b"")
        store.put_document("k10/checkpoint", b"another kernel's")
        assert store.get_document("k1/checkpoint") == b"two"
        assert store.get_document("k1/marks/r1") == b""
        assert set(store.list_documents("k1")) == {"k1/checkpoint", "k1/marks/r1"}
        assert set(store.list_documents()) == {"k1/checkpoint", "k1/marks/r1", "k10/checkpoint"}
        store.delete_document("k1/checkpoint")
        store.delete_document("k1/checkpoint")
        assert set(store.list_documents("k1")) == {"k1/marks/r1"}

    def test_a_large_document_comes_back_whole(self, store: ObjectStore) -> None:
        data = os.urandom(20 << 20)
        store.put_document("k1/checkpoint", data)
        store.put_document("k1/checkpoint", data[:-1])
        assert store.get_document("k1/checkpoint") == data[:-1]

    @pytest.mark.parametrize(
        "wrong", ["", "/x", "k1/", "k1/../k2/x", "k1/a b", "k1/*", "a/b/c/d/e", "k1/" + "n" * 200]
    )
    def test_a_document_name_that_could_escape_is_refused(self, store: ObjectStore, wrong: str) -> None:
        with pytest.raises(StoreError):
            store.put_document(wrong, b"data")

    def test_threads_share_a_store(self, store: ObjectStore) -> None:
        chunks = [bytes([number]) * 200_000 for number in range(6)]

        def work(turn: int) -> None:
            for chunk in chunks:
                store.put_chunk(named(chunk), chunk)
                assert store.get_chunk(named(chunk)) == chunk
            store.put_document("k1/checkpoint", bytes([turn]) * 300_000)
            document = store.get_document("k1/checkpoint")
            assert document is not None
            assert document == document[:1] * 300_000

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(16)))

    def test_blobs_travel_from_cache_to_cache(self, store: ObjectStore, tmp_path: Path) -> None:
        here, there = BlobCache(tmp_path / "here"), BlobCache(tmp_path / "there")
        data = os.urandom((3 << 20) + 17)
        refs = [here.write_blob(data), here.write_blob(b"small"), here.write_blob(b"")]

        async def travel() -> None:
            sender, receiver = Transfer(store, here), Transfer(store, there)
            try:
                async with asyncio.timeout(30):
                    await sender.upload(refs)
                    assert await receiver.download(refs) == ((), "")
            finally:
                sender.close()
                receiver.close()

        asyncio.run(travel())
        assert [bytes(there.read_blob(ref)) for ref in refs] == [data, b"small", b""]

    def test_where_a_store_can_tell_one_of_many_makers_has_made_a_chunk(
        self, store: ObjectStore, tmp_path: Path
    ) -> None:
        store.probe()
        path = tmp_path / "source"
        path.write_bytes(b"made" * 5000)
        digest = named(b"made" * 5000)
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(lambda _: store.make_chunk(digest, path), range(8)))
        assert sum(made) == (1 if store.can_withdraw else 0)
        assert store.get_chunk(digest) == b"made" * 5000

    def test_where_a_store_can_tell_what_a_kernel_made_and_nobody_names_goes(
        self, store: ObjectStore, tmp_path: Path
    ) -> None:
        store.probe()
        if not store.can_withdraw:
            return
        digests = []
        for data in (b"alone", b"shared"):
            (tmp_path / "source").write_bytes(data)
            digests.append(named(data))
            assert store.make_chunk(digests[-1], tmp_path / "source")
        write_mark(store, KernelId("k2"), digests[1:])
        gone: set[Digest] = set()
        withdraw(store, digests, gone)
        assert gone == {digests[0]}
        assert set(store.list_digests()) == {digests[1]}
        assert set(store.list_documents()) == {"k2/mark"}, "no announcement is left"

    def test_what_another_kernel_stores_anew_while_it_is_withdrawn_stays_at_the_first_ones_end(
        self, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.probe()
        if not store.can_withdraw:
            return
        cache = BlobCache(tmp_path / "cache")
        ref = cache.write_blob(b"both of us have this" * 5000)
        digest = ref.chunks[0].digest
        step = "hide" if store.hides else "delete"
        take = getattr(store, step)

        def take_and_store_anew(wanted: Digest) -> str | None:
            token: str | None = take(wanted)
            assert store.make_chunk(wanted, cache.chunk_path(wanted))
            return token

        async def give_up() -> set[Digest]:
            transfer = Transfer(store, cache)
            async with asyncio.timeout(30):
                await transfer.upload([ref])
                with monkeypatch.context() as patched:
                    patched.setattr(store, step, take_and_store_anew)
                    await transfer.give_up([digest])
            return transfer.end()

        end_kernel(store, KernelId("k1"), "one", asyncio.run(give_up()))
        assert store.get_chunk(digest) == b"both of us have this" * 5000

    def test_an_object_announced_to_go_is_awaited_and_stored_again(
        self, store: ObjectStore, tmp_path: Path
    ) -> None:
        store.probe()
        if store.hides or not store.can_withdraw:
            return
        cache = BlobCache(tmp_path / "cache")
        ref = cache.write_blob(os.urandom(100_000))
        digest = ref.chunks[0].digest
        assert store.make_chunk(digest, cache.chunk_path(digest))
        store.put_document(f"{LEAVING}/other", encode_digests([digest]))
        claims: list[set[Digest]] = []

        async def leave(_: float) -> None:
            assert claims == [{digest}], "it is named before announcements are read"
            store.delete(digest)
            store.delete_document(f"{LEAVING}/other")

        async def rely() -> None:
            transfer = Transfer(store, cache, claim=claims.append, sleep=leave)
            async with asyncio.timeout(30):
                await transfer.upload([ref])
            assert digest in transfer.made
            transfer.close()

        asyncio.run(rely())
        assert store.has(digest)

    def test_sizes_are_told_where_they_can_be(self, store: ObjectStore, backend: Backend) -> None:
        data = os.urandom(300_000)
        store.put_chunk(named(data), data)
        store.put_document("k1/mark", b"")
        if isinstance(backend, TellsSizes):
            ((digest, size),) = store.list_sizes().items()
            assert digest == named(data)
            assert 300_000 <= size < 600_000
        else:
            with pytest.raises(StoreError, match="cannot tell how large"):
                store.list_sizes()

    def test_collection_spares_the_young_and_marks_name_the_rest(self, store: ObjectStore) -> None:
        store.put_chunk(named(b"young"), b"young")
        write_mark(store, KernelId("k1"), [named(b"young"), named(b"elsewhere")])
        write_mark(store, KernelId("k2"), [])
        assert read_marks(store) == {named(b"young"), named(b"elsewhere")}
        assert collect(store).deleted == 0
        assert store.has(named(b"young"))
        forget_kernel(store, KernelId("k1"))
        assert read_marks(store) == set()
