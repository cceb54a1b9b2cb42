"""A running cell is paused for a shorter one, where its owner or group allows it: Lazer's rule, live."""

from __future__ import annotations

import msgspec
from msgspec import UNSET
from msgspec.structs import replace
from replkernel_scheduler.effects import (
    DeferralAsked,
    Effect,
    LeaseGranted,
    LeaseRefused,
    PauseLease,
    ReclaimLease,
    StartReplica,
)
from replkernel_scheduler.events import (
    DeferralChosen,
    Event,
    HostDrained,
    LeaseAsked,
    LeaseLingered,
    LeaseReleased,
    LeaseRenewed,
    LeaseWithdrawn,
    PauseFailed,
    QuotaSet,
    Resumed,
    TimeReached,
)
from replkernel_scheduler.passing import PATIENCE_S
from replkernel_scheduler.types import (
    HostName,
    KernelId,
    Lease,
    LeaseRequest,
    Paused,
    RequestId,
    UserName,
    UserQuota,
)

from tests.unit.scheduler.cluster import Cluster, granted, of


def wish(
    kernel: str,
    gpus: int = 1,
    expected_s: float = 0.0,
    *,
    name: str = "",
    user: str = "",
    preemptible: bool = False,
    paused: Paused | None = None,
) -> LeaseAsked:
    request = LeaseRequest(
        RequestId(name or f"{kernel}:cell"),
        KernelId(kernel),
        gpus,
        10_000.0,
        user=UserName(user or kernel),
        expected_s=expected_s,
        preemptible=True if preemptible else UNSET,
        paused=UNSET if paused is None else paused,
    )
    return LeaseAsked(request)


def cluster(gpus: int = 2, *kernels: str) -> Cluster:
    made = Cluster()
    made.host("a", gpus)
    for name in kernels or ("long", "short", "other"):
        made.kernel(name, 1, 1, hosts="a", user=name)
    return made


def long_cell(made: Cluster, gpus: int = 2, *, preemptible: bool = True) -> Lease:
    return granted(made.feed(wish("long", gpus, 1000.0, preemptible=preemptible)))


def deferral(effects: list[Effect]) -> DeferralAsked:
    (asked,) = of(DeferralAsked, effects)
    return asked


def goes_at_once(made: Cluster, effects: list[Effect]) -> list[PauseLease]:
    return of(PauseLease, made.feed(DeferralChosen(deferral(effects).request, 0.0), after_s=0.0))


def back(lease: Lease) -> LeaseReleased:
    return LeaseReleased(lease.lease, lease.fence)


def test_a_cell_is_paused_for_a_shorter_one_and_goes_on_when_that_is_over() -> None:
    made = cluster()
    long = long_cell(made)
    asked = made.feed(wish("short", 1, 60.0), after_s=100.0)
    context = deferral(asked).context
    assert (context.remaining_s, context.between_s) == (60.0, 3600.0)
    (pause,) = goes_at_once(made, asked)
    assert (pause.lease.lease, pause.for_s) == (long.lease, 60.0)
    short = granted(made.feed(back(long)))
    assert short.kernel_id == "short"
    again = made.feed(wish("long", 2, 1000.0, name="long:cell:p1", preemptible=True, paused=Paused(100.0)))
    assert not of(LeaseGranted, again), "it goes on once the shorter one is over"
    assert granted(made.release(short, after_s=60.0)).request == "long:cell:p1"
    (cells,) = [one.usage.cells for one in made.core.view().usage if one.kernel_id == "long"]
    assert cells == 1


def test_nobody_is_paused_who_may_not_be() -> None:
    made = cluster()
    long_cell(made, preemptible=False)
    assert not of(DeferralAsked, made.feed(wish("short", 1, 60.0)))


def test_nobody_is_paused_for_a_longer_one_nor_for_one_that_may_take_as_long() -> None:
    made = cluster()
    long_cell(made)
    assert not of(DeferralAsked, made.feed(wish("short", 1, 990.0), after_s=100.0)), "900 s are left"
    assert not of(DeferralAsked, made.feed(wish("other", 1), after_s=1.0)), "nobody knows"


def test_a_cell_that_has_outlasted_what_was_thought_is_thought_to_take_as_long_again() -> None:
    made = cluster()
    long = granted(made.feed(wish("long", 2, 10.0, preemptible=True)))
    assert not of(DeferralAsked, made.feed(wish("short", 1, 60.0), after_s=20.0))
    asked = made.feed(LeaseRenewed(long.lease, long.fence), after_s=100.0)
    assert deferral(asked).request == "short:cell"


