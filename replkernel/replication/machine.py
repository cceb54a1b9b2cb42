"""KernelMachine: the replicated state of one kernel, moved by the entries of its log and by nothing else.

Pure: no clock, no randomness, no I/O, no logging. Laws: the same snapshot and entries give the same
bytes on every replica; an entry takes effect at most once; everything that is kept has a limit.
"""

from __future__ import annotations

from typing import assert_never

from replkernel.protocol.timeline import Difference, Timeline
from replkernel.records import (
    ComponentId,
    ComponentRecord,
    Delta,
    Fence,
    Mark,
    Pin,
    ReplicaId,
    Seq,
    Unaudited,
)
from replkernel.replication.components import ComponentTable, TableState
from replkernel.replication.election import ElectionEntry, ElectionRecord, check_record, tally
from replkernel.replication.entries import (
    PARTS_MAX,
    Entry,
    EntryUnreadable,
    ExecutionFailed,
    ExecutionStarted,
    Lead,
    ReplicaJoined,
    ReplicaLeft,
    RouterAttached,
    StateDelta,
    Vote,
    Yield,
    assemble_delta,
    decode_entry,
)
from replkernel.replication.executions import ExecutionLedger
from replkernel.replication.outcomes import (
    DeltaApplied,
    DeltaPartHeld,
    Duplicate,
    FellBack,
    FenceRaised,
    MemberJoined,
    MemberLeft,
    Outcome,
    Refused,
)
from replkernel.replication.snapshot import HeldDelta, MachineState, Member, decode_state, encode_state

KEYS_REMEMBERED = 1024
"""How many keys of the latest accepted entries are remembered, to tell a repeated entry."""

ELECTIONS_KEPT = 8
"""How many of the latest elections are remembered."""

HELD_DELTAS_MAX = 4
"""How many incomplete deltas are held; the oldest one gives way to the next."""

MEMBERS_MAX = 32
"""No kernel has more replicas than this at a time, those that are being replaced included."""

DEPARTED_KEPT = 64
"""How many of the latest former members are remembered, whose names are not used again."""


