"""GPUs that are booked: set aside in time, for members alone; laws are checked after every event."""

from __future__ import annotations

import random

import msgspec
import pytest
from replkernel_scheduler.bookings import GATHERS_S_MAX, GATHERS_S_MIN, LOOKS
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import (
    BookingRefused,
    Effect,
    LeaseEnded,
    LeaseGranted,
    LeaseQueued,
    ReclaimLease,
    StartReplica,
)
from replkernel_scheduler.errors import UnexpectedEvent
from replkernel_scheduler.events import (
    BookingCancelled,
    BookingJoined,
    BookingMade,
    HostDown,
    LeaseAsked,
    TimeReached,
)
from replkernel_scheduler.image import CoreImage
from replkernel_scheduler.policies.installed import policies
from replkernel_scheduler.types import (
    Booking,
    BookingId,
    HostName,
    KernelId,
    LeaseRequest,
    RequestId,
    Share,
    UserName,
)

from tests.unit.scheduler.cluster import Cluster, granted, of

CLASS = BookingId("class")


def book(
    cluster: Cluster, gpus: int, at: float, until: float, *users: str, name: str = "class"
) -> list[Effect]:
    names = tuple(UserName(user) for user in users)
    booking = Booking(BookingId(name), gpus, at, until, at, names, "class")
    return cluster.feed(BookingMade(booking), after_s=0.0)


def reach(cluster: Cluster, at: float) -> list[Effect]:
    """Let time pass as a driver does, timer by timer."""
    effects: list[Effect] = []
    while (due := cluster.core.deadline()) is not None and due <= at:
        effects += cluster.feed(TimeReached(), after_s=due - cluster.now)
    return effects + (cluster.feed(TimeReached(), after_s=at - cluster.now))


def ready(cluster: Cluster) -> int:
    return cluster.core.bookings()[0].ready


def test_when_the_time_comes_only_members_get_what_is_booked() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    book(cluster, 3, 1000.0, 2000.0, "ada")
    reach(cluster, 1000.0)
    assert cluster.core.bookings()[0].phase == "open" and ready(cluster) == 3
    granted(cluster.ask("left", 1, 5000.0, user="bob"))
    assert of(LeaseQueued, cluster.ask("more", 1, 5000.0, user="bob"))
    lease = granted(cluster.ask("theirs", 2, 5000.0, user="ada"))
    assert ready(cluster) == 3, "two are held, one is set aside"
    cluster.release(lease)
    assert cluster.waiting() == ["more"], "what a member gives back is set aside again"
    assert [effect.lease.request for effect in of(LeaseGranted, reach(cluster, 2000.0))] == ["more"]
    assert not cluster.core.bookings()


def test_of_members_who_hold_more_than_was_booked_no_more_counts() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    book(cluster, 2, 1000.0, 2000.0, "ada")
    reach(cluster, 1000.0)
    granted(cluster.ask("theirs", 3, 5000.0, user="ada"))
    assert ready(cluster) == 2


def test_gpus_are_set_aside_an_hour_ahead_at_most_however_long_leases_are_held() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    cluster.release(granted(cluster.ask("long", 1, 100_000.0)), after_s=36_000.0)
    at = cluster.now + 2 * GATHERS_S_MAX
    book(cluster, 3, at, at + 1000.0, "ada")
    assert (cluster.core.bookings()[0].phase, ready(cluster)) == ("planned", 0)
    reach(cluster, at - GATHERS_S_MAX)
    assert (cluster.core.bookings()[0].phase, ready(cluster)) == ("gathering", 3)


def test_a_cell_that_runs_when_it_begins_is_not_ended_and_what_it_gives_back_is_set_aside() -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    lease = granted(cluster.ask("long", 2, 5000.0, user="bob"))
    book(cluster, 2, 1000.0, 2000.0, "ada")
    assert not of(LeaseEnded, reach(cluster, 1000.0))
    assert ready(cluster) == 0
    cluster.ask("behind", 2, 5000.0, user="bob")
    cluster.ask("member", 1, 5000.0, user="ada")
    assert granted(cluster.release(lease)).request == "member"
    assert cluster.waiting() == ["behind"] and ready(cluster) == 2


def test_lingering_gpus_are_asked_back_when_a_booking_begins_but_not_a_members() -> None:
    cluster = Cluster()
    cluster.host("a", 3)
    cluster.linger(granted(cluster.ask("one", 1, 5000.0, user="bob")))
    cluster.linger(granted(cluster.ask("two", 1, 5000.0, user="ada")))
    book(cluster, 3, 1000.0, 2000.0, "ada")
    asked = of(ReclaimLease, reach(cluster, 1000.0))
    assert [effect.lease.request for effect in asked] == ["one"]
    cluster.release(asked[0].lease)
    assert ready(cluster) == 3


