"""What happens to a router (events) and what it does about it (effects): one tagged vocabulary, no behaviour.

Law: an event carries everything that a decision needs, an effect everything that a driver needs; frames that
a client or a replica signed are carried as they came and never rebuilt.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from replkernel.leasing.request import GpuRequest
from replkernel.leasing.wire import FromClient, FromScheduler, GrantedLease
from replkernel.protocol.agent_to_router import AgentToRouter
from replkernel.protocol.kernel_spec import Endpoints
from replkernel.protocol.router_to_agent import RouterToAgent
from replkernel.records import Fence, HostName, MoveRecord, ReplicaId, Seq

Channel: TypeAlias = Literal["shell", "control", "stdin"]
ReplicaChannel: TypeAlias = Literal["shell", "control", "stdin", "iopub"]
RequestChannel: TypeAlias = Literal["shell", "control", "stdin", "executions"]
Frames: TypeAlias = list[bytes]


class RouterStruct(msgspec.Struct, frozen=True):
    """The base of events and effects."""


class Header(msgspec.Struct, frozen=True):
    """The fields of a Jupyter header that routing reads; the others travel in the raw frame."""

    msg_id: str
    msg_type: str
    session: str = ""
    subshell_id: str | None = None


# -- events -----------------------------------------------------------------------------------------


class ClientRequest(RouterStruct, frozen=True):
    """A message from a client, its signature already checked.

    `frames` is the message from its delimiter on; `repeated` tells that these very bytes came before, `stale`
    that it was meant for the router before this one.
    """

    channel: Channel
    identities: tuple[bytes, ...]
    header: Header
    header_frame: bytes
    content: bytes
    frames: Frames
    repeated: bool = False
    stale: bool = False


class ReplicaMessage(RouterStruct, frozen=True):
    """A message from a replica's kernel process.

    `prefix` is the client's identity (the topic on iopub), already without our own envelope; `frames` is the
    message from its delimiter on.
    """

    replica: ReplicaId
    channel: ReplicaChannel
    msg_type: str
    parent_id: str
    prefix: tuple[bytes, ...]
    content: bytes
    frames: Frames


class Undelivered(RouterStruct, frozen=True):
    """A message was sent to a replica whose process was dead by then: nothing has been done for it."""

    replica: ReplicaId
    msg_id: str


class AgentFound(RouterStruct, frozen=True):
    """A host's agent has been found (`far`: elsewhere) and its link is open; `token` is the way in."""

    host: HostName
    token: str
    far: bool = False


class AgentMissing(RouterStruct, frozen=True):
    """No agent on a host could be found or started; `ename` and `why` are for the user."""

    host: HostName
    ename: str
    why: str


class AgentGone(RouterStruct, frozen=True):
    """The link to a host's agent broke."""

    host: HostName


class AgentSaid(RouterStruct, frozen=True):
    """An agent's message."""

    host: HostName
    message: AgentToRouter


class Resumed(RouterStruct, frozen=True):
    """The router before this one had sent an execution to a replica's process, where it may still run.

    `seq` is 0 for one of a subshell; `shown` tells that its source has been published, under `count`, and
    `idle` that its idle has: a router may be killed between that and the reply.
    """

    request: ClientRequest
    replica: ReplicaId
    process: str
    seq: Seq
    fence: Fence
    shown: bool
    count: int = 0
    lease: GrantedLease | None = None
    idle: bool = False
    had: GpuRequest | None = None


class Answered(RouterStruct, frozen=True):
    """The router before this one had answered an execution like this; `idle`: its idle was published.

    `process`, `seq` and `fence` are those that it was given to; `seq` is 0 when that is not known.
    """

    header: Header
    content: bytes
    metadata: bytes
    replica: ReplicaId | None
    idle: bool
    process: str = ""
    seq: Seq = Seq(0)
    fence: Fence = Fence(0)
    count: int = 0
    lease: GrantedLease | None = None


class PageGiven(RouterStruct, frozen=True):
    """A page's message goes to a replica's process as an execution: to be kept in the journal before that.

    As an event: so it was with the router before this one.
    """

    replica: ReplicaId
    process: str
    seq: Seq
    fence: Fence