def test_lingering_gpus_are_asked_back_before_anybody_is_paused() -> None:
    made = cluster(3)
    rests = granted(made.feed(wish("other", 1, 10.0)))
    long_cell(made)
    made.linger(rests)
    assert not of(DeferralAsked, made.feed(wish("short", 1, 60.0)))


def test_nobody_is_paused_for_one_of_several_hosts_that_a_cell_wants_together() -> None:
    made = cluster()
    long_cell(made)
    assert not of(DeferralAsked, made.feed(wish("gang", 1, 60.0)))


def test_no_more_cells_are_paused_than_need_be_the_longest_first() -> None:
    made = cluster(4, "a1", "b1", "c1", "short")
    held = {}
    for name, gpus, takes_s in (("a1", 1, 500.0), ("b1", 2, 900.0), ("c1", 1, 700.0)):
        held[name] = granted(made.feed(wish(name, gpus, takes_s, preemptible=True)))
    told = goes_at_once(made, made.feed(wish("short", 2, 30.0)))
    assert [pause.lease.lease for pause in told] == [held["b1"].lease]


def test_a_deferral_is_waited_out_and_nobody_is_paused_if_gpus_come_meanwhile() -> None:
    made = cluster(2)
    long_cell(made, 1)
    other = granted(made.feed(wish("other", 1, 20.0)))
    asked = made.feed(wish("short", 1, 60.0))
    assert not of(PauseLease, made.feed(DeferralChosen(deferral(asked).request, 30.0)))
    assert granted(made.release(other, after_s=10.0)).kernel_id == "short"
    assert not of(PauseLease, made.feed(TimeReached(), after_s=100.0))


def test_after_its_deferral_a_request_has_others_paused_but_is_never_deferred_longer_than_it_takes() -> None:
    made = cluster()
    long = long_cell(made)
    asked = made.feed(wish("short", 1, 10.0))
    assert not of(PauseLease, made.feed(DeferralChosen(deferral(asked).request, 90.0)))
    assert not of(PauseLease, made.feed(TimeReached(), after_s=9.0))
    (pause,) = of(PauseLease, made.feed(TimeReached(), after_s=2.0))
    assert pause.lease.lease == long.lease


def test_whoever_waits_shorter_than_a_paused_cell_goes_before_it_but_not_for_ever() -> None:
    made = cluster(2, "long", "short", "other", "third")
    long = long_cell(made)
    goes_at_once(made, made.feed(wish("short", 2, 60.0)))
    short = granted(made.feed(back(long)))
    made.feed(wish("long", 2, 1000.0, name="again", preemptible=True, paused=Paused(100.0)))
    made.feed(wish("other", 2, 30.0))
    other = granted(made.release(short, after_s=60.0))
    assert other.kernel_id == "other", "the paused cell would be paused again at once"
    made.feed(wish("third", 2, 30.0, user="long"))
    released = made.release(other, after_s=PATIENCE_S)
    again = granted(released)
    assert again.request == "again"
    assert not of(DeferralAsked, released), "third waits now"
    assert not of(DeferralAsked, made.feed(LeaseRenewed(again.lease, again.fence), after_s=100.0))


def test_who_has_stood_still_for_long_enough_is_not_paused_again() -> None:
    made = cluster(2)
    long = long_cell(made)
    goes_at_once(made, made.feed(wish("short", 2, 60.0)))
    short = granted(made.feed(back(long)))
    told = Paused(100.0, PATIENCE_S)
    made.feed(wish("long", 2, 1000.0, name="again", preemptible=True, paused=told))
    granted(made.release(short, after_s=60.0))
    assert not of(DeferralAsked, made.feed(wish("other", 2, 5.0)))


def test_a_cell_that_cannot_be_paused_is_not_asked_again_and_another_one_is() -> None:
    made = cluster(2, "long", "second", "short")
    long = long_cell(made, 1)
    second = granted(made.feed(wish("second", 1, 500.0, preemptible=True)))
    goes_at_once(made, made.feed(wish("short", 1, 60.0)))
    refused = made.feed(PauseFailed(long.lease, long.fence, "the driver cannot"))
    (pause,) = goes_at_once(made, refused)
    assert pause.lease.lease == second.lease
    late = made.feed(TimeReached(), after_s=31.0)
    assert not of(DeferralAsked, late), "nobody is left who can be paused"
    assert made.waiting() == ["short:cell"]


