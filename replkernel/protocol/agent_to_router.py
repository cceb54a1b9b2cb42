"""What a host agent tells a kernel's router of the replicas that it keeps. `AgentToRouter` is all of it."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from replkernel.protocol.kernel_spec import Endpoints, KernelSpec
from replkernel.protocol.message import PROTOCOL_VERSION, Message
from replkernel.protocol.process_to_agent import HibernationWanted
from replkernel.records import Fence, HostName, KernelId, Pin, ReplicaId, Seq


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
    """Whether the log holds some variables as they were before `last_seq`, so that it is not durable yet."""
    whole_seq: Seq = Seq(0)
    """The newest execution as of which all state is in the log, while `owing`."""
    pending_seq: Seq = Seq(0)
    generation: int = 1
    """Which of the incarnation's groups the replicas here belong to: an older one has been given up."""
    members: dict[ReplicaId, HostName] = msgspec.field(default_factory=dict)
    """The replicas that the log names, with their hosts."""
    departed: tuple[ReplicaId, ...] = ()
    """The replicas that were members of the group and are none any more."""
    describes: bool = False
    """Whether the agent answers `DescribeGround` and `InstallHere`."""
    dismisses: bool = False
    """Whether the agent knows `DismissReplica`."""


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
    peers: dict[ReplicaId, str] = msgspec.field(default_factory=dict)
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
    that is whole with what its keeper has; the log may yet take it, or the next execution's in its place.
    `newest` is the last of which the keeper has anything: nothing of later ones will come. None: not known.
    `dormant`: it has ended until the router wants it again.
    """

    replica: ReplicaId
    why: str
    returning: bool
    ago_s: float = 0.0
    kept: Seq = Seq(0)
    newest: Seq | None = None
    dormant: bool = False


class Committed(Message):
    """The delta of execution `seq` is committed with its blobs stored: the execution is durable.

    So are the earlier ones of this replica, for each of which no message of its own needs to come.
    While there are `unaudited` variables, of which the log has an older version or none, it is not durable
    yet, nor are those since the last whole point: what `audit` comes to is told again.
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


class InterruptSent(Message):
    """The interrupt of a replica's process was delivered, or is void."""

    replica: ReplicaId


class WentBack(Message):
    """Execution `seq` began from the whole point after execution `point`; what came after that is lost."""

    replica: ReplicaId
    seq: Seq
    point: Seq


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
    """Nothing of a replica's process lies on the GPUs of a lease any more; or `why` it has to stay there.

    With `computes_on` it answers `PauseCell`, not `FreeLease`: the cell does not stand still for that.
    """

    replica: ReplicaId
    lease: str
    moved_bytes: int = 0
    why: str = ""
    computes_on: bool = False


class GpusUsed(Message):
    """What a replica's process, with those that it has started, has on GPUs: UUIDs and bytes; all of it."""

    replica: ReplicaId
    gpus: tuple[tuple[str, int], ...] = ()


class StatusAnswer(Message):
    """The status of a host, as the JSON document of `replkernel.protocol.status`."""

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
    packages: dict[str, str] = msgspec.field(default_factory=dict)
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
    | InterruptSent
    | WentBack
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
