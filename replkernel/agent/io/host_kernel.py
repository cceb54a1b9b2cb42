"""One kernel as this host knows it: its replicas here, its store, its router; until the last replica is gone.

Law: a router speaks for one kernel only, and only with that kernel's key; what it may ask for is here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from replkernel.agent.core import events as fact
from replkernel.agent.core.checkpointing import SETTLE_LIMIT_S, SETTLE_LOOK_S
from replkernel.agent.core.custody import Custody
from replkernel.agent.core.keeper import Keeper
from replkernel.agent.io.checkpoint_driver import CheckpointDriver
from replkernel.agent.io.folder import ReplicaFolder, ReplicaRecord
from replkernel.agent.io.group import GroupSummary, MemberFactory, ReplicaGroup
from replkernel.agent.io.keeper_driver import KeeperDriver, Surroundings
from replkernel.agent.io.membership import Membership
from replkernel.protocol.agent_to_process import AgentToKernel
from replkernel.protocol.agent_to_router import (
    AgentToRouter,
    AgentWelcome,
    Committed,
    Elected,
    KernelEnded,
    KernelHibernated,
    LeaseFreed,
    RouteNotice,
)
from replkernel.records import Digest, Fence, HostName, ReplicaId, Seq

log = logging.getLogger(__name__)

ROUTER_RETURN_S = 1.0
"""A router that has not returned after this cannot give GPUs back: they are left for whoever wants them."""
REPLICAS_HERE_MAX = 32
"""No host keeps more replicas of one kernel, those that are being replaced included."""


class HostKernel:
    """The replicas of one kernel on this host."""

    def __init__(
        self,
        around: Surroundings,
        custody: Custody,
        kernels_dir: Path,
        members: Callable[[ReplicaFolder, str], MemberFactory],
        on_orphaned: Callable[[HostKernel, str], None],
        on_ended: Callable[[HostKernel], None],
        on_left: Callable[[HostKernel], None] = lambda kernel: None,
        on_alone: Callable[[HostKernel], None] = lambda kernel: None,
        on_freed: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_left` hears that the router is gone, and all processes that it knew here have ended.

        `on_alone` hears that it has not come back in a moment, `on_freed` that state has left GPUs since.
        """
        self.spec = around.spec
        self.custody = custody
        self.drivers: dict[ReplicaId, KeeperDriver] = {}
        self.router: bytes | None = None
        self.router_pid: int | None = None
        self.ending = False
        self.keeping = False
        """Whether what is in the store stays at the end here: it hibernates, or another group follows."""
        self.lost = 0
        """So many replicas of the group were kept here and could not be restored."""
        self._resting: asyncio.Task[None] | None = None
        self.rested = asyncio.Event()
        """Set when nothing more is written to the store for a kernel that hibernates."""
        self.gone = asyncio.Event()
        """Set when the last replica has left its directory."""
        self.checkpoints = CheckpointDriver(
            around.spec, self.drivers, around.kernel_store, around.post.to_router
        )
        self.membership = Membership(around.spec.kernel_id, self.drivers, around.post.to_router)
        around.kernel_store.serve(
            self._digests, self._in_flight, lambda: self.checkpoints.standing().place, lambda: not self.whole
        )
        self._around = around
        self._kernels_dir = kernels_dir
        self._members = members
        self._on_orphaned = on_orphaned
        self._on_ended = on_ended
        self._on_left, self._on_alone, self._on_freed = on_left, on_alone, on_freed
        self._orphans: set[str] = set()
        """The processes that lived here when the router went, and live yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._elected = Seq(0)
        self._arm()

    # -- replicas --------------------------------------------------------------------------------------

    def prepare(self, replica: ReplicaId, raft_address: Callable[[], str], *, joining: bool = False) -> None:
        """Begin to make a replica, or answer again for one that is here."""
        driver = self.drivers.get(replica)
        if driver is None:
            driver = self._add(replica, raft_address())
        driver.tell(fact.ReplicaRequested(joining))

    def restore(self, record: ReplicaRecord) -> None:
        """Go on with a replica that an earlier agent kept."""
        self._add(record.replica, record.raft_address).restore(record)

    def _add(self, replica: ReplicaId, raft_address: str) -> KeeperDriver:
        folder = ReplicaFolder(self._kernels_dir, self.spec, replica)
        make = self._members(folder, raft_address)
        host = HostName(self._around.host)
        driver = KeeperDriver(
            Keeper(
                replica,
                host,
                raft_address,
                str(folder.log),
                holds=self._around.holds,
                sticky=self._around.sticky,
            ),
            self._around,
            folder,
            lambda tell: ReplicaGroup(replica, host, make, self._around.mail, tell),
            self._forgotten,
        )
        self.drivers[replica] = driver
        return driver

    def tell(self, replica: ReplicaId, event: fact.Event) -> bool:
        """Tell one replica's keeper something; return whether there is such a replica."""
        driver = self.drivers.get(replica)
        if driver is not None:
            driver.tell(event)
        return driver is not None

    def tell_all(self, event: fact.Event) -> None:
        """Tell every keeper of this kernel something."""
        for driver in list(self.drivers.values()):
            driver.tell(event)

    # -- the router ------------------------------------------------------------------------------------

    def attach(self, identity: bytes, pid: int) -> None:
        """Let a router speak for the kernel from now on; it hears which replicas are ready."""
        self.router, self.router_pid = identity, pid
        self._orphans.clear()
        self.custody.router_came()
        self._arm()
        self.tell_all(fact.RouterCame())
        self.checkpoints.say_followed()
        if self._around.kernel_store.why:
            self._around.post.to_router(RouteNotice(self._around.kernel_store.why, "error"))

    def router_gone(self, identity: bytes) -> None:
        """Note that a router process is gone; only the attached one counts."""
        if identity == self.router:
            self.router = self.router_pid = None
            alive = [driver for driver in self.drivers.values() if driver.core.life.is_live]
            self._orphans = {driver.token for driver in alive}
            self.custody.router_gone(time.monotonic())
            self._arm()
            asyncio.get_running_loop().call_later(ROUTER_RETURN_S, self._without_router)

    def _without_router(self) -> None:
        if self.router is None and not self.ending:
            self._on_alone(self)

    def leave_gpus(self) -> None:
        """Have the processes here move their state off GPUs: nobody is there to give these back."""
        self.tell_all(fact.LeaseWanted(""))

    def process_ended(self, token: str) -> None:
        """Note that a process is gone; with the last that a lost router knew, nobody computes here."""
        if token in self._orphans:
            self._orphans.remove(token)
            if not self._orphans:
                self._on_left(self)

    def welcome(self, host: str, agent_pid: int) -> AgentWelcome:
        """Return what a re-attaching router needs to go on."""
        summaries = [driver.group.summary() for driver in self.drivers.values()]
        pending = [driver.core.pending() for driver in self.drivers.values()]
        last = max((summary.last_seq for summary in summaries), default=Seq(0))
        newest = max([last, *(summary.newest_seq for summary in summaries), *(seq for seq, _ in pending)])
        fence = max(
            [summary.fence for summary in summaries] + [fence for _, fence in pending], default=Fence(0)
        )
        furthest = max(summaries, key=lambda summary: summary.applied, default=None)
        newest_state = max(summaries, key=lambda said: (said.last_seq, said.audit), default=None)
        return AgentWelcome(
            host=HostName(host),
            agent_pid=agent_pid,
            incarnation=self.spec.incarnation,
            spec=self.spec,
            replicas=tuple(sorted(self.drivers)),
            last_seq=last,
            fence=fence,
            newest_seq=newest,
            executor=self._executor(summaries),
            owing=newest_state is not None and not newest_state.whole,
            whole_seq=Seq(0) if newest_state is None else newest_state.whole_seq,
            pending_seq=max(
                (driver.core.outbox.newest()[0] for driver in self.drivers.values()), default=Seq(0)
            ),
            generation=self.generation,
            members=dict(furthest.members) if furthest is not None else {},
            departed=furthest.departed if furthest is not None else (),
            describes=True,
            dismisses=True,
        )

    @property
    def current(self) -> bool:
        """Tell whether every member here has applied all that had been committed when it was started.

        One that can have no majority any more, because most of the group was lost here, is awaited in vain.
        """
        size = max((len(driver.core.member.peers) for driver in self.drivers.values()), default=0)
        if self.lost and 2 * (size - self.lost) <= size:
            return True
        members = [driver.group.raft_status() for driver in self.drivers.values() if driver.core.member.peers]
        return all(member is not None and member.current for member in members)

    @property
    def generation(self) -> int:
        """Return which of the incarnation's groups the replicas here belong to."""
        return max((driver.core.member.generation for driver in self.drivers.values()), default=1)

    @property
    def whole(self) -> bool:
        """Tell whether all replicas of the kernel are on this host."""
        return all(set(driver.core.member.peers) <= set(self.drivers) for driver in self.drivers.values())

    def _executor(self, summaries: Sequence[GroupSummary]) -> ReplicaId | None:
        """Return who was last given an execution: a replica here that runs it yet, or the log's last one."""
        here = (
            max((driver.core.pending(), name) for name, driver in self.drivers.items()) if summaries else None
        )
        newest = max(summaries, key=lambda summary: summary.newest_seq, default=None)
        if here is not None and here[0][0] > (newest.newest_seq if newest is not None else 0):
            return here[1]
        return newest.executor or None if newest is not None else None

    def to_router(self, message: AgentToRouter) -> AgentToRouter | None:
        """Note what is about to be told to the router; return it unless it was told already."""
        if isinstance(message, Committed):
            self._around.kernel_store.changed()
        if isinstance(message, LeaseFreed) and self.router is None and not message.computes_on:
            if message.why:
                log.warning("kernel %s keeps its GPUs: %s", self.spec.kernel_id, message.why)
            self._on_freed()
        if isinstance(message, Elected):
            if message.seq <= self._elected:
                return None
            self._elected = message.seq
        return message

    def _digests(self) -> set[Digest]:
        return {digest for driver in self.drivers.values() for digest in driver.group.digests()}

    def _in_flight(self) -> set[Digest]:
        return {
            digest for driver in self.drivers.values() for digest in driver.core.outbox.digests_on_their_way()
        }

    async def settled(self) -> None:
        """Have the process here that ran the last cell make all durable that it owes; await that a while."""
        self.tell_all(fact.SettleAsked())
        deadline = time.monotonic() + SETTLE_LIMIT_S
        while time.monotonic() < deadline:
            standing = self.checkpoints.standing()
            if not standing.owing or standing.executor not in self.drivers:
                return
            await asyncio.sleep(SETTLE_LOOK_S)

    # -- the end ---------------------------------------------------------------------------------------

    def end(self, reason: str, *, keeping: bool = False) -> None:
        """Stop every replica and forget everything about the kernel; `keeping` what it has in the store."""
        if self.ending:
            return
        log.info("kernel %s ends: %s", self.spec.kernel_id, reason)
        self.ending, self.keeping = True, keeping
        self.checkpoints.close()
        self.membership.close()
        self._arm()
        if not self.drivers:
            self._ended()
        self.tell_all(fact.EndAsked(reason))
        self._around.turns.refuse()

    def _forgotten(self, driver: KeeperDriver) -> None:
        self.drivers.pop(driver.core.replica, None)
        if not self.drivers:
            self._ended()

    def _ended(self) -> None:
        self.gone.set()
        if self.keeping:
            self._resting = asyncio.get_running_loop().create_task(self._rest())
        else:
            self._around.post.to_router(KernelEnded(self.spec.kernel_id))
            self._on_ended(self)

    async def _rest(self) -> None:
        """Say that nothing is left here, once the store knows what to delete when the kernel is forgotten."""
        await self._around.kernel_store.rest()
        self.rested.set()
        self._around.post.to_router(KernelHibernated(self.spec.kernel_id))
        self._on_ended(self)

    async def tidy_store(self, *, collecting: bool) -> None:
        """Take the kernel's name off the store: after the router has been told, because it may take long."""
        if self.keeping:
            self._around.kernel_store.close()
        else:
            await self.checkpoints.over()
            await self._around.kernel_store.forget(collecting=collecting)

    async def collect_store(self) -> None:
        """Search the store for garbage."""
        await self._around.kernel_store.collect()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = None if self.ending else self.custody.deadline()
        if due is not None:
            delay_s = max(0.0, due - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_time)

    def _on_time(self) -> None:
        why = self.custody.overdue(time.monotonic())
        if why:
            self._on_orphaned(self, why)
            self._arm()

    async def leave(self) -> None:
        """Close the Raft members and everything else of the agent's, but leave processes and files."""
        if self._timer is not None:
            self._timer.cancel()
        self.checkpoints.close()
        self.membership.close()
        self._around.kernel_store.close()
        self._around.turns.close()
        for driver in self.drivers.values():
            driver.close()
        closing = (asyncio.to_thread(driver.group.close) for driver in self.drivers.values())
        await asyncio.gather(*closing, return_exceptions=True)


