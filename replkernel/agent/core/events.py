"""What a keeper is told: the events of its core, in the order in which they happened.

Law: an event is a fact with its data; nothing here decides.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from replkernel.protocol.process_to_agent import KernelHello
from replkernel.records import BlobRef, Delta, Digest, Fence, Mark, Pin, ReplicaId, Seq


class Fact(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The base of all events."""


class ReplicaRequested(Fact, frozen=True):
    """A router asked for this replica (again, perhaps); `joining`: for a group that is there already."""

    joining: bool = False


class GroupNamed(Fact, frozen=True):
    """The router named the members of the Raft group, their secret, and the checkpoint they start from."""

    peers: dict[ReplicaId, str]
    secret: str
    checkpoint: str = ""
    checkpoint_digest: str = ""
    generation: int = 1
    joining: bool = False


class GroupOpened(Fact, frozen=True):
    """The Raft member has started: entries can be proposed."""


class GroupTrouble(Fact, frozen=True):
    """The Raft member cannot start; `why` is one sentence. `lasting`: it never will, and must be replaced."""

    why: str
    lasting: bool = False


class ReplicaRestored(Fact, frozen=True):
    """A new agent found this replica's record on disk; `alive` tells whether its kernel process lives,
    `why` why it does not, if that can still be seen.
    """

    alive: bool
    why: str = ""


class RouterCame(Fact, frozen=True):
    """A router of this kernel attached itself."""


class ProcessForked(Fact, frozen=True):
    """The kernel process of birth `birth` exists."""

    birth: int
    pid: int


class BirthFailed(Fact, frozen=True):
    """No kernel process could be made for `birth`; `why` is one sentence."""

    birth: int
    why: str


class ProcessGreeted(Fact, frozen=True):
    """The kernel process of this replica introduced itself, for the first time or to a new agent."""

    birth: int
    hello: KernelHello


class ProcessEnded(Fact, frozen=True):
    """The kernel process of birth `birth` is dead; `why` is one clause for the user.

    It was dead by the time `at`; 0: nobody knows since when.
    """

    birth: int
    why: str
    at: float = 0.0


class ExecutionClaimed(Fact, frozen=True):
    """The process starts execution `seq`; `afresh`: the one that ran the cells before is lost."""

    seq: Seq
    fence: Fence
    afresh: bool = False


class DeltaArrived(Fact, frozen=True):
    """The process says what an execution changed, and how long it took to find that (0: not known)."""

    delta: Delta
    capture_s: float = 0.0


class StateTaken(Fact, frozen=True):
    """The process holds everything up to `seq`; what it holds, and what of it is not as it was captured."""

    seq: Seq
    components: int
    state_bytes: int
    pending_bytes: int
    unproven: int = 0
    unfaithful: tuple[Pin, ...] = ()


class BlobsWanted(Fact, frozen=True):
    """The process needs blobs in the host's cache."""

    request: int
    blobs: tuple[BlobRef, ...]


class BlobsFetched(Fact, frozen=True):
    """The fetch of `request` ended; `missing` could not be had."""

    request: int
    missing: tuple[Digest, ...] = ()
    why: str = ""


class UploadEnded(Fact, frozen=True):
    """The upload for execution `seq`, or its audit, ended; `why` is empty when everything is stored."""

    seq: Seq
    why: str = ""
    audit: int = 0


class UploadDelayed(Fact, frozen=True):
    """The upload for execution `seq`, or its audit, is retried because of `why` (empty: it works again)."""

    seq: Seq
    why: str
    audit: int = 0


class ProposalFailed(Fact, frozen=True):
    """Consensus could not tell whether proposal `key` was appended."""

    key: str
    why: str


class StateSent(Fact, frozen=True):
    """The process was sent all state up to `seq` and its `audit` from the machine's table."""

    seq: Seq
    audit: int = 0


class ElectionAsked(Fact, frozen=True):
    """The router wants the replicas to elect who runs execution `seq`."""

    seq: Seq
    fence: Fence


class ClaimLogged(Fact, frozen=True):
    """The log holds the start of execution `seq` by `replica`."""

    seq: Seq
    fence: Fence
    replica: ReplicaId


