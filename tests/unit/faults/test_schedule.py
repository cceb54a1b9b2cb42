"""A seed makes the same plan each time, and the network does what it is told."""

from __future__ import annotations

import random

import msgspec
import pytest

from tests.e2e.faults.schedule import ALWAYS, DISK, HOSTS, LONGEST_S, NETWORK, make_plan
from tests.e2e.faults.wire import Links

EVERYTHING = ALWAYS + NETWORK + DISK


@pytest.mark.parametrize("seed", range(30))
def test_a_seed_makes_the_same_plan_each_time_with_all_of_its_cells(seed: int) -> None:
    plan = make_plan(seed, 31, EVERYTHING)
    assert plan == make_plan(seed, 31, EVERYTHING)
    names = [step.name for steps in plan.clients.values() for step in steps]
    assert len(set(names)) == len(names) == 31
    assert all(0 <= fault.for_s <= LONGEST_S and fault.host in HOSTS for fault in plan.faults)
    assert all(fault.other != fault.host for fault in plan.faults)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=type(plan)) == plan


def test_all_faults_occur_and_only_those_that_are_possible() -> None:
    seen = {fault.kind for seed in range(200) for fault in make_plan(seed, 30, EVERYTHING).faults}
    assert seen == set(EVERYTHING)
    few = {fault.kind for seed in range(200) for fault in make_plan(seed, 30, ALWAYS).faults}
    assert few == set(ALWAYS)


def test_a_cut_direction_loses_everything_and_the_other_one_nothing() -> None:
    links = Links(random.Random(1))
    links.link("h1", "h2").cuts = 1
    assert links.verdict("h1", "h2") is None
    assert links.verdict("h2", "h1") == 0.0
    links.heal()
    assert links.verdict("h1", "h2") == 0.0


def test_delay_has_jitter_and_loss_is_as_often_as_told() -> None:
    links = Links(random.Random(1))
    links.link("h1", "h2").delay_s = 0.1
    links.link("h2", "h1").loss = 0.3
    delays = [links.verdict("h1", "h2") or 0.0 for _ in range(1000)]
    assert 0.05 <= min(delays) < 0.07
    assert 0.13 < max(delays) <= 0.15
    lost = sum(links.verdict("h2", "h1") is None for _ in range(1000))
    assert 250 < lost < 350
