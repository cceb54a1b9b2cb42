"""A kernel's way to its object store: opened in a thread, retried while it cannot be, marked for collection.

Law: a store that does not work never keeps a kernel from starting; it delays durability and says why.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial

from replkernel.errors import ReplkernelError
from replkernel.objects.cache import BlobCache
from replkernel.objects.collect import MARK, MARK_EVERY_S, collect, write_mark
from replkernel.objects.store import ObjectStore, open_store
from replkernel.objects.transfer import Fetched, Transfer
from replkernel.objects.withdrawal import end_kernel, read_made, write_made
from replkernel.protocol import KernelSpec
from replkernel.records import BlobRef, ChunkRef, Digest

log = logging.getLogger(__name__)

OPEN_RETRY_FIRST_S = 1.0
OPEN_RETRY_MAX_S = 30.0
FETCH_WITHOUT_STORE_S = 20.0
"""A fetch waits so long for a store that has not been opened; chunks in the cache need none."""


NOTE_MADE_AFTER_S = 0.5
"""What this host made is noted so long after an upload of something new, with all that came meanwhile."""

NOTE_MADE_REST = 20.0
"""The next note waits at least so many times as long as the last one took."""


class Stock:
    """The store of one kernel, as seen from this host. `on_notice` takes sentences for the user."""

    def __init__(
        self, spec: KernelSpec, host: str, cache: BlobCache, on_notice: Callable[[str], None]
    ) -> None:
        self.why = ""
        self._host = host
        self._spec = spec
        self._cache = cache
        self._on_notice = on_notice
        self._transfer: Transfer | None = None
        self._opened = asyncio.Event()
        self._opening = asyncio.get_running_loop().create_task(self._open())
        self._mark_timer: asyncio.TimerHandle | None = None
        self._note_timer: asyncio.TimerHandle | None = None
        self._noted = 0
        self._earlier: frozenset[Digest] | None = None
        """What hosts had noted before this agent began; None until it was read."""
        self._noting = threading.Lock()
        self._ended = False
        """Set under the lock before the kernel's notes are deleted: none is written after that."""
        self._note_after_s = NOTE_MADE_AFTER_S
        self._tasks: set[asyncio.Task[None]] = set()

    async def _open(self) -> None:
        """Open the store, again and again until it works."""
        delay_s = OPEN_RETRY_FIRST_S
        while True:
            try:
                store = await asyncio.to_thread(self._open_and_probe)
            except ReplkernelError as error:
                self._tell(str(error))
            except Exception as error:
                log.exception("opening the store of kernel %s failed", self._spec.kernel_id)
                self._tell(f"The object store cannot be opened: {error} (setting REPLKERNEL_STORE).")
            else:
                break
            await asyncio.sleep(delay_s)
            delay_s = min(OPEN_RETRY_MAX_S, 2 * delay_s)
        if store.warning:
            self._on_notice(store.warning)
        self.why = ""
        self._transfer = Transfer(store, self._cache, claim=partial(self._claim, store))
        self._opened.set()

    def _open_and_probe(self) -> ObjectStore:
        store = open_store(self._spec.store_url, self._spec.env)
        store.probe()
        return store

    def _tell(self, why: str) -> None:
        if why != self.why:
            self.why = why
            self._on_notice(why)

    def _claim(self, store: ObjectStore, digests: set[Digest]) -> None:
        """Name chunks that other kernels made, so that they stay when those kernels end."""
        name = f"{self._spec.kernel_id}/{MARK}-{self._spec.incarnation}-shared-{self._host}"
        write_mark(store, self._spec.kernel_id, digests, name=name)

    async def note_made(self) -> None:
        """Note in the store which chunks this host made, for whoever ends the kernel when it is at rest."""
        transfer = self._transfer
        if transfer is None:
            return
        if transfer.kept_count == self._noted:
            return
        made, began = transfer.kept(), time.monotonic()
        try:
            await asyncio.to_thread(self._write_made, transfer.store, made)
            self._noted = len(made)
        except ReplkernelError as error:
            log.warning("what kernel %s stored was not noted: %s", self._spec.kernel_id, error)
        self._note_after_s = max(NOTE_MADE_AFTER_S, NOTE_MADE_REST * (time.monotonic() - began))

    def _write_made(self, store: ObjectStore, made: frozenset[Digest]) -> None:
        spec = self._spec
        with self._noting:
            if self._ended:
                return
            if self._earlier is None:
                self._earlier = frozenset(read_made(store, spec.kernel_id, spec.incarnation))
            write_made(store, spec.kernel_id, spec.incarnation, self._host, made | self._earlier)

    def _end(self, store: ObjectStore, made: set[Digest]) -> None:
        with self._noting:
            self._ended = True
        end_kernel(store, self._spec.kernel_id, self._spec.incarnation, made)

    def _note_soon(self) -> None:
        """Have what was made noted before long, off the way of commits: a killed agent forgets it."""
        transfer = self._transfer
        if self._note_timer is None and transfer is not None and transfer.kept_count != self._noted:
            loop = asyncio.get_running_loop()
            self._note_timer = loop.call_later(self._note_after_s, lambda: self._start(self._note()))

    async def _note(self) -> None:
        self._note_timer = None
        await self.note_made()

    async def opened(self, timeout_s: float) -> ObjectStore:
        """Return the store; raises ReplkernelError when it cannot be opened in time."""
        try:
            await asyncio.wait_for(self._opened.wait(), timeout_s)
        except TimeoutError:
            late = "The object store has not answered yet (setting REPLKERNEL_STORE)."
            raise ReplkernelError(self.why or late) from None
        assert self._transfer is not None
        return self._transfer.store

    async def upload(self, blobs: Iterable[BlobRef], on_trouble: Callable[[str], None]) -> None:
        """Return when the store holds all of `blobs`; raises BlobMissing or BlobDamaged when it never can."""
        if self._transfer is None:
            if self.why:
                on_trouble(self.why)
            await self._opened.wait()
            on_trouble("")
        assert self._transfer is not None
        await self._transfer.upload(blobs, on_trouble=on_trouble)
        self._note_soon()

    async def store_early(self, chunks: Sequence[ChunkRef]) -> None:
        """Begin to store chunks that a delta will name; what goes wrong is for that delta to tell."""
        if self._transfer is not None:
            await self._transfer.store_early(chunks)

    async def withdraw(self, digests: Sequence[Digest]) -> None:
        """Take back what was stored early and no delta will name."""
        if self._transfer is not None:
            await self._transfer.withdraw(digests)

    async def fetch(self, blobs: Iterable[BlobRef]) -> Fetched:
        """Bring `blobs` into the cache; say what is missing."""
        wanted = list(blobs)
        if self._transfer is None:
            missing = await asyncio.to_thread(
                lambda: tuple(chunk.digest for blob in wanted for chunk in self._cache.missing(blob))
            )
            if not missing:
                return Fetched()
            try:
                await asyncio.wait_for(self._opened.wait(), FETCH_WITHOUT_STORE_S)
            except TimeoutError:
                return Fetched(missing, self.why or "The object store has not answered yet.")
        assert self._transfer is not None
        return await self._transfer.download(wanted)

    def changed(self, digests: Callable[[], set[Digest]]) -> None:
        """Note that the committed state changed, so that the kernel's mark is renewed before long."""
        if self._mark_timer is None:
            loop = asyncio.get_running_loop()
            self._mark_timer = loop.call_later(MARK_EVERY_S, lambda: self._start(self._mark(digests)))

    async def _mark(self, digests: Callable[[], set[Digest]]) -> None:
        self._mark_timer = None
        if self._transfer is None:
            return
        try:
            name = f"{self._spec.kernel_id}/{MARK}-{self._spec.incarnation}"
            write = partial(write_mark, self._transfer.store, self._spec.kernel_id, name=name)
            await asyncio.to_thread(lambda: write(digests()))
        except ReplkernelError as error:
            log.warning("the mark of kernel %s was not renewed: %s", self._spec.kernel_id, error)
            self.changed(digests)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def forget(self, *, collecting: bool) -> None:
        """Delete what the store holds under the kernel's name; its chunks are garbage from now on.

        With `collecting`, delete what has been garbage for long enough, whoever left it.
        """
        transfer = self._transfer
        self.close()
        if transfer is None:
            return
        try:
            await asyncio.to_thread(self._end, transfer.store, set(transfer.made))
            if collecting:
                await asyncio.to_thread(collect, transfer.store)
        except ReplkernelError as error:
            log.warning("the store was not tidied after kernel %s: %s", self._spec.kernel_id, error)

    def close(self) -> None:
        """Stop trying, and let the threads end."""
        self._opening.cancel()
        if self._mark_timer is not None:
            self._mark_timer.cancel()
        if self._note_timer is not None:
            self._note_timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._transfer is not None:
            self._transfer.close()
