"""Leases of parts of a GPU: who gets which card, who waits, what is counted and what it costs."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replkernel_scheduler.asking import GIVEN_BACK_S
from replkernel_scheduler.effects import (
    Effect,
    LeaseEnded,
    LeaseGranted,
    LeaseQueued,
    LeaseRefused,
    ReclaimLease,
    StartReplica,
    UsageRecorded,
)
from replkernel_scheduler.events import (
    GpusAwaited,
    GpusWanted,
    HostUp,
    LeaseAsked,
    LeaseLingered,
    LeaseReleased,
    LeaseRenewed,
    PricesSet,
    QuotaSet,
    TimeReached,
)
from replkernel_scheduler.policies import built_in
from replkernel_scheduler.policies.backfill_easy import EasyBackfill
from replkernel_scheduler.types import (
    HostName,
    KernelId,
    Lease,
    LeaseRequest,
    Prices,
    RequestId,
    Share,
    UserName,
    UserQuota,
)

from tests.support.examples import examples
from tests.unit.scheduler.cluster import Cluster, granted, of
from tests.unit.scheduler.stories import KINDS, Step, World
from tests.unit.scheduler.test_image import Restarted

change = msgspec.structs.replace
encode = msgspec.msgpack.encode
PAPER = built_in.notebook()
POLICIES = {
    "notebook": PAPER,
    "notebook, backfilling": change(PAPER, backfill=EasyBackfill()),
    "easy-batch": built_in.easy_batch(),
    "reservation": built_in.reservation(),
}


def ask(
    cluster: Cluster,
    name: str,
    part: float = 0.5,
    vram_gb: float = 0.0,
    *,
    sharing: int = 1,
    kernel: str = "",
    **more: Any,
) -> list[Effect]:
    """Ask for a part of a GPU."""
    share = Share(round(part * 1000), sharing)
    fields: dict[str, Any] = {"user": UserName("ada"), **more}
    wish = LeaseRequest(
        RequestId(name),
        KernelId(kernel or f"kernel-{name}"),
        1,
        100.0,
        vram_gb=vram_gb,
        share=share,
        **fields,
    )
    return cluster.feed(LeaseAsked(wish))


def card(lease: Lease) -> str:
    return lease.gpus[0].removeprefix("GPU-")


def share(lease: Lease) -> Share:
    assert isinstance(lease.share, Share)
    return lease.share


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.host("a", 2, "A100", 40.0)
    return made


# -- who gets what ----------------------------------------------------------------------------------------


def test_two_halves_are_on_one_card_and_a_third_opens_the_next(cluster: Cluster) -> None:
    cards = [card(granted(ask(cluster, name))) for name in "abc"]
    assert cards == ["a-0", "a-0", "a-1"]


def test_who_finds_no_room_waits_for_the_first_part_that_comes_back(cluster: Cluster) -> None:
    first, *_ = [granted(ask(cluster, name)) for name in "abcd"]
    assert of(LeaseQueued, ask(cluster, "e"))
    effects = cluster.release(first)
    assert card(granted(effects)) == "a-0"
    assert not cluster.waiting()


def test_a_part_without_memory_named_may_take_that_fraction_of_the_cards(cluster: Cluster) -> None:
    assert share(granted(ask(cluster, "a", 0.25))) == Share(250, 1, 10 * 1024)
    assert share(granted(ask(cluster, "b", 0.25, 25.0))) == Share(250, 1, 25 * 1024)


def test_of_a_measured_card_every_part_has_a_bound_of_its_memory() -> None:
    cluster = Cluster()
    cluster.host("a", 1, "tiny", 0.05)
    assert share(granted(ask(cluster, "a", 0.01))).vram_mib == 1


def test_memory_on_a_card_is_never_promised_twice(cluster: Cluster) -> None:
    assert card(granted(ask(cluster, "a", 0.25, 25.0))) == "a-0"
    assert card(granted(ask(cluster, "b", 0.25, 16.0))) == "a-1", "16 GiB are not left beside 25"
    assert card(granted(ask(cluster, "c", 0.25, 15.0))) == "a-0"


def test_the_best_fit_by_memory_keeps_room_for_larger_parts(cluster: Cluster) -> None:
    granted(ask(cluster, "a", 0.25, 30.0))
    granted(ask(cluster, "b", 0.25, 20.0))
    assert card(granted(ask(cluster, "c", 0.25, 8.0))) == "a-0"
    assert card(granted(ask(cluster, "d", 0.25, 20.0))) == "a-1"


def test_a_whole_gpu_is_nobody_elses(cluster: Cluster) -> None:
    whole = granted(cluster.ask("w"))
    part = granted(ask(cluster, "p", 0.1))
    assert card(whole) != card(part)
    assert of(LeaseQueued, cluster.ask("x")), "the other card has a part on it"
    assert not set(whole.gpus) & set(part.gpus)


def test_a_whole_gpu_takes_an_empty_card_and_a_part_a_shared_one(cluster: Cluster) -> None:
    cluster.host("b", 2, "A100", 40.0)
    first = granted(ask(cluster, "p", 0.25))
    whole = [granted(cluster.ask(name)) for name in "uvw"]
    assert len({card(lease) for lease in whole} | {card(first)}) == 4
    assert card(granted(ask(cluster, "q", 0.25))) == card(first)


def test_a_card_is_whole_again_once_its_parts_are_over(cluster: Cluster) -> None:
    one, two = granted(ask(cluster, "a")), granted(ask(cluster, "b"))
    granted(cluster.ask("w"))
    assert of(LeaseQueued, cluster.ask("x"))
    assert not of(LeaseGranted, cluster.release(one))
    assert card(granted(cluster.release(two))) == "a-0"


def test_those_who_share_what_they_have_come_to_as_many_gpus_as_all_of_them_allow(cluster: Cluster) -> None:
    cluster.feed(HostUp(HostName("a"), cluster.core.view().hosts[0].gpus[:1]))
    for name in "abc":
        assert card(granted(ask(cluster, name, 1.0, 10.0, sharing=3))) == "a-0"
    assert of(LeaseQueued, ask(cluster, "d", 1.0, 10.0, sharing=3))
    assert of(LeaseQueued, ask(cluster, "e", 0.1, 5.0)), "who does not share has no card with those who do"


def test_a_kernel_goes_on_with_its_own_part(cluster: Cluster) -> None:
    own = granted(ask(cluster, "a1", kernel="k"))
    granted(ask(cluster, "b"))
    cluster.linger(own)
    effects = ask(cluster, "a2", kernel="k")
    assert card(granted(effects)) == "a-0"
    assert [ended.why for ended in of(LeaseEnded, effects)] == ["reused"]


def test_memory_left_on_a_whole_gpu_is_kept_by_a_part_only_if_it_fits(cluster: Cluster) -> None:
    own = granted(cluster.ask("a1", kernel="k"))
    cluster.feed(LeaseLingered(own.lease, own.fence, None, 30.0))
    small = granted(ask(cluster, "a2", kernel="k"))
    assert card(small) == "a-1", "30 GiB do not fit into half of 40"
    cluster.release(small)
    large = granted(ask(cluster, "a3", 0.5, 35.0, kernel="k"))
    assert card(large) == "a-0"


# -- what is left lying -----------------------------------------------------------------------------------


def test_parts_that_linger_are_asked_back_for_a_part_and_no_more_than_needed(
    cluster: Cluster,
) -> None:
    leases = [granted(ask(cluster, name)) for name in "abcd"]
    for lease in leases[1:3]:
        cluster.linger(lease)
    asked = of(ReclaimLease, ask(cluster, "e"))
    assert [back.lease.lease for back in asked] == [leases[1].lease]
    assert card(granted(cluster.release(leases[1]))) == "a-0"


def test_all_parts_of_one_card_are_asked_back_for_a_whole_gpu(cluster: Cluster) -> None:
    leases = [granted(ask(cluster, name)) for name in "abcd"]
    for lease in (leases[0], leases[2], leases[3]):
        cluster.linger(lease)
    asked = of(ReclaimLease, cluster.ask("w"))
    assert [back.lease.lease for back in asked] == [leases[2].lease, leases[3].lease]
    cluster.release(leases[2])
    assert card(granted(cluster.release(leases[3]))) == "a-1"


def test_a_part_that_is_not_given_back_in_time_is_over(cluster: Cluster) -> None:
    leases = [granted(ask(cluster, name)) for name in "abcd"]
    cluster.linger(leases[0])
    until = of(ReclaimLease, ask(cluster, "e"))[0].until
    effects = cluster.feed(TimeReached(), after_s=until - cluster.now)
    assert [ended.why for ended in of(LeaseEnded, effects)] == ["not given back"]
    assert card(granted(effects)) == "a-0"


def test_an_engines_job_has_a_card_back_whose_parts_all_linger(cluster: Cluster) -> None:
    leases = [granted(ask(cluster, name)) for name in "abc"]
    job = GpusWanted((GpusAwaited((HostName("a"),), 1),))
    cluster.linger(leases[0])
    assert not of(ReclaimLease, cluster.feed(job)), "a cell computes beside it"
    cluster.linger(leases[2])
    assert [back.lease.lease for back in of(ReclaimLease, cluster.feed(job))] == [leases[2].lease]


def test_a_host_that_offers_its_gpus_anew_keeps_the_parts_on_them(cluster: Cluster) -> None:
    one = granted(ask(cluster, "a"))
    gpus = cluster.core.view().hosts[0].gpus
    assert not of(LeaseEnded, cluster.feed(HostUp(HostName("a"), gpus[:1], 8.0, 64.0)))
    assert card(granted(ask(cluster, "b"))) == card(one)
    ended = of(LeaseEnded, cluster.feed(HostUp(HostName("a"), (change(gpus[0], model="H100"),))))
    assert {end.why for end in ended} == {"gpu gone"}


def test_a_kernel_whose_state_cannot_leave_is_told_that_a_part_is_too_small(
    cluster: Cluster,
) -> None:
    cluster.feed(HostUp(HostName("a"), cluster.core.view().hosts[0].gpus[:1]))
    own = granted(cluster.ask("a1", kernel="k"))
    cluster.feed(LeaseLingered(own.lease, own.fence, None, 30.0))
    assert of(ReclaimLease, ask(cluster, "a2", 0.25, kernel="k"))
    (refused,) = of(LeaseRefused, cluster.feed(LeaseRenewed(own.lease, own.fence, stays=True)))
    assert "30 GiB of this kernel's state cannot leave GPU-a-0" in refused.why
    assert not cluster.waiting()


def test_others_are_asked_for_whole_gpus_beside_somebody_who_is_late(cluster: Cluster) -> None:
    cluster.linger(granted(ask(cluster, "part", 0.5)))
    whole = granted(cluster.ask("whole"))
    assert of(ReclaimLease, cluster.feed(GpusWanted((GpusAwaited((HostName("a"),), 1),))))
    cluster.linger(whole)
    late = cluster.feed(TimeReached(), after_s=GIVEN_BACK_S + 0.5)
    asked = of(ReclaimLease, [*late, *cluster.ask("w", 2)])
    assert [back.lease.lease for back in asked] == [whole.lease]


def test_an_engines_job_has_a_card_back_of_which_some_is_on_its_way_already(cluster: Cluster) -> None:
    leases = [granted(ask(cluster, name)) for name in "abcd"]
    cluster.linger(leases[0])
    assert of(ReclaimLease, ask(cluster, "e"))
    cluster.linger(leases[1])
    job = GpusWanted((GpusAwaited((HostName("a"),), 1),))
    assert [back.lease.lease for back in of(ReclaimLease, cluster.feed(job, after_s=0.1))] == [
        leases[1].lease
    ]


@pytest.mark.parametrize("lingers", ["before", "after"])
def test_a_kernel_that_looks_for_a_host_has_a_part_back_beside_one_that_computes(lingers: str) -> None:
    cluster = Cluster()
    cluster.host("a", 0)
    cluster.host("d", 1, "A100", 40.0)
    cluster.kernel("k", 1, 1, hosts="a")
    rests, _ = granted(ask(cluster, "rests")), granted(ask(cluster, "computes"))
    effects = cluster.linger(rests) if lingers == "before" else []
    effects += ask(cluster, "cell", kernel="k")
    effects += cluster.linger(rests) if lingers == "after" else []
    assert [back.lease.lease for back in of(ReclaimLease, effects)] == [rests.lease]
    (start,) = of(StartReplica, cluster.release(rests))
    assert start.host == "d"


# -- what is refused, counted and charged ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        ({"part": 1.5}, "from 0.01 to 1"),
        ({"part": 0.001}, "from 0.01 to 1"),
        ({"part": 0.5, "sharing": 0}, "come to 1 to 64"),
        ({"part": 0.5, "vram_gb": 41.0}, "No host has 0.5 of a GPU of 41 GiB"),
        ({"part": 0.5, "vram_gb": 0.0004}, "has 1 MiB of its memory at least, not 0.0004 GiB"),
        ({"part": 0.5, "holder": "job"}, "leased to cells"),
    ],
)
def test_an_impossible_part_is_refused(cluster: Cluster, wish: dict[str, Any], why: str) -> None:
    (refused,) = of(LeaseRefused, ask(cluster, "a", **wish))
    assert why in refused.why


def test_a_quota_counts_parts_as_parts(cluster: Cluster) -> None:
    cluster.feed(QuotaSet(UserName("ada"), UserQuota(1)))
    granted(ask(cluster, "a"))
    granted(ask(cluster, "b", 0.4))
    (refused,) = of(LeaseRefused, ask(cluster, "c", 0.2))
    assert "0.9 are in use, 0 are waited for, and this asks for 0.2" in refused.why


def test_half_a_gpu_hour_is_half_and_costs_half(cluster: Cluster) -> None:
    cluster.feed(PricesSet(Prices((("A100", 2.0),), factor=1.0)))
    lease = granted(ask(cluster, "a"))
    assert isinstance(lease.price, msgspec.Struct)
    assert lease.price.hour == 1.0
    (row,) = of(UsageRecorded, cluster.release(lease, after_s=3600.0))
    assert (row.usage.gpus, row.usage.cost) == (0.5, 1.0)
    (user,) = cluster.core.view().users
    assert (user.usage.gpu_s, user.month_gpu_s, user.held) == (1800.0, 1800.0, 0)


def test_a_part_with_more_of_the_memory_than_of_the_card_counts_and_costs_as_that(cluster: Cluster) -> None:
    cluster.feed(QuotaSet(UserName("ada"), UserQuota(1)))
    cluster.feed(PricesSet(Prices((("A100", 2.0),), factor=1.0)))
    lease = granted(ask(cluster, "a", 0.01, 30.0))
    assert isinstance(lease.price, msgspec.Struct)
    assert lease.price.hour == 1.5
    (refused,) = of(LeaseRefused, ask(cluster, "b", 0.01, 20.0))
    assert "0.75 are in use, 0 are waited for, and this asks for 0.5" in refused.why
    (row,) = of(UsageRecorded, cluster.release(lease, after_s=3599.0))
    assert (row.usage.gpus, row.usage.cost) == (0.75, 1.5)
    (user,) = cluster.core.view().users
    assert (user.month_gpu_s, user.held) == (2700.0, 0)


def test_a_policy_that_reserves_whole_gpus_leases_no_parts() -> None:
    cluster = Cluster(built_in.reservation())
    cluster.host("a", 2, "A100", 40.0)
    cluster.kernel("k", replicas=1)
    (refused,) = of(LeaseRefused, ask(cluster, "a", kernel="k"))
    assert "only where these give back what they leave" in refused.why


# -- laws -------------------------------------------------------------------------------------------------

number = st.integers(0, len(KINDS) - 1)
steps = st.lists(st.tuples(number, number, number, number), max_size=80)


def played(name: str, story: list[Step], *, provisions: bool) -> World:
    world = World(POLICIES[name], 7, provisions=provisions, shares=True)
    for step in story:
        world.play(step)
    return world


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(sorted(POLICIES)), story=steps, provisions=st.booleans())
def test_the_laws_hold_in_every_story_with_parts(name: str, story: list[Step], provisions: bool) -> None:
    played(name, story, provisions=provisions)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(sorted(POLICIES)), story=steps, every=st.integers(1, 9), provisions=st.booleans())
def test_a_core_goes_on_from_an_image_with_parts_as_if_it_were_the_first(
    name: str, story: list[Step], every: int, provisions: bool
) -> None:
    first = World(POLICIES[name], 7, provisions=provisions, shares=True)
    again = Restarted(POLICIES[name], every, provisions=provisions, shares=True)
    for step in story:
        first.play(step)
        again.play(step)
    assert encode(again.told) == encode(first.told)
    assert encode(again.core.image()) == encode(first.core.image())


def test_stories_with_parts_reach_what_they_are_for() -> None:
    """A generator that stopped sharing cards, or asking parts back, would prove nothing."""
    dice = random.Random(5)
    most, back, reused = 0, 0, 0
    for _ in range(40):
        story = [tuple(dice.randrange(len(KINDS)) for _ in range(4)) for _ in range(120)]
        world = World(PAPER, 7, provisions=False, shares=True)
        for step in story:
            world.play(step)  # type: ignore[arg-type]
            held: dict[str, int] = {}
            for entry in world.core.view().leases:
                if isinstance(entry.lease.share, Share):
                    held[entry.lease.gpus[0]] = held.get(entry.lease.gpus[0], 0) + 1
            most = max([most, *held.values()])
        told = [effect for effects in world.told for effect in effects]
        back += sum(isinstance(e, ReclaimLease) and isinstance(e.lease.share, Share) for e in told)
        reused += sum(isinstance(e, LeaseEnded) and e.why == "reused" for e in told)
    assert most >= 3
    assert back >= 10
    assert reused >= 10


def test_a_release_by_somebody_else_changes_nothing(cluster: Cluster) -> None:
    one, two = granted(ask(cluster, "a")), granted(ask(cluster, "b"))
    cluster.feed(LeaseReleased(one.lease, two.fence))
    assert len(cluster.leases()) == 2
