"""Drives one keeper: performs its effects and tells it what happened; one timer, no decisions.

Law: effects are performed in list order; an event that arises while they are is handled after them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from replkernel.agent.core import effects as want
from replkernel.agent.core import events as fact
from replkernel.agent.core.keeper import DROPPED, Keeper
from replkernel.agent.core.process_life import Phase
from replkernel.agent.io import death
from replkernel.agent.io.checkpoint_store import read_checkpoint
from replkernel.agent.io.deadline_timer import DeadlineTimer
from replkernel.agent.io.folder import ProcessRecord, ReplicaFolder, ReplicaRecord
from replkernel.agent.io.group import ReplicaGroup
from replkernel.agent.io.kernel_store import KernelStore
from replkernel.agent.io.mail import LoopMail
from replkernel.agent.io.memory_kills import MemoryKills, memory_kills, shortage
from replkernel.agent.io.saving import Saving
from replkernel.agent.io.spawner import Spawner
from replkernel.agent.io.turns import Turns
from replkernel.agent.io.watch import DeathClock
from replkernel.agent.io.zygote_link import SpawnListener
from replkernel.errors import ReplkernelError
from replkernel.hosts.reach import Reach
from replkernel.kernel.birth import Birth
from replkernel.protocol.agent_to_process import AgentToKernel, ApplyDelta, ExecutionRefused
from replkernel.protocol.agent_to_router import AgentToRouter, GpusUsed, LeaseFreed, RouteNotice
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.protocol.process_to_agent import GpusFreed, HibernationWanted
from replkernel.records import ChunkRef, Digest, Mark
from replkernel.replication.base import base_of
from replkernel.replication.consensus import JournalDamaged, RaftAddressLost

log = logging.getLogger(__name__)

PROCESS_LOG_BYTES_MAX = 4 * 1024 * 1024
"""A process log beyond this is put aside before the next birth."""


MEMORY_COUNT_S = 5.0
"""A count of the system's memory kills, to tell whether a death is one of them, is at most this old."""

STORE_WAIT_S = 20.0
"""A group that starts from a checkpoint waits so long for the store; then it is tried again later."""

REAPED_S = 0.1
"""The zygote tells of a death within this time, unless it is busy."""

LAST_MESSAGES_S = 0.02
"""So long after the death of a process its last messages are awaited."""


class Post(Protocol):
    """Who carries a keeper's messages."""

    def to_process(self, token: str, message: AgentToKernel) -> None:
        """Send to the kernel process that was born with `token`."""

    def process_ended(self, token: str) -> None:
        """Forget the kernel process that was born with `token`."""

    def to_router(self, message: AgentToRouter) -> None:
        """Send to the kernel's router, if one is attached."""


class Surroundings(NamedTuple):
    """What a keeper's driver works with: shared by all replicas of a kernel on this host."""

    spec: KernelSpec
    host: str
    spawner: Spawner
    kernel_store: KernelStore
    post: Post
    socket_base: str
    kernels_endpoint: str
    cache_dir: str
    mail: LoopMail
    turns: Turns
    holds: bool
    sticky: bool
    on_commit: Callable[[], None]
    reach: Reach | None = None
    """How routers of other machines reach this host's kernel processes; None where they need not."""


