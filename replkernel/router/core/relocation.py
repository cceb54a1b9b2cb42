"""A replica moved to another host, as the scheduler says: one takes the place of another, or nothing changes.

Pure. Laws: the new one has all that is committed before the old one leaves the group; up to that point
whatever fails takes the move back, past it the move is completed; what is begun is in the kernel's record
first, so that the next router does the same. One at a time, and none while a lost replica is replaced.
"""

from __future__ import annotations

from collections.abc import Callable

from replkernel.leasing.wire import WHY_MAX, MoveFailed, MoveReplica, MoveWish, ReplicaMoved
from replkernel.protocol.agent_to_router import MembersChanged, ReplicaLost
from replkernel.protocol.progress import Moving
from replkernel.records import HostName, MoveRecord, ReplicaId
from replkernel.router.core.events import Effect, Log, RememberMove, ToAgent
from replkernel.router.core.move import ADD_LIMIT_S, FIND_LIMIT_S, SETTLE_LIMIT_S, Move, Phase
from replkernel.router.core.parts import Parts
from replkernel.router.core.replacement import (
    CHANGE_AGAIN_S,
    CHANGE_LIMIT_S,
    JOIN_LIMIT_S,
    PREPARE_LIMIT_S,
    Replacement,
)

ANSWERS_MAX = 16
"""So many answers are kept for a scheduler that asks again."""
REFUSAL = "No replica moves: "
"""So the scheduler's refusals begin."""
Answer = ReplicaMoved | MoveFailed