def test_shortly_before_it_begins_gpus_go_to_whoever_says_that_he_is_done_by_then() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    book(cluster, 1, 1000.0, 2000.0, "ada")
    lease = granted(cluster.ask("early", 1, 500.0, user="bob"))
    cluster.release(lease)
    reach(cluster, 990.0)
    assert of(LeaseQueued, cluster.ask("any", 1, 500.0, user="bob"))
    granted(cluster.ask("short", 1, 500.0, user="eve", expected_s=5.0, after_s=0.0))


def test_more_than_there_is_cannot_be_booked_and_a_known_booking_is_changed() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    assert of(BookingRefused, book(cluster, 5, 1000.0, 2000.0)), "more than there is"
    book(cluster, 3, 1000.0, 2000.0)
    refused = of(BookingRefused, book(cluster, 2, 1500.0, 2500.0, name="other"))
    assert refused[0].why == "1 GPUs can be booked for that time, not 2."
    assert not book(cluster, 2, 2000.0, 2500.0, name="other"), "one ends as the other begins"
    assert not book(cluster, 4, 1200.0, 1900.0)
    assert [one.booking.at for one in cluster.core.bookings()] == [1200.0, 2000.0]
    cluster.feed(BookingCancelled(CLASS))
    assert len(cluster.core.bookings()) == 1


def test_an_event_that_cannot_be_leaves_what_is_set_aside() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    book(cluster, 1, 0.0, 2000.0, "ada")
    assert ready(cluster) == 1
    with pytest.raises(UnexpectedEvent):
        cluster.host("b", 1, reservation="none")
    assert of(LeaseQueued, cluster.ask("other", 1, 500.0, user="bob"))


def test_a_member_who_asked_before_it_begins_has_what_was_set_aside_when_it_does() -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    book(cluster, 2, 1000.0, 2000.0, "ada")
    reach(cluster, 995.0)
    assert of(LeaseQueued, cluster.ask("early", 1, 5000.0, user="ada"))
    assert granted(reach(cluster, 1000.0)).request == "early"
    assert ready(cluster) == 2


def test_a_member_who_wants_two_gpus_has_them_once_both_have_been_set_aside() -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    others = [granted(cluster.ask(name, 1, 5000.0, user="bob")) for name in ("one", "two")]
    book(cluster, 2, 10.0, 2000.0, "ada")
    reach(cluster, 10.0)
    cluster.ask("both", 2, 5000.0, user="ada")
    assert not of(LeaseGranted, cluster.release(others[0]))
    assert ready(cluster) == 1
    assert granted(cluster.release(others[1])).request == "both"


def test_a_member_has_what_is_booked_however_many_others_wait() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    lease = granted(cluster.ask("runs", 1, 5000.0, user="bob"))
    book(cluster, 1, 200.0, 5000.0, "ada")
    for number in range(LOOKS):
        cluster.ask(f"other-{number}", 1, 5000.0, user=f"user-{number}")
    reach(cluster, 200.0)
    cluster.ask("theirs", 1, 5000.0, user="ada")
    assert granted(cluster.release(lease)).request == "theirs"


def test_a_members_job_has_nothing_of_what_is_booked() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    lease = granted(cluster.ask("runs", 1, 5000.0, user="bob"))
    book(cluster, 1, 10.0, 2000.0, "ada")
    reach(cluster, 10.0)
    wish = LeaseRequest(RequestId("job"), KernelId("j"), 1, 5000.0, user=UserName("ada"), holder="job")
    cluster.feed(LeaseAsked(wish))
    assert not of(LeaseGranted, cluster.release(lease))
    assert ready(cluster) == 1


def test_whoever_of_the_group_shows_up_is_a_member() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    book(cluster, 1, 10.0, 2000.0)
    reach(cluster, 10.0)
    assert of(LeaseQueued, cluster.ask("one", 1, 500.0, user="ada"))
    assert cluster.core.booked_for(["class"], UserName("ada")) == [CLASS]
    cluster.feed(BookingJoined(CLASS, UserName("ada")))
    assert cluster.core.booked_for(["class"], UserName("ada")) == []
    assert [lease.request for lease in cluster.leases()] == ["one"]
    book(cluster, 1, 10.0, 3000.0)
    assert cluster.core.booked_for(["class"], UserName("ada")) == [], "also once the booking is changed"


