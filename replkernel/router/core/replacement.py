"""The replacing of replicas that will not return: their host is lost, or their Raft member cannot start.

Pure. Laws: nothing is changed without a majority of the members at hosts that answer; one change at a time;
names are not used again; no host gets more than its even share of the replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from replkernel.protocol.agent_to_router import AboutMembers, MembersChanged, ReplicaLost
from replkernel.protocol.router_to_agent import ChangeMembers
from replkernel.records import HostName, ReplicaId
from replkernel.router.core.events import Effect, Log, ToAgent
from replkernel.router.core.fleet import Fleet

HOST_LOST_S = 30.0
"""A host whose agent has not been reachable for so long is lost, unless a setting says otherwise."""
LOOK_AGAIN_S = 30.0
"""Agents that were searched for in vain are looked for again after so long."""
PREPARE_LIMIT_S = 30.0
"""How long a host may take to prepare a new replica before another host is tried."""
CHANGE_LIMIT_S = 15.0
"""How long the group's leader may take to change the members before it is asked again."""
CHANGE_AGAIN_S = 1.0
"""A change that the leader could not make now is asked for again after so long."""
JOIN_LIMIT_S = 60.0
"""How long a new member may take to catch up before its change is asked for again."""


class Phase(Enum):
    """How far a replacement has come."""

    PREPARING = "preparing"
    CHANGING = "changing"
    JOINING = "joining"


@dataclass(slots=True)
class Change:
    """One replacement under way: `new` takes the place of `leaves` (empty: a place that was never taken)."""

    new: ReplicaId
    leaves: ReplicaId
    why: str
    phase: Phase
    deadline: float