class Waited(RouterStruct, frozen=True):
    """Clients of the router before this one had seen `busy` of an execution that no process has begun.

    `line`: it was shown under its cell that it waits for its GPUs. `ends`: the replica, and the address of
    its process, that had sent it back to end for another one; empty when none had.
    """

    request: ClientRequest
    line: bool = True
    ends: tuple[str, str] = ("", "")


class Noticed(RouterStruct, frozen=True):
    """A sentence for the user, about a setting that was looked into beside the loop."""

    text: str


class Subscribed(RouterStruct, frozen=True):
    """A client subscribed to a topic of iopub; `way` is the topic that reaches it."""

    topic: bytes
    way: bytes = b""


class InterruptSignal(RouterStruct, frozen=True):
    """The router's process received SIGINT."""


class EndSignal(RouterStruct, frozen=True):
    """The router's process was told to end (SIGTERM), or its parent vanished.

    `returns` tells that the kernel may be looked for again: then only the router ends, and its agents let
    the kernel rest. A signal says so; who wants the kernel's end sends a `shutdown_request`.
    """

    why: str
    returns: bool = False


class LauncherGone(RouterStruct, frozen=True):
    """The program that started the kernel, and every client, have been gone for the kernel's grace time.

    `returns` tells that it was a Jupyter Server that finds its kernels again when it is started again.
    """

    why: str
    returns: bool = False


class ClientsCounted(RouterStruct, frozen=True):
    """So many connections of clients there are now."""

    count: int


class SchedulerUp(RouterStruct, frozen=True):
    """The scheduler has welcomed us, perhaps again: it is to be told who we are and what we hold."""


class SchedulerDown(RouterStruct, frozen=True):
    """The scheduler does not listen for now; it is tried again. `why` is one sentence."""

    why: str


class SchedulerMissing(RouterStruct, frozen=True):
    """There is no scheduler; `why` is one sentence with the fix."""

    why: str


class SchedulerSaid(RouterStruct, frozen=True):
    """The scheduler's message."""

    message: FromScheduler


class Tick(RouterStruct, frozen=True):
    """Time passed; sent when `deadline()` is due."""


AboutScheduler: TypeAlias = SchedulerUp | SchedulerDown | SchedulerMissing | SchedulerSaid
"""What the line to the scheduler brings."""

FromAround: TypeAlias = InterruptSignal | EndSignal | LauncherGone | ClientsCounted
"""What the surroundings of the router's process say."""

Event: TypeAlias = (
    ClientRequest
    | ReplicaMessage
    | Undelivered
    | AgentFound
    | AgentMissing
    | AgentGone
    | AgentSaid
    | Resumed
    | Answered
    | PageGiven
    | Waited
    | Noticed
    | Subscribed
    | InterruptSignal
    | EndSignal
    | LauncherGone
    | ClientsCounted
    | SchedulerUp
    | SchedulerDown
    | SchedulerMissing
    | SchedulerSaid
    | Tick
)


# -- effects ----------------------------------------------------------------------------------------


class PassToClient(RouterStruct, frozen=True):
    """Send a replica's message to a client as it came; `parent_id` is the request that it answers."""

    channel: Channel
    frames: Frames
    msg_type: str = ""
    parent_id: str = ""


class PassToIopub(RouterStruct, frozen=True):
    """Publish a replica's message as it came; `parent_id` is the request that it belongs to."""

    frames: Frames
    msg_type: str = ""
    parent_id: str = ""


class Answer(RouterStruct, frozen=True):
    """Send a message of the router's own making to one client, in reply to the header `parent`."""

    channel: Channel
    identities: tuple[bytes, ...]
    msg_type: str
    parent: bytes
    content: bytes
    metadata: bytes = b"{}"


class Publish(RouterStruct, frozen=True):
    """Publish a message of the router's own making; `topic` is the frame that subscribers filter by."""

    msg_type: str
    parent: bytes
    content: bytes
    topic: bytes | None = None


