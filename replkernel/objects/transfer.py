"""Moving blobs between a host's cache and the store: bounded, parallel, retried, with trouble told.

An upload goes on until the store holds everything; a download gives up after a while and says what is
missing. One `Transfer` a store and host is enough. Time and chance are handed in.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

from replkernel.errors import BlobDamaged, BlobMissing, StoreError, StoreRefused
from replkernel.objects.cache import BlobCache
from replkernel.objects.store import ObjectStore
from replkernel.objects.trouble import REFUSED_BACKOFF_S, OnTrouble, Trouble, backoff_s
from replkernel.objects.withdrawal import LEAVING_MAX_S, read_announced, withdraw
from replkernel.records import BlobRef, ChunkRef, Digest

log = logging.getLogger(__name__)

PARALLEL_MAX = 8
"""Chunks on their way at once, by as many worker threads."""

KNOWN_MAX = 200_000
"""So many digests are remembered as stored."""

REFRESH_AFTER_S = 6 * 3600.0
"""A chunk stored longer ago is stored again before a delta names it: collection spares the young."""

ASK_FIRST_BYTES = 64 * 1024
"""From this size on it is cheaper to ask whether the store has a chunk than to send it again."""

DOWNLOAD_TROUBLE_MAX_S = 60.0
"""A download gives up when the store has failed for so long."""

ABSENT_TRIES = 3
"""A blob that is not there is looked for so often before it counts as missing."""

SWEEP_EVERY_S = 60.0

LEAVING_LOOK_S = 1.0
"""So often it is looked whether what somebody was about to delete has gone."""

Work = Callable[[ChunkRef], None]
Result = TypeVar("Result")


class Fetched(NamedTuple):
    """What a download could not bring: the chunks' digests and one sentence; empty when all is here."""

    missing: tuple[Digest, ...] = ()
    why: str = ""


