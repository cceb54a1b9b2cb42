"""Hosts come, report again, are drained and go.

| state | event | then |
|---|---|---|
| (a reservation) | HostUp | up |
| (a reservation) | HostNotProvisioned, too late | forgotten |
| up | HostUp | up, with what it offers now |
| up | HostDrained, or scaling in | draining: its idle replicas move |
| draining | nothing left on it | draining: ReleaseHost |
| draining | a placed replica cannot be moved, HostUndrained | up: only what is on its way still moves |
| up | HostAway | down: nothing new there, its leases last |
| down | HostUp | up, with what it offers now |
| up, down, draining | HostDown | gone: forgotten, its leases end, its replicas are placed elsewhere |

Law: no two hosts offer the same GPU.
"""

from __future__ import annotations

from collections import Counter

from replkernel_scheduler import wishes
from replkernel_scheduler.cards import MIB_PER_GIB, counted
from replkernel_scheduler.effects import CancelHost, HostRefused
from replkernel_scheduler.events import (
    HostAway,
    HostDown,
    HostDrained,
    HostNotProvisioned,
    HostUndrained,
    HostUp,
)
from replkernel_scheduler.granting import Granting
from replkernel_scheduler.hosts import MILLI, Host, LeaseRecord, Waiting, kinds, share_of
from replkernel_scheduler.kernel_life import KernelLife
from replkernel_scheduler.lease_life import LeaseLife
from replkernel_scheduler.moving import Moving
from replkernel_scheduler.parts import Parts
from replkernel_scheduler.placing import Placing
from replkernel_scheduler.types import Gpu, GpuUuid, HostName, ReservationId
from replkernel_scheduler.warming import Warming

HOSTS_MAX = 16_384


