"""Who runs the next execution, under which number and fence, and what must be committed before.

Pure. Law: numbers and fences only grow; a cell is placed on another replica only when everything before it
is committed, or the wait for that is over and its loss has been said.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from replkernel.errors import CellEffect
from replkernel.protocol.agent_to_router import AgentWelcome, CheckpointFound, Committed, Elected, WentBack
from replkernel.protocol.envelope import Envelope
from replkernel.protocol.pages import PageSaved
from replkernel.protocol.router_to_agent import ElectExecutor, SettleReplica
from replkernel.records import Fence, HostName, Mark, ReplicaId, Seq
from replkernel.router.core.events import Effect, PageGiven, ToAgent
from replkernel.router.core.fleet import Fleet
from replkernel.router.core.loss import TAIL_LIMIT_S, Loss
from replkernel.router.core.pages import Pages
from replkernel.router.core.placement import Placement

ELECTION_LIMIT_S = 3.0
"""How long an election may take before the router itself designates a standby."""
COMMIT_LIMIT_S = 30.0
"""How long a move to another replica waits for the previous execution's commit."""
SETTLE_AGAIN_S = 5.0
"""While somebody waits for what was left for later, the executor is told so this often."""
COMPANY_LIMIT_S = 10.0
"""How long the second cell of a new kernel, where cells move, waits for another replica to start."""
REJOIN_LIMIT_S = 2.0
"""How long a router that takes over waits for the executor that the agents name to be linked."""
BUSY_LIMIT_S = 15.0
"""So long where its agent says that its process lives: code of the notebook's may keep it from answering."""
NAMES_TOLD_MAX = 5
NOTHING_LEFT = (
    "No replica of this kernel is left and its store holds no checkpoint of it: its variables are lost; "
    "run the notebook again from its first cell."
)


class Choice(msgspec.Struct, frozen=True):
    """The outcome of a choice: a replica, or none for now, and what to do about it."""

    replica: ReplicaId | None = None
    effects: tuple[Effect, ...] = ()
    notice: str = ""
    astray: bool = False
    """Whether none will come of it on the host that was asked for: the notebook cannot go there."""


@dataclass(slots=True)
class Election:
    """A running election: replicas vote LEAD or YIELD for execution `seq`."""

    seq: Seq
    deadline: float
    answers: int = 0
    winner: ReplicaId | None = None


class Author(msgspec.Struct, frozen=True):
    """The process that ran the last execution of the router before this one, looked for up to `deadline`."""

    replica: ReplicaId
    process: str
    seq: Seq
    deadline: float


