"""Turns between users and among one user's requests, whatever leases were expected to take."""

from __future__ import annotations

from replkernel_scheduler.types import Lease

from tests.unit.scheduler.cluster import Cluster, granted


def running(cluster: Cluster, number: int, gpus: int) -> Lease:
    return granted(cluster.ask(f"runs {number}", gpus, kernel=f"r{number}", hosts="a"))


def test_no_request_is_passed_by_a_later_one_of_the_same_user_when_leases_were_short() -> None:
    cluster = Cluster()
    cluster.host("a", 8)
    leases = [running(cluster, number, 4) for number in (1, 2)]
    cluster.ask("large", 8, kernel="k1", hosts="a")
    cluster.ask("first", kernel="k2", hosts="a")
    cluster.release(leases[0])
    cluster.ask("second", kernel="k3", hosts="a")
    assert cluster.waiting() == ["large", "first", "second"]


def test_a_request_waits_for_those_before_it_and_not_for_a_stream_of_later_ones() -> None:
    cluster = Cluster()
    cluster.host("a", 8)
    leases = [running(cluster, number, 4) for number in (1, 2)]
    cluster.ask("large", 8, kernel="k1", hosts="a")
    cluster.ask("small", kernel="k2", hosts="a")
    cluster.release(leases[0])
    for number in range(10):
        cluster.ask(f"later {number}", 8, kernel=f"l{number}", hosts="a")
    large = granted(cluster.release(leases[1]))
    assert large.request == "large"
    assert granted(cluster.release(large)).request == "small"


def test_a_user_of_short_cells_is_not_ranked_by_the_long_ones_of_others() -> None:
    cluster = Cluster()
    cluster.host("a", 4)
    for number in range(3):
        lease = granted(cluster.ask(f"long {number}", kernel="l", user="long", hosts="a"))
        cluster.release(lease, after_s=3600.0)
    cluster.release(granted(cluster.ask("short 0", kernel="s0", user="short", hosts="a")), after_s=2.0)
    granted(cluster.ask("full", 4, kernel="f", user="long", hosts="a"))
    for number in (1, 2):
        cluster.ask(f"short {number}", 2, kernel=f"s{number}", user="short", hosts="a")
    for number in (1, 2):
        cluster.ask(f"new {number}", 1, kernel=f"n{number}", user="new", hosts="a")
    assert cluster.waiting() == ["short 1", "new 1", "short 2", "new 2"]