class HostLife:
    """What happens to hosts."""

    def __init__(
        self,
        parts: Parts,
        granting: Granting,
        lease_life: LeaseLife,
        kernel_life: KernelLife,
        moving: Moving,
        placing: Placing,
        warming: Warming,
    ) -> None:
        """Decide about `parts`."""
        self.parts, self.granting, self.lease_life, self.kernel_life = (
            parts,
            granting,
            lease_life,
            kernel_life,
        )
        self.moving, self.placing, self.warming = moving, placing, warming

    # -- up ---------------------------------------------------------------------------------------

    def up(self, event: HostUp) -> None:
        """Take a host in, or what it offers now."""
        parts = self.parts
        if event.reservation is not None and not parts.reservations.was_issued(event.reservation):
            came = f"HostUp for {event.reservation}"
            raise parts.history.unexpected(event.host, "a reservation made here", came)
        why = self._problem(event)
        if why is not None:
            parts.out.append(HostRefused(event.host, why))
            return
        if event.reservation is not None:
            self._fulfilled(event.reservation)
        known = parts.hosts.by_name.get(event.host)
        was_away = known is not None and known.state == "down"
        if known is not None:
            known.watched = event.watched
            self._back(known)
        if known is None:
            self._new(event)
        elif (known.offered, known.cpu_milli, known.memory_milli) != _offer(event):
            self._changed(known, event)
        else:
            self.warming.refill(known)
            if not was_away:
                return
        self._use_room()

    def _use_room(self) -> None:
        """Let those have what a host offers who had nowhere to go."""
        self.placing.top_up()
        self.go_on_draining()
        for waiting in self.parts.queue.by_request.values():
            if waiting.gave_up:
                waiting.gave_up = False
                if waiting.claim is not None:
                    self.granting.serving.touch(waiting.claim)

    def _fulfilled(self, name: ReservationId) -> None:
        if self.parts.reservations.fulfil(name, self.parts.now) is not None:
            self.parts.timers.cancel(("reservation", name))

    def _new(self, event: HostUp) -> None:
        parts = self.parts
        host = Host(event.host, event.gpus, event.cpu, event.memory_gb)
        host.watched = event.watched
        parts.hosts.by_name[host.name] = host
        for gpu in event.gpus:
            parts.hosts.owner[gpu.uuid] = host.name
        parts.hosts.index(host)
        parts.ledger.host_offers(host)
        for waiting in [w for w in parts.queue.by_request.values() if host.name in w.wish.hosts]:
            self.granting.serving.stand_at(
                waiting, self.granting.choosing.hosts_for(waiting.wish, None) or []
            )
        self._any_lines_claim()
        self.granting.serving.touch(host)
        self.warming.refill(host)

    def _changed(self, host: Host, event: HostUp) -> None:
        """Let a host offer other GPUs: leases on those that are gone, or of another kind now, end."""
        parts = self.parts
        # A cell within its kernel's reservation gives its GPUs back to that, which is looked at later.
        for record in sorted(_not_kept(host, event.gpus), key=lambda record: record.home is None):
            if record.phase == "bound":
                self.moving.withdrawn(record.lease.kernel_id)
                self.moving.later(record.lease.kernel_id)
            else:
                self.lease_life.end(record, "gpu gone")
        was_up = host.state == "up"
        parts.hosts.hide(host)
        for gpu in host.offered:
            del parts.hosts.owner[gpu.uuid]
        for pool in host.pools:
            parts.hosts.open.pop(pool, None)
        host.offer(event.gpus, event.cpu, event.memory_gb)
        for gpu in event.gpus:
            parts.hosts.owner[gpu.uuid] = host.name
        for record in host.leases.values():
            lease = record.lease
            pools = [p for p in host.pools if not lease.gpus or lease.gpus[0] in p.number_of]
            record.pool = pools[0]
            if record.card is not None:
                if record.phase in ("active", "bound"):  # It counts by the card's memory.
                    share, user = share_of(record), parts.users.get(lease.user)
                    user.hold(record.wish, -1, parts.now, counted(share, record.card.pool))
                    user.hold(record.wish, 1, parts.now, counted(share, record.pool))
                record.card = parts.hosts.take_share(record.pool, record.pool.number_of[lease.gpus[0]])
                record.card.records[lease.lease] = record
                parts.hosts.shifted(record.card)
                continue
            for uuid in lease.gpus:
                record.pool.idle.remove(record.pool.number_of[uuid])
            if record.phase in ("active", "bound"):
                record.expect()
            if record.phase == "lingering":
                record.pool.lingering += len(lease.gpus)
            elif record.phase == "reclaiming":
                record.pool.reclaiming += len(lease.gpus)
        parts.ledger.host_offers(host)
        if was_up:
            parts.hosts.index(host)
        self._reconsider(host)
        self.granting.serving.touch(host)

    def _problem(self, event: HostUp) -> str | None:
        parts, uuids = self.parts, [gpu.uuid for gpu in event.gpus]
        most = parts.settings.gpus_per_host_max
        if len(uuids) > most:
            return f"Host {event.host} offers {len(uuids)} GPUs; at most {most} are taken."
        if len(set(uuids)) != len(uuids):
            return f"Host {event.host} offers one GPU twice; each UUID may be listed once."
        if not wishes.sane(event.cpu, event.memory_gb, *(gpu.memory_gb for gpu in event.gpus)):
            return f"Host {event.host} offers sizes that are not numbers from 0 to {wishes.SIZE_MAX:.0f}."
        if event.host not in parts.hosts.by_name and len(parts.hosts.by_name) >= HOSTS_MAX:
            return f"{HOSTS_MAX} hosts are up already; take one down first."
        for uuid in uuids:
            owner = parts.hosts.owner.get(uuid, event.host)
            if owner != event.host:
                return f"GPU {uuid} is offered by host {owner}; take that host down first."
        return None

    # -- down -------------------------------------------------------------------------------------

    def away(self, event: HostAway) -> None:
        """Lease nothing new on a host that is out of sight, which may come back with all that runs there."""
        parts = self.parts
        host = parts.hosts.by_name.get(event.host)
        if host is None or host.state != "up":
            return
        parts.hosts.hide(host)
        host.state = "down"
        parts.hosts.away[host.name] = host
        self.moving.host_gone(host)
        self._reconsider(host)

    def _back(self, host: Host) -> None:
        """Use a host again that was out of sight."""
        if host.state == "down":
            del self.parts.hosts.away[host.name]
            self.placing.use_again(host)
            self._any_lines_claim()

    def down(self, event: HostDown) -> None:
        """Forget a host, with what ran there. One that is not known is gone already."""
        parts = self.parts
        host = parts.hosts.by_name.get(event.host)
        if host is None:
            return
        parts.hosts.hide(host)
        parts.hosts.away.pop(host.name, None)
        parts.hosts.draining.discard(host.name)
        host.state = "gone"
        self.moving.host_gone(host)
        for record in list(host.leases.values()):
            self.lease_life.end(record, "host down")
        for kernel_id in list(host.replicas):
            kernel = parts.kernels.by_id[kernel_id]
            if host in kernel.hosts:
                self.kernel_life.lose(kernel, host)
        for gpu in host.offered:
            del parts.hosts.owner[gpu.uuid]
        parts.ledger.host_gone(host)
        del parts.hosts.by_name[host.name]
        parts.timers.cancel(("prewarm", host.name))
        self._reconsider(host)
        self.placing.top_up()

    def not_provisioned(self, event: HostNotProvisioned) -> None:
        """Forget a host that will not come; whoever waited for it asks for another."""
        if not self.parts.reservations.was_issued(event.reservation):
            raise self.parts.history.unexpected(
                event.reservation, "a reservation made here", "HostNotProvisioned"
            )
        if self.parts.reservations.by_id.pop(event.reservation, None) is not None:
            self.parts.timers.cancel(("reservation", event.reservation))
            self.placing.later()

    def late(self, name: ReservationId) -> None:
        """Give up a host that did not come in time."""
        del self.parts.reservations.by_id[name]
        self.parts.out.append(CancelHost(name))
        self.placing.later()

    # -- draining ---------------------------------------------------------------------------------

    def drain(self, event: HostDrained) -> None:
        """Empty a host on somebody's wish, said again: try again. One that is not known is gone already."""
        host = self.parts.hosts.by_name.get(event.host)
        if host is not None and host.state == "draining":
            self.go_on(host)
        elif host is not None:
            self.empty(host)

    def undrain(self, event: HostUndrained) -> None:
        """Use a host again, as one that came just now. One that is not draining stays as it is."""
        host = self.parts.hosts.by_name.get(event.host)
        if host is None or host.state != "draining":
            return
        self.moving.stay(host)
        self.placing.undrain(host)
        self._any_lines_claim()
        self.warming.refill(host)
        self._use_room()

    def empty(self, host: Host) -> None:
        """Take nothing new on a host, and move its idle replicas away."""
        parts = self.parts
        if host.state == "draining":
            return
        parts.hosts.hide(host)
        parts.hosts.away.pop(host.name, None)
        host.state = "draining"
        parts.hosts.draining.add(host.name)
        for record in [r for r in host.leases.values() if r.phase == "lingering"]:
            self.granting.serving.ask_back(record)
        self._reconsider(host)
        self.go_on(host)

    def go_on(self, host: Host) -> None:
        """Move the replicas of a draining host that run nothing; have it released once it is empty."""
        for kernel_id in list(host.replicas):
            kernel = self.parts.kernels.by_id[kernel_id]
            if host.state == "draining" and host in kernel.hosts:
                self.moving.drain(kernel, host)
        self.placing.emptied(host)

    def go_on_draining(self) -> None:
        """Go on with all hosts that are being drained: there is somewhere to go that was not there before."""
        hosts = self.parts.hosts
        if hosts.draining:
            for host in [host for host in hosts.by_name.values() if host.state == "draining"]:
                self.go_on(host)

    def awaits(self, host: Host) -> dict[str, int]:
        """Return, for a host that is being drained, what is still there, by reason."""
        if host.state != "draining":
            return {}
        kernels = [self.parts.kernels.by_id[name] for name in sorted(host.replicas)]
        found = Counter(f"replica: {self.moving.awaits(kernel, host)}" for kernel in kernels)
        others = [record for record in host.leases.values() if record.lease.kernel_id not in host.replicas]
        found.update("lease: until its GPUs are given back" for _ in others)
        jobs = self.parts.occupants(host.name)
        if jobs:
            found["job: until it is saved"] = jobs
        return found

    def left(self, name: HostName) -> None:
        """Have a drained host released: who used it without a lease has left."""
        host = self.parts.hosts.by_name.get(name)
        if host is not None:
            self.placing.emptied(host)

    # -- whoever waits ----------------------------------------------------------------------------

    def _reconsider(self, host: Host) -> None:
        """Let those who waited for a host that changed or went wait elsewhere, or refuse them."""
        choosing, serving, parts = self.granting.choosing, self.granting.serving, self.parts
        serving.pausing.stops(host)
        for waiting in [waiting for _, waiting in [*host.line]]:
            kernel = parts.kernels.by_id.get(waiting.wish.kernel_id)
            if not self._hopeless(waiting):
                serving.stand_at(waiting, choosing.hosts_for(waiting.wish, kernel) or [])
        for line in [list(line) for line in parts.queue.any_lines.values()]:
            for _, waiting in line:
                if not self._hopeless(waiting):
                    break
        for waiting in [waiting for _, waiting in host.claims if waiting.hosts is None]:
            parts.queue.claim(waiting, None)  # All others claim anew already.
        self.moving.looking.disappoint(host)
        self._any_lines_claim()

    def _any_lines_claim(self) -> None:
        for line in self.parts.queue.any_lines.values():
            if line[0][1].claim is None:
                self.granting.serving.claim(line[0][1])

    def _hopeless(self, waiting: Waiting) -> bool:
        """Refuse a request that nobody could serve any more."""
        parts = self.parts
        if wishes.possible(parts, waiting.wish, parts.kernels.by_id.get(waiting.wish.kernel_id)):
            return False
        self.granting.refuse(waiting, wishes.impossible(parts, waiting.wish))
        return True


