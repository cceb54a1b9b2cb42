"""What a router tells a host agent: what to prepare, start, change and end. `RouterToAgent` is all of it."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.protocol.message import PROTOCOL_VERSION, Message
from replkernel.records import Fence, KernelId, ReplicaId, Seq


class RouterHello(Message):
    """The router introduces itself; `token` is the agent's, from its 0600 file.

    `pid` is 0 where the router runs on another machine: then its connection is watched instead.
    """

    token: str
    kernel_id: KernelId
    key_digest: str
    pid: int
    version: int = PROTOCOL_VERSION


class PrepareReplica(Message):
    """Reserve a Raft address for a replica and begin to start its kernel process."""

    spec: KernelSpec
    replica: ReplicaId
    joining: bool = False
    """Whether its group is there already: then it is ready once it has caught up."""


class StartReplica(Message):
    """Start the keeper's Raft member: `peers` are all members' addresses, this one's included.

    With a `checkpoint`, the name of a document in the store, all members start from that state; its bytes
    have the BLAKE3 digest `checkpoint_digest`. `generation` numbers the groups of one incarnation.
    """

    kernel_id: KernelId
    replica: ReplicaId
    peers: dict[ReplicaId, str]
    secret: str
    checkpoint: str = ""
    checkpoint_digest: str = ""
    generation: int = 1
    joining: bool = False
    """Whether the group is there already: what it started from comes with its log."""


class ChangeMembers(Message):
    """Have the group take `replica` at `address` in, in place of `leaves` (empty: of nobody).

    The host of the leading member does it and answers `MembersChanged`; asked again, it does what is left.
    Without an `address` nobody comes. `leaves_at` is where one that goes was to be, if it never was there.
    """

    kernel_id: KernelId
    replica: ReplicaId
    address: str
    leaves: ReplicaId = ReplicaId("")
    leaves_at: str = ""


class StopReplica(Message):
    """Stop one replica and forget its files: it is no longer a member; the kernel goes on without it."""

    kernel_id: KernelId
    replica: ReplicaId
    reason: str


class FindCheckpoint(Message):
    """Look for the newest checkpoint of this incarnation that can be read; answer `CheckpointFound`."""

    spec: KernelSpec


class HibernateKernel(Message):
    """Write a checkpoint (answered by `CheckpointWritten`), or stop what is here (`KernelHibernated`).

    The checkpoint must hold execution `seq`. With `forced` it is what this host has applied and holds,
    whether or not a majority answers: for a group that has lost its majority for good. `gone` are replicas
    whose processes were lost, each with the last execution that had left objects there: these bind nobody.
    With `pinned` it is a copy for others: what cannot travel is a tombstone in it, and hinders nothing.
    """

    kernel_id: KernelId
    phase: Literal["checkpoint", "stop"] = "checkpoint"
    seq: Seq = Seq(0)
    forced: bool = False
    gone: dict[ReplicaId, Seq] = msgspec.field(default_factory=dict)
    pinned: bool = False


class ElectExecutor(Message):
    """Let the replicas elect who runs execution `seq`: this host's keepers append LEAD or YIELD."""

    kernel_id: KernelId
    seq: Seq
    fence: Fence


class EndKernel(Message):
    """Stop every replica of the kernel on this host and forget its state (shutdown or restart).

    With `spec`, what the kernel has left in the store goes too when no replica of it is here.
    """

    kernel_id: KernelId
    reason: str
    spec: KernelSpec | None = None


class InterruptReplica(Message):
    """Send SIGINT to a replica's kernel process; `ends`: SIGKILL. Answered by `InterruptSent`.

    It is meant for execution `seq` (0: for whatever the process does) and void once a later one has begun.
    """

    kernel_id: KernelId
    replica: ReplicaId
    seq: Seq = Seq(0)
    ends: bool = False


class FreeLease(Message):
    """Have a replica's process move its state off the GPUs of a lease; answered by `LeaseFreed`."""

    kernel_id: KernelId
    replica: ReplicaId
    lease: str


class PauseCell(Message):
    """Have the cell that a replica's process runs under a lease stand still off its GPUs, within `within_s`.

    The process itself asks the router for GPUs of `gpu_model` to go on with; `LeaseFreed` says why it cannot.
    """

    kernel_id: KernelId
    replica: ReplicaId
    lease: str
    within_s: float
    gpu_model: str = ""


class LimitReplica(Message):
    """Let a replica's process have no more than `cpu` cores and `memory_bytes`; 0: as much as there is.

    Said when a cell begins that has asked for them, and when it is over.
    """

    kernel_id: KernelId
    replica: ReplicaId
    cpu: float = 0.0
    memory_bytes: int = 0


class SettleReplica(Message):
    """Have a replica's process make durable what its cells changed, also what its user wants kept seldom."""

    kernel_id: KernelId
    replica: ReplicaId


class DismissReplica(Message):
    """End a standby's process until it is wanted again (`recalled`); its Raft member goes on.

    `ReplicaLost` follows with `dormant`, and `ReplicaReady` once it is back.
    """

    kernel_id: KernelId
    replica: ReplicaId
    recalled: bool = False


class StatusQuery(Message):
    """Ask for the status of this host: all kernels, or one."""

    request: int
    kernel_id: KernelId | None = None


class DescribeGround(Message):
    """Ask what a kernel's processes would find on this host; answered by `GroundDescribed`."""

    kernel_id: KernelId
    spec: KernelSpec
    request: int = 0


class InstallHere(Message):
    """Repeat on this host what a cell has installed on another one; answered by `InstallEnded`."""

    kernel_id: KernelId
    spec: KernelSpec
    request: int
    tool: Literal["pip", "conda"]
    arguments: tuple[str, ...]


RouterToAgent: TypeAlias = (
    RouterHello
    | PrepareReplica
    | StartReplica
    | ChangeMembers
    | StopReplica
    | FindCheckpoint
    | HibernateKernel
    | ElectExecutor
    | EndKernel
    | InterruptReplica
    | FreeLease
    | PauseCell
    | LimitReplica
    | SettleReplica
    | DismissReplica
    | StatusQuery
    | DescribeGround
    | InstallHere
)
