"""The kernel's GPU leases: wished for by a cell, granted, renewed, lingering, given back, taken away.

Pure. Laws: at most one cell wishes or computes at a time, under one lease; a lease is renewed for as long as
it is held and spoken of to nobody once it is not; a grant that nobody waits for goes back at once, one that
lingers when the process has moved its state off the GPUs. While the scheduler is away leases in hand stay
valid, and wishes wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from replkernel.leasing.notebook import PausedOn
from replkernel.leasing.request import GpuRequest
from replkernel.leasing.wire import (
    AMOUNT_MAX,
    GPUS_OF_LEASE_MAX,
    SCHEDULER_ENDS,
    WHY_MAX,
    Denied,
    FromScheduler,
    Granted,
    GrantedLease,
    LeaseBack,
    LeaseKept,
    LeaseLingers,
    LeaseOver,
    LeasePause,
    LeaseShrank,
    LeaseWanted,
    PausedCell,
    PauseRefused,
    Refused,
    Waiting,
    WishOver,
)
from replkernel.protocol.agent_to_router import LeaseFreed
from replkernel.protocol.router_to_agent import FreeLease, LimitReplica, PauseCell
from replkernel.records import HostName, KernelId, ReplicaId
from replkernel.router.core.answers import Fault
from replkernel.router.core.events import Effect, Log, ToAgent, ToScheduler
from replkernel.router.core.held_leases import Held, HeldLeases
from replkernel.router.core.registration import Registration
from replkernel.router.core.wishes import Names, Wish

DENIED, NO_SCHEDULER = "GpusDenied", "NoScheduler"
NOT_BEGUN = "the cell has not begun yet"


@dataclass(frozen=True, slots=True)
class Linger:
    """How long a lease lingers that nobody wants, and with how much on its GPUs at most."""

    seconds: float = math.inf
    bytes_max: float = math.inf


AS_LONG_AS_NOBODY_WANTS = Linger()


@dataclass(frozen=True, slots=True)
class Fallen:
    """A lease that is over although the cell `cell` computes under it."""

    cell: str
    lease: GrantedLease
    why: str


class Leases:
    """All leases of one kernel. `scheduler` is what the kernel has with the scheduler."""

    def __init__(
        self,
        kernel_id: str,
        default: GpuRequest | None = None,
        *,
        governed: bool = False,
        hides: bool = True,
        moves: bool = False,
        linger: Linger = AS_LONG_AS_NOBODY_WANTS,
        limits_vram: bool = False,
        notebook: str = "",
        request: GpuRequest | None = None,
        tells: bool = False,
    ) -> None:
        """`hides`: where there is a scheduler, a cell without a lease sees no GPU.

        `limits_vram`: a cell cannot take more of a GPU's memory than it asked for.
        """
        self.held_leases = HeldLeases()
        self.scheduler = Registration(
            self.held_leases.told,
            default,
            governed=governed,
            moves=moves,
            notebook=notebook,
            request=request,
            tells=tells,
        )
        self._linger, self._limits_vram = linger, limits_vram
        self._kernel_id = KernelId(kernel_id)
        self._names = Names(kernel_id)
        self._hides = hides
        self.move: tuple[HostName, str] | None = None
        """The host that a replica is moved to, and why that came to nothing (empty: it is under way)."""
        self.wish: Wish | None = None
        self._last: GpuRequest | None = None
        """What the last cell that was granted GPUs had asked for."""
        self._pause_s = 0.0
        """How long the cell that has left its GPUs last is thought to stand still."""
        self._limit: tuple[str, HostName, ReplicaId] | None = None
        """The cell whose process has limits, and where that is."""
        self._on: dict[ReplicaId, frozenset[str]] = {}
        """The GPUs on which each replica's process had its state last: also one that has not run since."""

    # -- what a cell asks -----------------------------------------------------------------------------

    def ask(self, cell: str, wanted: GpuRequest, hosts: tuple[HostName, ...] = ()) -> list[Effect]:
        """Wish for a cell's GPUs, on one of `hosts` if any are named; once is enough."""
        if self.wish is not None and self.wish.cell == cell:
            return []
        before = [] if self.wish is None else self.leave(self.wish.cell)
        self.wish = Wish(cell, self._names.next(cell), wanted, hosts)
        if self.scheduler.up:
            where = self.scheduler.executor_news()
            return [*before, *where, *self.scheduler.tell(self.wish.message())]
        return [*before, *self.scheduler.needed()]

    def goes_on(
        self, cell: str, wanted: GpuRequest, hosts: tuple[HostName, ...], paused: PausedOn
    ) -> list[Effect]:
        """Wish for GPUs for a cell that has left others for a shorter one; once is enough."""
        if self.wish is not None and self.wish.cell == cell:
            return []
        before = [] if self.wish is None else self.leave(self.wish.cell)
        far, pause_s = PausedCell(paused.ran_s, paused.paused_s), self._pause_s
        name, self._pause_s = self._names.going_on(cell, paused.times), 0.0
        self.wish = Wish(cell, name, wanted, hosts, paused=far, pause_s=pause_s)
        told = self.scheduler.tell(self.wish.message())
        return [*before, *(told if self.scheduler.up else self.scheduler.needed())]

    def stands_still(self, cell: str, busy_s: float) -> list[Effect]:
        """Take note that a cell has left its GPUs for a shorter one: its lease goes back."""
        held = self.held_leases.of_cell(cell)
        if held is None:
            return []
        self._pause_s = held.pause_s
        if held.replica is not None:
            self._on.pop(held.replica, None)
        return [*self._unlimited(cell), *self._back([held], busy_s)]

    def fault_of(self, cell: str) -> Fault | None:
        """Return why a cell's wish will never come true."""
        return self.wish.fault if self.wish is not None and self.wish.cell == cell else None

    def again(self, cell: str, wanted: GpuRequest, hosts: tuple[HostName, ...]) -> list[Effect]:
        """Give a grant back that the cell cannot use, and wish for one on `hosts`."""
        held = self.held_leases.of_cell(cell)
        back = [] if held is None else self._back([held])
        return [*back, *self.ask(cell, wanted, hosts)]

    def begins(self, cell: str, replica: ReplicaId | None) -> list[Effect]:
        """Take note that a cell is sent to a replica, or (None) that it came back to be sent again."""
        held = self.held_leases.of_cell(cell)
        if held is None:
            return []
        held.replica = replica
        if replica is None:
            return self._unlimited(cell)
        self._on[replica] = frozenset(held.lease.gpus)
        self.scheduler.chose(held.lease.host)
        return self._limited(cell, held, replica)

    def _limited(self, cell: str, held: Held, replica: ReplicaId) -> list[Effect]:
        """Have a cell's process held to the cores and memory that the cell asked for."""
        asked, host = held.asked, HostName(held.lease.host)
        if asked is None or not (asked.cpu or asked.memory_gib):
            return []
        self._limit = (cell, host, replica)
        memory_bytes = round(asked.memory_gib * 2**30)
        return [ToAgent(host, LimitReplica(self._kernel_id, replica, asked.cpu, memory_bytes))]

    def _unlimited(self, cell: str) -> list[Effect]:
        """Let the process of a cell that is over have all again."""
        if self._limit is None or self._limit[0] != cell:
            return []
        (_, host, replica), self._limit = self._limit, None
        return [ToAgent(host, LimitReplica(self._kernel_id, replica))]

    def renews(self, cell: str, now: float) -> None:
        """Take note that a cell came back for another process on its host, which gets its time to start."""
        held = self.held_leases.of_cell(cell)
        if held is not None:
            held.replica, held.since = None, now

    def over(
        self,
        cell: str,
        busy_s: float | None,
        now: float = math.inf,
        *,
        gpu_bytes: int = 0,
        lost: bool = False,
    ) -> list[Effect]:
        """Take note that a cell has ended: its lease lingers, unless its process is lost or it is to go.

        `gpu_bytes`: so much lies on its GPUs.
        """
        return [*self._unlimited(cell), *self._over(cell, busy_s, now, gpu_bytes, lost)]

    def _over(self, cell: str, busy_s: float | None, now: float, gpu_bytes: int, lost: bool) -> list[Effect]:
        held = self.held_leases.of_cell(cell)
        if held is None:
            return []
        if lost:
            return self._back([held], busy_s)
        held.cell, held.rested_at, held.pausing = "", now, False
        if gpu_bytes > self._linger.bytes_max:
            held.stays, held.wanted = False, False
        held.held_gb, held.empty = min(round(gpu_bytes / 2**30, 3), AMOUNT_MAX), not gpu_bytes
        lingers = self.scheduler.tell(LeaseLingers(held.lease.lease, held.lease.fence, busy_s, held.held_gb))
        return lingers if held.stays else [*lingers, *self._free([held])]

    def leave(self, cell: str) -> list[Effect]:
        """Take note that a cell will not run: its wish is over, what it was granted goes back."""
        effects: list[Effect] = []
        if self.wish is not None and self.wish.cell == cell:
            wish, self.wish, self.move = self.wish, None, None
            effects += [] if wish.fault is not None else self.scheduler.tell(WishOver(wish.request))
        held = self.held_leases.of_cell(cell)
        return effects if held is None else [*effects, *self._back([held])]

    def resumed(
        self, lease: GrantedLease, cell: str, replica: ReplicaId, now: float, asked: GpuRequest | None = None
    ) -> list[Effect]:
        """Take over a lease of the router before this one; `cell` is empty when its cell is over.

        The cell has `asked` for that; None: nothing is known of it. Of leases whose cell is over only
        the last one counts: it has the GPUs of those before it, or they have run out.
        """
        for held in [] if cell else self.held_leases.lingering():
            self.held_leases.drop(held.lease.lease)
        held = self.held_leases.take(lease, cell, now, replica)
        self._on[replica] = frozenset(lease.gpus)
        held.rested_at, held.asked = (math.inf if cell else now), asked
        self._last = asked or _part_of(lease) or self._last
        self._limited(cell, held, replica)  # By the router before this one; it is over with the cell.
        return self.scheduler.open()

    def visible(self, lease: GrantedLease | None) -> tuple[str, ...] | None:
        """Return the GPUs that a cell with this lease is to see; None: whatever there is."""
        if lease is not None:
            return lease.gpus
        return () if self.scheduler.governed and self._hides else None

    def vram_limit(self, cell: str) -> float:
        """Return how many GiB of each GPU a cell may take; 0: all of it. Who shares one is always limited."""
        held = self.held_leases.of_cell(cell)
        return held.vram_gb if held is not None and (self._limits_vram or held.lease.part) else 0.0

    def like_before(self, gpus: int) -> GpuRequest:
        """Return what a cell asks for that reaches state on so many GPUs, and has not asked itself."""
        last, wanted = self._last, GpuRequest(min(gpus, GPUS_OF_LEASE_MAX))
        if gpus <= 1 and last is not None and last.part:
            wanted = GpuRequest(1, last.vram_gb, last.model, part=last.part, shared=last.shared)
        said = self.scheduler.default
        if said is None:
            return wanted
        return replace(wanted, preemptible=said.preemptible, expected_s=said.expected_s)

    # -- what is given back -----------------------------------------------------------------------------

    def release(self) -> list[Effect]:
        """Give back what lingers, and the leases in use once their cells are over."""
        for held in self.held_leases.by_id.values():
            held.stays = held.stays and not held.cell
        return self._free(self.held_leases.lingering())

    def process_lost(self, replica: ReplicaId) -> list[Effect]:
        """Give back what lingers for the state of a process that is gone."""
        self._on.pop(replica, None)
        effects: list[Effect] = []
        for held in self.held_leases.lingering():
            concerns = held.replica == replica or replica in held.leaving
            held.replica = None if held.replica == replica else held.replica
            held.leaving -= {replica}
            effects += self._free([held]) if concerns and not held.leaving else []
        return effects

    def kernel_rests(self) -> list[Effect]:
        """Take note that no process is left: everything goes back."""
        self.held_leases.by_id.clear()
        if self.wish is not None and self.wish.fault is None:
            self.wish = None
        return self.scheduler.kernel_rests()

    def _free(self, wanted: Iterable[Held]) -> list[Effect]:
        """Have the state of lingering leases moved off their GPUs; only then they are given back."""
        effects: list[Effect] = []
        for held in list(wanted):
            gpus = set(held.lease.gpus)
            there = {name for name, on in self._on.items() if on & gpus}
            held.leaving = frozenset(there if held.replica is None else {held.replica, *there})
            held.seen = False
            if not held.leaving:
                effects += self._back([held])
                continue
            for replica in sorted(held.leaving):
                free = FreeLease(self._kernel_id, replica, held.lease.lease)
                effects.append(ToAgent(HostName(held.lease.host), free))
        return effects

    def may_be_used(self, lease: str) -> bool:
        """Tell whether state may lie on GPUs that a process was asked to leave, and no newer lease has."""
        held = self.held_leases.by_id.get(lease)
        if held is None or not held.may_hold or held.cell:
            return False
        others = [other.lease for other in self.held_leases.by_id.values() if other is not held]
        return not any(set(other.gpus) & set(held.lease.gpus) for other in others)

    def freed(self, said: LeaseFreed) -> list[Effect]:
        """Take note that nothing lies on a lease's GPUs any more, or that it has to stay there."""
        held = self.held_leases.by_id.get(said.lease)
        if held is None or held.cell or said.replica not in held.leaving:
            return []
        if not said.why:
            self._on.pop(said.replica, None)
            held.leaving -= {said.replica}
            return [] if held.leaving else self._back([held])
        held.leaving = frozenset()
        held.rested_at = math.inf
        first, held.kept = not held.kept, True
        return [
            *(self._renew(held) if first and self.scheduler.up else ()),
            Log(f"the state on {', '.join(held.lease.gpus)} stays there: {said.why}", "warning"),
        ]

    def computes_on(self, lease: str, why: str) -> list[Effect]:
        """Take note that the cell under a lease does not stand still; nothing, if it is over."""
        held = self.held_leases.by_id.get(lease)
        return [] if held is None or not held.pausing else self._computes_on(held, why)

    def _computes_on(self, held: Held, why: str) -> list[Effect]:
        """Tell that a cell does not stand still, and why; once it does it says so itself."""
        held.pausing = False
        lease = held.lease
        refused = (
            self.scheduler.tell(PauseRefused(lease.lease, lease.fence, why[:WHY_MAX])) if held.cell else []
        )
        return [*refused, Log(f"the cell on {', '.join(lease.gpus)} is not paused: {why}")]

    def computes(self, lease: str) -> bool:
        """Tell whether a cell computes under a lease."""
        held = self.held_leases.by_id.get(lease)
        return held is not None and bool(held.cell)

    def used(self, replica: ReplicaId, gpus: Iterable[str]) -> list[Effect]:
        """Take what an agent sees a process use: a lease lasts for as long as state is leaving its GPUs."""
        there, effects = set(gpus), list[Effect]()
        for held in self.held_leases.lingering():
            if replica not in held.leaving:
                continue
            before, held.seen = held.seen, bool(there & set(held.lease.gpus))
            effects += self._renew(held) if held.seen and not before and self.scheduler.up else []
        return effects

    def _back(self, given: Iterable[Held], busy_s: float | None = None) -> list[Effect]:
        effects: list[Effect] = []
        for held in given:
            self.held_leases.drop(held.lease.lease)
            effects += self._give_back(held.lease.lease, held.lease.fence, busy_s)
        return effects

    def _give_back(self, lease: str, fence: int, busy_s: float | None = None) -> list[Effect]:
        return self.scheduler.give_back(LeaseBack(lease, fence, busy_s))

    # -- what the scheduler says --------------------------------------------------------------------------

    def moves_to(self, host: HostName | None, why: str = "") -> None:
        """Take note that a replica moves to a host, why it does not, or (None) that it is there."""
        self.move = None if host is None else (host, why)

    def came_up(self, now: float) -> list[Effect]:
        """Say to a scheduler that listens (again) what it must know; each lease is renewed by that."""
        for held in self.held_leases.by_id.values():
            self.held_leases.renewed(held, now)
        effects = self.scheduler.came_up()
        for held in self.held_leases.lingering():
            lingers = LeaseLingers(held.lease.lease, held.lease.fence, held_gb=held.held_gb)
            effects.append(ToScheduler(lingers))
        if self.wish is not None and self.wish.fault is None:
            self.wish.place = None
            effects.append(ToScheduler(self.wish.message()))
        return effects

    def went_down(self, why: str) -> list[Effect]:
        """Take note that the scheduler does not listen: what is held stays so, and wishes wait."""
        self.scheduler.went_down(why)
        return self.scheduler.needed() if self.wish is not None and self.wish.fault is None else []

    def is_missing(self, why: str) -> list[Effect]:
        """Take note that there is no scheduler: who wishes is told so; the next one has it started."""
        if self.wish is not None:
            self.wish.fault = Fault(NO_SCHEDULER, why)
        return self.scheduler.is_missing(why)

    def hear(self, message: FromScheduler, now: float) -> tuple[list[Effect], Fallen | None]:
        """Take a message; return what to do about it, and the lease that a cell has lost by it."""
        wish = self.wish
        match message:
            case Granted():
                return self._granted(message.lease, now), None
            case Waiting() if wish is not None and wish.request == message.request:
                wish.place = message
            case Denied() if wish is not None and wish.request == message.request:
                wish.fault = Fault(DENIED, message.why)
            case Refused():
                return self._refused(message.why), None
            case LeaseOver():
                return self._overdue(message), self._taken(message)
            case LeaseShrank() if message.lease.lease in self.held_leases.by_id:
                self.held_leases.by_id[message.lease.lease].lease = message.lease
            case LeaseWanted():
                return self._wanted(message), None
            case LeasePause():
                return self._pause(message), None
        return [], None

    def _granted(self, lease: GrantedLease, now: float) -> list[Effect]:
        known = self.held_leases.by_id.get(lease.lease)
        if known is not None:
            known.lease = lease
            return []
        if self.wish is None or self.wish.request != lease.request:
            return self._give_back(lease.lease, lease.fence)
        self.held_leases.take(lease, self.wish.cell, now).asked = self._last = self.wish.wanted
        self.wish = self.move = None
        return self._back(self.held_leases.surplus())

    def _refused(self, why: str) -> list[Effect]:
        """Take a refusal, which names nothing: a wish that has had no answer yet is what it is about.

        One that only says that the scheduler ends is no answer: the wish is told to the next one.
        """
        if why == SCHEDULER_ENDS:
            return []
        if self.wish is not None and self.wish.place is None and self.wish.fault is None:
            self.wish.fault = Fault(DENIED, why)
        return [Log(f"the scheduler refuses: {why}", "warning")]

    def _overdue(self, message: LeaseOver) -> list[Effect]:
        """Say that a lease is over before the process has left its GPUs: others may have them now."""
        if not self.may_be_used(message.lease):
            return []
        gpus = ", ".join(self.held_leases.by_id[message.lease].lease.gpus)
        return [Log(f"the lease on {gpus} is over while state may still lie there: {message.why}", "warning")]

    def _taken(self, message: LeaseOver) -> Fallen | None:
        held = self.held_leases.drop(message.lease)
        if held is None or not held.cell or held.replica is None:
            return None
        return Fallen(held.cell, held.lease, message.why)

    def _wanted(self, message: LeaseWanted) -> list[Effect]:
        """Give back what somebody waits for: now, or when the cell that computes there is over."""
        held = self.held_leases.by_id.get(message.lease)
        if held is None:
            return self._give_back(message.lease, message.fence)
        held.wanted = True
        if held.cell:
            held.stays = False
            return []
        return self._free([held])

    def _pause(self, message: LeasePause) -> list[Effect]:
        """Have a cell stand still for a shorter one; one that is over gives back what it left."""
        held = self.held_leases.by_id.get(message.lease)
        if held is None or not held.cell:
            return self._wanted(LeaseWanted(message.lease, message.fence, message.within_s))
        if held.replica is None:
            return self._computes_on(held, NOT_BEGUN)
        held.pausing, held.pause_s = True, message.for_s
        order = PauseCell(self._kernel_id, held.replica, message.lease, message.within_s, message.gpu_model)
        return [ToAgent(HostName(held.lease.host), order)]

    def _rested(self, now: float) -> list[Effect]:
        """Give back what has lingered for as long as it may, though nobody wants it."""
        due = [held for held in self.held_leases.resting() if now >= held.rested_at + self._linger.seconds]
        for held in due:
            held.wanted = False
        return self._free(due)

    # -- time -------------------------------------------------------------------------------------------

    def advance(self, now: float) -> list[Effect]:
        """Renew what is due, and give back what has lingered long enough."""
        effects = self._rested(now)
        for held in self.held_leases.due(now) if self.scheduler.up else ():
            self.held_leases.renewed(held, now)
            effects += self._renew(held)
            if held.kept and not held.cell and not held.freeing:
                effects += self._free([held])
        return effects

    def _renew(self, held: Held) -> list[Effect]:
        """Have a lease's time begin anew; one whose state cannot leave is nobody else's, wanted or not."""
        stays = held.kept and not held.cell
        leaves = held.seen and held.freeing and not stays
        return self.scheduler.tell(LeaseKept(held.lease.lease, held.lease.fence, stays, leaves))

    def is_kept(self, lease: str) -> bool:
        """Tell whether it is known of a lease that its state cannot leave the GPUs."""
        held = self.held_leases.by_id.get(lease)
        return held is not None and held.kept

    def deadline(self) -> float | None:
        """Return when `advance` has something to do."""
        if not self.scheduler.up or not self.held_leases.by_id:
            return None
        rested = [held.rested_at + self._linger.seconds for held in self.held_leases.resting()]
        deadlines = (self.held_leases.deadline(), *rested)
        return min([when for when in deadlines if when is not None and when < math.inf], default=None)

    def somebody_waits(self, lease: str) -> bool:
        """Tell whether a lease that is to be given back is wanted by somebody."""
        held = self.held_leases.by_id.get(lease)
        return held is None or held.wanted

    def check_invariants(self) -> None:
        """Assert that no cell wishes for what it has, and the bounds."""
        self.held_leases.check_invariants()
        may_wish = self.wish is None or self.held_leases.of_cell(self.wish.cell) is None
        assert may_wish, "it has what it wishes for"
        self.scheduler.check_invariants()
        heard = self.scheduler.up or self.scheduler.opened
        assert heard or self.wish is None or self.wish.fault, "a wish that nobody hears"


def _part_of(lease: GrantedLease) -> GpuRequest | None:
    """Return what asks for the same part of a GPU again; None for a lease of whole ones."""
    if not lease.part:
        return None
    return GpuRequest(1, lease.vram_gb, part=lease.part, shared=lease.shared or lease.part == 1.0)
