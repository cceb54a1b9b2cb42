"""The kernels of this host: who is taken in, who is on the way out, who is restored after a restart.

Law: names that become paths are checked first; a kernel that ends makes room for its next incarnation at
once, and what it leaves behind is tidied in the background.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Protocol
from weakref import WeakValueDictionary

from replkernel.agent.core.custody import Custody
from replkernel.agent.io.disk_usage import DiskUsage
from replkernel.agent.io.folder import ReplicaFolder, ReplicaRecord, problem_with_names, saved_replicas
from replkernel.agent.io.group import MemberFactory
from replkernel.agent.io.host_kernel import REPLICAS_HERE_MAX, HostKernel, KernelPost
from replkernel.agent.io.keeper_driver import KeeperDriver, Surroundings
from replkernel.agent.io.kernel_store import KernelStore
from replkernel.agent.io.mail import LoopMail
from replkernel.agent.io.rest import find_record, forget_stored, look_for_checkpoint, note_rest
from replkernel.agent.io.spawner import Spawner
from replkernel.agent.io.turns import Turns
from replkernel.errors import ReplkernelError, SettingError
from replkernel.hosts.reach import Reach
from replkernel.launch.kernel_record import KernelRecord
from replkernel.objects.cache import BlobCache
from replkernel.objects.usage import told
from replkernel.protocol.agent_to_process import AgentToKernel
from replkernel.protocol.agent_to_router import AgentToRouter, CheckpointFound
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.protocol.router_to_agent import PrepareReplica
from replkernel.records import KernelId, ReplicaId
from replkernel.replication.addresses import free_raft_address
from replkernel.replication.consensus import Consensus, StateCallbacks
from replkernel.settings import read_settings

log = logging.getLogger(__name__)

KERNELS_MAX = 512
"""No agent keeps more kernels than this."""

COLLECT_EVERY_S = 3600.0
"""No store is searched for garbage more often than this, at the end of a kernel."""

COLLECT_MEANWHILE_S = 6 * 3600.0
"""While no kernel ends, the stores of those that live are searched this often."""

TIDY_LIMIT_S = 5.0
"""An agent that ends waits so long for the store to be rid of kernels that have ended."""

REST_AGAIN_S = 30.0
"""A kernel without a router that cannot be put to rest yet is looked at again after so long."""

REST_LIMIT_S = 6 * 3600.0
"""A kernel without a router is kept no longer than this, whatever it runs and whatever its store says: then
its newest checkpoint is what is left."""

CACHE_BYTES = 20 * 2**30
"""The bound of the host's cache when the agent's own settings cannot be read."""

ORPHAN_GRACE_S = 30.0
"""The grace time when a kernel's own settings cannot be read."""


class Carrier(Protocol):
    """Who carries messages out, and hears of a kernel's end."""

    def send_router(self, identity: bytes, message: AgentToRouter) -> None:
        """Send to a router."""

    def send_process(self, token: str, message: AgentToKernel) -> None:
        """Send to a kernel process."""

    def process_ended(self, token: str) -> None:
        """Hear that a kernel process is gone."""

    def kernel_ended(self, kernel: HostKernel) -> None:
        """Hear that the last replica of a kernel is gone."""

    def kernel_left(self, kernel: HostKernel) -> None:
        """Hear that a kernel's router is gone, with all processes here that it knew."""

    def kernel_alone(self, kernel: HostKernel) -> None:
        """Hear that a kernel's router is gone and has not come back in a moment."""

    def gpus_left(self) -> None:
        """Hear that a kernel without a router has left its GPUs."""


