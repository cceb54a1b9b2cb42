"""The channel to the scheduler: how a peer says who it is, all that can be said, and its encoding.

Law: what a peer sends is decoded here and nowhere else; a message that does not fit is refused by name.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, TypeVar

import msgspec

from replkernel.errors import UNREADABLE, ProtocolMismatch
from replkernel.leasing.wire.base import Id, LeaseMessage
from replkernel.leasing.wire.gangs import (
    GangBegan,
    GangDone,
    GangEnded,
    GangHas,
    GangWaiting,
    GangWish,
    RanksFailed,
    StartRanks,
    StopRanks,
)
from replkernel.leasing.wire.hosts import HostBeat, HostLeases, HostLeaves, HostOffer, KernelLeft, LeasesOpen
from replkernel.leasing.wire.jobs import (
    HostUse,
    JobGone,
    JobLog,
    JobLogWanted,
    JobMeets,
    JobSaid,
    JobsAwait,
    JobsHere,
    StartJob,
    StopJob,
    UseWanted,
)
from replkernel.leasing.wire.kernels import (
    Denied,
    Granted,
    KernelGone,
    KernelHere,
    LeaseBack,
    LeaseIdle,
    LeaseKept,
    LeaseLingers,
    LeaseOver,
    LeasePause,
    LeaseShrank,
    LeaseWanted,
    LeaseWish,
    PauseRefused,
    Waiting,
    WishOver,
)
from replkernel.leasing.wire.moves import (
    MoveDenied,
    MoveFailed,
    MoveOver,
    MoveReplica,
    MoveWish,
    ReplicaMoved,
)

WIRE_VERSION = 1
MESSAGE_BYTES_MAX = 1024 * 1024
"""No message is larger than this, in either direction."""


class Hello(LeaseMessage, frozen=True):
    """Who speaks: an agent by its host's name (for jobs as well), a router by its kernel's id.

    A cell on several hosts speaks by an id of its own, which is never used twice.
    `pauses`: the router's cells can stand still for shorter ones, so LeasePause may be said to it; `idles`:
    so may LeaseIdle.
    """

    version: int
    role: Literal["agent", "router", "jobs", "gang"]
    name: Id
    pauses: bool = False
    idles: bool = False


class Welcome(LeaseMessage, frozen=True):
    """The first answer; `user` is whom the scheduler takes the client for (empty: nobody was asked)."""

    version: int
    user: str = ""


SCHEDULER_ENDS = "The scheduler ends; connect again in a moment."
"""The refusal of a scheduler that goes: nothing was refused for good."""


class Refused(LeaseMessage, frozen=True):
    """The connection is refused and closed, or one message was; `why` is one sentence with the fix."""

    why: str


FromClient: TypeAlias = (
    Hello
    | HostOffer
    | HostBeat
    | HostLeaves
    | LeasesOpen
    | KernelLeft
    | KernelHere
    | KernelGone
    | LeaseWish
    | WishOver
    | LeaseKept
    | LeaseLingers
    | LeaseBack
    | PauseRefused
    | MoveWish
    | ReplicaMoved
    | MoveFailed
    | JobsHere
    | JobSaid
    | JobMeets
    | HostUse
    | JobLog
    | RanksFailed
    | GangWish
    | GangBegan
    | GangDone
)
FromScheduler: TypeAlias = (
    Welcome
    | Refused
    | HostLeases
    | Granted
    | Waiting
    | Denied
    | LeaseOver
    | LeaseShrank
    | LeaseWanted
    | LeaseIdle
    | LeasePause
    | MoveReplica
    | MoveDenied
    | MoveOver
    | StartJob
    | UseWanted
    | StopJob
    | JobGone
    | JobsAwait
    | JobLogWanted
    | StartRanks
    | StopRanks
    | GangHas
    | GangWaiting
    | GangEnded
)

_encoder = msgspec.msgpack.Encoder()
_from_client: msgspec.msgpack.Decoder[FromClient] = msgspec.msgpack.Decoder(FromClient)
_from_scheduler: msgspec.msgpack.Decoder[FromScheduler] = msgspec.msgpack.Decoder(FromScheduler)
_Union = TypeVar("_Union")


def encode(message: FromClient | FromScheduler) -> bytes:
    """Return a message as one WebSocket frame."""
    return _encoder.encode(message)


def decode_from_client(frame: bytes) -> FromClient:
    """Return the message in a frame that a router or an agent sent; raises ProtocolMismatch."""
    return _decode(_from_client, frame)


def decode_from_scheduler(frame: bytes) -> FromScheduler:
    """Return the message in a frame that a scheduler sent; raises ProtocolMismatch."""
    return _decode(_from_scheduler, frame)


def _decode(decoder: msgspec.msgpack.Decoder[_Union], frame: bytes) -> _Union:
    if len(frame) > MESSAGE_BYTES_MAX:
        raise ProtocolMismatch(f"a message has {len(frame)} bytes, more than {MESSAGE_BYTES_MAX}")
    try:
        return decoder.decode(frame)
    except UNREADABLE as error:
        raise ProtocolMismatch(f"a message does not fit: {error}") from error
