"""The router's decisions: one kernel's clients on one side, its replicas and their agents on the other.

Pure: same events, same times and same seed give the same effects. Law: every request is answered exactly
once, no cell runs twice, and a lost replica costs the cell that it ran and nothing else.
"""

from __future__ import annotations

import msgspec

from replkernel.errors import UNREADABLE, ExecutorLost, ProtocolMismatch
from replkernel.leasing.notebook import QUESTION_TYPE
from replkernel.protocol.agent_to_router import (
    AboutGround,
    AboutMembers,
    AboutRest,
    AgentRefuses,
    AgentToRouter,
    AgentWelcome,
    CheckpointFound,
    CheckpointWritten,
    Committed,
    CommitTrouble,
    Elected,
    GpusUsed,
    GroundDescribed,
    InstallEnded,
    InterruptSent,
    KernelEnded,
    KernelHibernated,
    KernelTakenOver,
    LeaseFreed,
    MemberBroken,
    MembersChanged,
    ReplicaLost,
    ReplicaPrepared,
    ReplicaReady,
    ReplicaUnfaithful,
    RouteNotice,
    StatusAnswer,
    WentBack,
)
from replkernel.protocol.message import check_version
from replkernel.protocol.pages import SAVED_TYPE, PageSaved
from replkernel.protocol.process_to_agent import HibernationWanted
from replkernel.protocol.progress import GPU_REQUEST as GPUS
from replkernel.protocol.progress import REQUEST as PROGRESS
from replkernel.protocol.progress import ProgressQuestion
from replkernel.protocol.router_to_agent import HibernateKernel
from replkernel.records import HostName, MoveRecord, ReplicaId
from replkernel.router.core import answers, events, hibernation
from replkernel.router.core.answers import Fault
from replkernel.router.core.comms import COMM_TYPES
from replkernel.router.core.contents import CommInfoContent, read
from replkernel.router.core.control import PATIENT, Control
from replkernel.router.core.dormancy import Dormancy
from replkernel.router.core.ending import Ending
from replkernel.router.core.events import ClientRequest, Effect, Event, ReplicaMessage
from replkernel.router.core.fleet import Fleet
from replkernel.router.core.governor import Governor
from replkernel.router.core.hibernation import Hibernation
from replkernel.router.core.host_environments import HostEnvironments, Versions
from replkernel.router.core.installs import QUESTION_TYPE as INSTALLED
from replkernel.router.core.installs import Installs
from replkernel.router.core.leases import Leases
from replkernel.router.core.parts import Parts
from replkernel.router.core.placement import Placement
from replkernel.router.core.progress import Progress
from replkernel.router.core.queue import EXECUTE, READ_ONLY
from replkernel.router.core.relocation import Relocation
from replkernel.router.core.remote_status import QUESTION_TYPE as STATUS_WANTED
from replkernel.router.core.remote_status import RemoteStatus
from replkernel.router.core.replacement import HOST_LOST_S, Replacement
from replkernel.router.core.shell import Shell
from replkernel.router.core.succession import Succession
from replkernel.router.core.wire import pack

JOURNAL_TYPES = frozenset({"replkernel_outputs_request", "replkernel_outputs_saved"})
"""The requests on control that the output journal answers."""


UNSEEN = "while its host agent was away"


ANSWERED_HERE = frozenset({"kernel_info_request", "comm_info_request", "connect_request"})
"""What a page asks for when it connects; nobody has used the notebook by that."""


