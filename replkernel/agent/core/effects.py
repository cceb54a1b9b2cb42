"""What a keeper's core wants done: effects, performed by its driver in list order."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from replkernel.protocol.agent_to_process import AgentToKernel
from replkernel.protocol.agent_to_router import AgentToRouter
from replkernel.records import BlobRef, Delta, Fence, ReplicaId, Seq


class Want(msgspec.Struct, frozen=True, tag=True):
    """The base of all effects."""


class ClaimProposal(msgspec.Struct, frozen=True, tag=True):
    """Append that this replica starts an execution; `afresh`: from the last whole point."""

    seq: Seq
    fence: Fence
    afresh: bool = False

    @property
    def key(self) -> str:
        """The name of this proposal, the same at each retry."""
        return f"{'afresh' if self.afresh else 'claim'}-{self.seq}-{self.fence}"


class DeltaProposal(msgspec.Struct, frozen=True, tag=True):
    """Append what an execution changed."""

    delta: Delta

    @property
    def key(self) -> str:
        """The name of this proposal, the same at each retry."""
        audit = f"-{self.delta.audit}" if self.delta.audit else ""
        return f"delta-{self.delta.seq}-{self.delta.fence}{audit}"


class FailureProposal(msgspec.Struct, frozen=True, tag=True):
    """Append that an execution of this replica ended without a result."""

    seq: Seq
    fence: Fence
    why: str

    @property
    def key(self) -> str:
        """The name of this proposal, the same at each retry."""
        return f"failure-{self.seq}-{self.fence}"


class VoteProposal(msgspec.Struct, frozen=True, tag=True):
    """Append LEAD or YIELD for an election."""

    seq: Seq
    fence: Fence
    lead: bool

    @property
    def key(self) -> str:
        """The name of this proposal, the same at each retry."""
        return f"vote-{self.seq}-{self.fence}"


class JoinProposal(msgspec.Struct, frozen=True, tag=True):
    """Append that this replica is a member, at its Raft address."""

    address: str

    @property
    def key(self) -> str:
        """The name of this proposal, the same at each retry."""
        return f"join-{self.address}"


Proposal: TypeAlias = JoinProposal | ClaimProposal | DeltaProposal | FailureProposal | VoteProposal


class ForkProcess(Want, frozen=True):
    """Fork a kernel process; `birth` numbers this replica's processes from 1."""

    birth: int


class SignalProcess(Want, frozen=True):
    """Send a signal to the kernel process and its children."""

    signum: int


class ToProcess(Want, frozen=True):
    """Send a message to the kernel process."""

    message: AgentToKernel


class ToRouter(Want, frozen=True):
    """Send a message to the kernel's router, if one is attached."""

    message: AgentToRouter


class SendState(Want, frozen=True):
    """Bring the kernel process up to date from the machine's table, if newer than `after`, `audit`."""

    after: Seq
    audit: int = 0


class OpenGroup(Want, frozen=True):
    """Start the Raft member, from the state of a checkpoint if one is named."""

    peers: dict[ReplicaId, str]
    secret: str
    checkpoint: str = ""
    checkpoint_digest: str = ""
    joining: bool = False


class UploadBlobs(Want, frozen=True):
    """Bring the blobs of execution `seq`, or of its audit, into the store."""

    seq: Seq
    blobs: tuple[BlobRef, ...]
    audit: int = 0


class FetchBlobs(Want, frozen=True):
    """Bring blobs into the host's cache for the kernel process."""

    request: int
    blobs: tuple[BlobRef, ...]


class Propose(Want, frozen=True):
    """Hand a proposal to consensus, together with the deltas that follow it."""

    proposal: Proposal
    following: tuple[DeltaProposal, ...] = ()


class SetPace(Want, frozen=True):
    """Tell consensus whether a cell is running (quick elections) or not (cheap idling)."""

    busy: bool


class LeadElsewhere(Want, frozen=True):
    """Hand the group's leadership, if it is here, to the member at `address`."""

    address: str


class SaveReplica(Want, frozen=True):
    """Write the replica's record to disk, so that another agent can restore it."""


class ForgetReplica(Want, frozen=True):
    """Close the Raft member and delete the replica's directory and sockets: it has ended."""


Effect: TypeAlias = (
    ForkProcess
    | SignalProcess
    | ToProcess
    | ToRouter
    | SendState
    | OpenGroup
    | UploadBlobs
    | FetchBlobs
    | Propose
    | SetPace
    | LeadElsewhere
    | SaveReplica
    | ForgetReplica
)
