"""The wire between replkernel's processes: router ↔ agent, kernel process ↔ agent, and the routing envelope.

One tagged union a direction, msgpack by msgspec, one message a ZMQ frame. What comes from a peer is
decoded here and nowhere else; a message that does not fit is refused by name.
The five Jupyter channels are not here: their frames are signed by the client's key and pass verbatim.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from replkernel.errors import ProtocolMismatch
from replkernel.records import (
    BlobRef,
    ChunkRef,
    Delta,
    Digest,
    Fence,
    HostName,
    KernelId,
    Pin,
    ReplicaId,
    Seq,
)

PROTOCOL_VERSION = 1
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
"""No message between our own processes is larger than this."""

ENVELOPE_MARK = b"rk1:"
"""The first bytes of the routing-identity frame that carries an `Envelope`."""

ROUTER_IDENTITY = b"rk-router"
"""The routing id of every router at its replicas, hence an identity frame of what it sends them."""


class Message(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The base of all messages; the tag is the class name."""


# -- what a kernel is made from ---------------------------------------------------------------------


class KernelSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the launcher asked for, enough for any agent to start a replica of this kernel.

    `incarnation` changes when a restart wipes the namespace. `key` and `signature_scheme` are the
    connection file's: replicas sign with them. `env` and `cwd` are the launcher's own. `argv_extra`
    are ipykernel options (``--IPKernelApp.…``) that the kernelspec carried. `connection_file` is the
    router's own, for ``%connect_info``; it may not exist on another host.
    """

    kernel_id: KernelId
    incarnation: str
    key: str
    signature_scheme: str
    python: str
    env: dict[str, str]
    cwd: str
    store_url: str
    replicas: int
    durable: Literal["async", "before_reply"] = "async"
    inline_bytes_max: int = 16 * 1024
    argv_extra: tuple[str, ...] = ()
    session_id: str = ""
    detached: bool = False
    """Whether the replicas live on without a router, for ever."""
    connection_file: str = ""


class Endpoints(msgspec.Struct, frozen=True):
    """The ZMQ addresses of a kernel process that its router connects to.

    `executions` is the direct way to the main thread, for executions of the main shell; without one they go
    to `shell`, as everything else does. `far` are the addresses for a router on another machine.
    """

    shell: str
    control: str
    stdin: str
    iopub: str
    executions: str = ""
    far: Endpoints | None = None


# -- router → agent ---------------------------------------------------------------------------------


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
    whether or not a majority answers: for a group that has lost its majority for good.
    """

    kernel_id: KernelId
    phase: Literal["checkpoint", "stop"] = "checkpoint"
    seq: Seq = Seq(0)
    forced: bool = False


class HibernationWanted(Message):
    """A cell asks for its kernel's hibernation; passed on to the router."""

    kernel_id: KernelId


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
    """Send SIGINT to a replica's kernel process."""

    kernel_id: KernelId
    replica: ReplicaId


class FreeLease(Message):
    """Have a replica's process move its state off the GPUs of a lease; answered by `LeaseFreed`."""

    kernel_id: KernelId
    replica: ReplicaId
    lease: str


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
    | StatusQuery
    | DescribeGround
    | InstallHere
)


# -- agent → router ---------------------------------------------------------------------------------


class AgentWelcome(Message):
    """The agent's answer to a hello: who it is, and which replicas of this kernel it already keeps.

    `incarnation` is empty when the agent knows nothing of the kernel; otherwise the router re-attaches:
    `spec` is what it was made from, and a `ReplicaReady` follows for each live replica. `last_seq` is the
    last execution whose delta the log has here, `pending_seq` the last whose delta is on its way there (0 if
    none is); `newest_seq` the highest number ever given out, failed executions included: the router numbers
    on after it.
    """

    host: HostName
    agent_pid: int
    incarnation: str = ""
    spec: KernelSpec | None = None
    replicas: tuple[ReplicaId, ...] = ()
    last_seq: Seq = Seq(0)
    fence: Fence = Fence(0)
    version: int = PROTOCOL_VERSION
    newest_seq: Seq = Seq(0)
    executor: ReplicaId | None = None
    """The replica that was last given an execution, as far as the log tells."""
    owing: bool = False
    """Whether execution `last_seq` leaves variables to an audit and so is not durable yet."""
    pending_seq: Seq = Seq(0)
    generation: int = 1
    """Which of the incarnation's groups the replicas here belong to: an older one has been given up."""
    members: dict[ReplicaId, HostName] = {}
    """The replicas that the log names, with their hosts."""
    departed: tuple[ReplicaId, ...] = ()
    """The replicas that were members of the group and are none any more."""
    describes: bool = False
    """Whether the agent answers `DescribeGround` and `InstallHere`."""