class KernelPost:
    """Carries messages of one kernel's keepers to its router and its processes."""

    def __init__(
        self,
        send_router: Callable[[bytes, AgentToRouter], None],
        send_process: Callable[[str, AgentToKernel], None],
        process_ended: Callable[[str], None],
    ) -> None:
        self.kernel: HostKernel | None = None
        self._send_router = send_router
        self._send_process = send_process
        self._process_ended = process_ended

    def process_ended(self, token: str) -> None:
        """Note that a kernel process is gone."""
        self._process_ended(token)
        if self.kernel is not None:
            self.kernel.process_ended(token)

    def committed(self) -> None:
        """Note that something of the kernel was committed here."""
        if self.kernel is not None:
            self.kernel.checkpoints.changed()

    def notice(self, text: str) -> None:
        """Tell the user a sentence about the kernel's store."""
        self.to_router(RouteNotice(text, "error"))

    def to_process(self, token: str, message: AgentToKernel) -> None:
        """Send to the kernel process that was born with `token`."""
        self._send_process(token, message)

    def to_router(self, message: AgentToRouter) -> None:
        """Send to the kernel's router, if one is attached."""
        kernel = self.kernel
        if kernel is None:
            return
        wanted = kernel.to_router(message)
        if wanted is not None and kernel.router is not None:
            self._send_router(kernel.router, wanted)