def test_a_router_that_renews_is_told_again_and_one_that_leaves_anyhow_serves_the_next() -> None:
    made = cluster()
    long = long_cell(made)
    goes_at_once(made, made.feed(wish("short", 1, 60.0)))
    assert of(PauseLease, made.feed(LeaseRenewed(long.lease, long.fence)))
    made.feed(LeaseWithdrawn(RequestId("short:cell")))
    assert made.waiting() == []
    made.feed(back(long))
    going_on = wish("long", 2, 1000.0, name="again", preemptible=True, paused=Paused(50.0))
    assert granted(made.feed(going_on)).request == "again", "nobody is shorter any more"


def test_a_paused_cell_goes_on_though_its_users_quota_is_spent_meanwhile_and_no_other_does() -> None:
    made = cluster()
    long = long_cell(made)
    goes_at_once(made, made.feed(wish("short", 1, 60.0)))
    made.feed(back(long))
    made.feed(QuotaSet(UserName("long"), UserQuota(gpu_quota=0)))
    paused = wish("long", 1, 1000.0, name="again", preemptible=True, paused=Paused(50.0))
    assert granted(made.feed(paused)).request == "again"
    lies = wish("long", 1, 1000.0, name="lies", preemptible=True, paused=Paused(50.0))
    assert of(LeaseRefused, made.feed(lies))


def test_a_core_goes_on_from_its_image_in_each_moment_of_a_pause() -> None:
    """The same bytes after the same events, however often it was brought back between."""
    made, again = cluster(), Cluster()
    long = long_cell(made)
    steps: list[Event] = [
        wish("short", 1, 60.0),
        DeferralChosen(RequestId("short:cell"), 20.0),
        wish("other", 1, 30.0),
        TimeReached(),
        back(long),
        wish("long", 2, 1000.0, name="again", preemptible=True, paused=Paused(50.0)),
        TimeReached(),
    ]
    again.core.restore(made.core.image())
    again.now = made.now
    for step in steps:
        told = made.feed(step, after_s=21.0)
        assert msgspec.json.encode(again.feed(step, after_s=21.0)) == msgspec.json.encode(told)
        other = Cluster()
        other.core.restore(again.core.image())
        other.now, again = again.now, other
        assert msgspec.json.encode(again.core.image()) == msgspec.json.encode(made.core.image())


def test_who_was_away_is_asked_again_for_how_long_a_request_is_deferred() -> None:
    made = cluster()
    long_cell(made)
    request = deferral(made.feed(wish("short", 1, 60.0))).request
    assert deferral(made.feed(Resumed(30.0))).request == request


def test_a_deferrals_real_need_is_kept_for_whoever_learns_from_it() -> None:
    made = cluster(1, "long", "short", "other", "third")
    long_cell(made, 1)
    asked = made.feed(wish("short", 1, 60.0))
    made.feed(DeferralChosen(deferral(asked).request, 0.0), after_s=0.0)
    made.feed(wish("other", 1, 5.0), after_s=3.0)
    made.feed(LeaseWithdrawn(RequestId("other:cell")))
    made.feed(LeaseWithdrawn(RequestId("short:cell")))
    made.feed(wish("third", 1, 60.0), after_s=20.0)
    count, judged = made.core.deferrals(0)
    assert count == 1 and [(one.chosen_s, one.needed_s) for one in judged] == [(0.0, 3.0)]
    assert made.core.deferrals(1) == (1, [])


def test_a_request_that_nobody_can_pause_is_as_it_was_byte_for_byte() -> None:
    request = wish("k").request
    assert b"preemptible" not in msgspec.json.encode(request)
    assert replace(request, hosts=(HostName("a"),)).paused is UNSET


def going_on(kernel: str, gpus: int = 1, ran_s: float = 10.0, hosts: tuple[HostName, ...] = ()) -> LeaseAsked:
    request = wish(kernel, gpus, 1000.0, name=f"{kernel}:again", preemptible=True, paused=Paused(ran_s))
    return LeaseAsked(replace(request.request, hosts=hosts))