class AgentRefuses(Message):
    """The agent will not serve this router; `why` is one sentence for the user."""

    why: str


class ReplicaPrepared(Message):
    """The Raft address that a replica's keeper will bind."""

    replica: ReplicaId
    raft_address: str


class MembersChanged(Message):
    """The answer to `ChangeMembers`: what the new member is started with; or `why` nothing came of it yet."""

    kernel_id: KernelId
    replica: ReplicaId
    peers: dict[ReplicaId, str] = {}
    secret: str = ""
    checkpoint: str = ""
    checkpoint_digest: str = ""
    generation: int = 1
    why: str = ""


class MemberBroken(Message):
    """A replica's Raft member cannot start any more: it can only be replaced; `why` is one sentence."""

    replica: ReplicaId
    why: str


class ReplicaReady(Message):
    """A replica's kernel process answers; it has applied the log up to execution `applied`.

    `kernel_info` is the JSON content of its `kernel_info_reply`. `unseen` says why the process before it
    ended, if that happened while no agent was there and is known.
    """

    replica: ReplicaId
    host: HostName
    pid: int
    endpoints: Endpoints
    applied: Seq
    kernel_info: bytes = b""
    unseen: str = ""


class ReplicaLost(Message):
    """A replica's kernel process died: `why` is one clause for the user (``killed by SIGKILL (…)``).

    `returning` tells whether the keeper is having another one forked. When this is sent the process has been
    dead for `ago_s` at least: what was sent to it since then never reached it. `kept` is the last execution
    whose delta its keeper has; the log may yet take it, or the next execution's in its place.
    """

    replica: ReplicaId
    why: str
    returning: bool
    ago_s: float = 0.0
    kept: Seq = Seq(0)


class Committed(Message):
    """The delta of execution `seq` is committed with its blobs stored: the execution is durable.

    So are the earlier ones of this replica, for each of which no message of its own needs to come.
    While there are `unaudited` variables it is not durable yet: what `audit` comes to is told again.
    `capture_s` is how long its process took to find what it changed, 0 where that is not known.
    """

    replica: ReplicaId
    seq: Seq
    execution_count: int
    state_bytes: int
    pins: tuple[Pin, ...] = ()
    audit: int = 0
    unaudited: tuple[str, ...] = ()
    capture_s: float = 0.0


class ReplicaUnfaithful(Message):
    """The variables that a replica rebuilt otherwise than they were captured, all that there are now.

    Each is a pin of the replica that made it: the notebook should go on there.
    """

    replica: ReplicaId
    pins: tuple[Pin, ...] = ()


class CommitTrouble(Message):
    """A delta cannot be made durable for now; `why` is one sentence, empty when trouble is over."""

    replica: ReplicaId
    seq: Seq
    why: str


class Elected(Message):
    """The outcome of an election: the first committed LEAD, or none when everybody yielded."""

    seq: Seq
    winner: ReplicaId | None


class RouteNotice(Message):
    """A sentence for the user about this kernel (store, quorum, scheduler), shown with the next cell."""

    text: str
    severity: Literal["info", "warning", "error"] = "warning"


class KernelEnded(Message):
    """Every replica of the kernel on this host is gone."""

    kernel_id: KernelId


