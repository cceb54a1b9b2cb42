"""The router's decisions: one kernel's clients on one side, its replicas and their agents on the other.

Pure: same events, same times and same seed give the same effects. Law: every request is answered exactly
once, no cell runs twice, and a lost replica costs the cell that it ran and nothing else.
"""

from __future__ import annotations

import msgspec

from replkernel.protocol.agent_to_router import AgentWelcome
from replkernel.records import HostName, MoveRecord
from replkernel.router.core import answers, events
from replkernel.router.core.agent_messages import AgentMessages
from replkernel.router.core.answers import Fault
from replkernel.router.core.client_messages import ClientMessages
from replkernel.router.core.control import Control
from replkernel.router.core.dormancy import Dormancy
from replkernel.router.core.ending import Ending
from replkernel.router.core.events import ClientRequest, Effect, Event, ReplicaMessage
from replkernel.router.core.fleet import Fleet
from replkernel.router.core.governor import Governor
from replkernel.router.core.hibernation import Hibernation
from replkernel.router.core.host_environments import HostEnvironments, Versions
from replkernel.router.core.installs import Installs
from replkernel.router.core.leases import Leases
from replkernel.router.core.lost_replicas import LostReplicas
from replkernel.router.core.parts import Parts
from replkernel.router.core.placement import Placement
from replkernel.router.core.progress import Progress
from replkernel.router.core.relocation import Relocation
from replkernel.router.core.remote_status import RemoteStatus
from replkernel.router.core.replacement import HOST_LOST_S, Replacement
from replkernel.router.core.replica_messages import ReplicaMessages
from replkernel.router.core.shell import Shell
from replkernel.router.core.succession import Succession
from replkernel.router.core.usage import Usage


class Identity(msgspec.Struct, frozen=True):
    """What the router can say of the kernel by itself: kernel_info's content, and the ports it listens on."""

    kernel_info: bytes
    ports: dict[str, int]


class Rest(msgspec.Struct, frozen=True):
    """When a kernel hibernates by itself (0: never), and how long its router then stays without a client.

    Before that, its standbys go without processes (`standby_idle_s`).
    """

    idle_s: float = 0.0
    standby_idle_s: float = 0.0
    linger_s: float | None = None
    now: float = 0.0


