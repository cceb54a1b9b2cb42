"""What agents and routers say to a scheduler, down to its core, and what it says to them.

Beside the parser's refusals nothing may be raised, and what the core is given must be the same event when the
journal gives it back: else the scheduler that wrote it cannot start again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import Effect
from replkernel_scheduler.errors import SchedulerError
from replkernel_scheduler.events import Event
from replkernel_scheduler.policies.built_in import notebook
from replkernel_scheduler.types import UserName
from replkernel_server.scheduling.desk import Desk, DeskTimes
from replkernel_server.scheduling.desk_words import (
    Act,
    Answered,
    DeskEvent,
    Feed,
    Joined,
    Left,
    Said,
    Send,
    Told,
)
from replkernel_server.scheduling.identity import Identity
from replkernel_server.scheduling.journal_tables import outcome

from replkernel.errors import ProtocolMismatch
from replkernel.leasing import wire
from replkernel.records import HostName
from tests.fuzz.examples import packed
from tests.fuzz.pieces import cut, joined

AGENT, ROUTER, MALLORY = 1, 2, 3
WHO = {
    AGENT: Identity(UserName("alice")),
    ROUTER: Identity(UserName("alice")),
    MALLORY: Identity(UserName("mallory"), may_host=False),
}
OFFER = wire.HostOffer(
    (wire.OfferedGpu("gpu-0", "A100", 40.0), wire.OfferedGpu("gpu-1", "A100", 40.0)), 8.0, 64.0
)
HERE = wire.KernelHere((HostName("h"),), 1)
_events = msgspec.json.Decoder(Event)


class Unlike(AssertionError):
    """The journal would not give back what the core was given."""


class Room:
    """A desk, its core, and another core that is given what the journal gives back."""

    def __init__(self) -> None:
        self.core, self.again = _core(), _core()
        self.now = 1.0
        self.desk = Desk(self.core.view(), self.now, DeskTimes())
        self.sent: list[wire.FromScheduler] = []

    def happens(self, event: DeskEvent) -> None:
        """Hand in what happens, and do what follows."""
        self.do(self.desk.handle(event, self.now))

    def do(self, acts: Sequence[Act]) -> None:
        """Do what the desk wants."""
        for act in acts:
            if isinstance(act, Send):
                wire.encode(act.message)
                self.sent.append(act.message)
            elif isinstance(act, Feed):
                self._feed(act)

    def _feed(self, act: Feed) -> None:
        told = msgspec.json.encode(act.event)
        effects = _handled(self.core, act.event, self.now)
        try:
            event = _events.decode(told.decode())
        except msgspec.MsgspecError as error:
            raise Unlike(f"{act.event} is not read back: {error}") from error
        if outcome(_handled(self.again, event, self.now)) != outcome(effects):
            raise Unlike(f"{act.event} is read back as {event}, and decided otherwise")
        why = str(effects) if isinstance(effects, Exception) else ""
        followed = [] if isinstance(effects, Exception) else effects
        self.do(self.desk.handle(Told(followed), self.now))
        if act.client is not None:
            self.do(self.desk.handle(Answered(act.client, act.event, followed, why), self.now))


def _core() -> SchedulerCore:
    return SchedulerCore(random.Random(0), notebook())


def _handled(core: SchedulerCore, event: Event, now: float) -> list[Effect] | Exception:
    try:
        return core.handle(event, now)
    except (SchedulerError, ValueError) as error:  # What the service answers with a sentence.
        return error


def _join(room: Room, client: int, role: str, name: str) -> None:
    hello = wire.decode_from_client(
        msgspec.msgpack.encode({"type": "Hello", "version": 1, "role": role, "name": name})
    )
    assert isinstance(hello, wire.Hello)
    room.happens(Joined(client, hello, WHO[client]))


def _opened() -> Room:
    """Return a room with a host, a kernel that holds a lease, and one of somebody else."""
    room = Room()
    for client, role, name in ((AGENT, "agent", "h"), (ROUTER, "router", "k"), (MALLORY, "router", "m")):
        _join(room, client, role, name)
    room.happens(Said(AGENT, OFFER))
    room.happens(Said(ROUTER, HERE))
    room.happens(Said(ROUTER, wire.LeaseWish("r", 1, (HostName("h"),))))
    room.happens(Said(MALLORY, HERE))
    return room


def _lease_of(room: Room) -> wire.GrantedLease:
    return next(message.lease for message in room.sent if isinstance(message, wire.Granted))


def seeds() -> list[bytes]:
    """Return one input for each message, and some that are about a lease in force."""
    lease = _lease_of(_opened())
    told = [joined(client, message) for message in packed(wire.FromClient) for client in (AGENT, ROUTER)]
    told += [joined(0, message) for message in packed(wire.FromScheduler)]
    told += [
        joined(ROUTER, *map(wire.encode, words))
        for words in (
            (wire.LeaseKept(lease.lease, lease.fence), wire.LeaseBack(lease.lease, lease.fence, 0.5)),
            (wire.LeaseLingers(lease.lease, lease.fence, 0.5), wire.LeaseBack(lease.lease, lease.fence, 0.5)),
            (wire.LeaseWish("r2", 2, (HostName("h"),), "A100", 20.0, 1.0, 1.0), wire.WishOver("r2")),
            (
                wire.KernelHere(
                    (HostName("h"),), 1, "A100", 1.0, (wire.HeldLease(lease.lease, lease.fence),), True, "h"
                ),
            ),
            (wire.MoveWish(HostName("h")), wire.KernelGone()),
        )
    ]
    told.append(joined(MALLORY, wire.encode(wire.LeaseWish("r", 1, (HostName("h"),)))))
    beat = wire.HostBeat((wire.GpuUse("gpu-0", 0.5, 1.0, ("k",)),))
    return [*told, joined(AGENT, wire.encode(OFFER), wire.encode(beat), wire.encode(wire.HostLeaves()))]


def fuzz(data: bytes) -> None:
    """Have a scheduler hear the pieces from one of its clients."""
    number, pieces = cut(data)
    if number % 4 == 0:
        for piece in pieces[:8]:
            try:
                wire.decode_from_scheduler(piece)
            except ProtocolMismatch:
                continue
        return
    room, client = _opened(), number % 4
    for piece in pieces[:8]:
        try:
            message = wire.decode_from_client(piece)
        except ProtocolMismatch:
            break
        room.now += 0.25
        room.happens(Said(client, message))
    room.happens(Left(client))
    room.core.check_invariants()