class CheckpointFound(Message):
    """The newest checkpoint that can be read; `name` is empty when there is none, `why` tells of trouble.

    `seq` is the last execution that it holds, `newest_seq` the highest number given out by then. `generation`
    is that of the newest group that left anything in the store. `notices` are for the user: what is damaged.
    """

    kernel_id: KernelId
    name: str = ""
    digest: str = ""
    generation: int = 0
    seq: Seq = Seq(0)
    newest_seq: Seq = Seq(0)
    fence: Fence = Fence(0)
    execution_count: int = 0
    executor: ReplicaId | None = None
    notices: tuple[str, ...] = ()
    why: str = ""


class CheckpointWritten(Message):
    """The answer to `HibernateKernel`: `name` is empty where another host leads the group, or for `why`."""

    kernel_id: KernelId
    name: str = ""
    seq: Seq = Seq(0)
    why: str = ""


class KernelHibernated(Message):
    """Nothing of the kernel is left on this host; its checkpoint stays in the store."""

    kernel_id: KernelId
    why: str = ""


class KernelTakenOver(Message):
    """Another group goes on from this kernel's checkpoint: the store has one of a newer `generation`."""

    kernel_id: KernelId
    generation: int


class LeaseFreed(Message):
    """Nothing of a replica's process lies on the GPUs of a lease any more; or `why` it has to stay there."""

    replica: ReplicaId
    lease: str
    moved_bytes: int = 0
    why: str = ""


class GpusUsed(Message):
    """What a replica's process, with those that it has started, has on GPUs: UUIDs and bytes; all of it."""

    replica: ReplicaId
    gpus: tuple[tuple[str, int], ...] = ()


class StatusAnswer(Message):
    """The status of a host, as the JSON document of `replkernel.status`."""

    request: int
    document: bytes


class GroundDescribed(Message):
    """What a kernel's processes find on a host: the version of its Python, and of each installed package.

    `no_directory` says why the kernel's working directory cannot be used there, `why` why the rest is not
    known; both are empty when all is well.
    """

    kernel_id: KernelId
    request: int = 0
    python: str = ""
    packages: dict[str, str] = {}
    no_directory: str = ""
    why: str = ""


class InstallEnded(Message):
    """An installation that was repeated has ended: `said` is the last that it wrote."""

    kernel_id: KernelId
    request: int
    well: bool
    said: str = ""


AboutGround: TypeAlias = GroundDescribed | InstallEnded
"""What agents say of what is installed on their hosts."""

AboutRest: TypeAlias = (
    CheckpointFound | CheckpointWritten | KernelHibernated | HibernationWanted | KernelTakenOver | KernelEnded
)
"""What agents say of a kernel's rest, return and end."""

AboutMembers: TypeAlias = MembersChanged | MemberBroken
"""What agents say of the group's membership."""

AgentToRouter: TypeAlias = (
    AgentWelcome
    | AgentRefuses
    | ReplicaPrepared
    | MembersChanged
    | MemberBroken
    | ReplicaReady
    | ReplicaLost
    | Committed
    | ReplicaUnfaithful
    | CommitTrouble
    | Elected
    | RouteNotice
    | KernelEnded
    | CheckpointFound
    | CheckpointWritten
    | KernelHibernated
    | HibernationWanted
    | KernelTakenOver
    | LeaseFreed
    | GpusUsed
    | StatusAnswer
    | GroundDescribed
    | InstallEnded
)


# -- kernel process → agent -------------------------------------------------------------------------


class KernelHello(Message):
    """A kernel process introduces itself, at its start and again whenever it finds a new agent.

    `token` was handed to it at its birth. `applied` is the last execution whose delta it holds;
    `unacknowledged` are the deltas that it proposed and never saw committed, oldest first.
    """

    token: str
    kernel_id: KernelId
    replica: ReplicaId
    pid: int
    endpoints: Endpoints
    applied: Seq
    kernel_info: bytes = b""
    unacknowledged: tuple[Delta, ...] = ()
    version: int = PROTOCOL_VERSION
    applied_audit: int = 0