OWN_REQUESTS = "replkernel_"
"""Requests of our own front end begin so; they are no use of a kernel."""


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
        self._identity = identity
        self._parts = Parts(
            fleet, placement, Succession(fleet, placement), leases, own_kernel_info=identity.kernel_info
        )
        self._shell = Shell(self._parts)
        self._control = Control(self._parts)
        self._hibernation = Hibernation(
            self._parts, self._put_down, idle_s=rest.idle_s, linger_s=rest.linger_s, now=rest.now
        )
        self._dormancy = Dormancy(self._parts, rest.standby_idle_s, rest.now)
        self._replacement = Replacement(fleet, self._lost, self._notice, host_lost_s)
        self._relocation = Relocation(
            self._parts, self._replacement, self._lost, self._shell.runs_on, self._notice, move
        )
        self._governor = Governor(self._parts, self._shell, self._relocation)
        self._progress = Progress(self._parts)
        self._host_environments = HostEnvironments(fleet, self._admitted, self._notice, versions)
        self._installs = Installs(fleet, self._host_environments)
        self._elsewhere = RemoteStatus(fleet)
        self._ending: Ending | None = None
        self._asks_stdin: ReplicaId | None = None

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
        if self._ending is not None:
            return effects + self._ending.advance(now)
        if self._parts.fleet.unsure:
            effects += self._look_after_group(now)
        if not self._parts.fleet.settled:
            effects += self._parts.fleet.tick(now)
        if not isinstance(event, ReplicaMessage | ClientRequest):
            effects += self._host_environments.advance(now) + self._installs.advance(now)
            effects += self._elsewhere.advance(now)
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
        if self._ending is not None:
            return self._ending.deadline
        times = [self._parts.fleet.deadline(), self._hibernation.deadline(), self._parts.leases.deadline()]
        times += [self._host_environments.deadline(), self._installs.deadline(), self._elsewhere.deadline()]
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
        self._elsewhere.check_invariants()
        self._progress.check_invariants()

    def _dispatch(self, event: Event, now: float) -> list[Effect]:
        match event:
            case events.ReplicaMessage():
                return self._from_replica(event, now)
            case events.ClientRequest():
                return self._from_client(event, now)
            case events.AgentSaid():
                return self._from_agent(event.host, event.message, now)
            case events.Undelivered():
                return self._shell.undelivered(event.replica)
            case events.AgentFound():
                return self._parts.fleet.agents.found(event.host, event.token, now, far=event.far)
            case events.AgentMissing():
                return self._parts.fleet.agents.missing(event.host, Fault(event.ename, event.why))
            case events.AgentGone():
                self._host_environments.gone(event.host)
                if self._ending is not None:
                    return self._ending.ended(event.host)
                gone = self._parts.fleet.agents.gone(event.host, now) + self._installs.gone(event.host)
                gone += self._elsewhere.gone(event.host)
                return gone + self._hibernation.stopped(event.host, now)
            case events.Resumed():
                return self._shell.resume(event, now)
            case events.Answered():
                return self._shell.resume_answered(event, now)
            case events.Noticed():
                return self._notice(event.text)
            case events.Subscribed():
                return self._welcome_subscriber(event)
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
                return self._end(None, event.why, now)
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

    # -- clients ------------------------------------------------------------------------------------

    def _welcome_subscriber(self, event: events.Subscribed) -> list[Effect]:
        """Greet a subscriber; one that comes in the middle of a cell is told that the kernel is busy."""
        content = pack({"subscription": event.topic.decode("utf-8", "replace")})
        effects: list[Effect] = [
            events.Publish("iopub_welcome", b"{}", content, topic=event.way or event.topic)
        ]
        busy = self._shell.begun
        if busy is not None and event.way:
            effects.append(events.Publish("status", busy.header_frame, answers.BUSY, topic=event.way))
        return effects

    def _from_client(self, request: ClientRequest, now: float) -> list[Effect]:
        if self._ending is not None:
            return []
        kind = request.header.msg_type
        if kind not in PATIENT and not kind.startswith(OWN_REQUESTS):
            self._hibernation.used(now)
            if kind not in ANSWERED_HERE:
                self._dormancy.used(now)
        if request.channel == "stdin":
            return self._from_stdin(request)
        if kind == "connect_request":
            return answers.whole(request, pack({"status": "ok", **self._identity.ports}))
        if request.channel == "control":
            return self._from_control(request, now)
        if kind == "comm_info_request" and self._parts.fleet.asleep:
            comms = self._parts.comms.info(read(CommInfoContent, request.content).target_name)
            return answers.whole(request, pack({"status": "ok", "comms": comms}))
        target = self._parts.succession.designated()
        subshell = request.header.subshell_id
        if subshell is not None and target is not None and not self._is_stray(request, target):
            return self._to_subshell(request, subshell, target, now)
        if kind in COMM_TYPES and self._hibernation.holds and not request.repeated:
            return self._shell.hold(request)
        return self._shell.handle(request, now)

    def _is_stray(self, request: ClientRequest, target: ReplicaId) -> bool:
        """Tell whether the main shell takes a comm's message, though it names a subshell.

        JupyterLab has a subshell for comms, and goes on naming it when it has ended with its process. Who is
        to take the notebook over does so in the main shell, and rebuilds what a page asks for. While it is
        put to rest or about to move, all waits there, and what comes then waits behind it.
        """
        if request.header.msg_type not in COMM_TYPES or request.repeated:
            return False
        holder = self._parts.comms.holder(request.content)
        if holder is not None and holder in self._parts.fleet.ready():
            target = holder
        elif self._hibernation.holds or self._shell.comms_wait:
            return True
        subshell = self._parts.subshells.get(request.header.subshell_id or "")
        gone = subshell is None or subshell.replica != target
        return gone or self._parts.succession.takes_over(target)

    def _to_subshell(
        self, request: ClientRequest, subshell: str, target: ReplicaId, now: float
    ) -> list[Effect]:
        """Give a message to a subshell, which lives in the executor's process and has its own queue there."""
        if request.repeated:
            return []
        kind, known = request.header.msg_type, self._parts.subshells.get(subshell)
        if known is not None:
            known.for_widgets = known.for_widgets or kind in COMM_TYPES
            known.runs_cells = known.runs_cells or kind == EXECUTE
        if kind in COMM_TYPES:
            holder = self._parts.comms.holder(request.content)
            target = holder if holder is not None and holder in self._parts.fleet.ready() else target
            self._parts.succession.page_spoke(request.header.msg_id, target, now)
            self._parts.comms.saw(kind, request.content, target)
        self._parts.traffic.give(request, target)
        sent: list[Effect] = [events.ToReplica(target, "shell", [*request.identities, *request.frames])]
        if kind != EXECUTE:
            return sent
        process = self._parts.fleet.process_of(target)
        return [events.Accepted(request), events.Given(request.header.msg_id, target, process), *sent]

    def _from_control(self, request: ClientRequest, now: float) -> list[Effect]:
        kind = request.header.msg_type
        if kind in JOURNAL_TYPES:
            return [] if request.repeated else [events.AskJournal(request)]
        if kind in (PROGRESS, GPUS):
            return [] if request.repeated else self._from_page(request, now)
        if kind == "shutdown_request":
            return self._end(request, "a client asked for it", now)
        if kind == hibernation.REQUEST:
            return self._hibernation.want(request, "a client asked for it")
        if kind == hibernation.SAVE:
            behind = self._parts.succession.page_waits_until() is not None
            return self._hibernation.save(request, now, busy=self._shell.busy or behind)
        if kind == hibernation.RECOVER:
            return self._hibernation.recover(request, now)
        if kind == "interrupt_request":
            stopped = [] if request.stale else self._shell.interrupt(now, request)
            return [*stopped, *answers.whole(request, pack({"status": "ok"}))]
        return self._control.handle(request, now)

    def _from_page(self, request: ClientRequest, now: float) -> list[Effect]:
        """Answer what a page asks; no status goes with it, for the kernel does nothing."""
        if request.header.msg_type == GPUS:
            return self._governor.asked(request, now)
        try:
            question = msgspec.json.decode(request.content, type=ProgressQuestion)
        except UNREADABLE:
            question = ProgressQuestion()
        rest, move = self._hibernation.phase.value, self._relocation.standing()
        told = self._progress.tell(question.since, rest, move, now)
        told = msgspec.structs.replace(told, busy=self._shell.busy)
        return [answers.reply(request, msgspec.json.encode(told))]

    def _from_stdin(self, request: ClientRequest) -> list[Effect]:
        target = self._asks_stdin or self._parts.succession.designated()
        if target is None or target not in self._parts.fleet.ready():
            return []
        return [events.ToReplica(target, "stdin", [*request.identities, *request.frames])]

    # -- replicas -----------------------------------------------------------------------------------

    def _from_replica(self, message: ReplicaMessage, now: float) -> list[Effect]:
        if message.channel == "iopub":
            return self._published(message)
        if message.msg_type == QUESTION_TYPE:
            return self._governor.asked(message, now)
        if message.msg_type == SAVED_TYPE:
            return self._page_saved(message, now)
        if message.msg_type == INSTALLED:
            return self._installs.asked(message, now)
        if message.msg_type == STATUS_WANTED:
            return self._elsewhere.asked(message, now)
        if message.channel == "stdin":
            self._asks_stdin = message.replica
            return [events.PassToClient("stdin", [*message.prefix, *message.frames])]
        if not self._parts.traffic.admits_reply(message, self._parts.placement.executor):
            return []
        if message.channel == "control":
            return self._control.replied(message)
        self._dormancy.used(now)
        return self._shell.replied(message, now)

    def _page_saved(self, message: ReplicaMessage, now: float) -> list[Effect]:
        try:
            said = msgspec.json.decode(message.content, type=PageSaved)
        except UNREADABLE:
            return []
        if message.replica == self._parts.placement.executor:
            self._parts.succession.page_saved(said, now)
        return []

    def _published(self, message: ReplicaMessage) -> list[Effect]:
        if message.msg_type == "iopub_welcome":
            self._parts.fleet.became_linked(message.replica)
            return []
        if not self._parts.traffic.admits_output(message, self._parts.placement.executor):
            return []
        if message.msg_type in COMM_TYPES:
            self._parts.comms.saw(message.msg_type, message.content, message.replica)
        return [self._shell.passed(message), *self._shell.published(message)]

    # -- agents -------------------------------------------------------------------------------------

    def _from_agent(self, host: HostName, message: AgentToRouter, now: float) -> list[Effect]:
        fleet, succession = self._parts.fleet, self._parts.succession
        match message:
            case AgentWelcome():
                return self._welcomed(host, message, now)
            case AgentRefuses():
                return fleet.agents.refused(host, message.why)
            case ReplicaPrepared():
                return fleet.prepared(message, now)
            case ReplicaReady():
                message = fleet.as_reached(host, message)
                return self._unseen_loss(message, now) + fleet.became_ready(message)
            case ReplicaLost():
                return self._lost(message, now)
            case Committed() | WentBack() | Elected():
                succession.heard(message)
            case InterruptSent():
                self._shell.interrupts.sent(message)
            case ReplicaUnfaithful():
                return self._notice(self._parts.placement.doubts.take(message.replica, message.pins))
            case CommitTrouble():
                self._parts.notices.trouble(message.replica, message.why)
                return [events.Log(message.why, "warning")] if message.why else []
            case RouteNotice():
                return self._notice(message.text)
            case LeaseFreed() | GpusUsed():
                return self._governor.told(message, host)
            case StatusAnswer():
                return self._elsewhere.answered(host, message)
            case _:
                return self._about_group(host, message, now)
        return []

    def _about_group(
        self,
        host: HostName,
        message: AboutRest | AboutMembers | AboutGround,
        now: float,
    ) -> list[Effect]:
        match message:
            case GroundDescribed():
                host_environments = self._host_environments.described(host, message, now)
                return host_environments + self._installs.described(host, message)
            case InstallEnded():
                return self._installs.ended(host, message)
            case MembersChanged() if self._relocation.active:
                return self._relocation.heard(message, now)
            case MembersChanged() | MemberBroken():
                return self._replacement.heard(message, now)
            case CheckpointFound():
                return self._checkpoint_found(message, now)
            case CheckpointWritten():
                return self._hibernation.saved(host, message, now)
            case KernelHibernated():
                return self._hibernation.stopped(host, now)
            case HibernationWanted():
                return self._hibernation.want(None, "a cell asked for it")
            case KernelTakenOver():
                return self._taken_over(message, now)
            case KernelEnded():
                return self._ended_by(host, now)

    def _ended_by(self, host: HostName, now: float) -> list[Effect]:
        """Take note of a host's end of the kernel; unasked (its agent was stopped), it is the end of it all.

        A host without a replica of ours speaks of a kernel before this one, under the same id.
        """
        effects: list[Effect] = []
        if self._ending is None:
            if not self._parts.fleet.serves(host):
                return []
            effects = self._end(None, f"the agent of host {host} has ended it", now)
        assert self._ending is not None
        return effects + self._ending.ended(host)

    def _notice(self, text: str) -> list[Effect]:
        """Tell the user a sentence, if any: on the terminal now, in the notebook with the next cell."""
        if not text:
            return []
        self._parts.notices.add(text)
        return [events.Log(text, "warning")]

    def _welcomed(self, host: HostName, welcome: AgentWelcome, now: float) -> list[Effect]:
        try:
            check_version(welcome.version, f"agent of host {host}")
        except ProtocolMismatch as mismatch:
            return self._parts.fleet.agents.missing(host, Fault("ProtocolMismatch", str(mismatch)))
        return self._host_environments.welcomed(host, welcome, now)

    def _admitted(self, host: HostName, welcome: AgentWelcome, now: float) -> list[Effect]:
        """Go on with a host that may have replicas."""
        effects = self._parts.fleet.welcomed(host, welcome, now)
        if self._parts.fleet.hosts[host].keeps:
            self._parts.succession.adopt(welcome, now)
            self._hibernation.awoken()
        return effects

    # -- hibernate and resume ------------------------------------------------------------------------

    def _look_after_group(self, now: float) -> list[Effect]:
        """See whether there is a group yet, or enough of one; bring the kernel back if there is not."""
        fleet = self._parts.fleet
        if self._hibernation.holds:
            return []
        if fleet.lost_majority():
            return self._hibernation.recover(None, now)
        if not fleet.is_gone(now):
            why = "its host has lost what it kept of it"
            lost = [ReplicaLost(name, why, returning=False) for name in fleet.stranded()]
            return [effect for message in lost for effect in self._lost(message, now)]
        return self._put_down("all of its replicas are gone", now) + fleet.revive(now)

    def _put_down(self, why: str, now: float) -> list[Effect]:
        """End what is under way at the replicas, all of which are about to be stopped, or gone."""
        effects: list[Effect] = []
        for name, replica in self._parts.fleet.replicas.items():
            if replica.ready:
                effects += self._lost(ReplicaLost(name, why, returning=True), now)
        return effects

    def _taken_over(self, message: KernelTakenOver, now: float) -> list[Effect]:
        """Run nothing any more: another router goes on from this kernel's checkpoint, and counts."""
        fleet = self._parts.fleet
        if message.generation <= fleet.generation or self._hibernation.holds:
            return []
        put_down = self._put_down("the kernel goes on elsewhere", now)
        stop = HibernateKernel(fleet.kernel_id, "stop")
        stopped: list[Effect] = [events.ToAgent(host, stop) for host in fleet.keeping()]
        return [*put_down, *stopped, *fleet.yield_to(message.generation, now)]

    def _checkpoint_found(self, message: CheckpointFound, now: float) -> list[Effect]:
        if message.why:
            self._parts.fleet.checkpoint_found(message, now)
            return self._notice(message.why)
        if not self._parts.fleet.checkpoint_found(message, now):
            return []
        told = [*message.notices]
        if message.name or not self._parts.fleet.awaits_group:
            told.append(self._parts.succession.resumed(message))
            self._shell.counted(message.execution_count)
        return [effect for text in told for effect in self._notice(text)]

    def _unseen_loss(self, message: ReplicaReady, now: float) -> list[Effect]:
        """Let go of a process that died while its agent was away: another one answers in its place."""
        if not self._parts.fleet.replaces(message):
            return []
        why = f"{message.unseen or 'its process ended'} {UNSEEN}"
        return self._lost(ReplicaLost(message.replica, why, returning=True), now)

    def _lost(self, message: ReplicaLost, now: float) -> list[Effect]:
        replica = message.replica
        why = self._shell.interrupts.why_lost(replica, message.why)
        self._parts.placement.doubts.forget(replica)
        gone = self._parts.placement.lost(replica, self._parts.succession.last)
        effects = [*self._parts.fleet.lost(message, now), *self._notice(gone)]
        fault = Fault("ExecutorLost", str(ExecutorLost(why)))
        effects += self._shell.lost(replica, why, now - message.ago_s, message.kept)
        if self._parts.placement.executor == replica:
            self._parts.succession.executor_lost(now, message.kept, message.newest)
            self._parts.debugged = False
        self._parts.subshells_end(replica)
        effects += self._parts.leases.process_lost(replica)
        self._governor.lost(replica)
        self._parts.lanes.lost(replica)
        for request in self._parts.traffic.lost(replica):
            effects += self._take_back(request, fault, now)
        effects += [answers.comm_close(comm_id) for comm_id in self._parts.comms.drop(replica)]
        if self._asks_stdin == replica:
            self._asks_stdin = None
        return effects

    def _take_back(self, request: ClientRequest, fault: Fault, now: float) -> list[Effect]:
        """Have another replica, or the next process, answer what a lost one left; else end it."""
        if request.header.msg_type in READ_ONLY and request.channel == "shell":
            return self._shell.ask_again(request, now)
        seen = self._parts.traffic.retire(request.header.msg_id)
        refusal = answers.refusal(request, fault)
        return refusal[1:] if seen else refusal

    # -- the end --------------------------------------------------------------------------

    def _end(self, request: ClientRequest | None, reason: str, now: float) -> list[Effect]:
        if self._ending is not None:
            return self._ending.leave()
        self._ending = Ending(self._parts.fleet, request, reason, now)
        return [*self._governor.ends(), *self._ending.begin()]
