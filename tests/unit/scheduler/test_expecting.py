"""What whoever waits is told to expect: from how long leases were held, and how long they have been."""

from __future__ import annotations

from random import Random

from replkernel_scheduler.effects import LeaseRefused, ReclaimLease
from replkernel_scheduler.events import TimeReached
from replkernel_scheduler.expecting.durations import OF_ONE_MAX, Durations, kinds_of
from replkernel_scheduler.expecting.forecast import BEYOND, likely_s, range_s
from replkernel_scheduler.expecting.foresight import AGAIN_S, EVERY_S, Expected, Foresight
from replkernel_scheduler.types import CellUsage, HostName, KernelId, LeaseId, RequestId, UserName
from replkernel_server.scheduling.messages import range_in_words

from tests.unit.scheduler.cluster import Cluster, granted, of


def row(kernel: str, leased_s: float, user: str = "ada", gpus: int = 1) -> CellUsage:
    return CellUsage(
        RequestId("r"), LeaseId("l"), KernelId(kernel), UserName(user), HostName("a"), gpus, 0.0, 0.0,
        leased_s, leased_s,
    )  # fmt: skip


def looked(foresight: Foresight, cluster: Cluster) -> dict[str, Expected]:
    looking = foresight.look(cluster.core, cluster.now)
    while True:
        try:
            next(looking)
        except StopIteration as done:
            return {str(one.request): one for one in done.value}


def test_a_notebooks_own_durations_count_most() -> None:
    durations = Durations()
    for _ in range(30):
        durations.observe(row("short", 10.0))
        durations.observe(row("long", 1000.0, user="bob", gpus=2))
    draws = durations.draws_for(kinds_of("short", "ada", 1), 0.0)
    dice = Random(0)
    assert sum(draws.left_s(dice) == 10.0 for _ in range(200)) > 190


def test_a_notebooks_newest_durations_count() -> None:
    durations = Durations()
    for leased_s in [1000.0] * OF_ONE_MAX + [10.0] * OF_ONE_MAX:
        durations.observe(row("one", leased_s))
    draws = durations.draws_for(kinds_of("one", "ada", 1), 0.0)
    dice = Random(0)
    assert sum(draws.left_s(dice) == 10.0 for _ in range(200)) > 190


def test_a_lease_that_outlasted_the_short_ones_is_taken_for_a_long_one() -> None:
    durations = Durations()
    for leased_s in [10.0] * 20 + [600.0] * 3:
        durations.observe(row("one", leased_s))
    dice = Random(0)
    passed = durations.draws_for(kinds_of("one", "ada", 1), 0.0, 60.0)
    assert {passed.left_s(dice) for _ in range(50)} == {540.0}


def test_who_says_how_long_it_takes_is_believed_until_that_is_over() -> None:
    durations = Durations()
    for _ in range(9):
        durations.observe(row("one", 10.0))
    dice = Random(0)
    assert durations.draws_for(kinds_of("one", "ada", 1), 300.0, 100.0).left_s(dice) == 200.0
    assert durations.draws_for(kinds_of("one", "ada", 1), 5.0, 6.0).left_s(dice) == 4.0


def test_the_wait_that_most_plays_come_near_to_is_told() -> None:
    assert likely_s([]) is None
    assert likely_s([60.0, 61.0, 62.0, 3600.0]) == (60.0 * 62.0) ** 0.5
    assert likely_s([60.0, float("inf"), float("inf")]) is None, "mostly nobody knows"


def test_the_range_leaves_out_what_hardly_ever_comes_and_is_wider_than_what_was_played() -> None:
    waits_s = [2.0, *[100.0] * 20, *[400.0] * 18, 90_000.0]
    assert range_s(waits_s) == (100.0 / BEYOND, 400.0 * BEYOND)
    assert range_s([]) is None
    assert range_s([60.0] * 30 + [float("inf")] * 10) is None, "a quarter of these has no end in sight"


def test_of_a_range_no_more_is_told_than_two_ends_that_differ() -> None:
    assert range_in_words((300.0, 1500.0)) == "8 times in 10 it takes 5 min to 25 min"
    assert range_in_words((600.0, 610.0)) == range_in_words((2.0, 50.0)) == range_in_words(None) == ""