class AnswerReplica(RouterStruct, frozen=True):
    """Answer a question that a replica's process put to the router itself, on the stdin channel."""

    replica: ReplicaId
    msg_type: str
    parent: bytes
    content: bytes


class Accepted(RouterStruct, frozen=True):
    """Keep in the journal that an execution was asked for."""

    request: ClientRequest


class Given(RouterStruct, frozen=True):
    """Keep in the journal, before it is done, that an execution is sent to a replica's process.

    `had` is what it asked for under the lease that it has left for a shorter cell.
    """

    msg_id: str
    replica: ReplicaId
    process: str
    seq: int = 0
    fence: int = 0
    lease: GrantedLease | None = None
    had: GpuRequest | None = None


class TakenBack(RouterStruct, frozen=True):
    """Keep in the journal that the replica which an execution was given to never began it: it waits again.

    `begun`: clients have seen `busy` of it all the same. `ends`: that replica's process has sent it back to
    end for another one.
    """

    msg_id: str
    begun: bool = False
    ends: bool = False


class AskJournal(RouterStruct, frozen=True):
    """Answer a front end's question for the journal."""

    request: ClientRequest


class ToReplica(RouterStruct, frozen=True):
    """Send a client's message to a replica's kernel process.

    One with its `msg_id` may be given to another replica, if the process is found dead before it is sent.
    """

    replica: ReplicaId
    channel: RequestChannel
    frames: Frames
    msg_id: str = ""


class ToAgent(RouterStruct, frozen=True):
    """Send a message to a host's agent."""

    host: HostName
    message: RouterToAgent


class FindAgent(RouterStruct, frozen=True):
    """Find the agent of a host, or start it; where it never `starts` one, there is one or there is none."""

    host: HostName
    starts: bool = True


class ConnectReplica(RouterStruct, frozen=True):
    """Open the four links to a replica's kernel process (closing older ones)."""

    replica: ReplicaId
    endpoints: Endpoints
    pid: int = 0


class SignalProcess(RouterStruct, frozen=True):
    """Send a signal to the process group of a replica's process on this machine."""

    replica: ReplicaId
    number: int


class DropReplica(RouterStruct, frozen=True):
    """Close the links to a replica."""

    replica: ReplicaId


class OpenScheduler(RouterStruct, frozen=True):
    """Find the scheduler and keep a line to it open from now on; where there is none, start one or wait."""

    starts: bool = True


class ToScheduler(RouterStruct, frozen=True):
    """Send a message to the scheduler."""

    message: FromClient


class Remember(RouterStruct, frozen=True):
    """Keep in the kernel's record what its cells ask for unless they say otherwise."""

    gpus: GpuRequest | None


class RememberMove(RouterStruct, frozen=True):
    """Keep in the kernel's record which other hosts have replicas, and the move that has begun."""

    guests: tuple[str, ...]
    move: MoveRecord | None


class Log(RouterStruct, frozen=True):
    """Write one line to the log; `warning` lines are also shown on the terminal."""

    text: str
    severity: Literal["info", "warning"] = "info"


class Register(RouterStruct, frozen=True):
    """Note in the kernel's record how it stands, for whoever starts a router for it later.

    Once it has ended, nothing of it is kept; without that, an exit leaves the kernel to the next router.
    """

    standing: Literal["live", "hibernated", "ended"]
    state_bytes: int | None = None


class SpeakFor(RouterStruct, frozen=True):
    """Have the router's own messages be those of another incarnation: its replicas were found alive."""

    incarnation: str


class Exit(RouterStruct, frozen=True):
    """End the router's process with this exit code."""

    code: int


Effect: TypeAlias = (
    PassToClient
    | PassToIopub
    | Answer
    | Publish
    | AnswerReplica
    | Accepted
    | Given
    | PageGiven
    | TakenBack
    | AskJournal
    | ToReplica
    | ToAgent
    | FindAgent
    | ConnectReplica
    | DropReplica
    | SignalProcess
    | OpenScheduler
    | ToScheduler
    | Remember
    | RememberMove
    | Log
    | Register
    | SpeakFor
    | Exit
)
