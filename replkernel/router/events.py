"""What happens to a router (events) and what it does about it (effects): one tagged vocabulary, no behaviour.

Law: an event carries everything that a decision needs, an effect everything that a driver needs; frames that
a client or a replica signed are carried as they came and never rebuilt.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from replkernel.protocol import AgentToRouter, Endpoints, RouterToAgent
from replkernel.records import HostName, ReplicaId

Channel: TypeAlias = Literal["shell", "control", "stdin"]
ReplicaChannel: TypeAlias = Literal["shell", "control", "stdin", "iopub"]
RequestChannel: TypeAlias = Literal["shell", "control", "stdin", "executions"]
Frames: TypeAlias = list[bytes]


class Happening(msgspec.Struct, frozen=True):
    """The base of events and effects."""


class Header(msgspec.Struct, frozen=True):
    """The fields of a Jupyter header that routing reads; the others travel in the raw frame."""

    msg_id: str
    msg_type: str
    session: str = ""
    subshell_id: str | None = None


# -- events -----------------------------------------------------------------------------------------


class ClientRequest(Happening, frozen=True):
    """A message from a client, its signature already checked.

    `frames` is the message from its delimiter on; `repeated` tells that these very bytes came before.
    """

    channel: Channel
    identities: tuple[bytes, ...]
    header: Header
    header_frame: bytes
    content: bytes
    frames: Frames
    repeated: bool = False


class ReplicaMessage(Happening, frozen=True):
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


class AgentFound(Happening, frozen=True):
    """A host's agent has been found and its link is open; `token` opens its door."""

    host: HostName
    token: str


class AgentMissing(Happening, frozen=True):
    """No agent on a host could be found or started; `ename` and `why` are for the user."""

    host: HostName
    ename: str
    why: str


class AgentGone(Happening, frozen=True):
    """The link to a host's agent broke."""

    host: HostName


class AgentSaid(Happening, frozen=True):
    """An agent's message."""

    host: HostName
    message: AgentToRouter


class Noticed(Happening, frozen=True):
    """A sentence for the user, about a setting that was looked into beside the loop."""

    text: str


class Subscribed(Happening, frozen=True):
    """A client subscribed to a topic of iopub."""

    topic: bytes


class InterruptSignal(Happening, frozen=True):
    """The router's process received SIGINT."""


class EndSignal(Happening, frozen=True):
    """The router's process was told to end (SIGTERM), or its parent vanished."""

    why: str


class Tick(Happening, frozen=True):
    """Time passed; sent when `deadline()` is due."""


Event: TypeAlias = (
    ClientRequest
    | ReplicaMessage
    | AgentFound
    | AgentMissing
    | AgentGone
    | AgentSaid
    | Noticed
    | Subscribed
    | InterruptSignal
    | EndSignal
    | Tick
)


# -- effects ----------------------------------------------------------------------------------------


class PassToClient(Happening, frozen=True):
    """Send a replica's message to a client as it came."""

    channel: Channel
    frames: Frames


class PassToIopub(Happening, frozen=True):
    """Publish a replica's message as it came."""

    frames: Frames


class Answer(Happening, frozen=True):
    """Send a message of the router's own making to one client, in reply to the header `parent`."""

    channel: Channel
    identities: tuple[bytes, ...]
    msg_type: str
    parent: bytes
    content: bytes
    metadata: bytes = b"{}"


class Publish(Happening, frozen=True):
    """Publish a message of the router's own making; `topic` is the frame that subscribers filter by."""

    msg_type: str
    parent: bytes
    content: bytes
    topic: bytes | None = None


class ToReplica(Happening, frozen=True):
    """Send a client's message to a replica's kernel process."""

    replica: ReplicaId
    channel: RequestChannel
    frames: Frames


class ToAgent(Happening, frozen=True):
    """Send a message to a host's agent."""

    host: HostName
    message: RouterToAgent


class FindAgent(Happening, frozen=True):
    """Find the agent of a host, or start it."""

    host: HostName


class ConnectReplica(Happening, frozen=True):
    """Open the four links to a replica's kernel process (closing older ones)."""

    replica: ReplicaId
    endpoints: Endpoints


class DropReplica(Happening, frozen=True):
    """Close the links to a replica."""

    replica: ReplicaId


class Log(Happening, frozen=True):
    """Write one line to the log; `warning` lines are also shown on the terminal."""

    text: str
    severity: Literal["info", "warning"] = "info"


class Exit(Happening, frozen=True):
    """End the router's process with this exit code."""

    code: int


Effect: TypeAlias = (
    PassToClient
    | PassToIopub
    | Answer
    | Publish
    | ToReplica
    | ToAgent
    | FindAgent
    | ConnectReplica
    | DropReplica
    | Log
    | Exit
)