def test_a_wait_is_told_by_when_the_one_before_is_likely_to_be_over() -> None:
    cluster, foresight = Cluster(), Foresight(Random(0))
    foresight.learn([row("k", 100.0)] * 20)
    cluster.host("a", 1)
    cluster.ask("first", 1, kernel="k", ttl_s=900.0, hosts="a", after_s=0.0)
    cluster.feed(TimeReached(), after_s=40.0)
    for request in ("second", "third"):
        foresight.saw(cluster.ask(request, 1, kernel="k", ttl_s=900.0, hosts="a", after_s=0.0), cluster.now)
    told = looked(foresight, cluster)
    assert told["second"].wait_s == 60.0 and told["third"].wait_s == 160.0
    assert told["third"].place == 2
    assert foresight.range_s(RequestId("second")) == (60.0 / BEYOND, 60.0 * BEYOND)
    foresight.saw([LeaseRefused(RequestId("second"), "")], cluster.now)
    assert foresight.range_s(RequestId("second")) is None, "it waits no more"
    assert told["second"].why == "1 cell computes on 1 GPU of the hosts that may serve it"


def test_nothing_is_told_anew_that_has_not_changed_and_nobody_looks_while_nobody_waits() -> None:
    cluster, foresight = Cluster(), Foresight(Random(0))
    foresight.learn([row("k", 1000.0)] * 20)
    assert foresight.due() is None
    cluster.host("a", 1)
    cluster.ask("first", 1, kernel="k", ttl_s=900.0, hosts="a", after_s=0.0)
    foresight.saw(cluster.ask("second", 1, kernel="k", ttl_s=900.0, hosts="a", after_s=0.0), cluster.now)
    assert foresight.due() == cluster.now
    assert looked(foresight, cluster)
    assert foresight.due() == cluster.now + AGAIN_S > cluster.now + EVERY_S
    cluster.feed(TimeReached(), after_s=AGAIN_S)
    assert not looked(foresight, cluster), "a minute more or less of a quarter of an hour is no news"
    assert foresight.left_s(RequestId("second"), cluster.now) == 1000.0 - AGAIN_S
    cluster.feed(TimeReached(), after_s=300.0)
    assert looked(foresight, cluster)["second"].wait_s == 1000.0 - AGAIN_S - 300.0
    foresight.saw(cluster.release(cluster.leases()[0]), cluster.now)
    assert not looked(foresight, cluster) and foresight.due() is None


def test_who_waits_behind_a_claim_waits_for_whom_it_waits_for() -> None:
    cluster, foresight = Cluster(), Foresight(Random(0))
    foresight.learn([row("k", 100.0, gpus=2)] * 20)
    cluster.host("a", 4)
    cluster.ask("runs", 2, kernel="k", ttl_s=900.0, hosts="a", after_s=0.0)
    cluster.feed(TimeReached(), after_s=50.0)
    cluster.ask("too", 1, kernel="k", ttl_s=900.0, hosts="a", after_s=0.0)
    foresight.saw(cluster.ask("large", 4, kernel="k", ttl_s=900.0, hosts="a", after_s=0.0), cluster.now)
    foresight.saw(cluster.ask("small", 1, kernel="k", ttl_s=900.0, hosts="a", after_s=0.0), cluster.now)
    told = looked(foresight, cluster)
    assert told["large"].wait_s == 100.0, "both cells end before it"
    assert told["small"].wait_s == 200.0, "nobody passes the claim"


def test_of_a_holder_that_does_not_give_back_the_deadline_is_told() -> None:
    cluster, foresight = Cluster(), Foresight(Random(0))
    foresight.learn([row("k", 100.0)] * 20)
    cluster.host("a", 1)
    cluster.linger(granted(cluster.ask("first", 1, kernel="k", ttl_s=900.0, hosts="a")))
    (asked,) = of(ReclaimLease, cluster.ask("second", 1, kernel="other", hosts="a"))
    cluster.feed(TimeReached(), after_s=5.0)
    assert looked(foresight, cluster)["second"].wait_s == asked.until - cluster.now


def test_who_waits_since_before_a_restart_is_looked_at() -> None:
    cluster, foresight = Cluster(), Foresight(Random(0))
    foresight.wake(cluster.now)
    assert foresight.due() == cluster.now
    assert not looked(foresight, cluster) and foresight.due() is None, "nobody waits"
