"""What a cell that needs GPUs goes through: read, wished for, shown to wait, granted, sent to its host.

Pure. Law: a cell that needs none passes without a word to anybody; one that does is given to no replica
before its lease is in hand, and only to one on the lease's host.
"""

from __future__ import annotations

import msgspec

from replkernel.errors import ReplkernelError
from replkernel.leasing.request import METADATA_NAME, GpuRequest, request_of
from replkernel.leasing.wire import GrantedLease
from replkernel.records import HostName
from replkernel.router.core.answers import Fault
from replkernel.router.core.contents import ExecuteOptions, read
from replkernel.router.core.events import ClientRequest, Effect, Log
from replkernel.router.core.leases import Leases
from replkernel.router.core.parts import Parts
from replkernel.router.core.queue import Waiting
from replkernel.router.core.waiting_cell import WaitingCell
from replkernel.router.core.wishes import Wish

HOST_WAIT_S = 10.0
"""How long a granted cell waits for a replica on the lease's host before it asks for another host's GPUs."""
RECALL_WAIT_S = 60.0
"""… if a standby there has had no process, and gets one."""


class Turn(msgspec.Struct, frozen=True):
    """Where a cell stands: it may go (with `lease`, if it needs one), has ended by `fault`, or waits."""

    goes: bool
    lease: GrantedLease | None = None
    fault: Fault | None = None
    effects: tuple[Effect, ...] = ()


GOES = Turn(goes=True)
_LINE = b"%%gpu"
"""Without this in its source, or the name in its metadata, a cell asks for no GPUs of its own."""


class LeasedCells:
    """The cells of one kernel that need GPUs, one after the other."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._leases: Leases = parts.leases
        self._line = WaitingCell()

    def turn(self, head: Waiting, now: float) -> Turn:
        """Take the next step with the execution whose turn it is."""
        if head.asks is None:
            frames = head.request.frames
            if (
                self._leases.scheduler.default is None
                and METADATA_NAME not in frames[4]
                and _LINE not in frames[5]
            ):
                head.asks = False
                return GOES
            fault = self._read(head)
            if fault is not None:
                return Turn(goes=False, fault=fault)
        return GOES if not head.asks else self._turn(head.request, head.asks, now)

    def _read(self, head: Waiting) -> Fault | None:
        """Read what the cell asks for; return why that cannot be."""
        head.asks = False
        request = head.request
        options = read(ExecuteOptions, request.content)
        default = None if options.silent else self._leases.scheduler.default
        try:
            wanted = request_of(request.frames[4], options.code, default)
        except ReplkernelError as error:
            return Fault(type(error).__name__, str(error))
        head.asks = wanted if wanted is not None and wanted.gpus else False
        return None

    def asked_by(self, request: ClientRequest) -> GpuRequest | None:
        """Return what a cell that runs already has asked for; None: nothing, or nobody knows."""
        options = read(ExecuteOptions, request.content)
        try:
            return request_of(request.frames[4], options.code, self._leases.scheduler.default)
        except (ReplkernelError, IndexError):
            return None

    def _turn(self, request: ClientRequest, wanted: GpuRequest, now: float) -> Turn:
        cell = request.header.msg_id
        held = self._leases.held_leases.of_cell(cell)
        if held is None:
            return self._wait(request, wanted)
        stranded = now >= held.since + self._host_wait_s(held.lease.host) and self._parts.fleet.ready()
        if stranded and not self._ready_on(held.lease.host):
            return Turn(goes=False, effects=tuple(self.astray(request, wanted)))
        return Turn(goes=True, lease=held.lease)

    def _wait(self, request: ClientRequest, wanted: GpuRequest) -> Turn:
        cell = request.header.msg_id
        effects = self._leases.ask(cell, wanted, self._hosts())
        fault = self._leases.fault_of(cell)
        if fault is not None:
            return Turn(goes=False, fault=fault, effects=tuple(effects))
        wish, traffic = self._leases.wish, self._parts.traffic
        if wish is not None and not read(ExecuteOptions, request.content).silent:
            begun = traffic.was_begun(cell)
            shown = self.show(request, wish, begun=begun)
            if shown and not begun:
                traffic.began_here(cell)
            effects += shown
        return Turn(goes=False, effects=tuple(effects))

    def show(self, request: ClientRequest, wish: Wish, *, begun: bool) -> list[Effect]:
        """Bring the line under a cell that waits up to date."""
        return self._line.show(request, wish, self._leases.scheduler.why_down, self._leases.move, begun=begun)

    def settle(self, request: ClientRequest, text: str) -> list[Effect]:
        """Have the line of a cell that waited while it ran, if it has shown one, say how that ended."""
        return self._line.settle(request, text)

    def astray(self, request: ClientRequest, wanted: GpuRequest) -> list[Effect]:
        """Ask for other GPUs: the notebook cannot go to the host of those that it was granted."""
        ready = self._parts.fleet.ready()
        hosts = self._hosts() or self._executors_host()
        hosts = hosts or tuple(dict.fromkeys(self._parts.fleet.replicas[name].host for name in ready))
        told = Log(
            f"the lease of {request.header.msg_id} cannot be used; it is asked for on {', '.join(hosts)}"
        )
        return [told, *self._leases.again(request.header.msg_id, wanted, hosts)]

    def waited(self, request: ClientRequest) -> None:
        """Know of a cell that clients have been shown that it waits."""
        self._parts.traffic.began_here(request.header.msg_id)
        self._line.shown_before(request)

    def begins(self, request: ClientRequest) -> list[Effect]:
        """Take away what showed that the cell waited: it is sent."""
        return self._line.clear(request)

    def leaves(self, request: ClientRequest) -> list[Effect]:
        """Take note that a cell is answered without being run."""
        return [*self._line.clear(request), *self._leases.leave(request.header.msg_id)]

    def awaits_lease(self, head: Waiting | None) -> bool:
        """Tell whether only a grant, or its denial, can move the cell whose turn it is."""
        if head is None or not head.asks:
            return False
        return self._leases.held_leases.of_cell(head.request.header.msg_id) is None

    def deadline(self, head: Waiting | None) -> float | None:
        """Return when a cell that was granted GPUs has waited long enough for their host."""
        held = (
            None
            if head is None or not head.asks
            else self._leases.held_leases.of_cell(head.request.header.msg_id)
        )
        if held is None or not self._parts.fleet.ready() or self._ready_on(held.lease.host):
            return None
        return held.since + self._host_wait_s(held.lease.host)

    def _host_wait_s(self, host: str) -> float:
        """Return how long a lease's host may be without a replica that can be used."""
        fleet = self._parts.fleet
        comes_back = any(fleet.replicas[name].host == host for name in fleet.recalled())
        return RECALL_WAIT_S if comes_back else HOST_WAIT_S

    def _ready_on(self, host: str) -> bool:
        fleet = self._parts.fleet
        return any(fleet.replicas[name].host == host for name in fleet.ready())

    def _hosts(self) -> tuple[HostName, ...]:
        """Return the hosts that the cell must run on, for what cannot travel; none: it may go anywhere."""
        fleet, placement = self._parts.fleet, self._parts.placement
        if self._parts.held():
            return self._executors_host()
        return tuple(dict.fromkeys(fleet.replicas[name].host for name in placement.holders(fleet.ready())))

    def _executors_host(self) -> tuple[HostName, ...]:
        executor = self._parts.placement.executor
        known = self._parts.fleet.replicas.get(executor) if executor is not None else None
        return () if known is None or not known.linked else (known.host,)