class KeeperDriver:
    """One replica on this host: core, Raft member, kernel process, directory."""

    def __init__(
        self,
        core: Keeper,
        around: Surroundings,
        folder: ReplicaFolder,
        group: Callable[[Callable[[fact.Event], None]], ReplicaGroup],
        on_forgotten: Callable[[KeeperDriver], None],
    ) -> None:
        self.core = core
        self.folder = folder
        self.kernel_id = around.spec.kernel_id
        self.token = ""
        self.group = group(self.tell)
        self._around = around
        self._on_forgotten = on_forgotten
        self._loop = asyncio.get_running_loop()
        self._events: deque[fact.Event] = deque()
        self._handling = False
        self._timer = DeadlineTimer(core.deadline, lambda: self.tell(fact.TimeCame()))
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = 0
        self._died = DeathClock(self._is_dead)
        self._told_end = 0
        self._restored = False
        self._opened = False
        """Whether the Raft member has had a journal, in this agent's time or before."""
        self._saving = Saving(self._write_record, self._name)
        self._memory_kills = MemoryKills()
        self.last_death = ""
        self._not_joined = ""
        self._counted_at = 0.0
        self._performers: dict[type, Callable[[Any], None]] = {
            want.ForkProcess: self._fork,
            want.SignalProcess: self._signal,
            want.ToProcess: lambda effect: around.post.to_process(self.token, effect.message),
            want.ToRouter: lambda effect: around.post.to_router(effect.message),
            want.SendState: self._send_state,
            want.OpenGroup: lambda effect: self._start(self._open_group(effect)),
            want.UploadBlobs: lambda effect: self._start(self._upload(effect)),
            want.FetchBlobs: lambda effect: self._start(self._fetch(effect)),
            want.Propose: lambda effect: self.group.propose(effect.proposal, *effect.following),
            want.SetPace: lambda effect: self.group.pace(effect.busy),
            want.LeadElsewhere: lambda effect: self._start(self._lead_elsewhere(effect.address)),
            want.SaveReplica: lambda effect: self._saving.save(),
            want.ForgetReplica: lambda effect: self._start(self._forget()),
        }

    # -- events in, effects out ------------------------------------------------------------------------

    def tell(self, event: fact.Event) -> None:
        """Have the core handle `event` and perform what it wants."""
        if isinstance(event, fact.ExecutionClaimed):
            self._count_memory_kills()
        elif isinstance(event, fact.DeltaLogged) or (isinstance(event, fact.GroupOpened) and self._founds()):
            # A group that goes on from a checkpoint says so in the store at once: it silences the one before.
            self._around.on_commit()
        elif isinstance(event, fact.ProcessGreeted):
            self._around.turns.greeted()
        elif isinstance(event, fact.ProcessEnded | fact.BirthFailed):
            self._around.turns.failed()
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._events:
                self._handle(self._events.popleft())
        finally:
            self._handling = False
        self._timer.arm()

    def _founds(self) -> bool:
        return bool(self.core.member.checkpoint) and not self.core.member.joining and not self._restored

    def notify(self, text: str) -> None:
        """Tell the kernel's user a sentence of its process."""
        self._around.post.to_router(RouteNotice(text))

    def lease_freed(self, said: GpusFreed) -> None:
        """Tell the router what became of the state on a lease's GPUs."""
        freed = LeaseFreed(self.core.replica, said.lease, said.moved_bytes, said.why, said.computes_on)
        self._around.post.to_router(freed)

    def tell_gpus(self, gpus: tuple[tuple[str, int], ...]) -> None:
        """Tell the router what the process has on GPUs."""
        self._around.post.to_router(GpusUsed(self.core.replica, gpus))

    def hibernation_wanted(self) -> None:
        """Tell the router that a cell of this process asks for the kernel's hibernation."""
        self._around.post.to_router(HibernationWanted(self.kernel_id))

    def _handle(self, event: fact.Event) -> None:
        for effect in self.core.handle(event, time.monotonic()):
            try:
                self._performers[type(effect)](effect)
            except Exception:
                log.exception("%s failed for %s", type(effect).__name__, self._name())

    def _count_memory_kills(self) -> None:
        """Take a new count to compare with, but not at each of many short cells: it reads several files."""
        now = time.monotonic()
        if now - self._counted_at >= MEMORY_COUNT_S:
            self._counted_at = now
            self._memory_kills = memory_kills(self.core.life.pid)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _name(self) -> str:
        return f"{self.core.replica} of kernel {self._around.spec.kernel_id}"

    # -- the kernel process ----------------------------------------------------------------------------

    def _fork(self, effect: want.ForkProcess) -> None:
        around = self._around
        self.token = secrets.token_hex(32)
        self._started = 0
        self._memory_kills = memory_kills()
        self.folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _put_aside(self.folder)
        birth = Birth(
            spec=around.spec,
            replica=self.core.replica,
            host=self.core.host,
            ipc_base=f"{around.socket_base}-{self.core.replica}-{effect.birth}",
            agent_endpoint=around.kernels_endpoint,
            birth_token=self.token,
            cache_dir=around.cache_dir,
            log_path=str(self.folder.log),
            reach=around.reach,
        )
        number = effect.birth
        listener = SpawnListener(
            born=lambda pid: self._born(number, pid),
            refused=lambda why: self.tell(fact.BirthFailed(number, why)),
            ended=lambda end: self._ended(number, end),
        )
        around.turns.ask(
            lambda: around.spawner.bear(birth, listener),
            lambda: listener.refused("its kernel ended before it was its turn"),
        )

    def _born(self, birth: int, pid: int) -> None:
        self._started = death.start_time(pid)
        self._died.watch(pid)
        self._around.turns.born()
        log.info("%s has process %d", self._name(), pid)
        self.tell(fact.ProcessForked(birth, pid))

    def _is_dead(self, pid: int) -> None:
        self._loop.call_later(REAPED_S, self._tell_unreaped, self.core.life.birth, pid)

    def _tell_unreaped(self, birth: int, pid: int) -> None:
        """Tell of a death of which the zygote has not told: while it imports it does nothing else."""
        status = death.status_of_zombie(pid)
        if status is not None and self._told_end != birth:
            self._ended(birth, death.Exit(status, at=self._died.at))

    def _ended(self, birth: int, end: death.Exit) -> None:
        """Tell of a death once what the process sent last, which may be on its way in, has been read."""
        if self._told_end == birth:
            return
        self._told_end = birth
        self._loop.call_later(LAST_MESSAGES_S, self._tell_end, birth, end)

    def _tell_end(self, birth: int, end: death.Exit) -> None:
        why = death.explain(end, shortage(self._memory_kills))
        if end.failed and not self.core.life.is_live:
            why += death.last_words(self.folder.log)
        log.info("the process of %s: %s", self._name(), why)
        if self.core.life.phase is not Phase.DISMISSED:
            self.last_death = why
        if birth == self.core.life.birth:
            self._around.post.process_ended(self.token)
        self.tell(fact.ProcessEnded(birth, why, self._died.at or end.at))

    def _signal(self, effect: want.SignalProcess) -> None:
        """Signal the process's group, which it leads; never a pid that is no longer ours."""
        pid = self.core.life.pid
        if pid > 1 and self._started and death.start_time(pid) == self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, effect.signum)

    def _send_state(self, effect: want.SendState) -> None:
        lacking = self.group.lacking(Mark(effect.after, effect.audit))
        if lacking is None:
            self._around.post.to_process(self.token, ExecutionRefused(effect.after, DROPPED))
        for delta in lacking or ():
            self._around.post.to_process(self.token, ApplyDelta(delta))
            self.tell(fact.StateSent(*delta.mark))

    # -- consensus and blobs ---------------------------------------------------------------------------

    async def _open_group(self, effect: want.OpenGroup) -> None:
        if not self._restored:  # Else everybody waits for the group, whose majority may be returning.
            await self._around.turns.others()
        try:
            based = bool(effect.checkpoint) and not self.folder.snapshot.exists()
            base = await self._base(effect) if based and not effect.joining else b""
            awaits = effect.joining and based
            opening = partial(self.group.open, joining=effect.joining, awaits_snapshot=awaits)
            await asyncio.to_thread(opening, effect.peers, effect.secret, base)
        except (ReplkernelError, OSError) as error:
            why = self._passing(error) if isinstance(error, OSError) else str(error)
            if why != self._not_joined:
                log.error("%s cannot join its group: %s", self._name(), why)
            self._not_joined = why
            lasting = isinstance(error, RaftAddressLost | JournalDamaged)
            self.tell(fact.GroupTrouble(why, lasting))
        else:
            self.tell(fact.GroupOpened())
            if not self._opened:
                self._opened = True
                self._saving.save()

    def _passing(self, error: OSError) -> str:
        """Say what of the host's own keeps the member from starting, for want of room or time."""
        reason = error.strerror or "its Raft thread does not answer"  # A time-out has no words of its own.
        return (
            f"Replica {self.core.replica} cannot join its group for now: {reason[:1].lower()}{reason[1:]} "
            f"(host {self._around.host}). It is tried again."
        )

    async def _base(self, effect: want.OpenGroup) -> bytes:
        """Return what the group starts from: as it was kept here, or made of the checkpoint in the store."""
        kept = self.folder.read_base(effect.checkpoint_digest)
        if kept is not None:
            return kept
        store = await self._around.kernel_store.opened(STORE_WAIT_S)
        read = partial(read_checkpoint, store, self._around.spec, effect.checkpoint, effect.checkpoint_digest)
        made = base_of(await asyncio.to_thread(read))
        await asyncio.to_thread(self.folder.save_base, effect.checkpoint_digest, made)
        return made

    async def _lead_elsewhere(self, address: str) -> None:
        member = self.group.member
        if member is not None and member.status().role == "leader":
            with contextlib.suppress(ReplkernelError):  # The member is being closed.
                await asyncio.to_thread(member.transfer_leadership, address)

    async def _upload(self, effect: want.UploadBlobs) -> None:
        def on_trouble(why: str) -> None:
            self.tell(fact.UploadDelayed(effect.seq, why, effect.audit))

        try:
            await self._around.kernel_store.upload(effect.blobs, on_trouble)
        except ReplkernelError as error:
            self.tell(fact.UploadEnded(effect.seq, str(error), effect.audit))
        except Exception as error:
            log.exception("an upload of %s failed", self._name())
            self.tell(fact.UploadEnded(effect.seq, f"The upload failed: {error}.", effect.audit))
        else:
            self.tell(fact.UploadEnded(effect.seq, audit=effect.audit))

    def chunks_written(self, chunks: Sequence[ChunkRef]) -> None:
        """Begin to store what the kernel process is still writing."""
        self._start(self._around.kernel_store.store_early(chunks))

    def chunks_withdrawn(self, digests: Sequence[Digest]) -> None:
        """Take back what was stored of a capture that the kernel process gave up."""
        self._start(self._around.kernel_store.withdraw(digests))

    async def _fetch(self, effect: want.FetchBlobs) -> None:
        try:
            fetched = await self._around.kernel_store.fetch(effect.blobs)
        except Exception as error:
            log.exception("a fetch of %s failed", self._name())
            self.tell(fact.BlobsFetched(effect.request, why=f"The fetch failed: {error}."))
        else:
            self.tell(fact.BlobsFetched(effect.request, fetched.missing, fetched.why))

    # -- disk ------------------------------------------------------------------------------------------

    def _write_record(self) -> None:
        core = self.core
        self.folder.save(
            ReplicaRecord(
                spec=self._around.spec,
                replica=core.replica,
                raft_address=core.member.raft_address,
                process=ProcessRecord(
                    core.life.birth, self.token, core.life.pid, self._started, core.life.is_dormant
                ),
                peers=core.member.peers,
                secret=core.member.secret,
                checkpoint=core.member.checkpoint,
                checkpoint_digest=core.member.checkpoint_digest,
                generation=core.member.generation,
                joining=core.member.joining,
                opened=self._opened,
            )
        )

    def restore(self, record: ReplicaRecord) -> None:
        """Go on where an earlier agent left this replica."""
        process = record.process
        self._restored, self._opened = True, record.opened
        self.token, self._started = process.token, process.started
        self._memory_kills = memory_kills(process.pid)
        group = fact.GroupNamed(
            record.peers,
            record.secret,
            record.checkpoint,
            record.checkpoint_digest,
            record.generation,
            record.joining,
        )
        alive = process.pid > 1 and process.started > 0 and death.start_time(process.pid) == process.started
        pid = process.pid if alive or not process.dormant else 0
        self.core.restore(group, process.birth, pid, dormant=process.dormant)
        if alive:
            self._around.spawner.adopt(process.pid, lambda end: self._ended(process.birth, end))
        status = None if alive else death.status_of_zombie(process.pid, process.started)
        why = "" if status is None else death.explain(death.Exit(status), "")
        self.tell(fact.ReplicaRestored(alive, why))

    async def _forget(self) -> None:
        """Close the Raft member, delete everything on disk, and say so."""
        self._saving.close()
        await asyncio.to_thread(self.group.close)
        await asyncio.to_thread(self._delete_files)
        self._on_forgotten(self)
        self.close()

    def _delete_files(self) -> None:
        self.folder.delete()
        base = self._around.socket_base
        directory, name = os.path.split(f"{base}-{self.core.replica}-")
        with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.startswith(name):
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)

    def close(self) -> None:
        """Stop driving: the Raft member is closed by whoever called, the process stays."""
        self._died.close()
        self._saving.close()
        self._timer.close()
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()


def _put_aside(folder: ReplicaFolder) -> None:
    with contextlib.suppress(FileNotFoundError):
        if folder.log.stat().st_size > PROCESS_LOG_BYTES_MAX:
            folder.log.replace(folder.log.with_suffix(".log.1"))
