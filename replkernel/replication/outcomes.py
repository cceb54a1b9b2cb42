"""What applying an entry came to: values that a keeper acts upon, one shape each.

Law: outcomes are computed from the log alone, so every replica sees the same ones in the same order.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from replkernel.records import Delta, Fence, HostName, Mark, ReplicaId, Seq


class Result(msgspec.Struct, frozen=True):
    """The base of all outcomes; `key` is the key of the entry that brought it about."""

    key: str


class ExecutionClaimed(Result, frozen=True):
    """The replica may run the execution: its claim holds."""

    seq: Seq
    replica: ReplicaId
    fence: Fence


class DeltaPartHeld(Result, frozen=True):
    """A part of a delta arrived; `missing` more are needed before it takes effect."""

    seq: Seq
    part: int
    missing: int


class DeltaApplied(Result, frozen=True):
    """The delta took effect with the log entry at `index`: the execution is committed.

    `step` is set when the state is whole with it: all that has changed since the whole point before.
    """

    delta: Delta
    index: int
    step: Delta | None = None


class FellBack(Result, frozen=True):
    """Execution `seq` of `replica` goes on from the whole point at `mark`, after cell `execution_count`.

    `dropped` are the executions after it whose deltas the log had; they were those of `executor`, and the
    last one of them was cell `reached`.
    """

    seq: Seq
    replica: ReplicaId
    mark: Mark
    execution_count: int
    executor: ReplicaId
    dropped: tuple[Seq, ...] = ()
    reached: int = 0


class ExecutionMarkedFailed(Result, frozen=True):
    """The execution ended without a delta."""

    seq: Seq
    replica: ReplicaId
    why: str


class ExecutionSuperseded(Result, frozen=True):
    """A newer fence took over: the delta of this open execution will be refused."""

    seq: Seq
    replica: ReplicaId


class StanceTaken(Result, frozen=True):
    """A replica's LEAD or YIELD counts, and decides nothing yet."""

    seq: Seq
    replica: ReplicaId
    leads: bool


class ElectionDecided(Result, frozen=True):
    """The election of an execution is over: the first committed LEAD, or None when all yielded."""

    seq: Seq
    fence: Fence
    winner: ReplicaId | None


class VoteCounted(Result, frozen=True):
    """A replica confirmed the winner; `confirmed` once a majority of the members has."""

    seq: Seq
    replica: ReplicaId
    choice: ReplicaId
    confirmed: bool


class MemberJoined(Result, frozen=True):
    """A replica belongs to the kernel."""

    replica: ReplicaId
    host: HostName
    address: str


class MemberLeft(Result, frozen=True):
    """A replica belongs to the kernel no longer."""

    replica: ReplicaId


class FenceRaised(Result, frozen=True):
    """A router took the kernel over; whatever carries an older fence is refused from here on."""

    fence: Fence


class Duplicate(Result, frozen=True):
    """The entry was applied before: for the proposer this is success."""


class Refused(Result, frozen=True):
    """The entry has no effect; `why` is one sentence.

    With `again` the same entry may be proposed later, once what it waits for has happened.
    """

    why: str
    again: bool = False


Outcome: TypeAlias = (
    ExecutionClaimed
    | DeltaPartHeld
    | DeltaApplied
    | ExecutionMarkedFailed
    | ExecutionSuperseded
    | FellBack
    | StanceTaken
    | ElectionDecided
    | VoteCounted
    | MemberJoined
    | MemberLeft
    | FenceRaised
    | Duplicate
    | Refused
)
