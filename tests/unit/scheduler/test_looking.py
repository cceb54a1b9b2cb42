"""Who looks for a host, where hosts come by themselves: woken when room comes, never by a timer."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from replkernel_scheduler.effects import ReclaimLease, StartReplica
from replkernel_scheduler.events import HostAway, KernelPinned, TimeReached
from replkernel_scheduler.moving import Moving
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.records import Cell, Record, Session, order
from replkernel_scheduler.sim.simulation import Simulation
from replkernel_scheduler.sim.way import way_named
from replkernel_scheduler.types import HostName, KernelId, Lease

from tests.bench.scheduler_core import Day
from tests.unit.scheduler.cluster import Cluster, granted, of

LOAD = 2.0
MEAN_S = 600.0
CELLS_A_SESSION = 8
WIDTHS = (1, 1, 1, 1, 2, 2, 4)


def crowded() -> tuple[Cluster, Lease, Lease]:
    """Return a cluster whose hosts d and e are held by others, while a kernel on a looks for one."""
    cluster = Cluster()
    cluster.host("a", 0)
    cluster.host("d", 2)
    cluster.host("e", 2)
    cluster.kernel("k", 2, 1, hosts="a")
    held = [granted(cluster.ask(f"other-{name}", 2, 1e5, hosts=name, kernel=f"o-{name}")) for name in "de"]
    assert not of(StartReplica, cluster.ask("cell", 2, kernel="k"))
    return cluster, held[0], held[1]


def too_much(cells: int, gpus: int) -> list[Record]:
    """Return sessions that want LOAD times what `gpus` GPUs can do."""
    dice = random.Random(3)
    half_s = cells * MEAN_S * sum(WIDTHS) / len(WIDTHS) / (gpus * LOAD) / 2
    found: list[Record] = []
    for number in range(cells // CELLS_A_SESSION):
        began, width = dice.uniform(0, half_s), dice.choice(WIDTHS)
        each_s = half_s / CELLS_A_SESSION
        starts = [began + each_s * (turn + dice.random()) for turn in range(CELLS_A_SESSION)]
        found += [Cell(f"s{number}", at, 5 + dice.expovariate(1 / MEAN_S), width) for at in starts]
        found.append(Session(f"s{number}", began, starts[-1] + 2 * half_s, width, f"u{number % 20}"))
    return sorted(found, key=order)


def test_looking_needs_no_timer() -> None:
    cluster, *_ = crowded()
    timers = [key for key, _ in cluster.core._parts.timers.all() if key[0] == "migration"]
    assert timers == []


def test_gpus_that_come_to_linger_are_asked_back_for_it_at_once() -> None:
    cluster, held, _ = crowded()
    assert [effect.lease.lease for effect in of(ReclaimLease, cluster.linger(held))] == [held.lease]
    (start,) = of(StartReplica, cluster.release(held))
    assert start.host == "d"


def test_no_others_are_asked_back_while_those_are_on_their_way() -> None:
    cluster, d, e = crowded()
    cluster.linger(d)
    assert not of(ReclaimLease, cluster.linger(e))


def test_others_are_asked_back_where_a_holder_takes_its_time() -> None:
    cluster, d, e = crowded()
    cluster.linger(d)
    cluster.linger(e)
    effects = cluster.feed(TimeReached(), after_s=5.0)
    assert [effect.lease.lease for effect in of(ReclaimLease, effects)] == [e.lease]


def test_others_are_asked_back_when_the_host_a_cell_hoped_for_is_out_of_sight() -> None:
    cluster, d, e = crowded()
    cluster.linger(d)
    cluster.linger(e)
    effects = cluster.feed(HostAway(HostName("d")))
    assert [effect.lease.lease for effect in of(ReclaimLease, effects)] == [e.lease]


def test_a_cell_goes_as_soon_as_its_replica_may_leave() -> None:
    cluster, held, _ = crowded()
    cluster.feed(KernelPinned(KernelId("k"), HostName("a")))
    assert not of(StartReplica, cluster.release(held))
    (start,) = of(StartReplica, cluster.feed(KernelPinned(KernelId("k"), None)))
    assert start.host == "d"


def test_nobody_who_looks_is_overlooked_on_a_full_day() -> None:
    day, looking = Day(8, 60, "full"), 0
    for event in day.events(600):
        day.feed(event)
        looking += bool(day.core._parts.migrations.looking)
        day.core.check_invariants()
    assert looking > 100, "some look for a host"


def test_under_twice_the_load_there_are_hardly_more_tries_than_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: Counter[str] = Counter()

    def count(name: str) -> None:
        before = getattr(Moving, name)

        def counted(*args: object) -> object:
            tries[name] += 1
            return before(*args)

        monkeypatch.setattr(Moving, name, counted)

    count("_try")
    count("_begin")
    cells = 1000
    figures = Simulation(
        too_much(cells, 128), 0.0, way_named("notebook"), Plan(hosts=16, gpus_per_host=8, seed=1)
    ).run()
    assert figures.outcomes["done"] == cells
    assert tries["_begin"] > 50, f"cells move: {tries}"
    assert tries["_try"] <= cells, tries
