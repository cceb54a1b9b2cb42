"""Transfers between a pretended cache and a pretended store, in pretended time."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replkernel.errors import BlobMissing, StoreError, StoreRefused
from replkernel.objects import transfer as transfer_module
from replkernel.objects.transfer import (
    ABSENT_TRIES,
    DOWNLOAD_TROUBLE_MAX_S,
    PARALLEL_MAX,
    REFRESH_AFTER_S,
    Transfer,
)
from replkernel.objects.trouble import BACKOFF_MAX_S, Trouble, backoff_s
from replkernel.records import BlobRef, ChunkRef, Digest

LARGE = 1 << 20


def blob(*names: str, size: int = LARGE) -> BlobRef:
    return BlobRef(size * len(names), tuple(ChunkRef(Digest(name), size) for name in names))


class Store:
    """Holds names with ages; raises what `faults` yields, one a call, until it yields None."""

    def __init__(self) -> None:
        self.held: dict[Digest, float] = {}
        self.puts: list[Digest] = []
        self.faults: Iterator[Exception | None] = iter(())
        self.at_once = 0
        self.at_once_max = 0
        self.barrier: threading.Barrier | None = None
        self.lock = threading.Lock()

    def _act(self) -> None:
        with self.lock:
            fault = next(self.faults, None)
        if fault is not None:
            raise fault

    def age_s(self, digest: Digest) -> float | None:
        self._act()
        return self.held.get(digest)

    can_withdraw = True
    hides = True

    def has(self, digest: Digest) -> bool:
        return digest in self.held

    def make_chunk(self, digest: Digest, source: Path) -> bool:
        made = digest not in self.held
        self.put_chunk(digest, source)
        return made

    def put_chunk(self, digest: Digest, source: Path) -> None:
        with self.lock:
            self.at_once += 1
            self.at_once_max = max(self.at_once_max, self.at_once)
        if self.barrier is not None:
            self.barrier.wait(10)
        with self.lock:
            self.at_once -= 1
        if source.name == "gone":
            raise BlobMissing("x", "cannot be given it", "run the cell again")
        self.puts.append(digest)
        self.held[digest] = 0.0

    def get_chunk(self, digest: Digest) -> bytes:
        self._act()
        if digest not in self.held:
            raise BlobMissing("x", f"does not hold {digest}", "fix")
        return digest.encode()

    def file_of(self, digest: Digest) -> Path | None:
        return None

    def settle(self) -> None:
        pass


class Cache:
    def __init__(self, *names: str) -> None:
        self.names = {Digest(name) for name in names}
        self.stored: set[Digest] = set()
        self.protected: list[Digest] = []

    def chunk_path(self, digest: Digest) -> Path:
        return Path(digest if digest in self.names else "gone")

    def missing(self, ref: BlobRef) -> list[ChunkRef]:
        return [chunk for chunk in ref.chunks if chunk.digest not in self.names]

    def write_stored_chunk(self, chunk: ChunkRef, data: bytes, source: Path | None) -> None:
        self.names.add(chunk.digest)

    def mark_stored(self, digests: Iterable[Digest]) -> None:
        self.stored.update(digests)

    def protect(self, digests: Iterable[Digest]) -> None:
        self.protected.extend(digests)

    def release(self, digests: Iterable[Digest]) -> None:
        for digest in digests:
            self.protected.remove(digest)

    def evict(self) -> int:
        return 0


class Bench:
    """A transfer with its pretended surroundings."""

    def __init__(self, *names: str) -> None:
        self.store = Store()
        self.cache = Cache(*names)
        self.time = 0.0
        self.slept: list[float] = []
        self.tired = asyncio.Event()
        self.told: list[str] = []
        self.transfer = Transfer(
            self.store,  # type: ignore[arg-type]
            self.cache,  # type: ignore[arg-type]
            on_trouble=self.told.append,
            sleep=self.sleep,
            now=lambda: self.time,
            chance=lambda: 0.5,
        )

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if len(self.slept) >= 5:
            self.tired.set()
        self.time += seconds
        await asyncio.sleep(0)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench("a", "b", "c")
    yield made
    made.transfer.close()
    assert made.cache.protected == []


def unreachable() -> StoreError:
    return StoreError("x", "cannot be reached", "mend it")


async def test_only_what_the_store_lacks_is_sent(bench: Bench) -> None:
    bench.store.held[Digest("b")] = 10.0
    await bench.transfer.upload([blob("a", "b"), blob("b", "c", "a")])
    assert sorted(bench.store.puts) == ["a", "c"]
    assert bench.cache.stored == {"a", "b", "c"}
    bench.store.faults = iter([AssertionError("the store is not asked about what is known")])
    await bench.transfer.upload([blob("a", "b", "c")])
    assert sorted(bench.store.puts) == ["a", "c"]


async def test_a_chunk_stored_long_ago_is_stored_again(bench: Bench) -> None:
    bench.store.held[Digest("a")] = REFRESH_AFTER_S + 1
    await bench.transfer.upload([blob("a")])
    assert bench.store.puts == ["a"]
    bench.time += REFRESH_AFTER_S + 1
    bench.store.held[Digest("a")] = REFRESH_AFTER_S + 1
    await bench.transfer.upload([blob("a")])
    assert bench.store.puts == ["a", "a"]


async def test_small_chunks_are_sent_unasked(bench: Bench) -> None:
    bench.store.faults = iter([AssertionError("asking costs more than sending")])
    await bench.transfer.upload([blob("a", size=100)])
    assert bench.store.puts == ["a"]


async def test_an_upload_outlasts_any_trouble_and_tells_it_once(bench: Bench) -> None:
    bench.store.faults = iter([unreachable() for _ in range(40)])
    await bench.transfer.upload([blob("a")])
    assert bench.store.puts == ["a"]
    assert bench.told == [str(unreachable()), ""]
    assert len(bench.slept) == 40
    assert bench.slept == sorted(bench.slept)
    assert bench.slept[-1] <= BACKOFF_MAX_S


async def test_a_hiccup_is_not_told(bench: Bench) -> None:
    bench.store.faults = iter([unreachable()])
    await bench.transfer.upload([blob("a")])
    assert bench.told == []
    assert bench.store.puts == ["a"]


async def test_a_refusal_is_told_at_once_and_retried_slowly(bench: Bench) -> None:
    refusal = StoreRefused("x", "refuses access", "check the keys")
    bench.store.faults = iter([refusal])
    await bench.transfer.upload([blob("a")])
    assert bench.told == [str(refusal), ""]
    assert bench.slept[0] > BACKOFF_MAX_S
    assert bench.store.puts == ["a"]


async def test_a_callers_own_listener_hears_its_own_trouble(bench: Bench) -> None:
    bench.store.faults = iter([unreachable(), unreachable()])
    heard: list[str] = []
    await bench.transfer.upload([blob("a")], on_trouble=heard.append)
    assert heard == [str(unreachable()), ""]
    assert bench.told == []


async def test_a_chunk_that_the_cache_cannot_give_ends_the_upload(bench: Bench) -> None:
    with pytest.raises(BlobMissing, match="run the cell again"):
        await bench.transfer.upload([blob("a", "lost", "b")])
    assert set(bench.store.puts) == {"a", "b"}
    assert len(bench.slept) <= ABSENT_TRIES
    assert bench.cache.stored == set()


async def test_a_cancelled_upload_lets_go_and_takes_its_trouble_back(bench: Bench) -> None:
    bench.store.faults = iter(unreachable, None)
    task = asyncio.create_task(bench.transfer.upload([blob("a")]))
    await asyncio.wait_for(bench.tired.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.told == [str(unreachable()), ""]


async def test_a_chunk_stored_early_is_not_sent_again(bench: Bench) -> None:
    chunks = blob("a", "b").chunks
    await bench.transfer.store_early(chunks)
    assert sorted(bench.store.puts) == ["a", "b"]
    assert bench.cache.stored == set()
    await bench.transfer.upload([blob("a", "b", "c")])
    assert sorted(bench.store.puts) == ["a", "b", "c"]
    assert bench.cache.stored == {"a", "b", "c"}


async def test_an_upload_waits_for_what_is_being_stored_early() -> None:
    bench = Bench("a", "b", "c")
    bench.store.barrier = threading.Barrier(3)
    early = asyncio.create_task(bench.transfer.store_early(blob("a", "b").chunks))
    await asyncio.sleep(0)
    upload = asyncio.create_task(bench.transfer.upload([blob("a", "b", "c")]))
    again = asyncio.create_task(bench.transfer.store_early(blob("b", "a").chunks))
    await asyncio.wait_for(asyncio.gather(early, upload, again), 10)
    assert sorted(bench.store.puts) == ["a", "b", "c"]
    bench.transfer.close()


async def test_a_chunk_that_could_not_be_stored_early_is_left_to_the_upload(bench: Bench) -> None:
    bench.store.faults = iter([unreachable()])
    await bench.transfer.store_early(blob("a", "lost").chunks)
    assert (bench.told, bench.slept) == ([], [])
    await bench.transfer.upload([blob("a")])
    assert bench.store.puts == ["a"]
    with pytest.raises(BlobMissing, match="run the cell again"):
        await bench.transfer.upload([blob("lost")])


async def test_chunks_travel_in_parallel_but_not_all_at_once() -> None:
    names = [str(number) for number in range(PARALLEL_MAX * 4)]
    bench = Bench(*names)
    bench.store.barrier = threading.Barrier(PARALLEL_MAX)
    await bench.transfer.upload([blob(*names)])
    assert bench.store.at_once_max == PARALLEL_MAX
    assert sorted(bench.store.puts) == sorted(names)
    bench.transfer.close()


async def test_the_memory_of_what_is_stored_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_module, "KNOWN_MAX", 2)
    await bench.transfer.upload([blob("a", size=10)])
    await bench.transfer.upload([blob("b", "c", size=10)])
    await bench.transfer.upload([blob("a", "c", size=10)])
    assert sorted(bench.store.puts) == ["a", "a", "b", "c"]


async def test_a_download_brings_what_is_missing(bench: Bench) -> None:
    bench.store.held = {Digest(name): 0.0 for name in ("x", "y")}
    bench.store.faults = iter([unreachable()])
    assert await bench.transfer.download([blob("a", "x"), blob("y", "x")]) == ((), "")
    assert bench.cache.names == {"a", "b", "c", "x", "y"}


async def test_a_download_names_what_no_store_has_and_brings_the_rest(bench: Bench) -> None:
    bench.store.held[Digest("y")] = 0.0
    fetched = await bench.transfer.download([blob("x", "y")])
    assert fetched.missing == ("x",)
    assert "does not hold x" in fetched.why
    assert Digest("y") in bench.cache.names


async def test_a_download_gives_up_in_bounded_time(bench: Bench) -> None:
    bench.store.faults = iter(unreachable, None)
    fetched = await bench.transfer.download([blob("x")])
    assert fetched == (("x",), str(unreachable()))
    assert DOWNLOAD_TROUBLE_MAX_S <= bench.time <= DOWNLOAD_TROUBLE_MAX_S + BACKOFF_MAX_S
    assert bench.told == [str(unreachable()), ""]


@given(failures=st.integers(1, 10_000), chance=st.floats(0, 1, exclude_max=True))
def test_waiting_grows_and_is_bounded(failures: int, chance: float) -> None:
    waited = backoff_s(failures, chance)
    assert 0 < waited <= BACKOFF_MAX_S
    assert backoff_s(failures + 1, chance) >= waited


def test_who_failed_at_once_does_not_try_again_at_once() -> None:
    soonest, later = (backoff_s(3, chance) for chance in (0.0, 0.5))
    assert later == pytest.approx(1.5 * soonest)


def test_a_failure_after_some_progress_is_the_first_in_a_row() -> None:
    told: list[str] = []
    trouble = Trouble(told.append)
    for _ in range(3):
        trouble.failed(unreachable(), progress=True)
    assert (trouble.failures, told) == (1, [])
    trouble.failed(unreachable(), progress=False)
    assert (trouble.failures, told) == (2, [str(unreachable())])


async def test_a_chunk_that_others_made_is_claimed_before_anybody_relies_on_it(bench: Bench) -> None:
    claims: list[set[Digest]] = []
    transfer = Transfer(
        bench.store,  # type: ignore[arg-type]
        bench.cache,  # type: ignore[arg-type]
        claim=claims.append,
        sleep=bench.sleep,
    )
    bench.store.held[Digest("b")] = 10.0
    await transfer.upload([blob("a", "b")])
    assert claims == [{"b"}]
    assert transfer.made == {"a"}
    await transfer.upload([blob("a", "b")])
    assert len(claims) == 1, "a claim lasts"
    transfer.close()


async def test_two_uploads_at_once_claim_what_both_rely_on(bench: Bench) -> None:
    claims: list[set[Digest]] = []
    both = threading.Barrier(2)

    def claim(digests: set[Digest]) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2)
        claims.append(set(digests))

    transfer = Transfer(
        bench.store,  # type: ignore[arg-type]
        bench.cache,  # type: ignore[arg-type]
        claim=claim,
        sleep=bench.sleep,
    )
    bench.store.held.update({Digest("a"): 10.0, Digest("b"): 10.0})
    await asyncio.gather(transfer.upload([blob("a")]), transfer.upload([blob("b")]))
    assert claims[-1] == {"a", "b"}
    transfer.close()


async def test_a_chunk_needed_no_more_loses_its_claim_and_is_looked_for_again(bench: Bench) -> None:
    claims: list[set[Digest]] = []
    transfer = Transfer(
        bench.store,  # type: ignore[arg-type]
        bench.cache,  # type: ignore[arg-type]
        claim=lambda digests: claims.append(set(digests)),
        sleep=bench.sleep,
    )
    bench.store.held.update({Digest("a"): 10.0, Digest("b"): 10.0})
    await transfer.upload([blob("a", "b")])
    await transfer.unclaim(lambda: {Digest("a")})
    assert claims[-1] == {"a"}
    del bench.store.held[Digest("b")]
    await transfer.upload([blob("b")])
    assert transfer.made == {"b"}
    bench.store.held[Digest("c")] = 10.0
    await transfer.upload([blob("c")])
    assert claims[-1] == {"a", "c"}
    transfer.close()


async def test_a_chunk_that_goes_before_it_was_claimed_is_stored_anew(bench: Bench) -> None:
    def claim(digests: set[Digest]) -> None:
        bench.store.held.pop(Digest("b"), None)

    transfer = Transfer(
        bench.store,  # type: ignore[arg-type]
        bench.cache,  # type: ignore[arg-type]
        claim=claim,
        sleep=bench.sleep,
    )
    bench.store.held[Digest("b")] = 10.0
    await transfer.upload([blob("b")])
    assert Digest("b") in bench.store.held
    assert transfer.made == {"b"}
    transfer.close()


async def test_a_chunk_stored_early_for_nothing_leaves_the_store(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def withdraw(store: Store, digests: Iterable[Digest], gone: set[Digest]) -> None:
        for digest in digests:
            del store.held[digest]
            gone.add(digest)

    monkeypatch.setattr(transfer_module, "withdraw", withdraw)
    bench.store.held[Digest("others")] = 10.0
    bench.cache.names |= {Digest(name) for name in ("old", "a", "b", "c", "others")}
    await bench.transfer.upload([blob("old")])
    await bench.transfer.store_early(blob("old", "a", "b", "c", "others").chunks)
    await bench.transfer.upload([blob("b")])
    await asyncio.gather(
        bench.transfer.upload([blob("c")]),
        bench.transfer.withdraw([Digest(name) for name in ("old", "a", "b", "c", "others", "never")]),
    )
    assert set(bench.store.held) == {"old", "b", "c", "others"}
    assert bench.transfer.made == {"old", "b", "c"}
    await bench.transfer.upload([blob("a")])
    assert Digest("a") in bench.store.held
