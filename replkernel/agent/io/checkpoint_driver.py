"""Drives a kernel's checkpoints on this host: reads how it stands, writes documents in a thread; one timer.

Law: no rule is here; a store that fails costs a checkpoint, never a cell. Nothing is written of a group that
goes on from a checkpoint before it has begun with that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

from replkernel.agent.core.checkpointing import (
    Asked,
    Changed,
    Checkpointing,
    Effect,
    Ended,
    Event,
    LastCheckpoint,
    Say,
    Standing,
    TimeCame,
    Write,
)
from replkernel.agent.io.checkpoint_store import GroupFollowed, Shelf, Written, said_by, write_checkpoint
from replkernel.agent.io.deadline_timer import DeadlineTimer
from replkernel.agent.io.keeper_driver import KeeperDriver
from replkernel.agent.io.kernel_store import KernelStore
from replkernel.errors import ReplkernelError
from replkernel.protocol.agent_to_router import AgentToRouter, KernelTakenOver
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.records import ReplicaId, Seq
from replkernel.replication.base import with_deltas
from replkernel.replication.checkpoint import Place

log = logging.getLogger(__name__)

STORE_WAIT_S = 20.0
"""A checkpoint waits so long for a store that has not been opened."""


class CheckpointDriver:
    """The checkpoints of one kernel on this host. `drivers`: its replicas here; `say` reaches its router."""

    def __init__(
        self,
        spec: KernelSpec,
        drivers: Mapping[ReplicaId, KeeperDriver],
        kernel_store: KernelStore,
        say: Callable[[AgentToRouter], None],
    ) -> None:
        self._spec = spec
        self._drivers = drivers
        self._kernel_store = kernel_store
        self._say = say
        self._core = Checkpointing(spec.kernel_id)
        self._shelf = Shelf(spec)
        self._loop = asyncio.get_running_loop()
        self._timer = DeadlineTimer(self._core.deadline, lambda: self._tell(TimeCame(self.standing())))
        self._task: asyncio.Task[None] | None = None
        self._refilling: asyncio.Task[None] | None = None
        self._writing: set[asyncio.Future[Written]] = set()
        """What is written in threads, which nobody can cancel."""
        self._followed_by = 0
        """The generation of the group that has followed this one."""

    @property
    def last(self) -> LastCheckpoint | None:
        """Return the last checkpoint that was written here."""
        return self._core.last

    @property
    def why(self) -> str:
        """Return why the last checkpoint could not be written, or an empty string."""
        return self._core.why

    def changed(self) -> None:
        """Note that something was committed."""
        self._tell(Changed(bulky=self._kernel_store.bulky()))

    def ask(
        self,
        seq: Seq,
        *,
        forced: bool,
        gone: Mapping[ReplicaId, Seq] = MappingProxyType({}),
        pinned: bool = False,
    ) -> None:
        """Have a checkpoint written that holds execution `seq`; the router is told what came of it.

        `gone` are replicas whose processes were lost, with the last execution of each; with `pinned`, what
        cannot travel hinders nothing.
        """
        self._tell(Asked(seq, forced, gone, pinned))

    def say_followed(self) -> None:
        """Tell the router, also one that has just come, that another group has followed this one."""
        if self._followed_by:
            self._say(KernelTakenOver(self._spec.kernel_id, self._followed_by))

    def _tell(self, event: Event) -> None:
        for effect in self._core.handle(event, time.monotonic()):
            self._perform(effect)
        self._timer.arm()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Write():
                self._task = self._loop.create_task(self._write(forced=effect.forced))
            case Say():
                self._say(effect.message)

    # -- how the kernel stands -------------------------------------------------------------------------

    def standing(self) -> Standing:
        """Return how the kernel stands here, as its leading member (or the one that is furthest) sees it."""
        speaker = self._speaker()
        if speaker is None:
            return Standing()
        raft, summary = speaker.group.raft_status(), speaker.group.summary()
        return Standing(
            leads=raft is not None and raft.role == "leader",
            quorum=raft is not None and raft.quorum,
            place=Place(speaker.core.member.generation, summary.applied),
            seq=summary.last_seq,
            execution_count=summary.execution_count,
            busy=any(driver.core.running or driver.core.outbox.deltas for driver in self._drivers.values()),
            owing=summary.owing,
            pins=summary.pins,
            executor=summary.executor,
        )

    def _speaker(self) -> KeeperDriver | None:
        """Return the replica here whose member leads, or else one that has begun and has applied most."""
        return max(self._drivers.values(), key=_rank, default=None)

    # -- writing ---------------------------------------------------------------------------------------

    async def _write(self, *, forced: bool) -> None:
        try:
            written = await self._written(forced=forced)
        except GroupFollowed as error:
            log.warning("%s", error)
            self._tell(Ended(why=str(error), followed=True))
            self._followed_by = error.generation
            self.say_followed()
        except ReplkernelError as error:
            log.warning("no checkpoint of kernel %s: %s", self._spec.kernel_id, error)
            self._tell(Ended(why=str(error)))
        except Exception as error:
            log.exception("a checkpoint of kernel %s failed", self._spec.kernel_id)
            self._tell(Ended(why=f"The checkpoint could not be written: {error}."))
        else:
            header = written.header
            self._tell(Ended(written.name, header.place, header.seq, header.execution_count))

    async def _written(self, *, forced: bool = False) -> Written:
        speaker = self._speaker()
        if speaker is None:
            raise ReplkernelError("No replica of the kernel is on this host.")
        if speaker.core.member.checkpoint and not speaker.group.begun:
            # An empty state of the newer group would be taken for the newest of all.
            raise ReplkernelError("The kernel's replicas here have not begun yet: try again later.")
        store = await self._kernel_store.opened(STORE_WAIT_S)
        pending = speaker.core.outbox.stored_deltas() if forced else []

        def write() -> Written:
            snapshot, digests, said = speaker.group.checkpoint()
            if pending:
                snapshot = with_deltas(snapshot, pending)
                said = said_by(snapshot)
                digests = digests.union(*(delta.digests() for delta in pending))
            before = self.last.name if self.last is not None else ""
            return write_checkpoint(
                store, self._shelf, speaker.core.member.generation, snapshot, digests, said, before
            )

        writing = asyncio.ensure_future(asyncio.to_thread(write))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        written = await asyncio.shield(writing)
        self._kernel_store.checkpointed()
        if written.lost:
            self._refilling = self._loop.create_task(self._kernel_store.refill(speaker.group.components()))
        return written

    async def write_for_rest(self) -> str:
        """Write what is applied here, for a kernel that nobody serves; return why not, or an empty string."""
        try:
            await self._written()
        except GroupFollowed:
            return ""
        except ReplkernelError as error:
            return str(error)
        return ""

    async def over(self) -> None:
        """Wait for what is being written: whoever deletes what the kernel has in the store comes after it."""
        await asyncio.gather(*self._writing, return_exceptions=True)

    def close(self) -> None:
        """Stop: nothing more is begun."""
        self._timer.close()
        for task in (self._task, self._refilling):
            if task is not None:
                task.cancel()


def _rank(driver: KeeperDriver) -> tuple[bool, bool, int]:
    raft, group = driver.group.raft_status(), driver.group
    return raft is not None and raft.role == "leader", group.begun, group.summary().applied