class Admission:
    """All kernels that have a replica on this host."""

    def __init__(
        self, name: str, directory: Path, sockets: Path, reach: Reach, spawner: Spawner, carrier: Carrier
    ) -> None:
        self.cache_dir = str(directory / "cache")
        self._name = name
        self._kernels_dir = directory / "kernels"
        self._data_dir = directory.parent.parent
        self._sockets = sockets
        self._reach = reach
        self._spawner = spawner
        self._carrier = carrier
        self._cache: BlobCache | None = None
        self._usage = DiskUsage(self.cache_dir)
        self._alive: dict[KernelId, HostKernel] = {}
        self._ending: list[HostKernel] = []
        self._mail = LoopMail()
        self._collected: dict[str, float] = {}
        self._collect_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._tidying: set[asyncio.Task[None]] = set()
        self._at_rest: WeakValueDictionary[tuple[KernelId, str], asyncio.Lock] = WeakValueDictionary()
        """Of each kernel at rest that is looked for in its store, or forgotten there: one at a time."""

    # -- who is here -----------------------------------------------------------------------------------

    def alive(self) -> dict[KernelId, HostKernel]:
        """Return the kernels that are not ending; not to be changed."""
        return self._alive

    def any(self) -> bool:
        """Tell whether any kernel is here, ending ones included."""
        return bool(self._alive or self._ending)

    def is_ending(self, kernel_id: KernelId) -> bool:
        """Tell whether a kernel of this id is on its way out."""
        return any(kernel.spec.kernel_id == kernel_id for kernel in self._ending)

    def driver(self, kernel_id: KernelId, replica: ReplicaId) -> KeeperDriver | None:
        """Return the driver of a replica of a live kernel."""
        kernel = self._alive.get(kernel_id)
        return kernel.drivers.get(replica) if kernel is not None else None

    def pids_of(self, kernel_id: str) -> list[int]:
        """Return the processes of a kernel's replicas here."""
        kernel = self._alive.get(KernelId(kernel_id))
        drivers = () if kernel is None else kernel.drivers.values()
        return [driver.core.life.pid for driver in drivers if driver.core.life.pid]

    def whose(self) -> dict[int, str]:
        """Return the kernel of each process of replicas here."""
        return {pid: str(name) for name in self._alive for pid in self.pids_of(name)}

    # -- taking in -------------------------------------------------------------------------------------

    def prepare(self, identity: bytes, pid: int, message: PrepareReplica) -> str:
        """Begin to make a replica for the router `identity`; return why not, or an empty string."""
        spec = message.spec
        problem = problem_with_names(spec, message.replica)
        kernel = self._alive.get(spec.kernel_id)
        if kernel is not None and kernel.spec.incarnation != spec.incarnation:
            problem = (
                f"kernel {spec.kernel_id} still lives here as incarnation {kernel.spec.incarnation}; "
                "end that one first"
            )
        if kernel is None and len(self._alive) >= KERNELS_MAX:
            problem = f"this agent keeps {KERNELS_MAX} kernels already; end some"
        if kernel is not None and len(kernel.drivers) >= REPLICAS_HERE_MAX:
            problem = f"this agent keeps {REPLICAS_HERE_MAX} replicas of the kernel already"
        if problem:
            return f"Host {self._name} does not take replica {message.replica}: {problem}."
        if any(_same(ending.spec, spec) for ending in self._ending):
            self._start(self._prepare_later(identity, pid, message))
            return ""
        try:
            if kernel is None:
                kernel = self._take_in(spec)
                kernel.attach(identity, pid)
            address = partial(free_raft_address, reach=self._reach)
            kernel.prepare(message.replica, address, joining=message.joining)
        except ReplkernelError as error:
            return f"Host {self._name} cannot make replica {message.replica}: {error}"
        return ""

    async def _prepare_later(self, identity: bytes, pid: int, message: PrepareReplica) -> None:
        """Make a replica once this incarnation's replicas of before have left their directories."""
        leaving = [kernel for kernel in self._ending if _same(kernel.spec, message.spec)]
        for kernel in leaving:
            await kernel.gone.wait()
        why = self.prepare(identity, pid, message)
        if why:
            log.error("%s", why)

    def _take_in(self, spec: KernelSpec) -> HostKernel:
        if self._cache is None:
            self._cache = BlobCache(Path(self.cache_dir), _cache_bytes(self.cache_dir))
        post = KernelPost(self._carrier.send_router, self._carrier.send_process, self._carrier.process_ended)
        mark = hashlib.sha256(f"{spec.kernel_id}/{spec.incarnation}/{self._name}".encode()).hexdigest()[:8]
        kernel_store = KernelStore(spec, mark, self._cache, post.notice, self._usage.changed)
        around = Surroundings(
            spec=spec,
            host=self._name,
            spawner=self._spawner,
            kernel_store=kernel_store,
            post=post,
            socket_base=str(self._sockets.parent / "k" / mark),
            kernels_endpoint=f"ipc://{self._sockets / 'kernels.sock'}",
            cache_dir=self.cache_dir,
            mail=self._mail,
            turns=Turns(),
            holds=_is_sticky(spec) and spec.durable == "async",
            sticky=_is_sticky(spec),
            on_commit=post.committed,
            reach=self._reach if self._reach.spans else None,
        )
        custody = Custody(spec, _orphan_grace_s(spec), time.monotonic())
        kernel = HostKernel(
            around,
            custody,
            self._kernels_dir,
            partial(_raft_member, self._reach),
            self._orphaned,
            self._ended,
            self._carrier.kernel_left,
            self._carrier.kernel_alone,
            self._carrier.gpus_left,
        )
        post.kernel = kernel
        self._alive[spec.kernel_id] = kernel
        self._collect_later()
        return kernel

    def _collect_later(self) -> None:
        """See to it that stores are searched for garbage also while kernels live on and on."""
        if self._collect_timer is None:
            loop = asyncio.get_running_loop()
            self._collect_timer = loop.call_later(COLLECT_MEANWHILE_S, self.collect_stores)

    def collect_stores(self) -> None:
        """Search the stores of the kernels that live here for garbage, each once and not too often."""
        self._collect_timer = None
        now = time.monotonic()
        for kernel in self.alive().values():
            url = kernel.spec.store_url
            if now - self._collected.get(url, float("-inf")) >= COLLECT_EVERY_S:
                self._collected[url] = now
                self._start(kernel.collect_store())
        if self.alive():
            self._collect_later()

    def restore(self) -> None:
        """Go on with every replica that an earlier agent left on disk."""
        lost: list[KernelId] = []
        for record in saved_replicas(self._kernels_dir):
            if isinstance(record, str):
                log.warning("%s", record)
                continue
            try:
                if self._let_go(record):
                    lost.append(record.spec.kernel_id)
                else:
                    self._restore_one(record)
            except ReplkernelError as error:
                log.error("replica %s of kernel %s: %s", record.replica, record.spec.kernel_id, error)
        for kernel_id, kernel in self._alive.items():
            kernel.lost = lost.count(kernel_id)

    def _let_go(self, record: ReplicaRecord) -> bool:
        """Forget a replica whose Raft journal is gone; tell whether it was one.

        It would vote as if it had promised nothing, and what a majority had committed could be overruled.
        """
        folder = ReplicaFolder(self._kernels_dir, record.spec, record.replica)
        if problem_with_names(record.spec, record.replica) or not record.opened or folder.journal.exists():
            return False
        name = f"{record.replica} of kernel {record.spec.kernel_id}"
        log.warning("%s is given up: its Raft journal %s is gone", name, folder.journal)
        folder.delete()
        return True

    def _restore_one(self, record: ReplicaRecord) -> None:
        spec = record.spec
        problem = problem_with_names(spec, record.replica)
        kernel = self._alive.get(spec.kernel_id)
        if kernel is not None and kernel.spec.incarnation != spec.incarnation:
            problem = f"two incarnations of kernel {spec.kernel_id} are on disk"
        if problem:
            log.warning("%s is not restored: %s", record.replica, problem)
            return
        log.info("restoring %s of kernel %s", record.replica, spec.kernel_id)
        if kernel is None:
            kernel = self._take_in(spec)
        kernel.restore(record)

    # -- letting go ------------------------------------------------------------------------------------

    def end(self, kernel: HostKernel, reason: str, *, keeping: bool = False) -> None:
        """End a kernel; another incarnation of it may come at once. `keeping` leaves the store alone."""
        if self._alive.pop(kernel.spec.kernel_id, None) is None:
            return
        self._ending.append(kernel)
        kernel.end(reason, keeping=keeping)

    def _orphaned(self, kernel: HostKernel, why: str) -> None:
        """Put a kernel without a router to rest, if it can be found again; else end it."""
        record = find_record(self._data_dir, kernel.spec)
        if record is None:
            # Other hosts may have the majority, and a router: what is in the store is theirs.
            self.end(kernel, why, keeping=not kernel.whole)
            return
        now = time.monotonic()
        kernel.custody.spared(now + REST_AGAIN_S)
        if kernel.custody.alone_s(now) > REST_LIMIT_S:
            self._start(self._rest(kernel, record, why))
        else:
            self._start(self._put_to_rest(kernel, record, why))

    async def _put_to_rest(self, kernel: HostKernel, record: KernelRecord, why: str) -> None:
        """Write a checkpoint of what is applied here, then stop; a running cell or a store is awaited.

        So is what a process here has been told to keep for later.
        """
        if kernel.checkpoints.standing().busy:
            return
        await kernel.settled()
        problem = await kernel.checkpoints.write_for_rest()
        if problem:
            log.warning("kernel %s does not hibernate yet: %s", kernel.spec.kernel_id, problem)
        else:
            await self._rest(kernel, record, why)

    async def _rest(self, kernel: HostKernel, record: KernelRecord, why: str) -> None:
        """Stop a kernel that is found again by its record, as its newest checkpoint has it."""
        if kernel.custody.overdue(float("inf")):
            await asyncio.to_thread(note_rest, self._data_dir, record)
            self.end(kernel, f"it hibernates: {why}", keeping=True)

    def find_checkpoint(self, identity: bytes, spec: KernelSpec) -> None:
        """Look for the newest checkpoint of a kernel in its store, and tell the router."""
        self._start(self._find_checkpoint(identity, spec))

    async def _find_checkpoint(self, identity: bytes, spec: KernelSpec) -> None:
        try:
            async with self._looking(spec):
                found = await asyncio.to_thread(look_for_checkpoint, spec)
        except ReplkernelError as error:
            found = CheckpointFound(spec.kernel_id, why=str(error))
        except Exception as error:
            log.exception("the search for a checkpoint of kernel %s failed", spec.kernel_id)
            found = CheckpointFound(spec.kernel_id, why=f"The object store cannot be searched: {error}.")
        self._carrier.send_router(identity, found)

    def _looking(self, spec: KernelSpec) -> asyncio.Lock:
        return self._at_rest.setdefault((spec.kernel_id, spec.incarnation), asyncio.Lock())

    def forget_stored(self, spec: KernelSpec, told: Callable[[], None]) -> None:
        """Delete what a hibernated kernel left in its store, then call `told`."""
        self._start(self._forget_stored(spec, told))

    async def _forget_stored(self, spec: KernelSpec, told: Callable[[], None]) -> None:
        for kernel in [kernel for kernel in self._ending if _same(kernel.spec, spec) and kernel.keeping]:
            await kernel.rested.wait()
        try:
            async with self._looking(spec):  # A search notes what it finds.
                await asyncio.to_thread(forget_stored, spec)
        except ReplkernelError as error:
            log.warning("the store was not tidied after kernel %s: %s", spec.kernel_id, error)
        finally:
            told()

    def _ended(self, kernel: HostKernel) -> None:
        if self._alive.get(kernel.spec.kernel_id) is kernel:
            del self._alive[kernel.spec.kernel_id]
        if kernel in self._ending:
            self._ending.remove(kernel)
        url, now = kernel.spec.store_url, time.monotonic()
        collecting = now - self._collected.get(url, float("-inf")) >= COLLECT_EVERY_S
        if collecting:
            self._collected[url] = now
        self._start(self._tidy(kernel, collecting=collecting), self._tidying)
        self._carrier.kernel_ended(kernel)

    async def _tidy(self, kernel: HostKernel, *, collecting: bool) -> None:
        """Take a kernel's name off its store; after the last one the cache has only what is stored."""
        await kernel.tidy_store(collecting=collecting)
        self._usage.changed(kernel.spec.store_url)
        if self._cache is None or self.any():
            return
        try:
            await asyncio.to_thread(self._cache.forget_unsaved, time.time())
        except ReplkernelError as error:
            log.warning("%s", error)

    def _start(self, work: Coroutine[None, None, None], among: set[asyncio.Task[None]] | None = None) -> None:
        tasks = self._tasks if among is None else among
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def leave(self) -> None:
        """Close what is the agent's own of every kernel; processes and files stay.

        What kernels that have ended leave in the store goes first, if the store lets it within a limit.
        """
        if self._collect_timer is not None:
            self._collect_timer.cancel()
        self._usage.close()
        if self._tidying:
            await asyncio.wait(self._tidying, timeout=TIDY_LIMIT_S)
        leaving = (kernel.leave() for kernel in [*self._alive.values(), *self._ending])
        await asyncio.gather(*leaving, return_exceptions=True)


