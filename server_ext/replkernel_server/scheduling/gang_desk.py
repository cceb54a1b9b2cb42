"""Cells on several hosts: what they say and hear, and the agents of their users that start their processes.

Pure. Law: a gang is its user's; it has its leases while its cell is connected, or comes back in time.
Launchers are started by agents of the same user alone, once the leases of all hosts are durable.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import msgspec
from replkernel_scheduler.gangs.types import (
    GangAsked,
    GangGranted,
    GangId,
    GangLeft,
    GangOver,
    GangSpec,
    GangWaits,
)
from replkernel_scheduler.harvest.core import HarvestCore
from replkernel_scheduler.harvest.types import HarvestEffect
from replkernel_scheduler.types import HostName, KernelId, UserName

from replkernel.leasing import wire
from replkernel.leasing.models import model_name
from replkernel_server.scheduling.desk_words import Act, Feed, Send
from replkernel_server.scheduling.identity import Identity
from replkernel_server.scheduling.job_desk import JobDesk
from replkernel_server.scheduling.messages import granted_lease

RETURN_S = 10.0
"""A cell whose connection is lost has so long to come back; one that is killed does not."""
GANGS_OF_USER_MAX = 16


class Cell(msgspec.Struct):
    """A cell on several hosts: who speaks for it, until when that is waited for, and what it wished.

    `started`: its launchers were asked for.
    """

    user: UserName
    client: int | None = None
    lost_at: float = inf
    wish: wire.GangWish | None = None
    started: bool = False


class GangDesk:
    """All cells on several hosts."""

    def __init__(self, beside: HarvestCore, jobs: JobDesk, now: float, grace_s: float) -> None:
        """Begin with those that the core has: their cells have `grace_s` to come back."""
        self._beside, self._jobs = beside, jobs
        self.cells: dict[GangId, Cell] = {
            name: Cell(gang.spec.user, lost_at=now + grace_s, started=gang.granted)
            for name, gang in beside.gangs.by_id.items()
        }
        self._of_client: dict[int, GangId] = {}

    def why_not(self, who: Identity, name: GangId) -> str:
        """Say why a user may not speak for a gang."""
        known = self.cells.get(name)
        if known is not None and known.user != who.user:
            return f"The cell {name} is another user's."
        mine = sum(cell.user == who.user for cell in self.cells.values())
        if known is None and mine >= GANGS_OF_USER_MAX:
            return f"{who.user} has {mine} cells on several hosts, the most that one user may have: end some."
        return ""

    def joins(self, client: int, who: Identity, name: GangId) -> None:
        """Take a cell's connection in, in the place of an earlier one."""
        cell = self.cells.setdefault(name, Cell(who.user))
        if cell.client is not None:
            self._of_client.pop(cell.client, None)
        cell.client, cell.lost_at = client, inf
        self._of_client[client] = name

    def left(self, client: int, now: float) -> None:
        """Wait for a cell whose connection is over."""
        name = self._of_client.pop(client, None)
        if name is not None:
            cell = self.cells[name]
            cell.client, cell.lost_at = None, now + RETURN_S
            if cell.wish is None:
                del self.cells[name]

    def deadline(self) -> float:
        """Return when the first cell will have been away for too long."""
        return min((cell.lost_at for cell in self.cells.values()), default=inf)

    def due(self, now: float) -> Iterator[Act]:
        """Give up the cells that did not come back."""
        for name, cell in list(self.cells.items()):
            if cell.lost_at > now:
                continue
            if name in self._beside.gangs.by_id:
                cell.lost_at = inf
                yield Feed(GangLeft(name))
            else:
                del self.cells[name]

    def said(self, client: int, who: Identity, message: wire.FromClient) -> Iterator[Act]:
        """Take a word of a cell's, or of an agent that was to start its processes."""
        if isinstance(message, wire.RanksFailed):
            cell = self.cells.get(GangId(message.gang))
            if cell is not None and cell.client is not None and cell.user == who.user:
                yield Send(cell.client, wire.GangEnded(message.why))
            return
        name = self._of_client.get(client)
        if name is None:
            return
        match message:
            case wire.GangWish():
                yield from self._wish(client, name, who, message)
            case wire.GangDone():
                yield Feed(GangLeft(name), client)
            case _:
                why = f"{type(message).__name__} is not for a cell on several hosts to say."
                yield Send(client, wire.Refused(why))

    def _wish(self, client: int, name: GangId, who: Identity, wish: wire.GangWish) -> Iterator[Act]:
        known = self._beside.gangs.by_id.get(name)
        if known is not None:  # Agents may not be back yet, after a restart.
            self.cells[name].wish = wish
            yield Feed(GangAsked(known.spec), client)
            return
        owner = self._beside.core.owner_of_kernel(KernelId(wish.kernel))
        if owner not in (None, who.user):
            yield Send(client, wire.GangEnded(f"Kernel {wish.kernel} is another user's.", refused=True))
            return
        among = self._jobs.reach(who.user)
        if len(among) < wish.hosts:
            yield Send(client, wire.GangEnded(_too_few(among, wish.hosts), refused=True))
            return
        self.cells[name].wish = wish
        spec = GangSpec(
            gang=name,
            kernel_id=KernelId(wish.kernel),
            user=who.user,
            gpus=wish.gpus,
            hosts=wish.hosts,
            among=among,
            gpu_model=model_name(wish.gpu_model) if wish.gpu_model else "",
            vram_gb=wish.vram_gb,
            cpu=wish.cpu,
            memory_gb=wish.memory_gb,
        )
        yield Feed(GangAsked(spec), client)

    def told(self, effects: list[HarvestEffect], now: float) -> Iterator[Act]:
        """Say to cells and agents what was decided."""
        for effect in effects:
            match effect:
                case GangGranted():
                    yield from self._granted(effect, now)
                case GangWaits(gang, place, has, estimate_s):
                    yield from self._tell(gang, wire.GangWaiting(place, has, estimate_s))
                case GangOver(gang, why, refused):
                    if why:
                        yield from self._tell(gang, wire.GangEnded(why, refused))
                    cell = self.cells.pop(gang, None)
                    if cell is not None and cell.client is not None:
                        self._of_client.pop(cell.client, None)

    def _granted(self, effect: GangGranted, now: float) -> Iterator[Act]:
        cell = self.cells.get(effect.gang)
        if cell is None or cell.wish is None:
            return  # It is told when it comes back, and says again what it wishes.
        has = wire.GangHas(tuple([granted_lease(lease, now) for lease in effect.leases]))
        yield from self._tell(effect.gang, has)
        if cell.started:
            return
        cell.started = True
        wish = cell.wish
        for lease in effect.leases:
            agent = self._jobs.line_of(cell.user, HostName(lease.host))
            if agent is None:
                why = f"The agent of host {lease.host} is gone, so nothing can be started there: try again."
                yield from self._tell(effect.gang, wire.GangEnded(why))
                return
            gpus = tuple([str(gpu) for gpu in lease.gpus])
            yield Send(
                agent, wire.StartRanks(str(effect.gang), gpus, wish.directory, wish.endpoint, wish.seal)
            )

    def _tell(self, name: GangId, message: wire.FromScheduler) -> Iterator[Act]:
        cell = self.cells.get(name)
        if cell is not None and cell.client is not None:
            yield Send(cell.client, message)


def _too_few(among: tuple[HostName, ...], hosts: int) -> str:
    agents = ", ".join(among) or "none"
    return (
        f"This cell wants {hosts} hosts, and your agents that can start its processes are on {agents}: start "
        "one on each host (`replkernel agent`)."
    )