def test_who_left_its_gpu_goes_on_when_another_cannot_leave_though_the_shorter_one_waits() -> None:
    made = cluster(2, "one", "two", "short")
    one, two = [granted(made.feed(wish(name, 1, 1000.0, preemptible=True))) for name in ("one", "two")]
    told = goes_at_once(made, made.feed(wish("short", 2, 60.0)))
    assert {pause.lease.lease for pause in told} == {one.lease, two.lease}
    made.feed(back(one))
    assert not of(LeaseGranted, made.feed(going_on("one"))), "two may leave any moment"
    assert granted(made.feed(PauseFailed(two.lease, two.fence, "it is in C code"))).request == "one:again"
    assert made.waiting() == ["short:cell"]


def test_who_left_its_gpu_goes_on_when_another_is_late() -> None:
    made = cluster(2, "one", "two", "short")
    one, _ = [granted(made.feed(wish(name, 1, 1000.0, preemptible=True))) for name in ("one", "two")]
    goes_at_once(made, made.feed(wish("short", 2, 60.0)))
    made.feed(back(one))
    made.feed(going_on("one"))
    assert granted(made.feed(TimeReached(), after_s=31.0)).request == "one:again"


def test_cells_that_leave_one_after_the_other_leave_for_the_shorter_one() -> None:
    made = cluster(2, "one", "two", "short")
    one, two = [granted(made.feed(wish(name, 1, 1000.0, preemptible=True))) for name in ("one", "two")]
    goes_at_once(made, made.feed(wish("short", 2, 60.0)))
    made.feed(back(one))
    made.feed(going_on("one"))
    assert granted(made.feed(back(two))).request == "short:cell"


def test_no_other_is_told_again_to_leave_for_one_that_cannot_be_served_after_all() -> None:
    made = cluster(2, "one", "two", "short")
    one, two = [granted(made.feed(wish(name, 1, 1000.0, preemptible=True))) for name in ("one", "two")]
    goes_at_once(made, made.feed(wish("short", 2, 60.0)))
    made.feed(PauseFailed(two.lease, two.fence, "it is in C code"))
    assert not of(PauseLease, made.feed(LeaseRenewed(one.lease, one.fence)))
    made.feed(back(one))  # It was told, and has left already.
    made.feed(QuotaSet(UserName("one"), UserQuota(gpu_quota=0)))
    assert granted(made.feed(going_on("one"))).request == "one:again"


def test_nobody_is_paused_where_the_hosts_cores_or_memory_do_not_suffice_even_then() -> None:
    for more in ({"cpu": 6.0}, {"memory_gb": 60.0}):
        made = Cluster()
        made.host("a", 2, cpu=8.0, memory_gb=64.0)
        for name in ("long", "other", "short"):
            made.kernel(name, 1, 1, hosts="a", user=name)
        size = {"cpu": 4.0, "memory_gb": 32.0}
        made.feed(LeaseAsked(replace(wish("other", 1, 5000.0).request, **size)))
        made.feed(wish("long", 1, 1000.0, preemptible=True))
        assert not of(DeferralAsked, made.feed(LeaseAsked(replace(wish("short", 1, 60.0).request, **more))))


def test_a_paused_cells_cores_serve_the_shorter_one() -> None:
    made = Cluster()
    made.host("a", 1, cpu=8.0)
    for name in ("long", "short"):
        made.kernel(name, 1, 1, hosts="a", user=name)
    made.feed(LeaseAsked(replace(wish("long", 1, 1000.0, preemptible=True).request, cpu=6.0)))
    assert of(DeferralAsked, made.feed(LeaseAsked(replace(wish("short", 1, 60.0).request, cpu=8.0))))


def test_a_paused_cell_goes_on_before_longer_ones_that_were_in_line_when_it_was_paused() -> None:
    made = cluster(2, "long", "short", "huge")
    long = long_cell(made)
    asked = made.feed(wish("short", 2, 60.0))
    made.feed(wish("huge", 2, 36_000.0))
    goes_at_once(made, asked)
    short = granted(made.feed(back(long)))
    made.feed(wish("long", 2, 1000.0, name="again", preemptible=True, paused=Paused(100.0)))
    assert granted(made.release(short, after_s=60.0)).request == "again"


def test_gpus_that_linger_are_asked_back_for_a_shorter_one_behind_a_larger_paused_cell() -> None:
    made = cluster(2, "long", "short", "other", "third")
    long = long_cell(made)
    goes_at_once(made, made.feed(wish("short", 1, 60.0)))
    made.feed(back(long))
    made.feed(wish("long", 2, 1000.0, name="again", preemptible=True, paused=Paused(100.0)))
    other = granted(made.feed(wish("other", 1, 50.0)))
    made.linger(other)
    assert of(ReclaimLease, made.feed(wish("third", 1, 40.0)))