class Router:
    """One kernel's router as a state machine."""

    def __init__(
        self,
        fleet: Fleet,
        placement: Placement,
        identity: Identity,
        rest: Rest | None = None,
        host_lost_s: float = HOST_LOST_S,
        leases: Leases | None = None,
        move: MoveRecord | None = None,
        versions: Versions = "warn",
    ) -> None:
        """`move` is a replica's move that the router before this one had begun."""
        rest = rest or Rest()
        leases = leases or Leases(fleet.kernel_id)
        self._parts = parts = Parts(
            fleet, placement, Succession(fleet, placement), leases, own_kernel_info=identity.kernel_info
        )
        tell, usage = parts.notices.tell, Usage(leases)
        self._shell = Shell(parts)
        self._control = Control(parts)
        self._ending = Ending(fleet, leases)
        self._progress = Progress(parts)
        self._lost_replicas = LostReplicas(parts, self._shell, usage, self._progress)
        lose = self._lost_replicas.lost
        self._hibernation = Hibernation(
            parts, self._lost_replicas.put_down, idle_s=rest.idle_s, linger_s=rest.linger_s, now=rest.now
        )
        self._dormancy = Dormancy(parts, rest.standby_idle_s, rest.now)
        self._replacement = Replacement(fleet, lose, tell, host_lost_s)
        self._relocation = Relocation(parts, self._replacement, lose, self._shell.runs_on, tell, move)
        self._governor = Governor(parts, self._shell, self._relocation, usage)
        self._host_environments = HostEnvironments(fleet, self._admitted, tell, versions)
        self._installs = Installs(fleet, self._host_environments)
        self._remote_status = RemoteStatus(fleet)
        self._client_messages, self._replica_messages, self._agent_messages = self._receivers(identity.ports)

    def _receivers(self, ports: dict[str, int]) -> tuple[ClientMessages, ReplicaMessages, AgentMessages]:
        """Return what takes each kind of message, and hands it to the part that decides about it."""
        clients = ClientMessages(
            self._parts,
            self._shell,
            self._control,
            ports,
            hibernation=self._hibernation,
            dormancy=self._dormancy,
            relocation=self._relocation,
            governor=self._governor,
            progress=self._progress,
            ending=self._ending,
        )
        replicas = ReplicaMessages(
            self._parts,
            self._shell,
            self._control,
            self._dormancy,
            self._governor,
            self._installs,
            self._remote_status,
        )
        agents = AgentMessages(
            self._parts,
            self._shell,
            lost_replicas=self._lost_replicas,
            hibernation=self._hibernation,
            replacement=self._replacement,
            relocation=self._relocation,
            governor=self._governor,
            host_environments=self._host_environments,
            installs=self._installs,
            remote_status=self._remote_status,
            ending=self._ending,
            progress=self._progress,
        )
        return clients, replicas, agents

    def start(self, now: float) -> list[Effect]:
        """Announce the kernel and look for its agents."""
        told = self._parts.leases.scheduler.begin()
        return [
            events.Publish("status", b"{}", answers.STARTING),
            *self._parts.fleet.agents.search(now),
            *told,
        ]

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take an event and return what to do about it, in order."""
        effects = self._decide(event, now)
        self._progress.saw(event, effects, now)
        return effects

    def _decide(self, event: Event, now: float) -> list[Effect]:
        effects = self._dispatch(event, now)
        if self._ending.begun:
            return effects + self._ending.advance(now)
        if self._parts.fleet.unsure:
            effects += self._look_after_group(now)
        if not self._parts.fleet.settled:
            effects += self._parts.fleet.tick(now)
        if not isinstance(event, ReplicaMessage | ClientRequest):
            effects += self._host_environments.advance(now) + self._installs.advance(now)
            effects += self._remote_status.advance(now)
        if self._hibernation.attentive:
            needed = self._shell.waits or self._control.needs_replica
            effects += self._hibernation.advance(now, busy=self._shell.busy, needed=needed)
        leases = self._parts.leases
        if leases.scheduler.up or self._parts.fleet.asleep is not leases.scheduler.rests:
            effects += self._governor.advance(now)
        if self._hibernation.holds:
            return effects
        if self._relocation.active or not isinstance(event, ReplicaMessage | ClientRequest):
            effects += self._replacement.advance(now, waits=self._relocation.active)
            effects += self._relocation.advance(now)
        if self._control.waits:
            effects += self._control.advance(now)
        effects += self._shell.advance(now)
        if self._dormancy.present or not isinstance(event, ReplicaMessage):
            effects += self._dormancy.advance(now, busy=self._shell.busy, waits=self._awaits_replica)
        return effects

    @property
    def _awaits_replica(self) -> bool:
        """Tell whether something goes on that may wait for a replica."""
        waits = self._shell.waits or self._control.needs_replica
        return waits or self._relocation.active or self._replacement.busy

    def deadline(self) -> float | None:
        """Return when the next Tick is due."""
        if self._ending.begun:
            return self._ending.deadline
        times = [self._parts.fleet.deadline(), self._hibernation.deadline(), self._parts.leases.deadline()]
        times += [
            self._host_environments.deadline(),
            self._installs.deadline(),
            self._remote_status.deadline(),
        ]
        if not self._hibernation.holds:
            times.append(self._dormancy.deadline())
            times += [self._shell.deadline(), self._control.deadline(), self._replacement.deadline()]
            times.append(self._relocation.deadline())
        return min([time for time in times if time is not None], default=None)

    def check_invariants(self) -> None:
        """Assert the laws of every part."""
        self._parts.check_invariants()
        self._shell.check_invariants()
        self._control.check_invariants()
        self._hibernation.check_invariants()
        self._replacement.check_invariants()
        self._relocation.check_invariants()
        self._governor.check_invariants()
        self._host_environments.check_invariants()
        self._installs.check_invariants()
        self._remote_status.check_invariants()
        self._progress.check_invariants()

    def _dispatch(self, event: Event, now: float) -> list[Effect]:
        match event:
            case events.ReplicaMessage():
                return self._replica_messages.handle(event, now)
            case events.ClientRequest():
                return self._client_messages.handle(event, now)
            case events.AgentSaid():
                return self._agent_messages.handle(event.host, event.message, now)
            case events.Undelivered():
                return self._shell.undelivered(event)
            case events.AgentFound():
                return self._parts.fleet.agents.found(event.host, event.token, now, far=event.far)
            case events.AgentMissing():
                return self._parts.fleet.agents.missing(event.host, Fault(event.ename, event.why))
            case events.AgentGone():
                return self._agent_messages.gone(event.host, now)
            case events.Resumed():
                return self._shell.resume(event, now)
            case events.Answered():
                return self._shell.resume_answered(event, now)
            case events.Noticed():
                return self._parts.notices.tell(event.text)
            case events.Subscribed():
                return self._client_messages.welcome(event)
            case events.Tick():
                return []
            case _:
                return self._from_around(event, now)

    def _from_around(
        self,
        event: events.FromAround | events.Waited | events.PageGiven | events.AboutScheduler,
        now: float,
    ) -> list[Effect]:
        """Take what the process's surroundings say: signals, launcher, who is connected, scheduler."""
        match event:
            case events.InterruptSignal():
                return self._shell.interrupt(now) if self._shell.busy else []
            case events.EndSignal(returns=True):
                return [events.Log(f"{event.why}; the kernel lives on without a router"), events.Exit(0)]
            case events.LauncherGone(returns=True):
                return self._hibernation.want(None, event.why, unused=True)
            case events.EndSignal() | events.LauncherGone():
                return self._ending.begin(None, event.why, now)
            case events.ClientsCounted():
                self._hibernation.clients(event.count, now)
                return []
            case events.Waited():
                return self._shell.waited(event, now)
            case events.PageGiven():
                self._parts.succession.page_given(event)
                return []
            case _:
                return self._governor.hear(event, now)

    def _admitted(self, host: HostName, welcome: AgentWelcome, now: float) -> list[Effect]:
        """Go on with a host that may have replicas."""
        effects = self._parts.fleet.welcomed(host, welcome, now)
        if self._parts.fleet.hosts[host].keeps:
            self._parts.succession.adopt(welcome, now)
            self._hibernation.awoken()
        return effects

    def _look_after_group(self, now: float) -> list[Effect]:
        """See whether there is a group yet, or enough of one; bring the kernel back if there is not."""
        fleet = self._parts.fleet
        if self._hibernation.holds:
            return []
        if fleet.lost_majority():
            return self._hibernation.recover(None, now)
        if not fleet.is_gone(now):
            return self._lost_replicas.stranded(now)
        return self._lost_replicas.put_down("all of its replicas are gone", now) + fleet.revive(now)
