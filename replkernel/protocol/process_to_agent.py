"""What a kernel process tells its host's agent: claims, deltas, wishes. `KernelToAgent` is all of it."""

from __future__ import annotations

from typing import TypeAlias

from replkernel.protocol.kernel_spec import Endpoints
from replkernel.protocol.message import PROTOCOL_VERSION, Message
from replkernel.records import BlobRef, ChunkRef, Delta, Digest, Fence, KernelId, Mark, Pin, ReplicaId, Seq


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
    """The process has been given execution `seq` and starts it: commit ExecutionStarted.

    `afresh`: the process that ran the cells before is lost; this one waits for `BegunAfresh`.
    """

    seq: Seq
    fence: Fence
    afresh: bool = False


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
    """The answer to `FreeGpus`: the state is off the GPUs; or `why` it has to stay, in one clause.

    With `computes_on` it answers `StandStill` instead: the cell cannot, and that is why.
    """

    lease: str
    moved_bytes: int = 0
    why: str = ""
    computes_on: bool = False


class NotebookStatusQuery(Message):
    """`%replkernel status`: ask for this kernel's status document."""

    request: int


class HistoryQuery(Message):
    """Ask for the points of the history, and for what leads `to` one of them; answered by `HistoryAnswer`.

    With `other`, what differs between the two is asked for instead.
    """

    request: int
    to: Mark | None = None
    other: Mark | None = None


class HibernationWanted(Message):
    """A cell asks for its kernel's hibernation; passed on to the router."""

    kernel_id: KernelId


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
    | HistoryQuery
    | HibernationWanted
    | GpusFreed
)