class Relocation:
    """The moves of one kernel. `lose` ends what a replica had; `runs` tells whether a cell runs on one."""

    def __init__(
        self,
        parts: Parts,
        replacement: Replacement,
        lose: Callable[[ReplicaLost, float], list[Effect]],
        runs: Callable[[ReplicaId], bool],
        tell: Callable[[str], list[Effect]],
        left: MoveRecord | None = None,
    ) -> None:
        """`left` is what the router before this one had begun; `tell` reaches the user."""
        self._parts = parts
        self._fleet = parts.fleet
        self._replacement = replacement
        self._lose = lose
        self._runs = runs
        self._tell = tell
        self._by_hand = HostName("")
        """Where the notebook itself wants a replica; what comes of it is told."""
        self._failed: Moving | None = None
        """The last move, if it came to nothing."""
        self._wanted: MoveReplica | None = None
        self._answers: dict[str, Answer] = {}
        self._move: Move | None = None
        if left is not None:
            self._take_up(left)

    @property
    def active(self) -> bool:
        """Tell whether a move is under way."""
        return self._move is not None

    def standing(self) -> Moving | None:
        """Tell which move is under way, ordered or asked for, or how the last one failed."""
        move, wanted = self._move, self._wanted
        host = self._by_hand if wanted is None else wanted.host
        host = host if move is None else move.host
        return Moving(host) if host else self._failed

    def _take_up(self, left: MoveRecord) -> None:
        """Complete what was past its turning point, take anything else back."""
        host, new, leaves = HostName(left.host), ReplicaId(left.replica), ReplicaId(left.leaves)
        fleet = self._fleet
        if fleet.asleep or host not in fleet.hosts:
            return
        fleet.enlist(new, host)
        phase = Phase.LEAVING if left.settled else Phase.UNDOING
        self._move = Move("", host, leaves, 0.0, new, left.address, phase, why="its router ended")
        fleet.coming = new
        fleet.aside = leaves if left.settled else new

    # -- what the notebook says ------------------------------------------------------------------------

    def wish(self, host: HostName) -> tuple[str, list[Effect]]:
        """Have the scheduler asked for a replica on a host; return what to say to that."""
        self._by_hand, self._failed = host, None
        text = f"The scheduler is asked to move a replica of this notebook to {host}; the next cells tell."
        return text, self._parts.leases.scheduler.tell(MoveWish(host))

    def denied(self, why: str) -> list[Effect]:
        """Tell why the scheduler moves nothing."""
        self._failed = Moving(self._by_hand, why.removeprefix(REFUSAL).rstrip("."))
        self._by_hand = HostName("")
        return self._tell(why)

    def unheard(self, why: str) -> list[Effect]:
        """Tell that the scheduler went away before it said anything to what was asked for by hand."""
        if not self._by_hand or self._move is not None or self._wanted is not None:
            return []
        return self.denied(
            f"{REFUSAL}the scheduler went away before it answered ({why.rstrip('.')}); ask again."
        )

    def _tell_owner(self, host: HostName, why: str) -> list[Effect]:
        if not self._by_hand or host != self._by_hand:
            return []
        self._by_hand = HostName("")
        if why:
            return self._tell(f"No replica of this notebook moved to {host}: {why}.")
        return self._tell(f"One of this notebook's replicas is on {host} now.")

    # -- what the scheduler says -----------------------------------------------------------------------

    def wanted(self, order: MoveReplica, now: float) -> list[Effect]:
        """Take an order; one that is known is answered again, another one ends what is not settled yet."""
        move = self._move
        if order.order in self._answers:
            return self._parts.leases.scheduler.tell(self._answers[order.order])
        if move is not None and move.order == order.order:
            return []
        self._wanted = order
        return [] if move is None else self._call_off(move, "the scheduler has another host for it", now)

    def unwanted(self, host: HostName, now: float) -> list[Effect]:
        """Take note that no replica is wanted on a host."""
        if self._wanted is not None and self._wanted.host == host:
            self._wanted = None
        move = self._move
        if move is None or move.host != host:
            return []
        return self._call_off(move, "nobody waits for it any more", now)

    def _answer(self, order: str, why: str) -> list[Effect]:
        if not order:
            return []
        answer: Answer = MoveFailed(order, why[:WHY_MAX]) if why else ReplicaMoved(order)
        self._answers[order] = answer
        while len(self._answers) > ANSWERS_MAX:
            del self._answers[next(iter(self._answers))]
        return self._parts.leases.scheduler.tell(answer)

    # -- the beginning ---------------------------------------------------------------------------------

    def _begin(self, order: MoveReplica, now: float) -> list[Effect]:
        fleet, host = self._fleet, order.host
        at_target = fleet.hosts[host].replicas if host in fleet.hosts else []
        leaves = self._leaver(order.source)
        if at_target and leaves is None:
            return self._answer(order.order, "")
        if at_target:
            return self._refuse(order, f"host {host} has a replica of this kernel already")
        if leaves is None:
            return self._refuse(order, f"host {order.source} has no replica of this kernel")
        why = self._cannot_travel(leaves) or fleet.agents.invite(host, now)
        if why:
            return self._refuse(order, why)
        self._move, self._failed = Move(order.order, host, leaves, now + FIND_LIMIT_S), None
        self._parts.leases.moves_to(host)
        log = Log(f"replica {leaves} is to be moved from host {order.source} to {host}")
        return [log, *fleet.agents.look_for(host, now)]

    def _refuse(self, order: MoveReplica, why: str) -> list[Effect]:
        self._parts.leases.moves_to(order.host, why)
        self._failed = Moving(order.host, why)
        log = Log(f"no replica moves to host {order.host}: {why}")
        return [log, *self._tell_owner(order.host, why), *self._answer(order.order, why)]

    def _leaver(self, source: HostName) -> ReplicaId | None:
        """Return which replica of a host goes: rather not the executor."""
        host = self._fleet.hosts.get(source)
        names = [] if host is None else [name for name in host.replicas if self._fleet.replicas[name].member]
        others = [name for name in names if name != self._parts.placement.executor]
        return next(reversed(others or names), None)

    def _cannot_travel(self, leaves: ReplicaId) -> str:
        """Say what keeps a replica where it is, if anything does."""
        placement = self._parts.placement
        if leaves in placement.holders([*self._fleet.replicas]):
            return f"replica {leaves} holds variables that cannot travel"
        if leaves == placement.executor and self._parts.held():
            return "figures, a subshell or a debugger live in its process"
        return ""

    # -- what agents say -------------------------------------------------------------------------------

    def heard(self, message: MembersChanged, now: float) -> list[Effect]:
        """Take the leader's answer about the replica that comes; that to an older wish is none."""
        move = self._move
        if move is None or message.replica != move.new:
            return []
        if message.why:
            move.ask_at = now + CHANGE_AGAIN_S
            return [Log(f"the group does not change for {move.new} yet: {message.why}")]
        match move.phase:
            case Phase.ADDING if move.new in message.peers:
                move.phase, move.deadline = Phase.JOINING, now + JOIN_LIMIT_S
                return [self._fleet.joined(move.new, message)]
            case Phase.LEAVING if move.leaves not in message.peers:
                return self._complete(move, now)
            case Phase.UNDOING if move.new not in message.peers:
                return self._undone(move, now)
        return []

    def _part_with(self, name: ReplicaId, why: str, now: float) -> list[Effect]:
        replica = self._fleet.replicas.get(name)
        ended = replica is not None and replica.ready
        lost = self._lose(ReplicaLost(name, why, returning=False), now) if ended else []
        return lost + self._fleet.retire(name)

    # -- moving on -------------------------------------------------------------------------------------

    def advance(self, now: float) -> list[Effect]:
        """Take the steps that can be taken now."""
        fleet, move = self._fleet, self._move
        if not fleet.grouped:
            return self._drop("the kernel's replicas are being started or stopped", now)
        if move is not None and move.new != fleet.coming:
            return self._end(move, "its replicas were given up for others", now)
        if move is not None:
            return self._go_on(move, now)
        if self._wanted is None or self._replacement.busy:
            return []
        order, self._wanted = self._wanted, None
        return self._begin(order, now)

    def _drop(self, why: str, now: float) -> list[Effect]:
        """Forget a move whose group is no more: whoever was to go is gone with it."""
        move = self._move
        effects: list[Effect] = []
        if self._wanted is not None:
            order, self._wanted = self._wanted, None
            effects = self._refuse(order, why)
        if move is None or (not move.order and not self._fleet.asleep):
            return effects  # One that was taken up waits for its group to be found.
        return [*effects, *self._end(move, why, now)]

    def _end(self, move: Move, why: str, now: float) -> list[Effect]:
        self._parts.leases.moves_to(move.host, why)
        self._failed = Moving(move.host, why)
        return [*self._over(now), *self._tell_owner(move.host, why), *self._answer(move.order, why)]

    def _go_on(self, move: Move, now: float) -> list[Effect]:
        fleet = self._fleet
        host, replica = fleet.hosts[move.host], fleet.replicas.get(move.new)
        if move.phase in (Phase.LEAVING, Phase.UNDOING):
            return self._ask(move, now)
        if host.trouble is not None:
            return self._call_off(move, host.trouble.evalue, now)
        if move.phase is Phase.FINDING:
            return self._prepare(move, now) if host.welcomed else self._in_time(move, "does not answer", now)
        if not host.welcomed:
            return self._call_off(move, f"the agent of host {move.host} went away", now)
        if replica is None:
            return self._call_off(move, f"host {move.host} gave it up", now)
        if replica.broken or replica.why_lost:
            return self._call_off(move, replica.broken or replica.why_lost, now)
        match move.phase:
            case Phase.PREPARING if replica.address:
                move.address, move.phase = replica.address, Phase.ADDING
                move.deadline = now + ADD_LIMIT_S
                return [self._remember(), *self._ask(move, now)]
            case Phase.ADDING if now < move.deadline:
                return self._ask(move, now)
            case Phase.JOINING if replica.linked:
                move.phase, move.deadline = Phase.SETTLING, now + SETTLE_LIMIT_S
                return self._settle(move, now)
            case Phase.SETTLING:
                return self._settle(move, now)
        late = "has not prepared a replica" if move.phase is Phase.PREPARING else "has not caught up"
        return self._in_time(move, late, now)

    def _in_time(self, move: Move, what: str, now: float) -> list[Effect]:
        return [] if now < move.deadline else self._call_off(move, f"host {move.host} {what} in time", now)

    def _prepare(self, move: Move, now: float) -> list[Effect]:
        fleet = self._fleet
        move.new = fleet.new_name()
        fleet.enlist(move.new, move.host)
        fleet.coming = fleet.aside = move.new
        move.phase, move.deadline = Phase.PREPARING, now + PREPARE_LIMIT_S
        return [self._remember(), fleet.prepare(move.new)]

    def _settle(self, move: Move, now: float) -> list[Effect]:
        """Let the old replica go once nothing is left on it: the turning point."""
        why = self._cannot_travel(move.leaves)
        if why:
            return self._call_off(move, why, now)
        succession = self._parts.succession
        if self._runs(move.leaves) or (
            move.leaves == self._parts.placement.executor and not succession.all_committed
        ):
            late = self._in_time(move, f"waited in vain: {move.leaves} did not end its cell", now)
            return [*late, *([] if self._runs(move.leaves) else succession.have_settled(now))]
        succession.hand_over(move.leaves, move.new)
        self._fleet.put_aside(move.leaves, now)
        move.phase, move.ask_at = Phase.LEAVING, 0.0
        return [self._remember(), *self._ask(move, now)]

    def _ask(self, move: Move, now: float) -> list[Effect]:
        """Have the leader's host change the members; asked again, it goes on where it was."""
        if move.phase is Phase.UNDOING and not move.address:
            return self._undone(move, now)
        keeping = frozenset(self._fleet.keeping())
        hosts = keeping if now >= move.ask_at else keeping - move.asked
        if now >= move.ask_at:
            move.ask_at = now + (CHANGE_LIMIT_S if hosts else CHANGE_AGAIN_S)
        move.asked = keeping
        wish = move.change(self._fleet.kernel_id)
        return [ToAgent(host, wish) for host in sorted(hosts)]

    # -- the ends --------------------------------------------------------------------------------------

    def _complete(self, move: Move, now: float) -> list[Effect]:
        source = self._fleet.replicas[move.leaves].host if move.leaves in self._fleet.replicas else ""
        parted = self._part_with(move.leaves, f"it was moved to host {move.host}", now)
        log = Log(f"replica {move.leaves} of host {source} is {move.new} on host {move.host} now")
        self._parts.leases.moves_to(None)
        told = self._tell_owner(move.host, "")
        return [*parted, log, *self._over(now), *told, *self._answer(move.order, "")]

    def _call_off(self, move: Move, why: str, now: float) -> list[Effect]:
        """Take a move back, unless it is past its turning point."""
        if move.phase in (Phase.LEAVING, Phase.UNDOING):
            return []
        move.why, move.ask_at = why.rstrip("."), 0.0
        asked = move.phase in (Phase.ADDING, Phase.JOINING, Phase.SETTLING)
        move.phase, move.address = Phase.UNDOING, move.address if asked else ""
        return [Log(f"the move to host {move.host} is taken back: {why}"), *self._ask(move, now)]

    def _undone(self, move: Move, now: float) -> list[Effect]:
        parted = self._part_with(move.new, "it was not needed", now) if move.new else []
        return [*parted, *self._end(move, move.why, now)]

    def _over(self, now: float) -> list[Effect]:
        self._move = None
        self._fleet.coming = ReplicaId("")
        self._fleet.put_aside(ReplicaId(""), now)
        return [self._remember()]

    def _remember(self) -> Effect:
        """Keep in the kernel's record where its replicas are, and what is begun."""
        move = self._move
        if move is None or not move.new:
            return RememberMove(self._fleet.agents.guests(), None)
        return RememberMove(self._fleet.agents.guests(), move.record())

    # -- time ------------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """Return when `advance` has something to do that no event announces."""
        move = self._move
        if move is None or not self._fleet.grouped:
            return None
        if move.phase in (Phase.LEAVING, Phase.UNDOING):
            return move.ask_at
        if move.phase is Phase.ADDING:
            return min(move.ask_at, move.deadline)
        return move.deadline

    def check_invariants(self) -> None:
        """Assert that what comes is known, and that only one of the two is put aside."""
        move, fleet = self._move, self._fleet
        assert (move is not None and bool(move.new)) == bool(fleet.coming) or not fleet.grouped
        assert fleet.aside in ("", fleet.coming) or (move is not None and fleet.aside == move.leaves)
        assert len(self._answers) <= ANSWERS_MAX
