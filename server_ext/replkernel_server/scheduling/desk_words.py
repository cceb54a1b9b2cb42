"""The desk's words: what happens at it, and what it wants done, in frozen structs.

Law: a client is a number; who it is and how it is reached is the driver's business.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from replkernel_scheduler.expecting.foresight import Expected
from replkernel_scheduler.harvest.types import HarvestEffect, HarvestEvent
from replkernel_scheduler.types import UserName

from replkernel.leasing.wire import FromClient, FromScheduler, Hello
from replkernel_server.scheduling.identity import Identity


class Joined(msgspec.Struct, frozen=True):
    """A client said hello; `owner` is under whose name a router's kernel first came, if it did."""

    client: int
    hello: Hello
    identity: Identity
    owner: UserName | None = None


class Said(msgspec.Struct, frozen=True):
    """A client that has joined said something."""

    client: int
    message: FromClient


class Left(msgspec.Struct, frozen=True):
    """A client's connection is over."""

    client: int


class Told(msgspec.Struct, frozen=True):
    """What followed from one event of anybody is durable."""

    effects: list[HarvestEffect]


class Answered(msgspec.Struct, frozen=True):
    """What followed from an event that a client's message was made into; `why` not, if it could not be.

    `never`: it was not decided, and the scheduler goes on.
    """

    client: int
    event: HarvestEvent
    effects: list[HarvestEffect]
    why: str = ""
    never: bool = False


class HostFixed(msgspec.Struct, frozen=True):
    """An administrator registered a host that no agent speaks for."""

    host: str


class HostTakenDown(msgspec.Struct, frozen=True):
    """An administrator took a host down."""

    host: str


class KernelEmptied(msgspec.Struct, frozen=True):
    """A kernel was ended for the core, though it may live; its held wishes stay."""

    kernel: str


class KernelAwaited(msgspec.Struct, frozen=True):
    """A kernel of `user` is placed, or waits for hosts: its router is on its way."""

    kernel: str
    user: UserName


class Counted(msgspec.Struct, frozen=True):
    """An engine has counted leases' GPUs: grants that waited for that may be told."""

    grants: list[HarvestEffect]


class JobCame(msgspec.Struct, frozen=True):
    """A user has submitted a job."""

    user: UserName


class Foreseen(msgspec.Struct, frozen=True):
    """What requests that wait may expect, of those for whom it has changed."""

    told: list[Expected]


class TimeCame(msgspec.Struct, frozen=True):
    """The desk's deadline has come."""


DeskEvent: TypeAlias = (
    Joined
    | Said
    | Left
    | Told
    | Answered
    | HostFixed
    | HostTakenDown
    | KernelEmptied
    | KernelAwaited
    | Counted
    | JobCame
    | Foreseen
    | TimeCame
)


class Send(msgspec.Struct, frozen=True):
    """Send a message to a client."""

    client: int
    message: FromScheduler


class Close(msgspec.Struct, frozen=True):
    """Tell a client why, and close its connection."""

    client: int
    why: str


class Feed(msgspec.Struct, frozen=True):
    """Hand an event to the core; a client (None: nobody) is answered."""

    event: HarvestEvent
    client: int | None = None


Act: TypeAlias = Send | Close | Feed