class DeltaLogged(Fact, frozen=True):
    """The log holds a delta; `state_bytes` and `pins` are of the whole state after it.

    `more` tells that the next one follows at once: what is said of that one is said of this one too. `step`
    is set when the state is whole with it: all that has changed since the whole point before.
    """

    delta: Delta
    state_bytes: int
    pins: tuple[Pin, ...] = ()
    more: bool = False
    step: Delta | None = None


class FailureLogged(Fact, frozen=True):
    """The log holds that execution `seq` of `replica` failed."""

    seq: Seq
    replica: ReplicaId


class FellBack(Fact, frozen=True):
    """The log holds that execution `seq` of `replica` goes on from the whole point at `mark`.

    That was after cell `execution_count`; deltas up to cell `reached`, of `executor`, were dropped.
    """

    seq: Seq
    replica: ReplicaId
    mark: Mark
    execution_count: int
    executor: ReplicaId
    reached: int = 0


class TableRestored(Fact, frozen=True):
    """The machine's table was replaced by a snapshot of everything up to `seq` and its `audit`.

    The newest whole point in it is `whole`.
    """

    seq: Seq
    audit: int = 0
    whole: Mark = Mark(Seq(0))


class EntryRefused(Fact, frozen=True):
    """The log refused our proposal `key` for good."""

    key: str
    why: str


class EntryKnown(Fact, frozen=True):
    """The log has had our proposal `key` before, if that was told or not; `dropped`: and has given it up.

    `state_bytes` and `pins` are of the whole state as it is now.
    """

    key: str
    state_bytes: int = 0
    pins: tuple[Pin, ...] = ()
    dropped: bool = False


class ExecutionOverruled(Fact, frozen=True):
    """Another replica took execution `seq` of `replica` over under a newer fence."""

    replica: ReplicaId
    seq: Seq
    why: str


class MemberLogged(Fact, frozen=True):
    """The log holds that `replica` is a member, at this Raft address."""

    replica: ReplicaId
    address: str = ""


class MemberGone(Fact, frozen=True):
    """The log holds that `replica` is a member no longer."""

    replica: ReplicaId


class ElectionLogged(Fact, frozen=True):
    """The log decided an election."""

    seq: Seq
    winner: ReplicaId | None


class MajoritySeen(Fact, frozen=True):
    """The Raft member began (or ceased) to see a leader with a majority behind it."""

    seen: bool


class InterruptAsked(Fact, frozen=True):
    """The router wants execution `seq` interrupted (0: whatever runs), or its process ended."""

    seq: Seq = Seq(0)
    ends: bool = False


class LeaseWanted(Fact, frozen=True):
    """The router wants the process's state off the GPUs of a lease."""

    lease: str


class PauseWanted(Fact, frozen=True):
    """The router wants the cell under a lease to stand still off its GPUs, within `within_s`."""

    lease: str
    within_s: float
    gpu_model: str


class DismissalAsked(Fact, frozen=True):
    """The router needs no process of this standby for now; `recalled`: it needs one again."""

    recalled: bool = False


class SettleAsked(Fact, frozen=True):
    """Somebody waits until all that cells changed in the process is durable."""


class EndAsked(Fact, frozen=True):
    """This replica must go, with everything it keeps."""

    reason: str


class TimeCame(Fact, frozen=True):
    """The core's deadline has passed."""


Event: TypeAlias = (
    ReplicaRequested
    | GroupNamed
    | GroupOpened
    | GroupTrouble
    | ReplicaRestored
    | RouterCame
    | ProcessForked
    | BirthFailed
    | ProcessGreeted
    | ProcessEnded
    | ExecutionClaimed
    | DeltaArrived
    | StateTaken
    | BlobsWanted
    | BlobsFetched
    | UploadEnded
    | UploadDelayed
    | ProposalFailed
    | StateSent
    | ElectionAsked
    | ClaimLogged
    | DeltaLogged
    | FellBack
    | FailureLogged
    | TableRestored
    | EntryRefused
    | EntryKnown
    | ExecutionOverruled
    | MemberLogged
    | MemberGone
    | ElectionLogged
    | MajoritySeen
    | InterruptAsked
    | LeaseWanted
    | PauseWanted
    | DismissalAsked
    | SettleAsked
    | EndAsked
    | TimeCame
)