class ClaimExecution(Message):
    """The process has been given execution `seq` and starts it: commit ExecutionStarted."""

    seq: Seq
    fence: Fence


class ProposeDelta(Message):
    """What an execution changed, found in `capture_s` seconds; its chunks are in the host's blob cache."""

    delta: Delta
    capture_s: float = 0.0


class ChunksWritten(Message):
    """Chunks that a delta to come will name are in the host's blob cache: storing them may begin."""

    chunks: tuple[ChunkRef, ...]


class ChunksWithdrawn(Message):
    """Chunks told before that no delta will name: the process has taken them out of the blob cache."""

    digests: tuple[Digest, ...]


class ReplicaApplied(Message):
    """The process has taken over everything up to execution `seq`; what it holds, for the status.

    What it rebuilt, it proved to be what was captured, but for `unproven` components, and for the variables
    of `unfaithful`, each a pin of the replica that made it: tombstones take their place here.
    """

    seq: Seq
    components: int
    state_bytes: int
    pending_bytes: int = 0
    unproven: int = 0
    unfaithful: tuple[Pin, ...] = ()


class FetchBlobs(Message):
    """Bring these blobs into the host's blob cache; answered by `BlobsReady`."""

    request: int
    blobs: tuple[BlobRef, ...]


class ProcessNotice(Message):
    """A sentence for the user about what this process cannot do for now, for terminal and notebook."""

    text: str


class GpusFreed(Message):
    """The answer to `FreeGpus`: the state is off the GPUs; or `why` it has to stay, in one clause."""

    lease: str
    moved_bytes: int = 0
    why: str = ""


class NotebookStatusQuery(Message):
    """`%replkernel status`: ask for this kernel's status document."""

    request: int


KernelToAgent: TypeAlias = (
    KernelHello
    | ClaimExecution
    | ProposeDelta
    | ChunksWritten
    | ChunksWithdrawn
    | ReplicaApplied
    | FetchBlobs
    | ProcessNotice
    | NotebookStatusQuery
    | HibernationWanted
    | GpusFreed
)


# -- agent → kernel process -------------------------------------------------------------------------


class KernelWelcome(Message):
    """The agent's answer to a kernel hello: where blobs lie on this host, and who we are."""

    host: HostName
    cache_dir: str
    agent_pid: int


class ApplyDelta(Message):
    """A committed delta of another replica, or (on joining) of the past. Applied in order of `seq`."""

    delta: Delta


class DeltaCommitted(Message):
    """This process's own delta is committed, and with it every earlier one: they are durable.

    `owing`: but this one leaves variables to an audit, so its execution is not durable before that.
    """

    seq: Seq
    audit: int = 0
    owing: bool = False


class ExecutionRefused(Message):
    """The claim or delta of execution `seq` lost against a newer fence; it must not take effect."""

    seq: Seq
    why: str


class BlobsReady(Message):
    """The answer to `FetchBlobs`; `missing` names what no store could give, with the reason."""

    request: int
    missing: tuple[Digest, ...] = ()
    why: str = ""


class NotebookStatusAnswer(Message):
    """The answer to `NotebookStatusQuery`: the JSON status document of this kernel."""

    request: int
    document: bytes


class DurabilityTrouble(Message):
    """Deltas cannot be made durable for now; `why` is one sentence, empty when trouble is over."""

    why: str


class FreeGpus(Message):
    """Somebody waits for the GPUs of a lease: move off what lies there, between two cells, and say so."""

    lease: str


class StopProcess(Message):
    """End yourself in an orderly way; `reason` goes to the log."""

    reason: str


AgentToKernel: TypeAlias = (
    KernelWelcome
    | ApplyDelta
    | DeltaCommitted
    | ExecutionRefused
    | BlobsReady
    | NotebookStatusAnswer
    | DurabilityTrouble
    | FreeGpus
    | StopProcess
)