def test_a_member_whose_notebook_is_elsewhere_is_moved_to_what_is_booked() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    cluster.kernel("k", hosts="a", replicas=1, user="ada")
    cluster.host("b", 4)
    book(cluster, 4, 10.0, 2000.0, "ada")
    reach(cluster, 10.0)
    told = of(LeaseQueued, cluster.ask("cell", 4, 500.0, kernel="k", user="ada"))
    assert told[-1].position == 0, "its replica is on its way"


def test_a_cell_whose_gpus_are_set_aside_for_others_is_moved_to_a_host_that_has_some() -> None:
    cluster = Cluster()
    cluster.host("a", 2, "H100")
    cluster.kernel("k", gpus=2, hosts="a", replicas=1)
    cluster.linger(granted(cluster.ask("other", 1, 5000.0)))
    cluster.host("b", 2, "A100")
    at = 200.0 + GATHERS_S_MIN
    booking = Booking(CLASS, 1, at, at + 1000.0, at, (UserName("ada"),), "class", "H100")
    cluster.feed(BookingMade(booking), after_s=0.0)
    reach(cluster, 198.0)
    assert of(ReclaimLease, cluster.ask("cell", 2, 5000.0, kernel="k"))
    assert [effect.host for effect in of(StartReplica, reach(cluster, 200.0))] == ["b"]


def test_gpus_set_aside_outlive_a_restart_and_go_with_their_host() -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    cluster.host("b", 2)
    book(cluster, 3, 10.0, 2000.0, "ada")
    reach(cluster, 10.0)
    image = msgspec.json.decode(msgspec.json.encode(cluster.core.image()), type=CoreImage)
    other = SchedulerCore(random.Random(0), policies("notebook"))
    other.restore(image)
    other.check_invariants()
    assert other.bookings() == cluster.core.bookings() and other.view() == cluster.core.view()
    cluster.feed(HostDown(HostName("a")))
    assert ready(cluster) == 2, "the other host has no more"
    cluster.host("a", 8)
    assert ready(cluster) == 3


def part(cluster: Cluster, name: str, user: str) -> list[Effect]:
    """Ask for half a GPU."""
    wish = LeaseRequest(
        RequestId(name), KernelId(f"kernel-{name}"), 1, 5000.0, user=UserName(user), share=Share(500)
    )
    return cluster.feed(LeaseAsked(wish))


def test_a_card_on_which_members_have_parts_is_one_gpu_of_what_is_booked() -> None:
    cluster = Cluster()
    cluster.host("a", 3)
    book(cluster, 2, 1000.0, 2000.0, "ada")
    reach(cluster, 1000.0)
    halves = [granted(part(cluster, name, "ada")) for name in ("one", "two")]
    assert halves[0].gpus == halves[1].gpus and ready(cluster) == 2
    granted(cluster.ask("left", 1, 5000.0, user="bob"))
    assert of(LeaseQueued, cluster.ask("more", 1, 5000.0, user="bob")), "the second one is still set aside"


def test_parts_that_linger_are_asked_back_for_what_is_booked_if_that_frees_a_gpu() -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    halves = [granted(part(cluster, name, "bob")) for name in ("one", "two", "three")]
    for lease in halves[:2]:
        cluster.linger(lease)
    book(cluster, 2, 1000.0, 2000.0, "ada")
    asked = of(ReclaimLease, reach(cluster, 1000.0))
    assert {effect.lease.lease for effect in asked} == {lease.lease for lease in halves[:2]}
    for lease in halves[:2]:
        cluster.release(lease)
    assert ready(cluster) == 1


def test_what_a_members_job_has_is_asked_back_for_what_he_has_booked() -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    wish = LeaseRequest(RequestId("job"), KernelId("job"), 1, 5000.0, user=UserName("ada"), holder="job")
    lease = granted(cluster.feed(LeaseAsked(wish)))
    cluster.linger(lease)
    book(cluster, 2, 1000.0, 2000.0, "ada")
    assert [effect.lease.lease for effect in of(ReclaimLease, reach(cluster, 1000.0))] == [lease.lease]
    assert ready(cluster) == 1
    cluster.release(lease)
    assert ready(cluster) == 2
    more = msgspec.structs.replace(wish, request=RequestId("again"), kernel_id=KernelId("again"))
    assert not of(LeaseGranted, cluster.feed(LeaseAsked(more))), "jobs take nothing that is set aside"
