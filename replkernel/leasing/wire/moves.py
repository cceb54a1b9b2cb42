"""What a kernel's router and the scheduler say of moves of its replicas to other hosts."""

from __future__ import annotations

from typing import Annotated

import msgspec

from replkernel.leasing.wire.base import WHY_MAX, Host, Id, LeaseMessage
from replkernel.records import HostName


class MoveWish(LeaseMessage, frozen=True):
    """The notebook wants one of its replicas on `host`: answered by MoveReplica or MoveDenied."""

    host: Host


class ReplicaMoved(LeaseMessage, frozen=True):
    """The answer to MoveReplica: the new replica has the state, and the old one is out of the group."""

    order: Id


class MoveFailed(LeaseMessage, frozen=True):
    """The other answer: the kernel is, or will be, as it was; `why` is one clause."""

    order: Id
    why: Annotated[str, msgspec.Meta(max_length=WHY_MAX)]


class MoveReplica(LeaseMessage, frozen=True):
    """Have a replica on `host` take the place of the one on `source`, which goes once the new has the state.

    The same `order` again is the same order; another one takes the place of one that is under way.
    """

    order: Id
    host: HostName
    source: HostName


class MoveDenied(LeaseMessage, frozen=True):
    """No replica moves to the `host` that the notebook named; `why` is one sentence."""

    host: HostName
    why: str


class MoveOver(LeaseMessage, frozen=True):
    """No replica is wanted on `host`: take a move there back, unless the old replica is out already."""

    host: HostName
