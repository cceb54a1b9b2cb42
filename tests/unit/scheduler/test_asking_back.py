"""What lingers is asked back for all who wait at once, the cheapest first, and waits are told as they are."""

from __future__ import annotations

from replkernel_scheduler.effects import LeaseEnded, LeaseGranted, LeaseQueued, ReclaimLease
from replkernel_scheduler.events import LeaseLingered, LeaseReleased, LeaseRenewed, QuotaSet, TimeReached
from replkernel_scheduler.types import Lease, UserName, UserQuota

from tests.unit.scheduler.cluster import Cluster, granted, of


def lingering(cluster: Cluster, kernel: str, gpus: int = 1, held_gb: float = 0.0) -> Lease:
    """Let a cell of this kernel end, with so much state left on its GPUs."""
    lease = granted(cluster.ask(f"cell of {kernel}", gpus, kernel=kernel, hosts="a"))
    cluster.feed(LeaseLingered(lease.lease, lease.fence, None, held_gb))
    return lease


def asked_back(cluster: Cluster) -> set[str]:
    return {entry.lease.kernel_id for entry in cluster.core.view().leases if entry.phase == "reclaiming"}


def test_three_cells_that_wait_have_three_holders_asked_at_once() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    for kernel in ("k1", "k2", "k3", "k4"):
        lingering(cluster, kernel)
    for number in (1, 2, 3):
        cluster.ask(f"waits {number}", kernel=f"new {number}", hosts="a", after_s=0.1)
    assert len(asked_back(cluster)) == 3


def test_cells_for_any_host_are_asked_back_for_as_well_not_the_first_one_alone() -> None:
    cluster = Cluster()
    cluster.host("a", 3)
    for kernel in ("k1", "k2", "k3"):
        lingering(cluster, kernel)
    for number in (1, 2):
        cluster.ask(f"waits {number}", kernel=f"new {number}")
    assert len(asked_back(cluster)) == 2


def test_no_more_is_asked_back_than_the_cells_that_can_be_served_want() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    busy = granted(cluster.ask("busy", 2, kernel="busy", hosts="a"))
    lingering(cluster, "k1")
    lingering(cluster, "k2")
    cluster.ask("large", 4, kernel="new 1", hosts="a")
    cluster.ask("small", 1, kernel="new 2", hosts="a")
    assert asked_back(cluster) == set(), "the first cannot be served yet, and the second stands behind it"
    cluster.release(busy)
    assert asked_back(cluster) == {"k1", "k2"}


def test_the_holder_with_the_least_to_move_is_asked_and_of_equals_the_one_that_rests_longest() -> None:
    cluster = Cluster()
    cluster.host("a", 3)
    lingering(cluster, "large", held_gb=30.0)
    lingering(cluster, "old", held_gb=1.0)
    lingering(cluster, "new", held_gb=1.0)
    cluster.ask("waits", kernel="other", hosts="a")
    assert asked_back(cluster) == {"old"}


def test_nobody_is_asked_whose_gpus_are_not_needed_beside_a_larger_holders() -> None:
    cluster = Cluster()
    cluster.host("a", 3)
    lingering(cluster, "one", 1, held_gb=0.1)
    lingering(cluster, "two", 2, held_gb=2.0)
    cluster.ask("waits", 2, kernel="other", hosts="a")
    assert asked_back(cluster) == {"two"}


def test_a_wait_for_a_holder_that_does_not_give_back_is_told_up_to_its_deadline() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    lingering(cluster, "k1")
    effects = cluster.ask("waits", kernel="other", hosts="a")
    (asked,) = of(ReclaimLease, effects)
    (told,) = of(LeaseQueued, effects)
    assert told.estimate_s is not None and told.estimate_s <= 2.0, "holders give back in a moment"
    again: list[LeaseQueued] = []
    while not again:
        due = cluster.core.deadline()
        assert due is not None and due < asked.until, "nobody said that it takes longer"
        again = of(LeaseQueued, cluster.feed(TimeReached(), after_s=due - cluster.now))
    assert again[-1].estimate_s == round(asked.until - cluster.now, 3)
    assert granted(cluster.feed(TimeReached(), after_s=asked.until - cluster.now)).kernel_id == "other"


def test_a_wait_is_told_by_the_slowest_of_the_holders_that_it_takes() -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    first = lingering(cluster, "k1")
    lingering(cluster, "k2")
    cluster.ask("waits", 2, kernel="other", hosts="a")
    cluster.feed(TimeReached(), after_s=10.0)
    (told,) = of(LeaseQueued, cluster.ask("behind", 1, kernel="third", hosts="a"))
    assert told.position == 2
    cluster.feed(LeaseReleased(first.lease, first.fence))
    (known,) = of(LeaseQueued, cluster.ask("waits", 2, kernel="other", hosts="a"))
    assert known.estimate_s is not None and 15.0 < known.estimate_s < 20.0


