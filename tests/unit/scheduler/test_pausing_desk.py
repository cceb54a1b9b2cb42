"""Who may be paused is the desk's to say: the owner, or a group, and a router that knows how."""

from __future__ import annotations

import msgspec
import pytest
from replkernel_scheduler.effects import DeferralAsked
from replkernel_scheduler.events import DeferralChosen, Event
from replkernel_scheduler.types import RequestId, UserName, UserQuota
from replkernel_server.scheduling.desk_words import Answered, Joined, Told
from replkernel_server.scheduling.identity import Identity, IdentityUnknown
from replkernel_server.scheduling.quotas import quota_of

from replkernel.leasing import wire
from tests.unit.scheduler.desk import ALICE, BOB, Room

GROUP = Identity(UserName("alice"), quota=UserQuota(preemptible=True))


class Deferring(Room):
    """A room whose requests are deferred by nothing."""

    def feed(self, event: Event, client: int | None = None) -> None:
        self.fed.append(event)
        effects = self.core.handle(event, self.now)
        self.do(self.desk.handle(Told(effects), self.now))
        if client is not None:
            self.do(self.desk.handle(Answered(client, event, effects), self.now))
        for asked in [effect for effect in effects if isinstance(effect, DeferralAsked)]:
            self.feed(DeferralChosen(asked.request, 0.0))

    def router_of(self, name: str, who: Identity, *, pauses: bool = True) -> int:
        client = len(self.heard) + 1
        self.heard[client] = []
        self.do(self.desk.handle(Joined(client, wire.Hello(1, "router", name, pauses), who), self.now))
        self.say(client, wire.KernelHere(("a",)))  # type: ignore[arg-type]
        return client


def told_to_pause(
    who: Identity = ALICE, *, preemptible: bool = False, pauses: bool = True, on: bool = True
) -> list[wire.FromScheduler]:
    """Return what the router of a long cell hears once a shorter one has come."""
    room = Deferring()
    room.desk.routers.pauses = on
    room.agent("a", 1, BOB)
    room.desk.hosts.fixed.add(next(iter(room.core.hosts_up())))
    long = room.router_of("long", who, pauses=pauses)
    room.say(long, wire.LeaseWish("long", 1, expected_s=3600.0, preemptible=preemptible))
    before = len(room.heard[long])
    short = room.router_of("short", BOB)
    room.say(short, wire.LeaseWish("short", 1, expected_s=60.0))
    return room.heard[long][before:]


def test_a_router_is_told_to_pause_a_cell_whose_owner_allows_it() -> None:
    (told,) = told_to_pause(preemptible=True)
    assert isinstance(told, wire.LeasePause)
    assert (told.lease, told.for_s, told.within_s) == ("lease-1", 60.0, 30.0)


def test_a_group_allows_it_for_all_of_its_members_cells() -> None:
    assert isinstance(told_to_pause(GROUP)[0], wire.LeasePause)


def test_nobody_is_told_who_may_not_be_paused_or_cannot_or_where_nobody_is() -> None:
    assert told_to_pause() == []
    assert told_to_pause(preemptible=True, pauses=False) == [], "a router of an older release"
    assert told_to_pause(preemptible=True, on=False) == []


def test_a_router_that_refuses_is_asked_no_more_and_one_that_gives_back_serves_the_shorter_one() -> None:
    room = Deferring()
    room.agent("a", 1, ALICE)
    long, short = room.router_of("long", ALICE), room.router_of("short", ALICE)
    room.say(long, wire.LeaseWish("long", 1, expected_s=3600.0, preemptible=True))
    room.say(short, wire.LeaseWish("short", 1, expected_s=60.0))
    pause = room.heard[long][-1]
    assert isinstance(pause, wire.LeasePause)
    room.now += 5.0
    room.say(long, wire.LeaseBack(pause.lease, pause.fence))
    granted = room.heard[short][-1]
    assert isinstance(granted, wire.Granted)
    again = room.say(
        long,
        wire.LeaseWish("long:p1", 1, expected_s=3600.0, preemptible=True, paused=wire.PausedCell(5.0)),
    )
    assert isinstance(again[0], wire.Waiting)
    room.say(short, wire.LeaseBack(granted.lease.lease, granted.lease.fence))
    goes_on = room.heard[long][-1]
    assert isinstance(goes_on, wire.Granted)
    assert room.say(long, wire.PauseRefused(goes_on.lease.lease, goes_on.lease.fence, "it cannot")) == []
    room.say(short, wire.LeaseWish("short-2", 1, expected_s=60.0))
    assert isinstance(room.heard[long][-1], wire.Granted), "it is not asked any more"


def test_the_groups_of_a_hub_say_whether_cells_may_be_paused() -> None:
    assert quota_of({"a": {}, "b": {"preemptible": True}}).preemptible is True
    assert b"preemptible" not in msgspec.json.encode(quota_of({"a": {"preemptible": False}}))
    with pytest.raises(IdentityUnknown, match="preemptible of the Hub's group a is 'yes'"):
        quota_of({"a": {"preemptible": "yes"}})


def test_a_wish_says_what_it_goes_on_from() -> None:
    room = Deferring()
    room.agent("a", 1, ALICE)
    router = room.router_of("k", ALICE)
    room.say(router, wire.LeaseWish("r", 1, expected_s=5.0, preemptible=True))
    asked = room.core.wish_of(room.core.view().leases[0].lease.lease)
    assert asked is not None and (asked.expected_s, asked.preemptible) == (5.0, True)
    assert asked.request == RequestId("r")
