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

from replkernel.errors import BlobDamaged, BlobMissing, ReplkernelError
from replkernel.objects.cache import BlobCache
from replkernel.objects.collect import MARK, MARK_EVERY_S, collect, write_mark
from replkernel.objects.store import ObjectStore, open_store
from replkernel.objects.superseded import Superseded
from replkernel.objects.transfer import Fetched, Transfer
from replkernel.objects.withdrawal import end_kernel, read_made, write_made
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.records import BlobRef, ChunkRef, ComponentRecord, Digest, payload_blobs

log = logging.getLogger(__name__)

OPEN_RETRY_FIRST_S = 1.0
OPEN_RETRY_MAX_S = 30.0
FETCH_WITHOUT_STORE_S = 20.0
"""A fetch waits so long for a store that has not been opened; chunks in the cache need none."""


NOTE_MADE_AFTER_S = 0.5
"""What this host made is noted so long after an upload of something new, with all that came meanwhile."""

NOTE_MADE_REST = 20.0
"""The next note waits at least so many times as long as the last one took."""


LACKING_TOLD_MAX = 20
"""No more variables are named that a store has lost."""

TIDY_EVERY_S = 30.0
"""So long after a change it is looked whether what was superseded is worth taking out of the store."""

TIDY_IDLE_S = 600.0
"""What was not worth it is looked at again so long after, for others may have taken the room since."""