def test_gpus_that_state_cannot_leave_are_given_to_nobody_for_as_long_as_the_holder_says_so() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    held = lingering(cluster, "jax")
    cluster.ask("waits", kernel="other", hosts="a")
    for _ in range(10):
        effects = cluster.feed(LeaseRenewed(held.lease, held.fence, stays=True), after_s=25.0)
        assert of(LeaseGranted, effects) == [], "the GPU would be shared"
        assert of(ReclaimLease, effects) == [], "its holder has answered that"
    effects = cluster.feed(LeaseReleased(held.lease, held.fence, None))
    assert granted(effects).gpus == held.gpus


def test_gpus_that_state_is_still_leaving_are_given_to_nobody_and_the_holder_goes_before_nobody() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    held = lingering(cluster, "torch")
    cluster.ask("waits", kernel="other", hosts="a")
    cluster.ask("own", kernel="torch", hosts="a")
    for _ in range(10):
        effects = cluster.feed(LeaseRenewed(held.lease, held.fence, leaves=True), after_s=25.0)
        assert of(LeaseGranted, effects) == of(LeaseEnded, effects) == [], "the GPU would be shared"
    (given,) = of(LeaseGranted, cluster.feed(LeaseReleased(held.lease, held.fence, None)))
    assert given.lease.kernel_id == "other"


def test_a_holder_that_cannot_leave_and_is_not_heard_of_any_more_loses_its_lease() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    held = lingering(cluster, "jax")
    cluster.ask("waits", kernel="other", hosts="a")
    cluster.feed(LeaseRenewed(held.lease, held.fence, stays=True))
    effects = cluster.feed(TimeReached(), after_s=held.ttl_s)
    assert [ended.why for ended in of(LeaseEnded, effects)] == ["not given back"]


def test_a_holder_of_much_state_has_as_long_as_that_takes_to_leave() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    lingering(cluster, "large", held_gb=70.0)
    (asked,) = of(ReclaimLease, cluster.ask("waits", kernel="other", hosts="a"))
    assert asked.until - cluster.now == 70.0
    assert of(LeaseGranted, cluster.feed(TimeReached(), after_s=60.0)) == []
    assert granted(cluster.feed(TimeReached(), after_s=10.0)).kernel_id == "other"


def test_a_kernel_whose_state_cannot_leave_goes_on_there_before_those_who_wait_in_vain() -> None:
    """It would wait for them, and they for it."""
    cluster = Cluster()
    cluster.host("a", 1)
    held = lingering(cluster, "jax")
    cluster.ask("waits", kernel="other", hosts="a")
    cluster.feed(LeaseRenewed(held.lease, held.fence, stays=True))
    again = granted(cluster.ask("goes on", kernel="jax", hosts="a"))
    assert (again.kernel_id, again.gpus) == ("jax", held.gpus)
    cluster.feed(LeaseLingered(again.lease, again.fence))
    assert asked_back(cluster) == {"jax"}, "whether it can leave by now is asked after each cell"
    assert granted(cluster.release(again)).kernel_id == "other"


def test_a_cell_that_waited_already_is_served_as_soon_as_its_kernel_is_known_to_stay() -> None:
    cluster = Cluster()
    cluster.host("a", 2)
    held = lingering(cluster, "jax", 2)
    cluster.ask("waits", kernel="other", hosts="a")
    assert of(LeaseGranted, cluster.ask("goes on", kernel="jax", hosts="a")) == []
    effects = cluster.feed(LeaseRenewed(held.lease, held.fence, stays=True))
    assert granted(effects).kernel_id == "jax"
    cluster.core.check_invariants()


def test_another_holder_is_asked_when_the_first_does_not_give_back_in_the_usual_time() -> None:
    cluster = Cluster()
    cluster.host("a", 3)
    for kernel, held_gb in (("busy", 0.0), ("next", 1.0), ("last", 2.0)):
        lingering(cluster, kernel, held_gb=held_gb)
    cluster.ask("waits", kernel="other", hosts="a")
    assert asked_back(cluster) == {"busy"}
    cluster.feed(TimeReached(), after_s=2.5)
    assert asked_back(cluster) == {"busy", "next"}
    given = next(lease for lease in cluster.leases() if lease.kernel_id == "next")
    cluster.release(given, after_s=0.1)
    cluster.feed(TimeReached(), after_s=10.0)
    assert asked_back(cluster) == {"busy"}, "nobody waits any more"


def test_who_waits_has_others_asked_back_when_somebody_before_him_takes_what_was_idle() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    one, two, _ = (granted(cluster.ask(name)) for name in "abc")
    cluster.feed(QuotaSet(UserName("first"), UserQuota(priority=5)))
    cluster.linger(one)
    cluster.linger(two)
    assert [back.lease.lease for back in of(ReclaimLease, cluster.ask("w", 2))] == [one.lease]
    effects = cluster.ask("v", user="first")
    assert granted(effects).host == "a"
    assert [back.lease.lease for back in of(ReclaimLease, effects)] == [two.lease]
