"""Cells on several hosts: what they say and hear, and the agents of their users that start their processes.

Pure. Laws: a gang is its user's; it has its leases while its cell is connected, or comes back in time, and
each gang has a cell here. Launchers are started by agents of the same user alone, once the leases of all
hosts are durable, and ended by them where the cell cannot.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import msgspec
from replkernel_scheduler.errors import InvariantBroken
from replkernel_scheduler.gangs.desk import in_order
from replkernel_scheduler.gangs.types import (
    GangAsked,
    GangEnds,
    GangGranted,
    GangId,
    GangLeft,
    GangOver,
    GangSpec,
    GangWaits,
)
from replkernel_scheduler.harvest.core import HarvestCore
from replkernel_scheduler.harvest.types import HarvestEffect
from replkernel_scheduler.types import HostName, KernelId, Lease, UserName

from replkernel.leasing import wire
from replkernel.leasing.models import model_name
from replkernel_server.scheduling.desk_words import Act, Feed, Send
from replkernel_server.scheduling.identity import Identity
from replkernel_server.scheduling.job_desk import JobDesk
from replkernel_server.scheduling.messages import granted_lease

RETURN_S = 30.0
"""A cell whose connection is lost has so long to come back; one that is killed does not."""
CELL_ENDS_S = 8.0
"""So long a cell has to end its processes by itself, which may have 5 s for that."""
GANGS_OF_USER_MAX = 16
GIVEN_UP = (
    "The scheduler has not heard of this cell for too long, so its GPUs were given back: run it again, from "
    "its last checkpoint."
)


class Cell(msgspec.Struct):
    """A cell on several hosts: who speaks for it, until when that is waited for, and what it wished.

    `has` and `waits` are what is durable of it. `began`: its launchers have come; `asked` are the agents that
    were told to start them.
    """

    user: UserName
    client: int | None = None
    lost_at: float = inf
    wish: wire.GangWish | None = None
    has: tuple[Lease, ...] = ()
    waits: wire.GangWaiting | None = None
    began: bool = False
    asked: dict[HostName, int] = {}


class GangDesk:
    """All cells on several hosts."""

    def __init__(self, beside: HarvestCore, jobs: JobDesk, now: float, grace_s: float) -> None:
        """Begin with those that the core has: their cells have `grace_s` to come back."""
        self._beside, self._jobs = beside, jobs
        self.cells: dict[GangId, Cell] = {
            name: Cell(
                gang.spec.user,
                lost_at=now + grace_s,
                has=in_order(gang) if gang.granted else (),
                waits=None if gang.granted or gang.told is None else wire.GangWaiting(*gang.told),
            )
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
            if cell.wish is None and name not in self._beside.gangs.by_id:
                del self.cells[name]

    def deadline(self) -> float:
        """Return when the first cell will have been away for too long."""
        return min((cell.lost_at for cell in self.cells.values()), default=inf)

    def due(self, now: float) -> Iterator[Act]:
        """Give up the cells that did not come back; their processes may be anywhere still."""
        for name, cell in list(self.cells.items()):
            if cell.lost_at > now:
                continue
            if name in self._beside.gangs.by_id:
                cell.lost_at = inf
                yield Feed(GangLeft(name, tuple([lease.host for lease in cell.has])))
            else:
                del self.cells[name]

    def said(self, client: int, who: Identity, message: wire.FromClient, now: float) -> Iterator[Act]:
        """Take a word of a cell's, or of an agent that was to start its processes."""
        if isinstance(message, wire.RanksFailed):
            cell = self.cells.get(GangId(message.gang))
            if cell is None:
                yield from self._jobs.ranks_failed(client, who.user, message, now)
            if cell is not None and cell.client is not None and cell.user == who.user:
                yield Send(cell.client, wire.GangEnded(message.why))
            return
        name = self._of_client.get(client)
        if name is None:
            return
        match message:
            case wire.GangWish():
                yield from self._wish(client, name, who, message, now)
            case wire.GangBegan():
                self.cells[name].began = True
            case wire.GangDone(unsure):
                yield Feed(GangLeft(name, tuple([HostName(host) for host in unsure])), client)
            case _:
                why = f"{type(message).__name__} is not for a cell on several hosts to say."
                yield Send(client, wire.Refused(why))

    def line_came(self, client: int, here: wire.JobsHere, now: float) -> Iterator[Act]:
        """Have an agent that is there, maybe again, start what it has not, and end what is nobody's."""
        line = self._jobs.lines.get(client)
        if line is None or not line.ranks:
            return
        for name in here.gangs:
            gang = self._beside.gangs.by_id.get(GangId(name))
            lasts = gang is not None and gang.ends_at is None and gang.spec.user == line.user
            if not lasts:
                stops = self._jobs.meetings.left_over(line, name, now, self._jobs.line_of)
                yield from [Send(client, stop) for stop in stops]
        for gang_id, cell in self.cells.items():
            if cell.user == line.user:
                yield from self._start(gang_id, cell)

    def _wish(
        self, client: int, name: GangId, who: Identity, wish: wire.GangWish, now: float
    ) -> Iterator[Act]:
        known = self._beside.gangs.by_id.get(name)
        if (known is None and wish.leases) or (known is not None and known.ends_at is not None):
            why = GIVEN_UP if known is None or not known.broken else known.broken
            yield Send(client, wire.GangEnded(why))
            return
        if known is not None:  # No event: agents may not be back yet, nor the journal have room.
            yield from self._again(client, name, wish, now)
            return
        owner = self._beside.core.owner_of_kernel(KernelId(wish.kernel))
        if owner not in (None, who.user):
            yield Send(client, wire.GangEnded(f"Kernel {wish.kernel} is another user's.", refused=True))
            return
        among = self._jobs.reach_of_ranks(who.user)
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

    def _again(self, client: int, name: GangId, wish: wire.GangWish, now: float) -> Iterator[Act]:
        """Tell a cell that has come back how it stands, as far as that is durable."""
        cell = self.cells[name]
        cell.wish, cell.began = wish, cell.began or wish.began
        if cell.has:
            yield Send(client, _has(cell.has, now))
            yield from self._start(name, cell)
        elif cell.waits is not None:
            yield Send(client, cell.waits)

    def told(self, effects: list[HarvestEffect], now: float) -> Iterator[Act]:
        """Say to cells and agents what was decided."""
        for effect in effects:
            match effect:
                case GangGranted():
                    yield from self._granted(effect, now)
                case GangWaits(gang, place, has, estimate_s):
                    yield from self._waits(gang, wire.GangWaiting(place, has, estimate_s))
                case GangEnds():
                    yield from self._ends(effect)
                case GangOver(gang, why, refused):
                    if why:
                        yield from self._tell(gang, wire.GangEnded(why, refused))
                    cell = self.cells.pop(gang, None)
                    if cell is not None and cell.client is not None:
                        self._of_client.pop(cell.client, None)

    def _waits(self, name: GangId, waits: wire.GangWaiting) -> Iterator[Act]:
        cell = self.cells.get(name)
        if cell is not None:
            cell.waits = waits
        yield from self._tell(name, waits)

    def _granted(self, effect: GangGranted, now: float) -> Iterator[Act]:
        cell = self.cells.get(effect.gang)
        if cell is not None:
            cell.has, cell.waits = effect.leases, None
            yield from self._tell(effect.gang, _has(effect.leases, now))
            yield from self._start(effect.gang, cell)

    def _start(self, name: GangId, cell: Cell) -> Iterator[Act]:
        """Have launchers started, by each agent once; one that is not there is asked when it is."""
        gang, wish = self._beside.gangs.by_id.get(name), cell.wish
        if cell.began or cell.client is None or wish is None or gang is None or gang.ends_at is not None:
            return
        for lease in cell.has:
            agent = self._jobs.line_of_ranks(cell.user, lease.host)
            if agent is None or cell.asked.get(lease.host) == agent:
                continue
            cell.asked[lease.host] = agent
            gpus = tuple([str(gpu) for gpu in lease.gpus])
            yield Send(agent, wire.StartRanks(str(name), gpus, wish.directory, wish.endpoint, wish.seal))

    def _ends(self, effect: GangEnds) -> Iterator[Act]:
        """Have processes ended: by their cell, which says why, and by the agents where it does not."""
        cell = self.cells.get(effect.gang)
        if cell is None:
            return
        by_itself = bool(effect.why) and cell.client is not None
        if by_itself:
            yield from self._tell(effect.gang, wire.GangEnded(effect.why))
        for host in effect.hosts:
            agent = self._jobs.line_of_ranks(cell.user, host)
            if agent is not None:
                yield Send(agent, wire.StopRanks(str(effect.gang), CELL_ENDS_S if by_itself else 0.0))

    def check_invariants(self) -> None:
        """Raise InvariantBroken if a law does not hold."""
        alone = set(self._beside.gangs.by_id) - set(self.cells)
        if alone:
            raise InvariantBroken(f"nobody can give back what these gangs have: {sorted(alone)}")

    def _tell(self, name: GangId, message: wire.FromScheduler) -> Iterator[Act]:
        cell = self.cells.get(name)
        if cell is not None and cell.client is not None:
            yield Send(cell.client, message)


def _has(leases: tuple[Lease, ...], now: float) -> wire.GangHas:
    return wire.GangHas(tuple([granted_lease(lease, now) for lease in leases]))


def _too_few(among: tuple[HostName, ...], hosts: int) -> str:
    if not among:
        return (
            f"This cell wants {hosts} hosts, and no agent of yours that can start its processes is there: "
            "start one on each host (`replkernel agent`)."
        )
    return (
        f"This cell wants {hosts} hosts, and your agents that can start its processes are on "
        f"{', '.join(among)}: start one on each host (`replkernel agent`)."
    )
