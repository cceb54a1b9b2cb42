"""One replica's Raft member with the state machine that its log moves.

Consensus calls back on its own thread, where entries are applied under a lock; what they came to is handed
to the event loop. Law: nothing outside this file touches the machine without the lock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from replkernel.agent.core import events as fact
from replkernel.agent.core.bundle import bundle, place, unbundle
from replkernel.agent.core.catch_up import STATE_MESSAGE_BYTES, RecentDeltas, delta_bytes, split_state
from replkernel.agent.core.effects import (
    ClaimProposal,
    DeltaProposal,
    FailureProposal,
    JoinProposal,
    Proposal,
)
from replkernel.agent.core.events import Event
from replkernel.agent.io.mail import LoopMail
from replkernel.errors import ReplkernelError
from replkernel.protocol.timeline import Difference, Timeline
from replkernel.records import (
    ComponentRecord,
    Delta,
    Digest,
    Fence,
    HostName,
    Mark,
    Pin,
    ReplicaId,
    Seq,
    is_owing,
    payload_blobs,
)
from replkernel.replication import outcomes as said
from replkernel.replication.consensus import (
    Consensus,
    ProposalOutcome,
    ProposalUnknown,
    RaftStatus,
    StateCallbacks,
)
from replkernel.replication.entries import (
    Entry,
    encode_entry,
    execution_failed,
    execution_started,
    lead,
    replica_joined,
    split_delta,
    yield_,
)
from replkernel.replication.machine import KernelMachine

log = logging.getLogger(__name__)

WAY_BYTES_MAX = 40 * 2**20
"""No more than this is taken back at once: a delta of the log has 48 MiB at most."""

KEYS_MAX = 4096
"""So many of the latest proposals are remembered, to know which of ours the log refuses."""

MemberFactory = Callable[[dict[ReplicaId, str], str, StateCallbacks, bool], Consensus]
"""Makes a replica's member from its peers, the group's secret, the callbacks, and whether it joins later."""

NO_SNAPSHOT = (
    "Replica {0} was sent its group's log without the checkpoint that the group started from: it is replaced."
)


class GroupSummary(NamedTuple):
    """The committed state in a few figures."""

    last_seq: Seq
    newest_seq: Seq
    fence: Fence
    execution_count: int
    executor: ReplicaId
    pins: tuple[Pin, ...]
    components: int
    state_bytes: int
    busy: bool
    audit: int = 0
    owing: bool = False
    """The last audit of the last execution, and whether variables are left to be checked after it."""
    applied: int = 0
    """How far this replica has applied the log."""
    members: tuple[tuple[ReplicaId, HostName], ...] = ()
    departed: tuple[ReplicaId, ...] = ()
    whole_seq: Seq = Seq(0)
    """The newest execution as of which all state is there, and the execution count after it."""
    whole_count: int = 0

    @property
    def whole(self) -> bool:
        """Tell whether nothing older than the last execution is in the state."""
        return self.whole_seq == self.last_seq and not self.owing


def summary_of(machine: KernelMachine) -> GroupSummary:
    """Return what a state says in figures."""
    return GroupSummary(
        machine.last_seq,
        machine.newest_seq,
        machine.fence,
        machine.execution_count,
        machine.executor,
        machine.pins,
        len(machine.components),
        machine.state_bytes,
        bool(machine.busy),
        machine.mark.audit,
        is_owing(machine.unaudited),
        machine.index,
        tuple((member.replica, member.host) for member in machine.members.values()),
        machine.departed,
        machine.whole_mark.seq,
        machine.whole_count,
    )


class ReplicaGroup:
    """A replica's member and machine. `tell` is called in the event loop with what the log says."""

    def __init__(
        self,
        replica: ReplicaId,
        host: HostName,
        make: MemberFactory,
        mail: LoopMail,
        tell: Callable[[Event], None],
    ) -> None:
        self.replica = replica
        self.host = host
        self._make = make
        self._tell = tell
        self._mail = mail
        self._machine = KernelMachine()
        self._recent = RecentDeltas()
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._closed = False
        self._awaits_snapshot = False
        """Whether entries mean nothing yet: the group started from a state that a snapshot is to bring."""
        self._restored = False
        self._member: Consensus | None = None
        self._keys: dict[str, tuple[str, Seq]] = {}
        """By the entry's key: which proposal it is, and of a delta which execution it is about."""

    def open(
        self,
        peers: dict[ReplicaId, str],
        secret: str,
        base: bytes = b"",
        *,
        joining: bool = False,
        awaits_snapshot: bool = False,
    ) -> None:
        """Start the member; blocks, raises ReplkernelError when it cannot.

        The `base` is what every member of the group starts from; a snapshot or a journal goes on from it.
        One that is `joining` a group of before has none: if the group had one, it comes in a snapshot.
        """
        self._awaits_snapshot = awaits_snapshot
        if base:
            self._restore(base)
        callbacks = StateCallbacks(self._on_apply, self._snapshot, self._restore, self._on_majority)
        member = self._make(peers, secret, callbacks, joining)
        with self._opening:
            if self._closed:
                return
            member.start()
            self._member = member

    def close(self) -> None:
        """Stop the member, for good; blocks, also while it is being started."""
        with self._opening:
            self._closed = True
            member, self._member = self._member, None
        if member is not None:
            member.close()

    @property
    def member(self) -> Consensus | None:
        """Return the Raft member, None before it has started."""
        return self._member

    @property
    def begun(self) -> bool:
        """Tell whether the state is the group's own: what the group goes on from, if anything, is in it."""
        return self._restored or (self._member is not None and not self._awaits_snapshot)

    # -- proposals -------------------------------------------------------------------------------------

    def propose(self, *proposals: Proposal) -> None:
        """Hand proposals to consensus, in order; a failure is told, success shows in the log."""
        member = self._member
        if member is None:
            self._fail(proposals, "its Raft member has not started")
            return
        data: list[bytes] = []
        sent: list[Proposal] = []
        for number, proposal in enumerate(proposals):
            try:
                entries = self._entries(proposal)
                data += [encode_entry(entry) for entry in entries]
            except ReplkernelError as error:
                self._fail(proposals[number:], str(error))
                break
            self._remember(entries[0].key, proposal)
            sent.append(proposal)
        for entry in bundle(data):
            member.propose(entry, lambda outcome: self._on_done(sent, outcome))

    def _entries(self, proposal: Proposal) -> list[Entry]:
        match proposal:
            case JoinProposal():
                return [replica_joined(self.replica, self.host, proposal.address)]
            case ClaimProposal():
                started = execution_started(
                    proposal.seq, self.replica, proposal.fence, afresh=proposal.afresh
                )
                return [started]
            case DeltaProposal():
                return [*split_delta(proposal.delta)]
            case FailureProposal():
                return [execution_failed(proposal.seq, self.replica, proposal.why)]
        stance = lead if proposal.lead else yield_
        return [stance(proposal.seq, self.replica, proposal.fence)]

    def _remember(self, entry_key: str, proposal: Proposal) -> None:
        seq = proposal.delta.seq if isinstance(proposal, DeltaProposal) else Seq(0)
        self._keys[entry_key] = proposal.key, seq
        if len(self._keys) > KEYS_MAX:
            del self._keys[next(iter(self._keys))]

    def _on_done(self, proposals: Sequence[Proposal], outcome: ProposalOutcome) -> None:
        if isinstance(outcome, ProposalUnknown):
            log.info("%s: a proposal has %s", self.replica, outcome.why)
            self._fail(proposals, outcome.trouble)

    def _fail(self, proposals: Sequence[Proposal], why: str) -> None:
        self._tell_soon(*(fact.ProposalFailed(proposal.key, why) for proposal in proposals))

    def _tell_soon(self, *events: Event) -> None:
        self._mail.post(self._tell, events)

    # -- consensus calls back, on its thread -----------------------------------------------------------

    def _on_apply(self, index: int, data: bytes) -> None:
        if self._awaits_snapshot:
            self._tell_soon(fact.GroupTrouble(NO_SNAPSHOT.format(self.replica), lasting=True))
            return
        results: list[said.Outcome] = []
        with self._lock:
            for number, entry in enumerate(unbundle(data)):
                results += self._machine.apply_bytes(place(index, number), entry)
            last = None
            for result in results:
                if isinstance(result, said.DeltaApplied):
                    if result.step is not None:
                        self._recent.add(result.step)
                    last = result
            # Only the executor's keeper speaks of the whole state.
            mine = last is not None and last.delta.replica == self.replica
            state_bytes = self._machine.state_bytes if mine else 0
            pins = self._machine.pins if mine else ()
        events: list[Event] = []
        for result in results:
            if isinstance(result, said.DeltaApplied):
                more = last is not None and result is not last and _says_as_much(last.delta, result.delta)
                events.append(fact.DeltaLogged(result.delta, state_bytes, pins, more, result.step))
            else:
                events += self._events(result)
        self._tell_soon(*events)

    def _events(self, result: said.Outcome) -> list[Event]:
        match result:
            case said.ExecutionClaimed():
                return [fact.ClaimLogged(result.seq, result.fence, result.replica)]
            case said.FellBack():
                back = fact.FellBack(
                    result.seq,
                    result.replica,
                    result.mark,
                    result.execution_count,
                    result.executor,
                    result.reached if result.dropped else 0,
                )
                return [back]
            case said.ExecutionMarkedFailed():
                return [fact.FailureLogged(result.seq, result.replica)]
            case said.ExecutionSuperseded():
                why = "another replica took the execution over under a newer fence"
                return [fact.ExecutionOverruled(result.replica, result.seq, why)]
            case said.ElectionDecided():
                return [fact.ElectionLogged(result.seq, result.winner)]
            case said.MemberJoined():
                return [fact.MemberLogged(result.replica, result.address)]
            case said.MemberLeft():
                return [fact.MemberGone(result.replica)]
            case said.Refused():
                return self._refused(result)
            case said.Duplicate():
                return self._known(result)
        return []

    def _known(self, result: said.Duplicate) -> list[Event]:
        key, seq = self._keys.get(result.key, ("", Seq(0)))
        if not key:
            return []
        with self._lock:
            dropped = self._machine.is_dropped(seq)
            return [fact.EntryKnown(key, self._machine.state_bytes, self._machine.pins, dropped)]

    def _refused(self, result: said.Refused) -> list[Event]:
        key, _ = self._keys.get(result.key, ("", Seq(0)))
        if not key:
            return []
        if result.again:
            return [fact.ProposalFailed(key, result.why)]
        return [fact.EntryRefused(key, result.why)]

    def _on_majority(self, seen: bool) -> None:
        self._tell_soon(fact.MajoritySeen(seen))

    def _snapshot(self) -> bytes:
        with self._lock:
            return self._machine.snapshot()

    def _restore(self, state: bytes) -> None:
        with self._lock:
            self._machine.restore(state)
            mark, whole = self._machine.mark, self._machine.whole_mark
            self._recent.restart(whole)
            claims = self._machine.open_executions()
            members = list(self._machine.members.values())
        self._awaits_snapshot, self._restored = False, True
        opened = [fact.ClaimLogged(number, fence, replica) for number, replica, fence in claims]
        joined = [fact.MemberLogged(member.replica, member.address) for member in members]
        self._tell_soon(fact.TableRestored(*mark, whole), *opened, *joined)

    # -- for the agent ---------------------------------------------------------------------------------

    def lacking(self, after: Mark) -> list[Delta] | None:
        """Return what a process that holds everything up to `after` lacks: the deltas, or all state.

        None when it cannot be brought up to date: it holds what the log has dropped.
        """
        with self._lock:
            if self._machine.is_dropped(after.seq):
                return None
            if self._machine.whole_mark <= after:
                return []
            missed = self._recent.after(after) if after.seq else None
            if missed is not None:
                return missed
            whole = self._machine.full_delta()
        return split_state(whole, STATE_MESSAGE_BYTES)

    def pace(self, busy: bool) -> None:
        """Pass the pace on."""
        if self._member is not None:
            self._member.pace(busy)

    def raft_status(self) -> RaftStatus | None:
        """Return how the member stands, None before it has started."""
        return self._member.status() if self._member is not None else None

    def summary(self) -> GroupSummary:
        """Return what the status document and a re-attaching router want to know."""
        with self._lock:
            return summary_of(self._machine)

    def differences(self, one: Mark, other: Mark) -> tuple[Difference, ...]:
        """Return which variables differ between two points of the history."""
        from replkernel.carrying.glances import with_glances

        with self._lock:
            found = self._machine.differences(one, other)
            before, after = self._machine.table_at(one), self._machine.table_at(other)
        return with_glances(found, before, after)

    def history(self, to: Mark | None) -> tuple[Timeline, Delta | None, str]:
        """Return the points of the history, what leads `to` one of them, and why nothing does."""
        with self._lock:
            timeline = self._machine.timeline()
            way = None if to is None else self._machine.way_to(to)
        if to is not None and way is None:
            return (
                timeline,
                None,
                "This point is no longer kept: `%replkernel history` lists those that are.",
            )
        if way is not None and delta_bytes(way) > WAY_BYTES_MAX:
            return timeline, None, "Too much differs to go there in one step: go to a point between."
        return timeline, way, ""

    def digests(self) -> set[Digest]:
        """Return the digests of all chunks that the committed state names, now and at its whole point."""
        with self._lock:
            return self._digests()

    def _digests(self) -> set[Digest]:
        blobs = (blob for one in self._machine.named() for blob in payload_blobs(one.payload))
        return {chunk.digest for blob in blobs for chunk in blob.chunks}

    def components(self) -> tuple[ComponentRecord, ...]:
        """Return the components of the committed state, as it is and at its whole point."""
        with self._lock:
            return tuple(self._machine.named())

    def checkpoint(self) -> tuple[bytes, set[Digest], GroupSummary]:
        """Return the applied state, the digests of all chunks that it names, and what it says in figures."""
        with self._lock:
            return self._machine.snapshot(), self._digests(), summary_of(self._machine)


def _says_as_much(later: Delta, earlier: Delta) -> bool:
    """Tell whether the commit of `later` tells that of `earlier`: not when only that one is whole."""
    return later.whole or not earlier.whole
