"""A kernel's way to its object store: opened in a thread, retried while it cannot be, marked for collection.

Law: a store that does not work never keeps a kernel from starting; it delays durability and says why.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial

from replkernel.agent.io.notes import Notes
from replkernel.errors import BlobDamaged, BlobMissing, ReplkernelError
from replkernel.objects import superseded
from replkernel.objects.cache import BlobCache
from replkernel.objects.collect import MARK_EVERY_S, collect
from replkernel.objects.store import ObjectStore, open_store
from replkernel.objects.superseded import Rest, Superseded
from replkernel.objects.transfer import Fetched, Transfer
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.records import BlobRef, ChunkRef, ComponentRecord, Digest, payload_blobs
from replkernel.replication.checkpoint import CHECKPOINT, Place, newest_first

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

TIDY_EVERY_S = 5.0
"""So long after a change it is looked for what is superseded: another host may have written a checkpoint."""

TIDY_AGAIN_S = 30.0
"""What could not be taken out of the store is tried again so long after."""

TIDY_REST = 4.0
"""The next look waits at least so many times as long as the last one took."""

BULKY_BYTES = 64 * 2**20
"""Once so much was stored since the last checkpoint, the next commit has another one written soon."""


class KernelStore:
    """The store of one kernel, as seen from this host.

    `on_notice` takes sentences for the user; `on_stored` hears of each change to a store, by its URL.
    """

    def __init__(
        self,
        spec: KernelSpec,
        host: str,
        cache: BlobCache,
        on_notice: Callable[[str], None],
        on_stored: Callable[[str], None] = lambda url: None,
    ) -> None:
        self.why = ""
        self._spec = spec
        self._cache = cache
        self._on_notice = on_notice
        self._on_stored = on_stored
        self._transfer: Transfer | None = None
        self._opened = asyncio.Event()
        self._opening = asyncio.get_running_loop().create_task(self._open())
        self._mark_timer: asyncio.TimerHandle | None = None
        self._note_timer: asyncio.TimerHandle | None = None
        self._noted = 0
        self._note_after_s = NOTE_MADE_AFTER_S
        self._tasks: set[asyncio.Task[None]] = set()
        self._needed: Callable[[], set[Digest]] = set
        self._in_flight: Callable[[], set[Digest]] = set
        self._place: Callable[[], Place] = lambda: Place(0, 0)
        self._apart: Callable[[], bool] = lambda: True
        self._notes = Notes(spec, host)
        self._superseded = Superseded()
        self._tidy_timer: asyncio.TimerHandle | None = None
        self._tidying = False
        self._tidy_then_s = math.inf
        """After how long to look again, as came up during a look."""
        self._tidy_not_before = 0.0
        self._bytes_then = 0
        """How many bytes had been made here when the last checkpoint was written."""

    def serve(
        self,
        needed: Callable[[], set[Digest]],
        in_flight: Callable[[], set[Digest]],
        place: Callable[[], Place],
        apart: Callable[[], bool] = lambda: False,
    ) -> None:
        """Learn whom to ask which chunks the committed state names, and which deltas on their way do.

        `place` tells where the committed state stands, `apart` whether other hosts have replicas of it.
        """
        self._needed, self._in_flight, self._place, self._apart = needed, in_flight, place, apart

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
        self._transfer = Transfer(store, self._cache, claim=partial(self._notes.claim, store))
        self._opened.set()

    def _open_and_probe(self) -> ObjectStore:
        store = open_store(self._spec.store_url, self._spec.env)
        store.probe()
        return store

    def _tell(self, why: str) -> None:
        if why != self.why:
            self.why = why
            self._on_notice(why)

    async def note_made(self) -> None:
        """Note in the store which chunks this host made, for whoever ends the kernel when it is at rest."""
        transfer = self._transfer
        if transfer is None:
            return
        if transfer.kept_count == self._noted:
            return
        made, began = transfer.kept(), time.monotonic()
        try:
            await asyncio.to_thread(self._notes.note_made, transfer.store, made)
            self._noted = len(made)
        except ReplkernelError as error:
            log.warning("what kernel %s stored was not noted: %s", self._spec.kernel_id, error)
        self._note_after_s = max(NOTE_MADE_AFTER_S, NOTE_MADE_REST * (time.monotonic() - began))

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
            async with asyncio.timeout(timeout_s):
                await self._opened.wait()
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
        self._on_stored(self._spec.store_url)

    async def store_early(self, chunks: Sequence[ChunkRef]) -> None:
        """Begin to store chunks that a delta will name; what goes wrong is for that delta to tell."""
        if self._transfer is not None:
            await self._transfer.store_early(chunks)

    async def withdraw(self, digests: Sequence[Digest]) -> None:
        """Take back what was stored early and no delta will name, and remove it from the cache."""
        wanted: Iterable[Digest] = digests
        if self._transfer is not None:
            wanted = await self._transfer.withdraw(digests)
        await asyncio.to_thread(self._cache.remove_unsaved, wanted)

    async def rest(self) -> None:
        """Leave the store as whoever forgets the kernel needs it: made, noted and named is the same."""
        if self._transfer is not None:
            loose = await self._transfer.withdraw_loose()
            await asyncio.to_thread(self._cache.remove_unsaved, loose)
        await self.note_made()

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
                async with asyncio.timeout(FETCH_WITHOUT_STORE_S):
                    await self._opened.wait()
            except TimeoutError:
                return Fetched(missing, self.why or "The object store has not answered yet.")
        assert self._transfer is not None
        return await self._transfer.download(wanted)

    def changed(self) -> None:
        """Note that the state changed, or is about to, so that the kernel's marks are renewed before long."""
        loop = asyncio.get_running_loop()
        if self._mark_timer is None:
            self._mark_timer = loop.call_later(MARK_EVERY_S, lambda: self._start(self._mark()))
        self._tidy_at(TIDY_EVERY_S)

    async def _mark(self) -> None:
        self._mark_timer = None
        transfer = self._transfer
        if transfer is None:
            return
        try:
            in_flight = self._in_flight()
            needed = await asyncio.to_thread(self._needed)
            await asyncio.to_thread(self._notes.mark, transfer.store, needed, in_flight)
        except ReplkernelError as error:
            log.warning("the mark of kernel %s was not renewed: %s", self._spec.kernel_id, error)
            self.changed()

    # -- what is superseded ----------------------------------------------------------------------------

    def bulky(self) -> bool:
        """Tell whether so much was stored since the last checkpoint here that another one is worth it."""
        transfer = self._transfer
        return transfer is not None and transfer.made_bytes - self._bytes_then >= BULKY_BYTES

    def checkpointed(self) -> None:
        """Note that a checkpoint was written here: what older ones alone need may go before long."""
        if self._transfer is not None:
            self._bytes_then = self._transfer.made_bytes
        self._tidy_at(0.0)

    def _tidy_at(self, after_s: float) -> None:
        """Look for what is superseded after so long, or before, if that was to come sooner."""
        transfer, loop = self._transfer, asyncio.get_running_loop()
        if transfer is None or not transfer.store.can_withdraw:
            return
        if self._tidying:
            self._tidy_then_s = min(self._tidy_then_s, after_s)
            return
        due = max(loop.time() + after_s, self._tidy_not_before)
        if self._tidy_timer is not None and self._tidy_timer.when() <= due:
            return
        if self._tidy_timer is not None:
            self._tidy_timer.cancel()
        self._tidy_timer = loop.call_at(due, lambda: self._start(self._tidy()))

    async def _tidy(self) -> None:
        """Take out of the store what this host made and nothing that can be restored names any more."""
        self._tidy_timer, self._tidying = None, True
        transfer, loop = self._transfer, asyncio.get_running_loop()
        assert transfer is not None
        began, self._tidy_then_s = loop.time(), math.inf
        try:
            after_s = await self._tidy_store(transfer)
        except ReplkernelError as error:
            log.warning("superseded chunks of kernel %s stay: %s", self._spec.kernel_id, error)
            after_s = TIDY_AGAIN_S
        finally:
            self._tidying = False
            self._tidy_not_before = loop.time() + TIDY_REST * (loop.time() - began)
        if (next_s := min(after_s, self._tidy_then_s)) < math.inf:
            self._tidy_at(next_s)

    async def _tidy_store(self, transfer: Transfer) -> float:
        """Look once; return after how many seconds to look again."""
        await transfer.unclaim(self._named)
        if not transfer.kept_count:
            return math.inf
        free, covered = await asyncio.to_thread(self._look_at_store, transfer.store)
        needed = self._in_flight() | await asyncio.to_thread(self._needed)
        place, now = self._place(), time.monotonic()
        self._superseded.look(transfer.kept_sizes(), needed, place, now)
        rest = self._rest(transfer.store)
        due = self._superseded.due(covered, free, rest, now)
        if due:
            await self._give_up(transfer, set(due), needed)
            self._superseded.look(transfer.kept_sizes(), needed, place, now)
        if not self._superseded.any:
            return math.inf
        return self._superseded.next_look_s(covered, rest, time.monotonic())

    def _named(self) -> set[Digest]:
        """Return what the committed state names, or a delta on its way to it: none is on neither side."""
        return self._in_flight() | self._needed()

    def _rest(self, store: ObjectStore) -> Rest:
        if store.deletes_by_request:
            return superseded.SERVER
        return superseded.APART if self._apart() else superseded.HERE

    def _look_at_store(self, store: ObjectStore) -> tuple[int | None, Place]:
        """Return the store's room, if it is known, and where the kernel's newest checkpoint stands."""
        spec = self._spec
        names = store.list_documents(spec.kernel_id)
        newest = newest_first(names, CHECKPOINT, spec.kernel_id, spec.incarnation)
        return store.free_bytes(), newest[0] if newest else Place(0, 0)

    async def _give_up(self, transfer: Transfer, due: set[Digest], needed: set[Digest]) -> None:
        """Take back what is `due`, off our notes first: others may make it anew then."""
        kept = transfer.kept()
        await asyncio.to_thread(self._notes.mark, transfer.store, needed, self._in_flight())
        free = await asyncio.to_thread(self._notes.unnote, transfer.store, kept, due)
        self._noted = -1  # What does not go after all is noted again.
        # Whatever was named meanwhile is in the log or on its way: nothing is awaited from here on.
        gone = await transfer.give_up(free - self._named())
        await asyncio.to_thread(self._cache.forget, gone)
        self._on_stored(self._spec.store_url)
        log.info("kernel %s: %d superseded chunks left the store", self._spec.kernel_id, len(gone))

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
            made = await asyncio.to_thread(transfer.end)
            await asyncio.to_thread(self._notes.end, transfer.store, self._cache, made)
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