def test_a_cell_goes_on_that_asks_before_its_lease_is_back_though_both_exceed_its_users_quota() -> None:
    made = cluster(4)
    made.feed(QuotaSet(UserName("long"), UserQuota(gpu_quota=2)))
    long = long_cell(made)
    goes_at_once(made, made.feed(wish("short", 3, 60.0)))
    asked = made.feed(going_on("long", 2))
    assert not of(LeaseRefused, asked)
    assert granted([*asked, *made.feed(back(long))]).request in ("long:again", "short:cell")
    lies = replace(going_on("long", 2).request, request=RequestId("lies"))
    assert of(LeaseRefused, made.feed(LeaseAsked(lies)))


def test_a_host_with_a_paused_cell_is_drained_once_that_is_over() -> None:
    made = cluster(2)
    long = long_cell(made)
    goes_at_once(made, made.feed(wish("short", 2, 60.0)))
    short = granted(made.feed(back(long)))
    made.host("b", 2)
    drains = [made.feed(HostDrained(HostName("a")))]
    made.feed(going_on("long", 2, hosts=(HostName("a"),)))
    awaits = made.core.draining_awaits(HostName("a"))
    assert awaits["replica: a paused cell goes on there"] == 1
    drains.append(made.release(short, after_s=60.0))
    again = granted(drains[-1])
    assert (again.request, again.host) == ("long:again", "a")
    moved = [start.kernel_id for effects in drains for start in of(StartReplica, effects)]
    assert "long" not in moved
    assert "long" in [start.kernel_id for start in of(StartReplica, made.release(again))]


def test_a_host_is_drained_though_its_paused_cell_asks_no_more() -> None:
    made = cluster(2)
    long = long_cell(made)
    goes_at_once(made, made.feed(wish("short", 2, 60.0)))
    made.feed(back(long))
    made.host("b", 2)
    made.feed(HostDrained(HostName("a")))
    made.feed(going_on("long", 2, hosts=(HostName("a"),)))
    withdrawn = made.feed(LeaseWithdrawn(RequestId("long:again")))
    assert [start.kernel_id for start in of(StartReplica, withdrawn)] == ["long"]


def test_nobody_has_to_leave_a_host_that_begins_to_be_drained() -> None:
    made = cluster(2)
    long = long_cell(made)
    goes_at_once(made, made.feed(wish("short", 1, 60.0)))
    made.feed(HostDrained(HostName("a")))
    assert not of(PauseLease, made.feed(LeaseRenewed(long.lease, long.fence)))


def test_nobody_is_paused_for_a_lower_priority_nor_passed_by_one() -> None:
    made = cluster(2)
    made.feed(QuotaSet(UserName("long"), UserQuota(priority=10)))
    long = long_cell(made)
    assert not of(DeferralAsked, made.feed(wish("short", 1, 60.0))), "its priority is 0"
    made.feed(QuotaSet(UserName("other"), UserQuota(priority=10)))
    goes_at_once(made, made.feed(wish("other", 2, 60.0)))
    other = granted(made.feed(back(long)))
    made.feed(going_on("long", 2))
    assert granted(made.release(other, after_s=60.0)).request == "long:again", "short waits with priority 0"


def test_a_cell_that_goes_on_is_expected_to_take_what_it_has_left() -> None:
    made = cluster(2)
    long = long_cell(made)
    goes_at_once(made, made.feed(wish("short", 2, 60.0), after_s=600.0))
    short = granted(made.feed(back(long)))
    made.feed(going_on("long", 2, ran_s=600.0))
    again = granted(made.release(short, after_s=60.0))
    wanted = made.core.wish_of(again.lease)
    assert wanted is not None and wanted.expected_s == 400.0
    assert of(DeferralAsked, made.feed(wish("other", 1, 150.0), after_s=200.0)), "200 s are left"
    assert not of(DeferralAsked, made.feed(LeaseRenewed(again.lease, again.fence), after_s=100.0))