class Succession:
    """The numbering of executions and the passage of the executor's role."""

    def __init__(self, fleet: Fleet, placement: Placement) -> None:
        self._fleet = fleet
        self._placement = placement
        self._election: Election | None = None
        self._orphaned = False
        self._rejoin_deadline: float | None = None
        self._unsettled = Seq(0)
        self._completed_at = 0.0
        self._notice = ""
        self.last = Seq(0)
        self.fence = Fence(0)
        self.completed = Seq(0)
        self.committed = Seq(0)
        self.logged = Mark(Seq(0))
        """What the log holds of the last execution, which is durable (`committed`) when nothing is owed."""
        self.state_bytes: int | None = None
        """How much state the last commit told of; None: no commit was seen."""
        self._author: Author | None = None
        self._company_deadline: float | None = None
        self._placed = False
        """Whether this router has placed an execution itself: then it knows best who the executor is."""
        self._accompanied = False
        """Whether a second replica has been there, or has been waited for long enough."""
        self._owed: tuple[str, ...] = ()
        self._loss = Loss()
        self.pages = Pages()
        self._gave_up = False
        """Whether a move has waited in vain for a commit; none waits again before there is one."""
        self._asked_to_settle: tuple[Seq, float, float] = (Seq(0), 0.0, float("-inf"))
        """For which execution all was asked to be made durable, since when, and when last."""
        self._roams = False
        """Whether cells go where their GPUs are, and there is more than one host."""
        self._called_away = False
        """Whether the last choice was to be made on a host where the executor is not."""

    def adopt(self, welcome: AgentWelcome, now: float) -> None:
        """Continue the numbering of a kernel that an agent already keeps, and its executor's role.

        A cell may still run there: nothing moves before it is committed.
        """
        if welcome.incarnation:
            self._unsettled = max(self._unsettled, welcome.newest_seq)
            self._completed_at = now
            if welcome.executor is not None and not self._placed:
                self._placement.executor = welcome.executor
                self._rejoin_deadline = now + REJOIN_LIMIT_S
            self.last = max(self.last, welcome.last_seq, welcome.newest_seq)
            self.completed = max(self.completed, welcome.last_seq, welcome.pending_seq)
            self.logged = max(self.logged, Mark(welcome.last_seq))
            whole = welcome.whole_seq if welcome.owing else welcome.last_seq
            self.committed = max(self.committed, whole)
            self.pages.logged(self.logged)
        self.fence = max(self.fence, welcome.fence)

    def resumed(self, found: CheckpointFound) -> str:
        """Go on from a checkpoint, with replicas that have run nothing; return what the user should know."""
        lost = self.completed - found.seq
        self._election = self._rejoin_deadline = None
        self._loss.over()
        self.pages.lost()
        self._orphaned, self._owed, self._gave_up, self._notice = False, (), False, ""
        self._placement.executor = None
        self._placement.pinned(())
        self.last = max(self.last, found.newest_seq, found.seq)
        self.fence = max(self.fence, found.fence)
        self.completed = self.committed = self._unsettled = found.seq
        self.logged = Mark(found.seq)
        if not found.name:
            return NOTHING_LEFT
        if lost <= 0:
            return ""
        cells, again = ("the last cell", "it") if lost == 1 else (f"the last {lost} cells", "them")
        return (
            f"This kernel was brought back as of cell [{found.execution_count}]: what {cells} changed had "
            f"not reached the store when all replicas were lost; run {again} again."
        )

    def numbered(self, seq: Seq, fence: Fence) -> None:
        """Take note of a number and a fence that the router before this one gave."""
        self.last, self.fence = max(self.last, seq), max(self.fence, fence)

    def page_given(self, told: PageGiven) -> None:
        """Take note of a page's message that was an execution under the router before this one."""
        self.numbered(told.seq, told.fence)
        if told.seq == self.last:
            self.pages.begins_in(told.replica, told.process)

    def ran_before(self, replica: ReplicaId, process: str, seq: Seq, now: float) -> None:
        """Take note of an execution under the router before this one, in a process that may be gone."""
        if seq > self.completed:
            self.completed = seq
            self._author = Author(replica, process, seq, now + TAIL_LIMIT_S)

    def _awaits_author(self, now: float) -> bool:
        """Tell whether the process that ran the last cell may still be found; what it had not committed is
        lost with it.
        """
        author = self._author
        if author is None:
            return False
        process = self._fleet.process_of(author.replica)
        if author.seq > self.logged.seq and process != author.process:
            if not process and now < author.deadline:
                return True
            self._placement.lost(author.replica, self.last)
            self.executor_lost(now)
        self._author = None
        return False

    def completed_by(self, seq: Seq, now: float) -> None:
        """Take note that an execution ran to its end."""
        self.completed, self._completed_at = seq, now
        self._unsettled = seq
        self._loss.over()

    def heard(self, message: Committed | WentBack | Elected) -> None:
        """Take note of what an agent says of the log."""
        match message:
            case Committed():
                self.saw_commit(message)
            case WentBack():
                self.went_back(message)
            case Elected():
                self.elected(message)

    def saw_commit(self, message: Committed) -> None:
        """Take note that an execution is durable, or what it owes yet, and of what pins the executor."""
        mark = Mark(message.seq, message.audit)
        if mark < self.logged:
            return
        self.logged, self._owed = mark, message.unaudited
        self.pages.logged(mark)
        self.state_bytes = message.state_bytes
        self.completed = max(self.completed, message.seq)
        self._placement.pinned(message.pins)
        if not message.unaudited:
            self.committed, self._gave_up = message.seq, False

    def takes_over(self, replica: ReplicaId) -> bool:
        """Tell whether a process takes the notebook over with what it is given next: others ran the cells."""
        process = self._fleet.process_of(replica)
        return self.last > 0 and (self._orphaned or not self.pages.has_notebook(replica, process))

    def page_spoke(self, msg_id: str, replica: ReplicaId, now: float) -> None:
        """Take note that a page's message is given to a process: who has the notebook tells of its end."""
        if self.pages.has_notebook(replica, self._fleet.process_of(replica)):
            self.pages.spoke(msg_id, now)

    def page_saved(self, said: PageSaved, now: float) -> None:
        """Take note of what a process says of pages' messages; one of them may have been an execution.

        Where the notebook could not be taken over with that, the next message tries it again.
        """
        if not said.ran:
            self.pages.refused(said.msg_id)
            if said.seq == self.last:
                self.pages.not_begun()
            return
        if self.pages.saved(said.msg_id, Mark(Seq(said.seq), said.audit)) and said.seq >= self.completed:
            self.completed_by(min(Seq(said.seq), self.last), now)
        self.pages.logged(self.logged)

    def page_waits_until(self) -> float | None:
        """Return until when somebody waits for what pages had widgets do; None when all of it is durable."""
        return self._patience_ends() if self.pages.waits else None

    def went_back(self, message: WentBack) -> None:
        """Take note that what came after a whole point is gone: nobody waits for it any more."""
        if self._loss.last is not None and message.point <= self._loss.last:
            self.completed = self.committed = self._unsettled = message.point
            self._owed, self._gave_up = (), False

    @property
    def orphaned(self) -> bool:
        """Tell whether the executor's process is gone and nobody has been chosen in its place."""
        return self._orphaned

    @property
    def all_committed(self) -> bool:
        """Tell whether what ran is durable, and what pages had widgets do."""
        return self._unsettled <= self.committed and not self.pages.waits

    def have_settled(self, now: float) -> list[Effect]:
        """Have the executor's process make durable what it was to keep for later: somebody waits for it."""
        executor = self._placement.executor or ReplicaId("")
        replica = self._fleet.replicas.get(executor)
        if replica is None or self.all_committed or self.logged.seq < self.completed:
            return []
        seq, since, last = self._asked_to_settle
        if seq == self.completed and now < last + SETTLE_AGAIN_S:
            return []
        self._asked_to_settle = (self.completed, since if seq == self.completed else now, now)
        return [ToAgent(replica.host, SettleReplica(self._fleet.kernel_id, executor))]

    def _patience_ends(self) -> float:
        """Return until when a move waits for a commit: what was kept for later has from then on."""
        seq, since, _ = self._asked_to_settle
        asked = self._owed and seq == self.completed
        begun = max(self._completed_at, self.pages.spoke_at)
        return (max(begun, since) if asked else begun) + COMMIT_LIMIT_S

    def hand_over(self, leaves: ReplicaId, to: ReplicaId) -> None:
        """Let a replica be the executor in the place of one that goes, if that is it."""
        if self._placement.executor == leaves:
            self._placement.executor = to

    def elected(self, message: Elected) -> None:
        """Take note of an election's outcome."""
        if self._election is not None and message.seq == self._election.seq:
            self._election.answers += 1
            self._election.winner = self._election.winner or message.winner

    def executor_lost(self, now: float, kept: int = 0, newest: int | None = None) -> None:
        """Take note that the executor is gone: the next execution needs another one.

        What its keeper has is given a moment to reach the log: anything up to `newest`, and what makes the
        state whole up to `kept`.
        """
        self._placement.executor = None
        self._loss.happened(
            self.completed, self.logged.seq, self.committed, min(kept, self.last), newest, now
        )
        self._orphaned, self._rejoin_deadline = True, None
        self.pages.lost()
        self._unsettled = self.completed
        self._owed, self._gave_up = (), False

    def left_of(self, seq: Seq, kept: int) -> CellEffect:
        """Return what is left of an execution whose process is gone; its keeper has deltas up to `kept`."""
        if seq <= self.committed:
            return "kept"
        if seq <= kept:
            return "unsettled"
        return "behind" if max(kept, self.committed) < self.completed else "none"

    def designated(self) -> ReplicaId | None:
        """Return the executor for messages that run no cell, designating the first when there is none."""
        ready = self._fleet.ready()
        if not ready:
            return None
        if self._placement.executor in ready:
            return self._placement.executor
        if not self._orphaned and self._placement.executor is None:
            self._placement.executor = ready[0]
        return ready[0]

    def choose(
        self, now: float, *, held: bool, declined: bool = False, host: HostName | None = None
    ) -> Choice:
        """Choose who runs the next execution; `held` keeps a ready executor where it is.

        One that was `declined` goes to whoever holds what the executor lacks, if that can be had. With a
        `host`, only replicas there are chosen from; the executor leaves its own when it may and can.
        """
        self._called_away = False
        ready = self._fleet.ready()
        if not ready or self._awaits_executor(ready, now) or self._awaits_author(now):
            return Choice()
        if self._loss.awaits(self.logged.seq, self.committed, now):
            return Choice()
        if self._loss.last is not None:
            self.completed = min(self.completed, self.logged.seq)
        self._loss.settled()
        if host is not None:
            return self._choose_on(host, ready, now, held=held, declined=declined)
        if self._orphaned and len(ready) > 1:
            return self._elect(ready, now)
        if self.last > 0 and not held and self._awaits_company(ready, now):
            return Choice()
        stay = held or self.last == 0 or not (self._placement.moves or declined)
        waits = not self.all_committed and not self._is_pinned(ready)
        if not stay and self._placement.executor in ready and waits:
            asked = tuple(self.have_settled(now))
            if now < self._patience_ends() and not self._gave_up:
                return Choice(effects=asked)
            stay = True
            self._say_it_stays()
        return self._settle(self._placement.pick(ready, stay=stay))

    def _is_pinned(self, ready: list[ReplicaId]) -> bool:
        """Tell whether the executor holds what no other replica has, so that no commit lets it leave."""
        return self._placement.executor in self._placement.holders(ready)

    def _choose_on(
        self, host: HostName, ready: list[ReplicaId], now: float, *, held: bool, declined: bool
    ) -> Choice:
        """Choose among the replicas of one host; the executor leaves another one when all is committed."""
        self._company_deadline = None  # The lease has chosen: no other replica is waited for.
        near = [name for name in ready if self._fleet.replicas[name].host == host]
        if not near:
            return Choice()
        executor, pinning = self._placement.executor, self._placement.holders(ready)
        leaves = executor in ready and executor not in near
        bound = [name for name in near if name in pinning]
        if (leaves and held) or (pinning and not bound and (leaves or declined or executor not in ready)):
            return Choice(astray=True)
        if executor not in ready:
            return self._settle(max(bound or near, key=self._applied))
        stay = not leaves and (held or not (self._placement.moves or declined))
        if not stay and not self.all_committed:
            asked = tuple(self.have_settled(now))
            self._called_away = now < self._patience_ends() and not self._gave_up
            if self._called_away:
                return Choice(effects=asked)
            self._say_it_stays()
            if leaves:
                return Choice(astray=True)
            stay = True
        return self._settle(self._placement.pick(near, stay=stay))

    def _awaits_company(self, ready: list[ReplicaId], now: float) -> bool:
        """Tell whether a kernel whose cells are to move waits for a second replica to start."""
        if self._accompanied or not self._placement.moves:
            return False
        if self._company_deadline is None:
            self._company_deadline = now + COMPANY_LIMIT_S
        self._accompanied = len(ready) > 1 or not self._fleet.expects_more() or now >= self._company_deadline
        return not self._accompanied

    def _say_it_stays(self) -> None:
        """Tell once that what was left to an audit keeps the notebook on its replica."""
        if self._gave_up:
            return
        self._gave_up = True
        if not self._owed:
            return
        shown = ", ".join(f"`{name}`" for name in self._owed[:NAMES_TOLD_MAX])
        self._notice = (
            f"The notebook stays on replica {self._placement.executor}: {shown} could not be checked for "
            f"changes within {COMMIT_LIMIT_S:g} s, and cells move only when all before them is durable."
        )

    def _awaits_executor(self, ready: list[ReplicaId], now: float) -> bool:
        """Tell whether the executor that the agents named may still be linked in a moment."""
        if self._rejoin_deadline is None:
            return False
        executor = self._placement.executor
        if executor in ready:
            self._rejoin_deadline = None
            if self.committed < self.completed and self._fleet.replicas[executor].applied < self.completed:
                self.executor_lost(now)  # It is another process, which has not got what that one owes.
        elif now >= self._rejoins_until():
            self.executor_lost(now)
        return self._rejoin_deadline is not None

    def _rejoins_until(self) -> float:
        """Return until when the executor is waited for; its agent may say that it lives, and it be busy."""
        assert self._rejoin_deadline is not None
        replica = self._fleet.replicas.get(self._placement.executor) if self._placement.executor else None
        lives = replica is not None and replica.ready
        return self._rejoin_deadline + (BUSY_LIMIT_S - REJOIN_LIMIT_S if lives else 0.0)

    def _elect(self, ready: list[ReplicaId], now: float) -> Choice:
        hosts = self._fleet.agents.voters()
        if self._election is None and hosts:
            self._election = Election(Seq(self.last + 1), now + ELECTION_LIMIT_S)
            call = ElectExecutor(
                kernel_id=self._fleet.kernel_id, seq=self._election.seq, fence=Fence(self.fence + 1)
            )
            return Choice(effects=tuple(ToAgent(host, call) for host in hosts))
        election = self._election
        if election is not None and election.winner in ready and election.winner is not None:
            return self._settle(election.winner)
        if election is not None and now < election.deadline and election.answers < len(hosts):
            return Choice()
        return self._settle(max(ready, key=self._applied))

    def _applied(self, name: ReplicaId) -> tuple[int, int]:
        order = list(self._fleet.replicas)
        return (self._fleet.replicas[name].applied, -order.index(name))

    def _settle(self, replica: ReplicaId) -> Choice:
        self._placement.executor = replica
        self._orphaned, self._placed = False, True
        self._election = None
        notice, self._notice = self._notice, ""
        return Choice(replica, notice=notice)

    def allot(
        self,
        queued_s: float,
        *,
        anyway: bool = False,
        counted: int = 0,
        gpus: tuple[str, ...] | None = None,
        stays: str | None = None,
        leases: bool = False,
        vram_gb: float = 0.0,
        part: float = 0.0,
        interrupts: bool = True,
        answered: int = 0,
        price: tuple[float, str] = (0.0, ""),
    ) -> Envelope:
        """Return the envelope of the next execution; `anyway`: it must not be declined (again).

        `answered` is the last cell that its process answered.
        """
        self._roams = self._roams or (bool(gpus) and len(self._fleet.hosts) > 1)
        self.last = Seq(self.last + 1)
        self.fence = Fence(self.fence + 1)
        return Envelope(
            seq=self.last,
            fence=self.fence,
            needs=self.completed,
            queued_s=round(queued_s, 6),
            needs_audit=self.logged.audit if self.logged.seq == self.completed else 0,
            moves=self._placement.moves or self._roams,
            anyway=anyway,
            counted=counted,
            gpus=gpus,
            stays=stays,
            leases=leases,
            vram_gb=vram_gb,
            interrupts=interrupts,
            afresh=self._loss.afresh(answered, self.logged),
            price_hour=price[0],
            currency=price[1],
            part=part,
        )

    def look(self) -> Envelope | None:
        """Return the envelope of a question: it is to see what all replicas have, if that is anything."""
        seen = self.logged if self.committed == self.logged.seq else Mark(self.committed)
        if not seen.seq:
            return None
        return Envelope(Seq(0), Fence(0), needs=seen.seq, needs_audit=seen.audit)

    def deadline(self) -> float | None:
        """Return when a wait that `choose` imposed is over; without a ready replica no time is of use."""
        if not self._fleet.ready():
            return None
        times = [] if self._loss.deadline is None else [self._loss.deadline]
        if self._election is not None:
            times.append(self._election.deadline)
        if self._rejoin_deadline is not None:
            times.append(self._rejoins_until())
        if self._author is not None:
            times.append(self._author.deadline)
        if self._company_deadline is not None and not self._accompanied:
            times.append(self._company_deadline)
        moves = self._placement.moves or self._called_away
        kept = moves and self._placement.executor is not None and not self._gave_up
        if kept and not self.all_committed:
            times.append(self._patience_ends())
        return min(times, default=None)

    def check_invariants(self) -> None:
        """Assert that nothing is completed that was never numbered."""
        assert self.completed <= self.last
        assert self.committed <= self.last or self.committed <= self.completed
        assert self.committed <= self.logged.seq