def _same(one: KernelSpec, other: KernelSpec) -> bool:
    return (one.kernel_id, one.incarnation) == (other.kernel_id, other.incarnation)


def _cache_bytes(cache_dir: str) -> int:
    """Return the bound of the host's cache; sweeps of this agent hold it for all of its processes."""
    try:
        settings = read_settings(os.environ)
        disk = os.statvfs(os.path.dirname(cache_dir))
    except (SettingError, OSError):
        return CACHE_BYTES
    free = disk.f_bavail * disk.f_frsize + told(cache_dir)
    return min(settings.cache_gib * 2**30, free * settings.disk_percent // 100)


def _orphan_grace_s(spec: KernelSpec) -> float:
    try:
        return read_settings(spec.env).orphan_grace_s
    except SettingError:
        return ORPHAN_GRACE_S


def _is_sticky(spec: KernelSpec) -> bool:
    """Tell whether a standby's process may wait a moment for deltas: the next cell is not for it.

    With `durable=async` no reply waits for a commit either, and proposals may wait as well.
    """
    try:
        return read_settings(spec.env).executor == "sticky"
    except SettingError:
        return True


def _raft_member(reach: Reach, folder: ReplicaFolder, address: str) -> MemberFactory:
    """Return what makes the Raft member of one replica; PySyncObj is imported when the first is made."""

    def make(peers: dict[ReplicaId, str], secret: str, callbacks: StateCallbacks, joining: bool) -> Consensus:
        from replkernel.replication.raft import RaftMember

        members, bind = list(peers.values()), "" if reach.bind == reach.advertise else reach.bind
        return RaftMember(address, members, secret, folder.raft, callbacks, joining=joining, bind=bind)

    return make
