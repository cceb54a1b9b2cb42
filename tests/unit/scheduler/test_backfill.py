"""Backfilling on the core of leases: who passes the first that waits, and that it is not made later."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import Effect, LeaseGranted, LeaseRefused, ReclaimLease
from replkernel_scheduler.events import Event
from replkernel_scheduler.policies.backfill_easy import EasyBackfill
from replkernel_scheduler.policies.built_in import easy_batch, fcfs_batch
from replkernel_scheduler.policies.protocol import Ahead
from replkernel_scheduler.sim.job_simulation import JobSimulation
from replkernel_scheduler.sim.job_way import job_way_named
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.records import Job
from replkernel_scheduler.sim.simulation import Simulation
from replkernel_scheduler.sim.task import Outcome, Task
from replkernel_scheduler.sim.way import way_named

from tests.support.examples import examples
from tests.unit.scheduler.cluster import Cluster, granted, of

GPUS = 8


def busy(expected_s: float = 100.0) -> Cluster:
    """One host of 4 GPUs: three are held until 103 (if that is known), and somebody waits for all four."""
    cluster = Cluster(easy_batch())
    cluster.host("a", 4)
    granted(cluster.ask("long", 3, ttl_s=1000, expected_s=expected_s))
    assert not of(LeaseGranted, cluster.ask("wide", 4, ttl_s=1000, expected_s=50))
    return cluster


def passes(effects: list[Effect]) -> bool:
    return bool(of(LeaseGranted, effects))


def test_who_is_over_in_time_passes_the_first_and_who_is_not_waits() -> None:
    cluster = busy()
    assert passes(cluster.ask("short", 1, expected_s=90))
    cluster = busy()
    assert not passes(cluster.ask("longer", 1, expected_s=110))
    assert cluster.waiting() == ["wide", "longer"]


def test_first_come_first_served_lets_nobody_pass() -> None:
    cluster = Cluster(fcfs_batch())
    cluster.host("a", 4)
    long = granted(cluster.ask("long", 3, expected_s=100))
    cluster.ask("wide", 4, expected_s=50)
    assert not passes(cluster.ask("short", 1, expected_s=1))
    assert granted(cluster.release(long)).request == "wide"


def test_who_takes_what_is_left_beside_the_first_passes_however_long() -> None:
    cluster = Cluster(easy_batch())
    cluster.host("a", 4)
    granted(cluster.ask("long", 3, ttl_s=1000, expected_s=100))
    cluster.ask("next", 3, ttl_s=1000, expected_s=50)
    assert passes(cluster.ask("small", 1, ttl_s=9000, expected_s=9000)), "4 - 3 is left beside it"


def test_gpus_that_are_asked_back_for_the_first_are_thought_to_come_now() -> None:
    cluster = Cluster(easy_batch())
    cluster.host("a", 5)
    granted(cluster.ask("long", 2, ttl_s=1000, expected_s=100))
    rests = granted(cluster.ask("rests", 2, ttl_s=1000))
    cluster.linger(rests)
    assert of(ReclaimLease, cluster.ask("wide", 3, ttl_s=1000, expected_s=50))
    assert not passes(cluster.ask("short", 1, expected_s=60))
    assert granted(cluster.release(rests)).request == "wide"


def test_where_nobody_says_how_long_nobody_passes() -> None:
    cluster = busy(expected_s=0.0)
    assert not passes(cluster.ask("short", 1, expected_s=1)), "nobody knows when the first is served"
    cluster = busy()
    assert not passes(cluster.ask("silent", 1)), "nobody knows how long it takes"


def test_a_lease_held_longer_than_expected_is_thought_to_end_now() -> None:
    cluster = busy()
    cluster.now += 500
    assert not passes(cluster.ask("short", 1, expected_s=1))


def test_those_behind_are_looked_at_when_gpus_come_free() -> None:
    cluster = Cluster(easy_batch())
    cluster.host("a", 4)
    granted(cluster.ask("long", 3, ttl_s=1000, expected_s=100))
    other = granted(cluster.ask("other", 1, ttl_s=1000, expected_s=100))
    cluster.ask("wide", 4, expected_s=50)
    assert not passes(cluster.ask("too long", 1, expected_s=200))
    assert not passes(cluster.ask("short", 1, expected_s=20))
    assert granted(cluster.release(other)).request == "short"
    assert cluster.waiting() == ["wide", "too long"]


class Counted(EasyBackfill):
    """EASY that counts how often it is asked."""

    asked = 0

    def may_pass(self, ends_at: float, gpus: int, ahead: Ahead) -> bool:
        self.asked += 1
        return super().may_pass(ends_at, gpus, ahead)


@pytest.mark.parametrize("short", [(), (7,), tuple(range(0, 400, 3))])
def test_of_many_who_wait_few_are_looked_at(short: tuple[int, ...]) -> None:
    """Of 8 GPUs 3 and 4 come free at the same time, and the first wants 4: no GPU is spare before that."""
    counted = Counted()
    cluster = Cluster(msgspec.structs.replace(easy_batch(), backfill=counted))
    cluster.host("a", 8)
    granted(cluster.ask("three", 3, ttl_s=10_000, expected_s=9001))
    granted(cluster.ask("four", 4, ttl_s=10_000, expected_s=9000))
    other = granted(cluster.ask("other", 1, ttl_s=10_000, expected_s=9000))
    cluster.ask("first", 4, expected_s=50)
    for number in range(400):
        cluster.ask(f"{number}", 1, expected_s=20 if number in short else 90_000)
    counted.asked = 0
    freed = of(LeaseGranted, cluster.release(other))
    assert [grant.lease.request for grant in freed] == [str(number) for number in short[:1]], "the first one"
    assert counted.asked < 60, "400 wait"


def test_a_request_that_names_its_host_passes_there_too() -> None:
    cluster = busy()
    assert passes(cluster.ask("short", 1, hosts="a", expected_s=50))


def test_where_the_first_needs_memory_only_who_is_over_in_time_passes() -> None:
    cluster = Cluster(easy_batch())
    cluster.host("a", 4, memory_gb=10.0)
    granted(cluster.ask("long", 3, ttl_s=1000, expected_s=100))
    cluster.ask("next", 3, ttl_s=1000, expected_s=50, memory_gb=8.0)
    assert not passes(cluster.ask("small", 1, ttl_s=9000, expected_s=9000, memory_gb=4.0))
    assert passes(cluster.ask("short", 1, expected_s=50, memory_gb=4.0))


@pytest.mark.parametrize("expected_s", [-1.0, float("nan"), float("inf"), 1e10])
def test_an_expectation_that_cannot_be_is_refused(expected_s: float) -> None:
    cluster = Cluster(easy_batch())
    cluster.host("a", 4)
    refusal = of(LeaseRefused, cluster.ask("odd", 1, expected_s=expected_s))[0]
    assert "expected to be held for 0 to" in refusal.why


def test_a_core_that_goes_on_from_an_image_lets_the_same_pass() -> None:
    cluster = busy()
    again = Cluster(easy_batch())
    again.core.restore(cluster.core.image())
    again.now = cluster.now
    again.core.check_invariants()
    assert again.ask("longer", 1, expected_s=110) == cluster.ask("longer", 1, expected_s=110)
    assert again.ask("short", 1, expected_s=80) == cluster.ask("short", 1, expected_s=80)
    assert again.waiting() == cluster.waiting() == ["wide", "longer"]


jobs = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 60), st.integers(0, 40), st.integers(1, GPUS)), max_size=40
)


def recorded(drawn: list[tuple[int, int, int, int]]) -> list[Job]:
    """Jobs that take what they asked for, or less."""
    at, made = 0, []
    for number, (after, runs, less, width) in enumerate(drawn):
        at += after
        made.append(Job(f"{number}", float(at), float(runs), width, requested_s=float(runs + less)))
    return made


@settings(max_examples=examples(150), deadline=None)
@given(drawn=jobs)
def test_the_live_core_backfills_as_the_core_of_jobs_does(drawn: list[tuple[int, int, int, int]]) -> None:
    live: dict[str, float] = {}
    batch: dict[str, float] = {}

    def into(kept: dict[str, float]) -> Callable[[Task, Outcome], None]:
        def keep(task: Task, outcome: Outcome) -> None:
            assert outcome == "done"
            kept[task.name] = task.bound

        return keep

    plan, records = Plan(hosts=1, gpus_per_host=GPUS), recorded(drawn)
    origin = records[0].at if records else 0.0
    Simulation(records, origin, way_named("easy-batch"), plan, rows=into(live)).run()
    JobSimulation(records, origin, job_way_named("sq,m=1"), plan, rows=into(batch)).run()
    assert live == batch


@settings(max_examples=examples(60), deadline=None)
@given(drawn=jobs, seed=st.integers(0, 5))
def test_no_law_is_broken_and_everybody_is_served(drawn: list[tuple[int, int, int, int]], seed: int) -> None:
    way, plan = way_named("easy-batch"), Plan(hosts=2, gpus_per_host=GPUS, seed=seed)
    core = Watched(random.Random(seed), way.policies)
    records = recorded(drawn)
    done: list[Outcome] = []
    Simulation(
        records, records[0].at if records else 0.0, way, plan, core=core, rows=lambda _, out: done.append(out)
    ).run()
    assert done == ["done"] * len(records)


class Watched(SchedulerCore):
    """Its laws are checked after every event."""

    def handle(self, event: Event, now: float) -> list[Effect]:
        effects = super().handle(event, now)
        self.check_invariants()
        return effects