class Transfer:
    """Uploads and downloads between one cache and one store.

    `claim`, called in a thread, names chunks that others made in a mark of ours before anybody relies on it.
    `on_trouble` is called in the event loop with a sentence while the store fails and with ``""`` when it
    works again; a call's own `on_trouble` comes in place of the general one.
    """

    def __init__(
        self,
        store: ObjectStore,
        cache: BlobCache,
        *,
        on_trouble: OnTrouble | None = None,
        claim: Callable[[set[Digest]], None] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.store = store
        self.cache = cache
        self._on_trouble = on_trouble or (lambda why: None)
        self._sleep = sleep
        self._now = now
        self._chance = chance
        self._known: OrderedDict[Digest, float] = OrderedDict()
        self._early: dict[Digest, asyncio.Event] = {}
        """Chunks being stored before an upload named them: the event tells that their batch has ended."""
        self.made: set[Digest] = set()
        """The chunks that this transfer made: no kernel had stored them before."""
        self._sizes: dict[Digest, int] = {}
        """The bytes of each."""
        self._loose: set[Digest] = set()
        """Of these, the chunks that were stored early and that no upload has named yet."""
        self._wanted: Counter[Digest] = Counter()
        """The chunks that uploads under way name."""
        self._shared: set[Digest] = set()
        """Chunks that others made and that no mark of ours names yet."""
        self._claimed: set[Digest] = set()
        self._claim = claim
        self._fresh: set[Digest] = set()
        """Chunks of which nobody has looked yet whether somebody else is about to delete them."""
        self._announced: dict[str, float] = {}
        """Since when each announcement of deletions has been seen here."""
        self._claiming = asyncio.Lock()
        """Held while our mark of what others made is written: each writing names all of it."""
        self.made_bytes = 0
        """How many bytes were ever made here."""
        self._threads = ThreadPoolExecutor(PARALLEL_MAX, thread_name_prefix="blob-transfer")
        self._swept_at = now()

    async def upload(self, blobs: Iterable[BlobRef], *, on_trouble: OnTrouble | None = None) -> None:
        """Return when the store holds every chunk of `blobs`, however long its trouble lasts.

        Raises BlobMissing or BlobDamaged when the store lacks a chunk that the cache cannot give.
        """
        refs = list(blobs)
        digests = {chunk.digest for ref in refs for chunk in ref.chunks}
        trouble = Trouble(on_trouble or self._on_trouble)
        self.cache.protect(digests)
        self._wanted.update(digests)
        try:
            chunks = dict.fromkeys(chunk for ref in refs for chunk in ref.chunks)
            pending = [chunk for chunk in chunks if not self._is_known(chunk.digest)]
            early = {self._early[chunk.digest] for chunk in pending if chunk.digest in self._early}
            await self._store([chunk for chunk in pending if chunk.digest not in self._early], trouble)
            for batch in early:
                await batch.wait()
            await self._store([chunk for chunk in pending if not self._is_known(chunk.digest)], trouble)
            await self._rely(chunks, trouble)
            await self._in_thread(lambda: self.cache.mark_stored(digests))
        finally:
            self._loose -= digests
            self._wanted -= Counter(digests)
            trouble.over()
            self.cache.release(digests)
        await self._sweep()

    async def store_early(self, chunks: Iterable[ChunkRef]) -> None:
        """Try once, and without a word, to store chunks that an upload is going to name."""
        new = [
            chunk
            for chunk in dict.fromkeys(chunks)
            if not self._is_known(chunk.digest) and chunk.digest not in self._early
        ]
        ended = asyncio.Event()
        self._early.update((chunk.digest, ended) for chunk in new)
        others = {chunk.digest for chunk in new} - self.made
        try:
            _, error = await self._round(self._store_chunk, new)
            if error is None and await self._settle() is None:
                self._remember(chunk.digest for chunk in new)
        finally:
            self._loose |= (others & self.made) - self._wanted.keys()
            for chunk in new:
                del self._early[chunk.digest]
            ended.set()

    async def withdraw(self, digests: Iterable[Digest]) -> set[Digest]:
        """Take back what was stored early, made here, and named by no upload; no delta will name it.

        Returns those of `digests` that no upload names.
        """
        wanted = set(digests)
        for batch in {self._early[digest] for digest in wanted & self._early.keys()}:
            await batch.wait()
        await self._take_back((wanted & self._loose) - self._wanted.keys() - self._early.keys())
        return wanted - self._wanted.keys()

    async def withdraw_loose(self) -> set[Digest]:
        """Take back all that was stored early and that no upload has named; the processes have ended."""
        return await self.withdraw(set(self._loose))

    async def give_up(self, digests: Iterable[Digest]) -> set[Digest]:
        """Take back what was made here and is superseded, unless an upload or a mark names it."""
        return await self._take_back(
            (set(digests) & self.made) - self._loose - self._wanted.keys() - self._early.keys()
        )

    async def _take_back(self, digests: set[Digest]) -> set[Digest]:
        """Withdraw what was made here; an upload that names a chunk meanwhile waits, and stores it anew."""
        if not digests:
            return set()
        ended = asyncio.Event()
        self._early.update((digest, ended) for digest in digests)
        self._loose -= digests
        for digest in digests:
            self._known.pop(digest, None)
        try:
            return await self._in_thread(partial(self._let_go, digests))
        except StoreError as error:
            log.warning("what nobody names was not withdrawn: %s", error)
            return set()
        finally:
            for digest in digests:
                del self._early[digest]
            ended.set()

    async def download(self, blobs: Iterable[BlobRef], *, on_trouble: OnTrouble | None = None) -> Fetched:
        """Bring every chunk of `blobs` into the cache, verified; return what is missing still, and why."""
        refs = list(blobs)
        digests = {chunk.digest for ref in refs for chunk in ref.chunks}
        trouble = Trouble(on_trouble or self._on_trouble)
        self.cache.protect(digests)
        try:
            fetched = await self._fetch_all(refs, trouble)
        except StoreError as error:
            return Fetched(tuple(sorted(digests)), str(error))
        finally:
            trouble.over()
            self.cache.release(digests)
        await self._sweep()
        return fetched

    def forget_all(self) -> None:
        """Believe no more that the store holds anything: it was emptied by somebody else."""
        self._known.clear()
        self._claimed.clear()
        self.made -= self.made - self._wanted.keys()

    def kept(self) -> frozenset[Digest]:
        """Return what was made here and that uploads have named."""
        return frozenset(self.made - self._loose)

    def kept_sizes(self) -> dict[Digest, int]:
        """Return these with their bytes."""
        sizes = self._sizes.copy()  # A worker thread takes some out.
        return {digest: sizes[digest] for digest in self.kept() if digest in sizes}

    @property
    def kept_count(self) -> int:
        """Return how many those are."""
        return len(self.made) - len(self._loose)

    def close(self) -> None:
        """Let the worker threads end."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def end(self) -> set[Digest]:
        """Return what was made here once nothing is under way any more; blocks for as long."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        return set(self.made)

    # -- rounds --------------------------------------------------------------------------------------

    async def _store(self, chunks: list[ChunkRef], trouble: Trouble) -> None:
        if chunks:
            await self._store_all(chunks, trouble)
            self._remember(chunk.digest for chunk in chunks)

    async def _claim_shared(self, chunks: Iterable[ChunkRef], trouble: Trouble) -> None:
        """Name what others made in our mark, then see that it is still there; what is not is stored again."""
        while True:
            shared = [chunk for chunk in chunks if chunk.digest in self._shared]
            if self._claim is None or not shared:
                return
            try:
                async with self._claiming:
                    claimed = self._claimed | {chunk.digest for chunk in shared}
                    await self._in_thread(partial(self._claim, claimed))
                    self._claimed = claimed
                gone = await self._in_thread(partial(self._gone, shared))
            except StoreError as error:
                trouble.failed(error, progress=False)
                await self._pause(error, trouble)
                continue
            self._shared.difference_update(chunk.digest for chunk in shared)
            await self._store(gone, trouble)

    async def _rely(self, chunks: Iterable[ChunkRef], trouble: Trouble) -> None:
        """Return when `chunks` are stored, named or made here, and nobody is about to delete any."""
        wanted = list(chunks)
        while True:
            await self._claim_shared(wanted, trouble)
            fresh = [chunk for chunk in wanted if chunk.digest in self._fresh]
            if not fresh or self.store.hides or not self.store.can_withdraw:
                return
            awaited = await self._await_leaving({chunk.digest for chunk in fresh}, trouble)
            self._fresh.difference_update(chunk.digest for chunk in fresh)
            for digest in awaited:
                self._known.pop(digest, None)
            await self._store([chunk for chunk in fresh if chunk.digest in awaited], trouble)

    async def _await_leaving(self, digests: set[Digest], trouble: Trouble) -> set[Digest]:
        """Wait while it is announced that some of `digests` are about to go; return those that were."""
        awaited: set[Digest] = set()
        while True:
            try:
                announced = await self._in_thread(partial(read_announced, self.store))
            except StoreError as error:
                trouble.failed(error, progress=False)
                await self._pause(error, trouble)
                continue
            now = self._now()
            self._announced = {name: self._announced.get(name, now) for name in announced}
            believed = [name for name, since in self._announced.items() if now - since < LEAVING_MAX_S]
            leaving = digests & {digest for name in believed for digest in announced[name]}
            if not leaving:
                return awaited
            awaited |= leaving
            await self._sleep(LEAVING_LOOK_S)

    async def unclaim(self, needed: Callable[[], AbstractSet[Digest]]) -> None:
        """Name no more in our mark what is not `needed`; an upload that names it again looks for it anew."""
        async with self._claiming:
            stale = self._claimed - needed() - self._wanted.keys() if self._claimed else set()
            if not stale or self._claim is None:
                return
            for digest in stale:
                self._known.pop(digest, None)
            self._claimed = self._claimed - stale
            await self._in_thread(partial(self._claim, self._claimed))

    def _gone(self, chunks: list[ChunkRef]) -> list[ChunkRef]:
        return [chunk for chunk in chunks if not self.store.has(chunk.digest)]

    async def _store_all(self, pending: list[ChunkRef], trouble: Trouble) -> None:
        """Try until the store holds all of `pending` for good; an absent chunk is tried a few times."""
        while True:
            left, error = await self._round(self._store_chunk, pending)
            if error is None:
                error = await self._settle()
            if error is None:
                return
            trouble.failed(error, progress=len(left) < len(pending))
            if isinstance(error, (BlobMissing, BlobDamaged)) and trouble.failures >= ABSENT_TRIES:
                raise error
            pending = left
            await self._pause(error, trouble)
            await self._in_thread(partial(self.cache.missing, BlobRef(0, tuple(left))))

    async def _fetch_all(self, refs: list[BlobRef], trouble: Trouble) -> Fetched:
        """Try until the cache holds all of `refs`, or the store has failed for DOWNLOAD_TROUBLE_MAX_S."""
        pending = await self._in_thread(
            lambda: list(dict.fromkeys(chunk for ref in refs for chunk in self.cache.missing(ref)))
        )
        give_up_at = self._now() + DOWNLOAD_TROUBLE_MAX_S
        while pending:
            left, error = await self._round(self._fetch_chunk, pending)
            if error is None:
                break
            progress = len(left) < len(pending)
            if progress:
                give_up_at = self._now() + DOWNLOAD_TROUBLE_MAX_S
            trouble.failed(error, progress=progress)
            absent = isinstance(error, (BlobMissing, BlobDamaged)) and trouble.failures >= ABSENT_TRIES
            if absent or self._now() >= give_up_at:
                return Fetched(tuple(chunk.digest for chunk in left), str(error))
            pending = left
            await self._pause(error, trouble)
        return Fetched()

    async def _round(
        self, work: Work, chunks: Sequence[ChunkRef]
    ) -> tuple[list[ChunkRef], StoreError | None]:
        """Do `work` for each chunk, a few at once; return those left undone, and the error to tell.

        A chunk that is absent or damaged is passed over; any other error ends the round.
        """
        queue = iter(chunks)
        done: set[ChunkRef] = set()
        absent: list[StoreError] = []
        failed: list[StoreError] = []

        async def run() -> None:
            for chunk in queue:
                try:
                    await self._in_thread(partial(work, chunk))
                    done.add(chunk)
                except (BlobMissing, BlobDamaged) as error:
                    absent.append(error)
                except StoreError as error:
                    failed.append(error)
                if failed:
                    return

        await asyncio.gather(*(run() for _ in range(min(PARALLEL_MAX, len(chunks)))))
        left = [chunk for chunk in chunks if chunk not in done]
        return left, next(iter(failed + absent), None)

    async def _settle(self) -> StoreError | None:
        try:
            await self._in_thread(self.store.settle)
        except StoreError as error:
            return error
        return None

    async def _pause(self, error: StoreError, trouble: Trouble) -> None:
        if isinstance(error, StoreRefused):
            await self._sleep(REFUSED_BACKOFF_S * (0.5 + self._chance() / 2))
        else:
            await self._sleep(backoff_s(trouble.failures, self._chance()))

    async def _sweep(self) -> None:
        """Keep the cache bounded, now and then."""
        if self._now() - self._swept_at < SWEEP_EVERY_S:
            return
        self._swept_at = self._now()
        try:
            await self._in_thread(self.cache.evict)
        except StoreError as error:
            log.warning("%s", error)

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    # -- what the store is known to hold -------------------------------------------------------------

    def _is_known(self, digest: Digest) -> bool:
        stored_at = self._known.get(digest)
        return stored_at is not None and self._now() - stored_at < REFRESH_AFTER_S

    def _remember(self, digests: Iterable[Digest]) -> None:
        now = self._now()
        for digest in digests:
            self._known[digest] = now
            self._known.move_to_end(digest)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    # -- one chunk, in a worker thread ---------------------------------------------------------------

    def _store_chunk(self, chunk: ChunkRef) -> None:
        if not self.store.hides:
            self._fresh.add(chunk.digest)
        if chunk.size >= ASK_FIRST_BYTES:
            age_s = self.store.age_s(chunk.digest)
            if age_s is not None and age_s < REFRESH_AFTER_S:
                self._found(chunk.digest)
                return
        if self.store.make_chunk(chunk.digest, self.cache.chunk_path(chunk.digest)):
            if len(self.made) < KNOWN_MAX:
                self.made.add(chunk.digest)
                self._sizes[chunk.digest] = chunk.size
            self.made_bytes += chunk.size
        else:
            self._found(chunk.digest)

    def _let_go(self, digests: set[Digest]) -> set[Digest]:
        """Withdraw chunks that were made here; return those that the store holds no more."""
        gone: set[Digest] = set()
        try:
            withdraw(self.store, digests, gone)
        finally:  # In this thread: whoever waits for it may be gone before it ends.
            self.made -= gone
            for digest in gone:
                self._sizes.pop(digest, None)
        return {digest for digest in gone if not self.store.has(digest)}

    def _found(self, digest: Digest) -> None:
        """Note that the store had a chunk already; only what others made needs a claim."""
        if self.store.can_withdraw and digest not in self.made and digest not in self._claimed:
            self._shared.add(digest)

    def _fetch_chunk(self, chunk: ChunkRef) -> None:
        data = self.store.get_chunk(chunk.digest)
        self.cache.write_stored_chunk(chunk, data, self.store.file_of(chunk.digest))