# -- router → kernel process, inside a routing-identity frame -----------------------------------------


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """What the router says about one execution beside the client's own frames.

    The kernel process must hold everything up to execution `needs` before user code starts.
    `queued_s` is how long the request waited in the router. It rides as one more identity frame in
    front of the client's identity, so that the signed frames stay untouched and replies carry it back.
    `needs_audit` says which audit of `needs` belongs to that; `moves`, that the next execution may be
    another replica's, so that nothing should be left to be checked for long. With `anyway` the replica runs
    the cell although it rebuilt something otherwise than it was captured: whoever has it cannot be had.
    `counted` cells have been counted before this one, whatever the replica knows of them: some were lost.
    `gpus` are the UUIDs of the GPUs that the cell has a lease on, empty without one; None when no scheduler
    is known, so that nobody leases GPUs and the process sees what it would see otherwise.
    `stays` says why the process must not end so that another one takes over with these GPUs; empty when it
    may, None when the router knows nothing of that. `leases` tells that GPUs are leased, also where a cell
    without a lease sees what it would see otherwise. Of each GPU the process may take `vram_gb` (0: all).

    A question about variables carries one as well, behind the client's identity: of its fields only what it
    `needs` counts, which is awaited for a moment.
    """

    seq: Seq
    fence: Fence
    needs: Seq
    queued_s: float = 0.0
    needs_audit: int = 0
    moves: bool = False
    anyway: bool = False
    counted: int = 0
    gpus: tuple[str, ...] | None = None
    stays: str | None = None
    leases: bool = False
    vram_gb: float = 0.0


# -- router → kernel process, upstream on iopub -------------------------------------------------------

CONFIRMS = b"\x02"
"""The first byte of a `Confirmation`, as 1 is that of a subscription and 0 that of its end."""


class Confirmation(msgspec.Struct, frozen=True, array_like=True):
    """What has reached the router, by its headers: all output up to `last`, and the `replies` to executions.

    The process holds everything else, for the router after this one.
    """

    last: bytes
    replies: list[bytes]


_encoder = msgspec.msgpack.Encoder()
_confirmation_decoder = msgspec.msgpack.Decoder(Confirmation)
_envelope_decoder = msgspec.msgpack.Decoder(Envelope)


def encode(message: Message) -> bytes:
    """Encode one message for the wire."""
    return _encoder.encode(message)


def decoder(union: object) -> msgspec.msgpack.Decoder[object]:
    """Return a decoder for one of the unions above (``decoder(RouterToAgent)``)."""
    return msgspec.msgpack.Decoder(union)


def envelope_frame(envelope: Envelope) -> bytes:
    """Return the identity frame that carries `envelope`; no socket is known by it: any length will do."""
    return ENVELOPE_MARK + _encoder.encode(envelope)


def read_envelope(identities: list[bytes]) -> Envelope | None:
    """Return the envelope among a message's identity frames, or None when there is none."""
    for frame in identities:
        if frame.startswith(ENVELOPE_MARK):
            return _envelope_decoder.decode(frame[len(ENVELOPE_MARK) :])
    return None


def confirmation_frame(confirmation: Confirmation) -> bytes:
    """Return the frame that carries `confirmation`."""
    return CONFIRMS + _encoder.encode(confirmation)


def read_confirmation(frame: bytes) -> Confirmation | None:
    """Return the confirmation that a frame carries, or None when it carries none that can be read."""
    if not frame.startswith(CONFIRMS):
        return None
    try:
        return _confirmation_decoder.decode(frame[len(CONFIRMS) :])
    except msgspec.MsgspecError:
        return None


def client_identities(identities: list[bytes]) -> list[bytes]:
    """Return the identity frames that are the client's own: without the router's routing id and envelope."""
    return [frame for frame in identities if frame != ROUTER_IDENTITY and not frame.startswith(ENVELOPE_MARK)]


def check_version(version: int, peer: str) -> None:
    """Raise ProtocolMismatch when a peer's protocol version is not ours."""
    if version != PROTOCOL_VERSION:
        raise ProtocolMismatch(
            f"The {peer} speaks protocol version {version}, this process {PROTOCOL_VERSION}: "
            "install the same release of replkernel on every host and restart the agent."
        )