def test_a_cell_that_goes_on_having_outlasted_its_word_is_thought_to_take_as_long_again() -> None:
    made = cluster(2)
    long = long_cell(made)
    goes_at_once(made, made.feed(wish("short", 2, 60.0)))
    short = granted(made.feed(back(long)))
    made.feed(going_on("long", 2, ran_s=5000.0))
    wanted = made.core.wish_of(granted(made.release(short)).lease)
    assert wanted is not None and wanted.expected_s == 5000.0


def test_a_cell_that_was_paused_computes_for_a_while_before_it_is_paused_again() -> None:
    made = cluster(2)
    long = long_cell(made)
    goes_at_once(made, made.feed(wish("short", 2, 60.0)))
    short = granted(made.feed(back(long)))
    made.feed(going_on("long", 2))
    again = granted(made.release(short))
    assert not of(DeferralAsked, made.feed(wish("other", 1, 1.0))), "it has just gone on"
    renewed = made.feed(LeaseRenewed(again.lease, again.fence), after_s=120.0)
    assert deferral(renewed).request == "other:cell"


def test_how_long_pauses_take_is_learned_from_those_that_were_made_alone() -> None:
    made = cluster(1, "long", "short", "other", "third")
    long = long_cell(made, 1)
    goes_at_once(made, made.feed(wish("short", 1, 60.0)))
    made.feed(LeaseLingered(long.lease, long.fence), after_s=25.0)  # Its cell was over before that.
    made.release(granted(made.feed(back(long))))
    other = granted(made.feed(wish("other", 1, 500.0, preemptible=True)))
    asked = made.feed(wish("third", 1, 60.0))
    assert deferral(asked).context.pause_s == 2.0
    goes_at_once(made, asked)
    made.release(granted(made.feed(back(other), after_s=12.0)))
    made.feed(wish("long", 1, 500.0, name="next", preemptible=True))
    assert deferral(made.feed(wish("short", 1, 60.0, name="more"))).context.pause_s == 4.0


def says_a_second(*took_s: float) -> Cluster:
    """Return a cluster where cells of a kernel have said that they take a second, and another one runs."""
    made = cluster(2, "long", "short", "other")
    long = long_cell(made, 1)
    for number, seconds in enumerate(took_s):
        made.release(granted(made.feed(wish("short", 1, 1.0, name=f"cell {number}"))), after_s=seconds)
    made.release(long)
    made.feed(wish("long", 2, 1000.0, preemptible=True, name="more"))
    return made


def test_nobody_is_paused_for_whoever_says_a_second_and_takes_most_of_an_hour_each_time() -> None:
    made = says_a_second(3000.0, 3000.0, 3000.0)
    assert not of(DeferralAsked, made.feed(wish("short", 1, 1.0)))
    again = Cluster()
    again.core.restore(made.core.image())
    again.now = made.now
    again.feed(LeaseWithdrawn(RequestId("short:cell")))
    assert not of(DeferralAsked, again.feed(wish("short", 1, 1.0)))


def test_whoever_keeps_his_word_again_is_believed_and_so_is_who_broke_it_once() -> None:
    assert of(DeferralAsked, says_a_second(3000.0, 3000.0, 3000.0, 1.0).feed(wish("short", 1, 1.0)))
    assert of(DeferralAsked, says_a_second(3000.0).feed(wish("short", 1, 1.0)))


def test_a_cell_that_had_not_begun_when_it_was_told_to_stand_still_is_told_once_more() -> None:
    made = cluster(1)
    long = long_cell(made, 1)
    goes_at_once(made, made.feed(wish("short", 1, 60.0)))
    refused = made.feed(PauseFailed(long.lease, long.fence, "the cell has not begun yet"))
    assert not of(DeferralAsked, refused)
    (pause,) = goes_at_once(made, made.feed(LeaseRenewed(long.lease, long.fence), after_s=100.0))
    assert pause.lease.lease == long.lease
    made.feed(PauseFailed(long.lease, long.fence, "the driver cannot"))
    assert not of(DeferralAsked, made.feed(LeaseRenewed(long.lease, long.fence), after_s=100.0))


def test_a_deferral_that_nobody_ever_chooses_is_over_after_a_while() -> None:
    made = cluster()
    long = long_cell(made)
    made.feed(wish("short", 1, 60.0))
    assert not of(PauseLease, made.feed(TimeReached(), after_s=20.0))
    (pause,) = of(PauseLease, made.feed(TimeReached(), after_s=20.0))
    assert pause.lease.lease == long.lease
    assert not of(PauseLease, made.feed(DeferralChosen(RequestId("short:cell"), 5.0)))