class Replacement:
    """The replacing of one kernel's replicas. `lose` ends what a replica had; `tell` reaches the user."""

    def __init__(
        self,
        fleet: Fleet,
        lose: Callable[[ReplicaLost, float], list[Effect]],
        tell: Callable[[str], list[Effect]],
        host_lost_s: float = HOST_LOST_S,
    ) -> None:
        self._fleet = fleet
        self._lose = lose
        self._tell = tell
        self._host_lost_s = host_lost_s
        self._change: Change | None = None
        self._now = 0.0

    @property
    def busy(self) -> bool:
        """Tell whether a replica is being replaced."""
        return self._change is not None

    # -- what agents say -------------------------------------------------------------------------------

    def heard(self, message: AboutMembers, now: float) -> list[Effect]:
        """Take what agents say of the group's members."""
        if isinstance(message, MembersChanged):
            return self._changed(message, now)
        replica = self._fleet.replicas.get(message.replica)
        if replica is not None:
            replica.broken = message.why
        return []

    def _changed(self, message: MembersChanged, now: float) -> list[Effect]:
        """Take the leader's answer: the new member is started, or the change is asked for again."""
        change = self._change
        if change is None or change.phase is not Phase.CHANGING or message.replica != change.new:
            return []
        if message.why:
            change.deadline = now + CHANGE_AGAIN_S
            return [Log(f"replica {change.new} does not join yet: {message.why}", "info")]
        effects = self._part_with(change.leaves, change.why, now)
        change.phase, change.deadline = Phase.JOINING, now + JOIN_LIMIT_S
        return [*effects, self._fleet.joined(change.new, message)]

    def _part_with(self, name: ReplicaId, why: str, now: float) -> list[Effect]:
        replica = self._fleet.replicas.get(name)
        if replica is None:
            return []
        ended = self._lose(ReplicaLost(name, why, returning=False), now) if replica.ready else []
        return ended + self._fleet.retire(name)

    # -- moving on -------------------------------------------------------------------------------------

    def advance(self, now: float, *, waits: bool = False) -> list[Effect]:
        """Take the steps that can be taken now; none is begun while it `waits` for a replica that moves."""
        self._now = now
        fleet = self._fleet
        if not fleet.grouped:
            self._change = None
            return []
        effects = fleet.agents.search_again(now, LOOK_AGAIN_S)
        for name in sorted(fleet.departed & set(fleet.replicas)):
            effects += self._part_with(name, "it was replaced", now)
        lost = self._lost(now)
        if not self._has_majority(lost):
            return effects
        for name, why in lost.items():
            if fleet.replicas[name].ready:
                effects += self._lose(ReplicaLost(name, why, returning=False), now)
        if waits and self._change is None:
            return effects
        if self._change is None:
            return effects + self._begin(lost, now)
        return effects + self._go_on(self._change, lost, now)

    def _begin(self, lost: dict[ReplicaId, str], now: float) -> list[Effect]:
        """Begin the next replacement, if there is one to make and a host to make it on."""
        fleet = self._fleet
        if not lost and len(fleet.hosts) == 1:
            return []
        waiting = [
            name
            for name, replica in fleet.replicas.items()
            if not replica.member and name not in lost and fleet.hosts[replica.host].welcomed
        ]
        leaves = next(iter(lost), ReplicaId(""))
        vacant = bool(leaves) or len(fleet.replicas) - len(waiting) < fleet.spec.replicas
        if waiting and not vacant:
            return fleet.retire(waiting[0])
        if waiting:
            new = waiting[0]
        elif leaves or len(fleet.replicas) < fleet.spec.replicas:
            host = self._choose(leaves)
            if host is None:
                return []
            new = fleet.new_name()
            fleet.enlist(new, host)
        else:
            return []
        why = lost.get(leaves, "its host was not there when the kernel started")
        self._change = change = Change(new, leaves, why, Phase.PREPARING, now + PREPARE_LIMIT_S)
        where = fleet.replicas[new].host
        place = f"in place of {leaves} ({why})" if leaves else "as it was missing"
        log = Log(f"replica {new} is made on host {where} {place}", "info")
        if fleet.replicas[new].address:
            return [log, *self._ask(change, now)]
        return [log, fleet.prepare(new)]

    def _go_on(self, change: Change, lost: dict[ReplicaId, str], now: float) -> list[Effect]:
        replica = self._fleet.replicas.get(change.new)
        if replica is None:
            self._change = None
            return []
        if change.phase is Phase.JOINING and replica.linked:
            return self._done(change, replica.host)
        pointless = bool(change.leaves) and change.leaves in self._fleet.replicas
        if change.phase is Phase.PREPARING and pointless and change.leaves not in lost:
            return self._call_off(change, f"replica {change.leaves} is back")
        if change.phase is Phase.PREPARING and replica.address:
            return self._ask(change, now)
        if now < change.deadline:
            return []
        if change.phase is Phase.PREPARING:
            return self._call_off(change, f"host {replica.host} has not prepared it")
        if change.new in lost:
            self._change = None
            return []
        return self._ask(change, now)

    def _ask(self, change: Change, now: float) -> list[Effect]:
        """Have the leader's host change the members; asked again, it goes on where it was."""
        change.phase, change.deadline = Phase.CHANGING, now + CHANGE_LIMIT_S
        address = self._fleet.replicas[change.new].address
        leaves = self._fleet.replicas.get(change.leaves)
        # One that never joined is not named by the log: its address is known here alone.
        left = leaves.address if leaves is not None else ""
        wish = ChangeMembers(self._fleet.kernel_id, change.new, address, change.leaves, left)
        return [ToAgent(host, wish) for host in self._fleet.keeping()]

    def _done(self, change: Change, host: HostName) -> list[Effect]:
        self._change = None
        if not change.leaves:
            return [Log(f"replica {change.new} on host {host} is ready", "info")]
        return self._tell(
            f"Replica {change.leaves} was replaced by {change.new} on host {host}: {change.why}."
        )

    def _call_off(self, change: Change, why: str) -> list[Effect]:
        self._change = None
        return [Log(f"replica {change.new} is given up: {why}", "info"), *self._fleet.retire(change.new)]

    # -- who is lost, and who is there -------------------------------------------------------------------

    def _lost(self, now: float) -> dict[ReplicaId, str]:
        """Return the replicas that will not return by themselves, each with the reason, in order."""
        found: dict[ReplicaId, str] = {}
        for name, replica in self._fleet.replicas.items():
            if replica.broken:
                found[name] = replica.broken.rstrip(".")
            elif replica.member and self._fleet.is_bare(replica):
                found[name] = f"its host {replica.host} has lost what it kept of it"
            elif self._is_away(replica.host, now):
                found[name] = f"its host {replica.host} has not answered for {self._host_lost_s:g} s"
        return found

    def _is_away(self, name: HostName, now: float) -> bool:
        """Tell whether a host is lost; where there is only one, its agent is merely late."""
        since = self._fleet.hosts[name].away_since
        return len(self._fleet.hosts) > 1 and since is not None and now >= since + self._host_lost_s

    def _has_majority(self, lost: dict[ReplicaId, str]) -> bool:
        """Tell whether most members are at hosts that answer: without them nothing can be changed."""
        fleet = self._fleet
        members = [name for name, replica in fleet.replicas.items() if replica.member]
        there = [
            name for name in members if name not in lost and fleet.hosts[fleet.replicas[name].host].welcomed
        ]
        return 2 * len(there) > len(members)

    def _choose(self, leaves: ReplicaId) -> HostName | None:
        """Return the host for a new replica: one that answers, with the fewest, and never too many."""
        fleet = self._fleet
        homes = {name: host for name, host in fleet.hosts.items() if not host.guest}
        share = -(-fleet.spec.replicas // len(homes))
        before = fleet.replicas[leaves].host if leaves else None
        counts = {
            name: len([replica for replica in host.replicas if replica != leaves])
            for name, host in homes.items()
            if host.welcomed
        }
        fitting = [name for name, count in counts.items() if count < share]
        return min(fitting, key=lambda name: (counts[name], name != before), default=None)

    # -- time ------------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """Return when `advance` has something to do that no event announces."""
        fleet = self._fleet
        if not fleet.grouped:
            return None
        times = [] if self._change is None else [self._change.deadline]
        for host in fleet.hosts.values():
            if host.away_since is not None and len(fleet.hosts) > 1:
                times.append(host.away_since + self._host_lost_s)
            if not host.found and host.trouble is not None:
                times.append(host.searched_at + LOOK_AGAIN_S)
        return min((time for time in times if time > self._now), default=None)

    def check_invariants(self) -> None:
        """Assert that what is under way concerns a replica of ours, and that nobody is both in and out."""
        change = self._change
        assert change is None or change.new != change.leaves, "a replica takes its own place"
        assert not self._fleet.grouped or change is None or change.new not in self._fleet.departed
        seated = [name for host in self._fleet.hosts.values() for name in host.replicas]
        assert len(seated) == len(set(seated)), "a replica is at two hosts"
