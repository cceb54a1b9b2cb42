"""What routers say: where their kernels are, what their cells wish, what becomes of their leases.

Law: pure; a router touches its kernel's leases and requests alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from replkernel_scheduler.bounds import Bounds
from replkernel_scheduler.events import KernelEnded, LeaseWithdrawn, MoveAsked
from replkernel_scheduler.types import HostName, LeaseId, RequestId, UserName

from replkernel.leasing import wire
from replkernel_server.scheduling import access, kernel_desk
from replkernel_server.scheduling.desk_words import Act, Feed, Send
from replkernel_server.scheduling.host_desk import HostDesk
from replkernel_server.scheduling.kernel_desk import (
    HELD_MAX,
    HOST_WAIT_S,
    MULTIPLICITY,
    UNTOLD_S,
    RoutedKernel,
)
from replkernel_server.scheduling.move_desk import MoveDesk
from replkernel_server.scheduling.owners import Owner, Owners

NEVER_HELD = "No lease {} of this kernel is in force; ask for a new one."

COUNTED = (
    "No parts of GPUs are leased here, for an engine (Ray, Slurm, Kubernetes) counts whole ones: ask for a "
    "whole GPU (`%%gpu 1`)."
)


class RouterDesk:
    """Serves routers; `lease_s` is how long their leases last."""

    def __init__(
        self, owners: Owners, hosts: HostDesk, moves: MoveDesk, lease_s: float, bounds: Bounds
    ) -> None:
        """Look up owners, hosts and moves there, and hold users to `bounds`."""
        self._bounds = bounds
        self.sharing = MULTIPLICITY
        """The parts of those who share a GPU come to so many GPUs at most."""
        self.pauses = True
        """Whether cells are paused for shorter ones where that is allowed."""
        self.lets_pause: Callable[[UserName], bool] = lambda user: False
        """Whether a group of a user's lets all of his cells be paused."""
        self.counts_whole: Callable[[], bool] = lambda: False
        """Whether an engine counts GPUs of this cluster, which it does by whole ones."""
        self.owners, self.hosts, self.moves, self.lease_s = owners, hosts, moves, lease_s

    def said(
        self, client: int, kernel: RoutedKernel, message: wire.FromClient, now: float, bounded: bool
    ) -> Iterator[Act]:
        """Yield what is to be done because of a router's word; `bounded`: its user is no administrator."""
        match message:
            case wire.KernelHere():
                yield from self._here(client, kernel, message, now)
            case wire.KernelGone():
                kernel.here, kernel.known = None, False
                kernel.held.clear()
                yield Feed(KernelEnded(kernel.kernel_id), client)
            case wire.LeaseWish():
                yield from self._wish(client, kernel, message, now, bounded)
            case wire.WishOver(request):
                yield from self._wish_over(client, kernel, RequestId(request))
            case wire.LeaseKept() | wire.LeaseLingers() | wire.LeaseBack() | wire.PauseRefused():
                kernel.speaks_of(lease=message.lease)
                if self._holds(kernel, message.lease):
                    yield Feed(kernel_desk.of_lease(message), client)
                else:
                    yield Send(client, wire.LeaseOver(message.lease, NEVER_HELD.format(message.lease)))
            case wire.MoveWish(host):
                yield Feed(MoveAsked(kernel.kernel_id, HostName(host)), client)
            case wire.ReplicaMoved() | wire.MoveFailed():
                answer = self.moves.answered(kernel.kernel_id, message)
                if answer is not None:
                    yield Feed(answer, client)
            case _:
                yield Send(
                    client, wire.Refused(f"{type(message).__name__} is for agents to say, not routers.")
                )

    def ask(self, kernel: RoutedKernel, wish: wire.LeaseWish) -> Feed:
        """Hand a wish to the core."""
        self.owners.asks(RequestId(wish.request), kernel.kernel_id, kernel.user)
        allowed = wish.preemptible or self.lets_pause(kernel.user)
        pauses = self.pauses and kernel.pauses and allowed
        return Feed(kernel.ask(wish, self.lease_s, self.sharing, pauses=pauses), kernel.client)

    def report(self, kernel: RoutedKernel) -> Iterator[Act]:
        """Tell the core where a kernel is, and ask for what was kept until a host of its was up."""
        yield Feed(kernel.report(), kernel.client)
        yield from self.release(kernel)

    def release(self, kernel: RoutedKernel) -> Iterator[Act]:
        """Ask for what was kept until a host of the kernel's was up."""
        for wish, _ in list(kernel.held.values()):
            if any(self.hosts.is_up(host) for host in kernel.hosts_for(wish)):
                del kernel.held[RequestId(wish.request)]
                yield self.ask(kernel, wish)

    def _here(self, client: int, kernel: RoutedKernel, here: wire.KernelHere, now: float) -> Iterator[Act]:
        if not here.hosts and kernel.here is not None:
            here = msgspec.structs.replace(here, hosts=kernel.here.hosts)
        here = msgspec.structs.replace(here, notebook=wire.told_path(here.notebook))
        kernel.here, kernel.known = here, True
        kernel.ended_on.clear()
        kernel.tells({held.lease for held in here.leases}, now + UNTOLD_S)
        yield from self.report(kernel)
        order = self.moves.orders.get(kernel.kernel_id)
        if order is not None and str(order.said.host) not in here.hosts:
            yield Send(client, order.said)
        for held in here.leases:
            if self._holds(kernel, held.lease):
                yield Feed(kernel_desk.of_lease(wire.LeaseKept(held.lease, held.fence)), client)
            else:
                yield Send(client, wire.LeaseOver(held.lease, NEVER_HELD.format(held.lease)))

    def _wish(
        self, client: int, kernel: RoutedKernel, wish: wire.LeaseWish, now: float, bounded: bool
    ) -> Iterator[Act]:
        request = RequestId(wish.request)
        kernel.speaks_of(request=request)
        kernel.ended_on.clear()  # What ended then was before this cell.
        why = self._cannot_wish(kernel, wish) or (self._too_much(kernel, request) if bounded else "")
        if why:
            yield Send(client, wire.Denied(request, why))
        elif any(self.hosts.is_up(host) for host in kernel.hosts_for(wish)):
            kernel.held.pop(request, None)
            yield self.ask(kernel, wish)
        else:
            until = kernel.held.get(request, (wish, now + HOST_WAIT_S))[1]
            kernel.held[request] = (wish, until)
            yield Send(client, wire.Waiting(request, 0))

    def _cannot_wish(self, kernel: RoutedKernel, wish: wire.LeaseWish) -> str:
        if kernel.here is None:
            return "This kernel has not told where it is: say KernelHere first."
        elsewhere = sorted(set(wish.hosts) - set(kernel.here.hosts))
        if elsewhere:
            return f"This kernel is not on {elsewhere[0]}: ask for hosts of its own."
        if wish.part and self.counts_whole():
            return COUNTED
        if len(kernel.held) >= HELD_MAX:
            return f"{HELD_MAX} cells of this kernel wait for its hosts already: start an agent on one."
        if why := access.why_not_kernel(wish.request):
            return why
        owner = Owner(kernel.kernel_id, kernel.user)
        if self.owners.requests.get(RequestId(wish.request), owner) != owner:
            return f"The request {wish.request} is another kernel's: name it otherwise."
        return ""

    def _too_much(self, kernel: RoutedKernel, request: RequestId) -> str:
        """Say which bound of its user a request would break that nobody knows yet."""
        if request in self.owners.requests or request in kernel.held:
            return ""
        waiting, held = self.owners.waiting_of(kernel.user), self.owners.held_by(kernel.user)
        return self._bounds.asks(kernel.user, waiting + len(kernel.held), held)

    def _wish_over(self, client: int, kernel: RoutedKernel, request: RequestId) -> Iterator[Act]:
        owner = Owner(kernel.kernel_id, kernel.user)
        kernel.speaks_of(request=request)
        if kernel.held.pop(request, None) is None and self.owners.requests.get(request) == owner:
            yield Feed(LeaseWithdrawn(request), client)

    def _holds(self, kernel: RoutedKernel, lease: str) -> bool:
        return self.owners.leases.get(LeaseId(lease)) == Owner(kernel.kernel_id, kernel.user)