class KernelMachine:
    """The replicated state machine of one kernel."""

    def __init__(self) -> None:
        self._adopt(MachineState())

    def _adopt(self, state: MachineState) -> None:
        self._state = state
        self._table = ComponentTable(state.table)
        self._ledger = ExecutionLedger(state.ledger)

    # -- what the state says --

    @property
    def components(self) -> dict[ComponentId, ComponentRecord]:
        """Return the component table; not to be changed."""
        return self._state.table.components

    @property
    def names(self) -> dict[str, ComponentId]:
        """Return which component binds which name; not to be changed."""
        return self._table.names

    @property
    def order(self) -> tuple[str, ...]:
        """Return the user's names in the order of the namespace."""
        return self._state.table.order

    @property
    def pins(self) -> tuple[Pin, ...]:
        """Return all pins: those of processes first, then those inside components."""
        return self._table.all_pins()

    @property
    def execution_count(self) -> int:
        """Return the execution count after the last applied delta."""
        return self._state.table.execution_count

    @property
    def state_bytes(self) -> int:
        """Return how many bytes of captured state the table stands for."""
        return self._table.state_bytes()

    @property
    def last_seq(self) -> Seq:
        """Return the last execution whose delta is applied."""
        return self._state.ledger.last_seq

    @property
    def mark(self) -> Mark:
        """Return the last execution whose delta is applied, and the last of its audits."""
        return self._ledger.last_mark()

    @property
    def whole_mark(self) -> Mark:
        """Return the newest whole point: the execution, with its audits, as of which all state is here."""
        point = self._state.table.point
        return self.mark if point is None else point.mark

    @property
    def whole_count(self) -> int:
        """Return the execution count at the newest whole point."""
        point = self._state.table.point
        return self.execution_count if point is None else point.execution_count

    def timeline(self) -> Timeline:
        """Return the points of the history, and where the notebook is among them."""
        return self._table.history.timeline()

    def way_to(self, mark: Mark) -> Delta | None:
        """Return what leads from the newest whole point to one of the history; None when it is not kept."""
        return self._table.way_to(mark)

    def differences(self, one: Mark, other: Mark) -> tuple[Difference, ...]:
        """Return which variables differ between two points of the history."""
        return self._table.differences(one, other)

    def table_at(self, mark: Mark) -> TableState | None:
        """Return the components as of a point of the history, self-contained; None when it is not kept."""
        return self._table.at(mark)

    def named(self) -> list[ComponentRecord]:
        """Return all components whose bytes may be needed: of now, of the whole point, of the history."""
        return self._table.named()

    def is_dropped(self, seq: Seq) -> bool:
        """Tell whether the log had what an execution changed, and it was given up."""
        return self._ledger.is_dropped(seq)

    @property
    def unaudited(self) -> tuple[Unaudited, ...]:
        """Return the variables not checked after the last execution: the table may be behind there."""
        return self._state.table.unaudited

    @property
    def newest_seq(self) -> Seq:
        """Return the highest execution number seen, applied or not: a new router goes on after it."""
        return self._ledger.newest_seq()

    @property
    def fence(self) -> Fence:
        """Return the highest fence in force."""
        return self._state.ledger.fence

    @property
    def executor(self) -> ReplicaId:
        """Return the replica whose claim held last, or an empty string."""
        return self._state.ledger.executor

    @property
    def members(self) -> dict[ReplicaId, Member]:
        """Return the kernel's replicas as the log knows them; not to be changed."""
        return self._state.members

    @property
    def departed(self) -> tuple[ReplicaId, ...]:
        """Return the replicas that were members and are none any more, the earliest first."""
        return tuple(self._state.departed)

    @property
    def index(self) -> int:
        """Return the log index of the last entry that was applied."""
        return self._state.index

    @property
    def busy(self) -> bool:
        """Tell whether an execution is open, in which case the group should be at its quick pace."""
        return bool(self._ledger.open_executions())

    def open_executions(self) -> list[tuple[Seq, ReplicaId, Fence]]:
        """Return the executions that were claimed and have not ended, the earliest first."""
        return [(known.seq, known.replica, known.fence) for known in self._ledger.open_executions()]

    def full_delta(self) -> Delta:
        """Return one delta that carries all state of the newest whole point, for who lacks much."""
        table, mark = self._table.whole(), self.whole_mark
        return Delta(
            seq=mark.seq,
            fence=self.fence,
            replica=self.executor,
            execution_count=table.execution_count,
            components=tuple(table.components.values()),
            pins=table.pins,
            order=table.order,
            audit=mark.audit,
            unaudited=table.unaudited,
            only=tuple(table.components),
        )

    # -- entries --

    def apply_bytes(self, index: int, data: bytes) -> list[Outcome]:
        """Apply an encoded entry; one that cannot be read is refused."""
        try:
            entry = decode_entry(data)
        except EntryUnreadable as error:
            self._state.index = max(self._state.index, index)
            return [Refused("", str(error))]
        return self.apply(index, entry)

    def apply(self, index: int, entry: Entry) -> list[Outcome]:
        """Apply the entry at log index `index` and return what it came to, at least one outcome.

        An index that was applied before has no effect, so a log may be replayed over a snapshot.
        """
        if index <= self._state.index:
            return [Duplicate(entry.key)]
        self._state.index = index
        if entry.key in self._state.keys:
            return [Duplicate(entry.key)]
        outcomes = self._dispatch(index, entry)
        if not isinstance(outcomes[-1], Refused | DeltaPartHeld):
            self._remember(index, entry.key)
        return outcomes

    def _dispatch(self, index: int, entry: Entry) -> list[Outcome]:
        match entry:
            case ExecutionStarted():
                return self._claim(entry)
            case StateDelta():
                return self._take_part(index, entry)
            case ExecutionFailed():
                return self._ledger.fail(entry)
            case Lead() | Yield() | Vote():
                return self._elect(entry)
            case ReplicaJoined():
                return self._join(entry)
            case ReplicaLeft():
                return self._leave(entry)
            case RouterAttached():
                why = self._ledger.raise_fence(entry.fence)
                return [Refused(entry.key, why) if why else FenceRaised(entry.key, entry.fence)]
            case _:
                assert_never(entry)

    def _remember(self, index: int, key: str) -> None:
        keys = self._state.keys
        keys[key] = index
        if len(keys) > KEYS_REMEMBERED:
            del keys[next(iter(keys))]

    def _claim(self, entry: ExecutionStarted) -> list[Outcome]:
        executor = self.executor
        outcomes = self._ledger.claim(entry)
        if not entry.afresh or isinstance(outcomes[-1], Refused):
            return outcomes
        return [self._fall_back(entry.key, entry.seq, entry.replica, executor), *outcomes]

    def _fall_back(self, key: str, seq: Seq, replica: ReplicaId, executor: ReplicaId) -> FellBack:
        reached, back = self.execution_count, self._table.fall_back()
        dropped = () if back is None else self._ledger.fall_back(back)
        return FellBack(key, seq, replica, self.mark, self.execution_count, executor, dropped, reached)

    def fall_back(self) -> None:
        """Go back to the newest whole point: whoever could have completed what came after it is gone."""
        self._fall_back("", self.last_seq, self.executor, self.executor)

    def _take_part(self, index: int, entry: StateDelta) -> list[Outcome]:
        refused = self._ledger.admit(entry) or _misshapen(entry) or self._after_election(entry)
        if refused is not None:
            self._state.held.pop(entry.key, None)
            return [refused]
        held = self._state.held.setdefault(entry.key, HeldDelta(entry.parts, {}))
        if held.parts != entry.parts:
            return [Refused(entry.key, f"A delta of {held.parts} parts cannot have {entry.parts}.")]
        held.pieces.setdefault(entry.part, entry.piece)
        if len(held.pieces) < held.parts:
            self._bound_held()
            return [DeltaPartHeld(entry.key, entry.seq, entry.part, held.parts - len(held.pieces))]
        del self._state.held[entry.key]
        return self._take_delta(index, entry, held)

    def _after_election(self, entry: StateDelta) -> Refused | None:
        """Refuse an audit once another executor is being chosen: that one may have begun without it."""
        if entry.audit and any(seq > entry.seq for seq in self._state.elections):
            return Refused(entry.key, f"Who runs the execution after {entry.seq} is being elected already.")
        return None

    def _bound_held(self) -> None:
        while len(self._state.held) > HELD_DELTAS_MAX:
            del self._state.held[next(iter(self._state.held))]

    def _take_delta(self, index: int, entry: StateDelta, held: HeldDelta) -> list[Outcome]:
        earlier = self._ledger.waits_for(entry)
        if earlier is not None:
            why = f"The delta of execution {earlier} comes before that of execution {entry.seq}."
            return [Refused(entry.key, why, again=True)]
        try:
            delta = assemble_delta([held.pieces[part] for part in range(held.parts)])
        except EntryUnreadable as error:
            return [Refused(entry.key, str(error))]
        said = (entry.seq, entry.replica, entry.fence, entry.audit)
        if (delta.seq, delta.replica, delta.fence, delta.audit) != said:
            return [Refused(entry.key, f"The delta inside speaks of execution {delta.seq}, not {entry.seq}.")]
        why = self._table.refusal(delta)
        if why:
            return [Refused(entry.key, why)]
        before = self.mark
        outcomes = self._ledger.complete(entry)
        step = self._table.apply(delta, before)
        return [*outcomes, DeltaApplied(entry.key, delta, index, step)]

    def _elect(self, entry: ElectionEntry) -> list[Outcome]:
        elections = self._state.elections
        record = elections.get(entry.seq)
        if isinstance(entry, Vote):
            if record is None:
                return [Refused(entry.key, f"Nobody stood for the election of execution {entry.seq}.")]
            return [*tally(record, entry)]
        if entry.fence < self.fence or entry.seq <= self.last_seq:
            why = f"The election of execution {entry.seq} under fence {entry.fence} is over."
            return [Refused(entry.key, why)]
        if record is None or record.fence < entry.fence:
            record = ElectionRecord(entry.seq, entry.fence, tuple(sorted(self.members)))
            elections[entry.seq] = record
            while len(elections) > ELECTIONS_KEPT:
                del elections[min(elections)]
        return [*tally(record, entry)]

    def _join(self, entry: ReplicaJoined) -> list[Outcome]:
        if entry.replica in self.members or entry.replica in self._state.departed:
            word = "is" if entry.replica in self.members else "was"
            why = f"{entry.replica} {word} a member already; replica names are not reused."
            return [Refused(entry.key, why)]
        if len(self.members) >= MEMBERS_MAX:
            return [Refused(entry.key, f"The kernel has {MEMBERS_MAX} replicas already.", again=True)]
        self.members[entry.replica] = Member(entry.replica, entry.host, entry.address)
        return [MemberJoined(entry.key, entry.replica, entry.host, entry.address)]

    def _leave(self, entry: ReplicaLeft) -> list[Outcome]:
        if entry.replica in self._state.departed:
            return [Refused(entry.key, f"{entry.replica} is not a member.")]
        self.members.pop(entry.replica, None)  # None where its joining has not come, and will be refused.
        self._state.departed.append(entry.replica)
        del self._state.departed[:-DEPARTED_KEPT]
        return [MemberLeft(entry.key, entry.replica)]

    # -- snapshots --

    def snapshot(self) -> bytes:
        """Return the whole state as msgpack bytes."""
        return encode_state(self._state)

    def restore(self, data: bytes) -> None:
        """Replace the whole state by a snapshot; raise SnapshotUnreadable and keep it otherwise."""
        self._adopt(decode_state(data))

    def check_invariants(self) -> None:
        """Raise AssertionError when a law of the state does not hold."""
        self._table.check_invariants()
        self._ledger.check_invariants()
        assert self.whole_mark <= self.mark, "the whole point is ahead of the table"
        state = self._state
        assert len(state.keys) <= KEYS_REMEMBERED, "too many keys are remembered"
        assert len(state.elections) <= ELECTIONS_KEPT, "too many elections are remembered"
        assert len(state.held) <= HELD_DELTAS_MAX, "too many incomplete deltas are held"
        assert len(state.members) <= MEMBERS_MAX, "too many members"
        assert len(state.departed) <= DEPARTED_KEPT, "too many former members are remembered"
        assert not set(state.departed) & set(state.members), "a former member is one again"
        for replica, member in state.members.items():
            assert replica == member.replica, f"{member.replica} is filed under {replica}"
        for seq, record in state.elections.items():
            assert seq == record.seq, f"the election of {record.seq} is filed under {seq}"
            check_record(record)
        for held in state.held.values():
            assert 0 < len(held.pieces) < held.parts, "a held delta is empty or complete"


def _misshapen(entry: StateDelta) -> Refused | None:
    if 0 < entry.parts <= PARTS_MAX and 0 <= entry.part < entry.parts:
        return None
    return Refused(entry.key, f"Part {entry.part} of {entry.parts} is not a part of a delta.")
