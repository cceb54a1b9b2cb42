"""The ledger of executions: who claimed which, under which fence, and how each ended.

Pure and deterministic. Law: an execution ends once (applied, failed or superseded), deltas are applied
in the order of their executions, and whoever holds an older fence is refused. What audits add to the last
applied execution is taken from its executor, in order, until another replica starts one. What was applied
can only be dropped, by a claim that goes on afresh from before it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from replkernel.records import Fence, Mark, ReplicaId, Seq
from replkernel.replication.entries import ExecutionFailed, ExecutionStarted, StateDelta
from replkernel.replication.outcomes import (
    ExecutionClaimed,
    ExecutionMarkedFailed,
    ExecutionSuperseded,
    Outcome,
    Refused,
)

EXECUTIONS_KEPT = 64
"""How many ended executions the ledger remembers beside the open ones."""

OPEN_MAX = 4096
"""No more executions than this may wait for their deltas; a claim beyond it is refused for now."""


class Execution(msgspec.Struct, frozen=True, omit_defaults=True):
    """One execution: who runs it, under which fence, how it stands, and its last audit that was applied."""

    seq: Seq
    replica: ReplicaId
    fence: Fence
    state: Literal["open", "applied", "failed", "superseded", "dropped"] = "open"
    why: str = ""
    audit: int = 0


class LedgerState(msgspec.Struct, omit_defaults=True):
    """What of the ledger goes into a snapshot. `floor`: an execution up to it that is not listed is over."""

    executions: dict[Seq, Execution] = {}
    fence: Fence = Fence(0)
    holder: ReplicaId = ReplicaId("")
    executor: ReplicaId = ReplicaId("")
    last_seq: Seq = Seq(0)
    floor: Seq = Seq(0)
    last_audit: int = 0
    """The last audit of `last_seq`, where that one is not listed any more."""


class ExecutionLedger:
    """Claims, ends and fences of executions."""

    def __init__(self, state: LedgerState) -> None:
        self.state = state

    def claim(self, entry: ExecutionStarted) -> list[Outcome]:
        """Take a claim in: it holds unless its fence is old or its execution has been dealt with."""
        why = self._claim_refusal(entry.seq, entry.replica, entry.fence)
        if why:
            return [Refused(entry.key, why)]
        if len(self.open_executions()) >= OPEN_MAX:
            why = f"{OPEN_MAX:,} executions wait for their commit already; check REPLKERNEL_STORE."
            return [Refused(entry.key, why, again=True)]
        superseded = self._open(entry.key, entry.seq, entry.replica, entry.fence, afresh=entry.afresh)
        return [*superseded, ExecutionClaimed(entry.key, entry.seq, entry.replica, entry.fence)]

    def _claim_refusal(self, seq: Seq, replica: ReplicaId, fence: Fence) -> str:
        if fence < self.state.fence:
            return f"Execution {seq} carries fence {fence}, but {self.state.fence} is already in force."
        known = self.state.executions.get(seq)
        if known is not None and known.state != "open":
            return f"Execution {seq} has already been {known.state} ({known.replica}, fence {known.fence})."
        if known is None and seq <= max(self.state.floor, self.state.last_seq):
            return f"Execution {seq} is over: the kernel is at {self.state.last_seq}."
        if fence == self.state.fence and self.state.holder not in ("", replica):
            return f"Execution {seq}: {self.state.holder} holds fence {fence}, so {replica} cannot."
        return ""

    def _open(
        self, key: str, seq: Seq, replica: ReplicaId, fence: Fence, *, afresh: bool = False
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        known = self.state.executions.get(seq)
        if known is not None and known.replica != replica:
            outcomes.append(ExecutionSuperseded(key, seq, known.replica))
        for other in self.open_executions():
            if (afresh or other.replica != replica) and other.seq != seq:
                self._put(msgspec.structs.replace(other, state="superseded"))
                outcomes.append(ExecutionSuperseded(key, other.seq, other.replica))
        self.state.fence, self.state.holder, self.state.executor = fence, replica, replica
        self._put(Execution(seq, replica, fence))
        return outcomes

    def admit(self, entry: StateDelta) -> Refused | None:
        """Return why the delta of `entry` may not take effect, or None when it may."""
        known = self.state.executions.get(entry.seq)
        if entry.audit:
            why = self._audit_refusal(entry, known)
        elif known is None:
            why = self._claim_refusal(entry.seq, entry.replica, entry.fence)
        elif known.state != "open":
            why = f"Execution {entry.seq} has already been {known.state} ({known.replica})."
        elif (known.replica, known.fence) != (entry.replica, entry.fence):
            why = (
                f"Execution {entry.seq} belongs to {known.replica} under fence {known.fence}, "
                f"not to {entry.replica} under {entry.fence}."
            )
        else:
            why = ""
        return Refused(entry.key, why) if why else None

    def _audit_refusal(self, entry: StateDelta, known: Execution | None) -> str:
        if known is None or known.state != "applied" or entry.seq != self.state.last_seq:
            return f"Execution {entry.seq} is not the last one that was applied, so its audit comes too late."
        if (known.replica, known.fence) != (entry.replica, entry.fence):
            return f"Execution {entry.seq} belongs to {known.replica} under fence {known.fence}."
        if self.state.executor != entry.replica:
            return f"{self.state.executor} goes on from execution {entry.seq} as it was before this audit."
        if entry.audit <= known.audit:
            return f"Audit {known.audit} of execution {entry.seq} has already been applied."
        return ""

    def waits_for(self, entry: StateDelta) -> Seq | None:
        """Return the earlier execution of the same replica whose delta must be applied first, if any."""
        earlier = (other for other in self.open_executions() if other.replica == entry.replica)
        return next((other.seq for other in earlier if other.seq < entry.seq), None)

    def complete(self, entry: StateDelta) -> list[Outcome]:
        """Note that the delta of `entry` took effect; an unclaimed execution is claimed by it."""
        outcomes: list[Outcome] = []
        if entry.seq not in self.state.executions:
            outcomes = self._open(entry.key, entry.seq, entry.replica, entry.fence)
        self._put(Execution(entry.seq, entry.replica, entry.fence, "applied", audit=entry.audit))
        if entry.seq >= self.state.last_seq:
            self.state.last_seq, self.state.last_audit = entry.seq, entry.audit
        return outcomes

    def fail(self, entry: ExecutionFailed) -> list[Outcome]:
        """Take in that an execution ended without a delta; later claims and deltas of it are refused."""
        known = self.state.executions.get(entry.seq)
        if known is None and entry.seq <= max(self.state.floor, self.state.last_seq):
            return [Refused(entry.key, f"Execution {entry.seq} is over.")]
        if known is not None and known.state != "open":
            return [Refused(entry.key, f"Execution {entry.seq} has already been {known.state}.")]
        if known is not None and known.replica != entry.replica:
            return [Refused(entry.key, f"Execution {entry.seq} belongs to {known.replica}.")]
        fence = self.state.fence if known is None else known.fence
        self._put(Execution(entry.seq, entry.replica, fence, "failed", entry.why))
        return [ExecutionMarkedFailed(entry.key, entry.seq, entry.replica, entry.why)]

    def last_mark(self) -> Mark:
        """Return the last execution that was applied, and the last of its audits."""
        known = self.state.executions.get(self.state.last_seq)
        return Mark(self.state.last_seq, self.state.last_audit if known is None else known.audit)

    def fall_back(self, mark: Mark) -> tuple[Seq, ...]:
        """Drop all that was applied after `mark`; return those executions."""
        after = [
            known
            for known in self.state.executions.values()
            if known.seq > mark.seq and known.state == "applied"
        ]
        for known in after:
            self._put(msgspec.structs.replace(known, state="dropped"))
        self.state.last_seq, self.state.last_audit = mark
        last = self.state.executions.get(mark.seq)
        if last is not None:
            self._put(msgspec.structs.replace(last, audit=mark.audit))
        return tuple(sorted(known.seq for known in after))

    def is_dropped(self, seq: Seq) -> bool:
        """Tell whether an execution was applied, and given up after."""
        known = self.state.executions.get(seq)
        return known is not None and known.state == "dropped"

    def raise_fence(self, fence: Fence) -> str:
        """Put `fence` in force for a router; return why not, or an empty string."""
        if fence <= self.state.fence:
            return f"A router came with fence {fence}, but {self.state.fence} is already in force."
        self.state.fence, self.state.holder = fence, ReplicaId("")
        return ""

    def open_executions(self) -> list[Execution]:
        """Return the executions that have not ended, the earliest first."""
        found = (execution for execution in self.state.executions.values() if execution.state == "open")
        return sorted(found, key=lambda execution: execution.seq)

    def newest_seq(self) -> Seq:
        """Return the highest execution number that the log has seen."""
        return max(self.state.executions, default=max(self.state.floor, self.state.last_seq))

    def _put(self, execution: Execution) -> None:
        self.state.executions[execution.seq] = execution
        ended = [seq for seq, known in self.state.executions.items() if known.state != "open"]
        for seq in sorted(ended)[: max(0, len(ended) - EXECUTIONS_KEPT)]:
            del self.state.executions[seq]
            self.state.floor = max(self.state.floor, seq)

    def check_invariants(self) -> None:
        """Raise AssertionError when a law of the ledger does not hold."""
        state = self.state
        assert len(state.executions) <= EXECUTIONS_KEPT + OPEN_MAX, "the ledger remembers too much"
        for seq, execution in state.executions.items():
            assert seq == execution.seq, f"execution {execution.seq} is filed under {seq}"
            assert execution.fence <= state.fence, f"execution {seq} carries a fence of the future"
        assert len({execution.replica for execution in self.open_executions()}) <= 1, "two replicas run"