def _not_kept(host: Host, gpus: tuple[Gpu, ...]) -> list[LeaseRecord]:
    """Return the leases on what a host no longer has once it offers these GPUs.

    A card may be measured anew, as when its agent is of a newer release: leases stay, but for parts
    that have no room on it any more, the newest first, and those whose memory nothing bounds.
    """
    kind_of = {uuid: kind for kind in kinds(gpus) for uuid in kind.uuids}
    gone: list[LeaseRecord] = []
    taken: dict[GpuUuid, int] = {}
    for record in host.leases.values():
        found = {kind_of.get(uuid) for uuid in record.lease.gpus}
        kind = next(iter(found), None)
        if found and (len(found) > 1 or kind is None or kind.model != record.pool.model):
            gone.append(record)
        elif kind is not None and record.card is not None and kind.memory_gb:
            uuid, mib = record.lease.gpus[0], share_of(record).vram_mib
            beside = taken.get(uuid, 0)
            if not 0 < mib <= round(kind.memory_gb * MIB_PER_GIB) - beside:
                gone.append(record)
            else:
                taken[uuid] = beside + mib
    return gone


def _offer(event: HostUp) -> tuple[object, int, int]:
    return event.gpus, round(event.cpu * MILLI), round(event.memory_gb * MILLI)