TIDY_REST = 50.0
"""The next look waits at least so many times as long as the last one took."""


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
        self._tidy_after_s = TIDY_EVERY_S
        self._tasks: set[asyncio.Task[None]] = set()
        self._needed: Callable[[], set[Digest]] = set
        self._in_flight: Callable[[], set[Digest]] = set
        self._superseded = Superseded()
        self._tidy_timer: asyncio.TimerHandle | None = None
        self._tidies_idly = False
        self._pending_marked = True
        """Whether this host may have a mark of what waits for its commit; an agent before this one may."""

    def serve(self, needed: Callable[[], set[Digest]], in_flight: Callable[[], set[Digest]]) -> None:
        """Learn whom to ask which chunks the committed state names, and which deltas on their way do."""
        self._needed, self._in_flight = needed, in_flight

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
        if store.exposed:
            log.warning("the store %s: %s", store.url, store.exposed)
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
            made |= self._read_earlier(store)
            write_made(store, spec.kernel_id, spec.incarnation, self._host, made)

    def _read_earlier(self, store: ObjectStore) -> frozenset[Digest]:
        """Return what hosts had noted before this agent began (the caller holds the lock)."""
        if self._earlier is None:
            spec = self._spec
            self._earlier = frozenset(read_made(store, spec.kernel_id, spec.incarnation))
        return self._earlier

    def _end(self, store: ObjectStore, made: set[Digest]) -> None:
        """Take the kernel's data out of the store, and what the store let go out of this host's cache."""
        spec = self._spec
        with self._noting:
            self._ended = True
        made = made | read_made(store, spec.kernel_id, spec.incarnation)
        if end_kernel(store, spec.kernel_id, spec.incarnation, made):
            self._cache.forget({digest for digest in made if not store.has(digest)})

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
        self.changed()

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

    def changed(self) -> None:
        """Note that the state changed, or is about to, so that the kernel's marks are renewed before long."""
        loop = asyncio.get_running_loop()
        if self._mark_timer is None:
            self._mark_timer = loop.call_later(MARK_EVERY_S, lambda: self._start(self._mark()))
        if self._tidy_timer is None or self._tidies_idly:
            self._tidies_idly = False
            self._tidy_later(self._tidy_after_s)

    def _tidy_later(self, after_s: float) -> None:
        if self._tidy_timer is not None:
            self._tidy_timer.cancel()
        if self._transfer is not None and self._transfer.store.can_withdraw:
            loop = asyncio.get_running_loop()
            self._tidy_timer = loop.call_later(after_s, lambda: self._start(self._tidy()))

    async def _mark(self) -> None:
        self._mark_timer = None
        transfer = self._transfer
        if transfer is None:
            return
        try:
            in_flight = self._in_flight()
            needed = await asyncio.to_thread(self._needed)
            await asyncio.to_thread(self._write_marks, transfer.store, needed, in_flight)
        except ReplkernelError as error:
            log.warning("the mark of kernel %s was not renewed: %s", self._spec.kernel_id, error)
            self.changed()

    def _write_marks(self, store: ObjectStore, needed: set[Digest], in_flight: set[Digest]) -> None:
        """Name what the committed state needs, and, for this host, what waits for its commit however long."""
        spec = self._spec
        name = f"{spec.kernel_id}/{MARK}-{spec.incarnation}"
        pending = f"{name}-pending-{self._host}"
        with self._noting:
            if self._ended:
                return
            if in_flight:
                write_mark(store, spec.kernel_id, in_flight, name=pending)
            write_mark(store, spec.kernel_id, needed, name=name)
            if self._pending_marked and not in_flight:
                store.delete_document(pending)
            self._pending_marked = bool(in_flight)

    # -- what is superseded ----------------------------------------------------------------------------

    async def _tidy(self) -> None:
        """Take out of the store what this host made and nobody names any more, when there is need."""
        self._tidy_timer = None
        transfer, began = self._transfer, time.monotonic()
        if transfer is None or not transfer.kept_count:
            return
        try:
            free = await asyncio.to_thread(transfer.store.free_bytes)
            needed = self._in_flight() | await asyncio.to_thread(self._needed)
            self._superseded.look(transfer.kept_sizes(), needed, began)
            due = self._superseded.due(free, began)
            if due:
                await self._give_up(transfer, set(due), needed)
        except ReplkernelError as error:
            log.warning("superseded chunks of kernel %s stay: %s", self._spec.kernel_id, error)
        self._tidy_after_s = max(TIDY_EVERY_S, TIDY_REST * (time.monotonic() - began))
        if self._superseded.any and self._tidy_timer is None:
            unripe = self._superseded.unripe(time.monotonic())
            self._tidies_idly = not unripe
            self._tidy_later(self._tidy_after_s if unripe else TIDY_IDLE_S)

    async def _give_up(self, transfer: Transfer, due: set[Digest], needed: set[Digest]) -> None:
        """Take back what is `due`, off our notes first: others may make it anew then."""
        kept = transfer.kept()
        await asyncio.to_thread(self._write_marks, transfer.store, needed, self._in_flight())
        free = await asyncio.to_thread(self._unnote, transfer.store, kept, due)
        # Whatever was named meanwhile is in the log or on its way: nothing is awaited from here on.
        gone = await transfer.give_up(free - self._needed() - self._in_flight())
        await asyncio.to_thread(self._cache.forget, gone)
        log.info("kernel %s: %d superseded chunks left the store", self._spec.kernel_id, len(gone))

    def _unnote(self, store: ObjectStore, kept: frozenset[Digest], due: set[Digest]) -> set[Digest]:
        """Note what this host made without what is `due`; return what no other note names."""
        spec = self._spec
        free = due - read_made(store, spec.kernel_id, spec.incarnation, but=self._host)
        with self._noting:
            self._earlier = self._read_earlier(store) - free
            if not self._ended:
                made = (kept | self._earlier) - free
                write_made(store, spec.kernel_id, spec.incarnation, self._host, made)
                self._noted = -1  # What does not go after all is noted again.
        return free

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

    async def refill(self, components: Sequence[ComponentRecord]) -> None:
        """Store again what somebody else has deleted, from this host's cache; name what cannot be had."""
        transfer = self._transfer
        if transfer is None:
            return
        transfer.forget_all()
        lacking: set[str] = set()
        for component in components:
            try:
                await transfer.upload(payload_blobs(component.payload), on_trouble=lambda why: None)
            except (BlobMissing, BlobDamaged):
                lacking.update(component.names or (component.cid,))
        names = ", ".join(f"`{name}`" for name in sorted(lacking)[:LACKING_TOLD_MAX])
        rest = f"; {names} could not be: delete them (`del`), then run their cells again" if lacking else ""
        self._on_notice(
            f"The object store {transfer.store.url} has lost what it held of this kernel (setting "
            f"REPLKERNEL_STORE): somebody emptied it. What this host has was stored again{rest}."
        )

    async def collect(self) -> None:
        """Delete what has been garbage in the store for long enough, whoever left it."""
        transfer = self._transfer
        if transfer is None:
            return
        try:
            found = await asyncio.to_thread(collect, transfer.store)
            log.info("%s: %d of %d chunks were garbage", transfer.store.url, found.deleted, found.stored)
        except ReplkernelError as error:
            log.warning("the store was not collected: %s", error)

    def close(self) -> None:
        """Stop trying, and let the threads end."""
        self._opening.cancel()
        if self._mark_timer is not None:
            self._mark_timer.cancel()
        for timer in (self._note_timer, self._tidy_timer):
            if timer is not None:
                timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._transfer is not None:
            self._transfer.close()
