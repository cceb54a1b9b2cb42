"""The laws hold in every story, with every policy; the same story has the same effects, byte for byte."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replkernel_scheduler.effects import LeaseGranted, LeaseQueued
from replkernel_scheduler.events import Event
from replkernel_scheduler.policies import built_in
from replkernel_scheduler.policies.backfill_easy import EasyBackfill
from replkernel_scheduler.policies.executor_most_idle import MostIdle
from replkernel_scheduler.policies.limit_static import Static as StaticLimit
from replkernel_scheduler.policies.migration_deferred import DeferredMove
from replkernel_scheduler.policies.migration_never import Never
from replkernel_scheduler.policies.migration_random import RandomVictimOrError
from replkernel_scheduler.policies.order_fifo import Fifo
from replkernel_scheduler.policies.placement_bin_pack import BinPack
from replkernel_scheduler.policies.placement_spread import Spread
from replkernel_scheduler.policies.placement_static import Static
from replkernel_scheduler.policies.prewarm_little import Little
from replkernel_scheduler.policies.prewarm_minimum import Minimum
from replkernel_scheduler.policies.scaling_buffered import Buffered
from replkernel_scheduler.settings import Policies

from tests.support.examples import examples
from tests.unit.scheduler.stories import KINDS, Step, World

change = msgspec.structs.replace
PAPER = built_in.notebook()
POLICIES: dict[str, Policies] = {
    "notebook": PAPER,
    "bin-pack, buffered": change(PAPER, placement=BinPack(), scaling=Buffered(), prewarm=Little()),
    "spread, static limit, fifo": change(PAPER, placement=Spread(), limit=StaticLimit(2.0), order=Fifo()),
    "static, most idle, error": change(
        PAPER, placement=Static(), executor=MostIdle(), migration=RandomVictimOrError()
    ),
    "never, pre-warmed": change(PAPER, migration=Never(), prewarm=Minimum(2)),
    "reservation": built_in.reservation(),
    "fcfs-batch": built_in.fcfs_batch(),
    "large-pool": built_in.large_pool(),
    "easy-batch": built_in.easy_batch(),
    "deferred moves": change(PAPER, migration=DeferredMove(30.0)),
    "notebook, backfilling": change(PAPER, backfill=EasyBackfill()),
}
number = st.integers(0, len(KINDS) - 1)
steps = st.lists(st.tuples(st.integers(0, len(KINDS) - 1), number, number, number), max_size=60)
encode = msgspec.msgpack.encode


def played(policies: Policies, story: list[Step], *, provisions: bool) -> World:
    world = World(policies, 7, provisions=provisions)
    for step in story:
        world.play(step)
    return world


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(story=steps, provisions=st.booleans())
def test_the_laws_hold_after_every_event(name: str, story: list[Step], provisions: bool) -> None:
    world = played(POLICIES[name], story, provisions=provisions)
    fences = [e.lease.fence for told in world.told for e in told if isinstance(e, LeaseGranted)]
    new = list(dict.fromkeys(fences))
    assert new == sorted(new)
    assert all(sum(isinstance(effect, LeaseQueued) for effect in told) < 100 for told in world.told), (
        "an event tells a bounded number of requests"
    )


@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(sorted(POLICIES)), story=steps)
def test_the_same_events_and_seed_have_the_same_effects_and_a_journal_gives_the_same_state(
    name: str, story: list[Step]
) -> None:
    world = played(POLICIES[name], story, provisions=True)
    again = played(POLICIES[name], story, provisions=True)
    assert encode(again.told) == encode(world.told)
    journal = msgspec.msgpack.decode(encode(world.journal), type=list[tuple[float, Event]])
    replayed = World(POLICIES[name], 7).core
    told = [replayed.handle(event, at) for at, event in journal]
    assert encode(told) == encode(world.told)
    assert encode(replayed.view()) == encode(world.core.view())


def test_stories_reach_what_they_are_for() -> None:
    """A generator that stopped producing leases, migrations or provisioned hosts would prove nothing."""
    dice = random.Random(3)
    seen: set[str] = set()
    for _ in range(60):
        story = [tuple(dice.randrange(len(KINDS)) for _ in range(4)) for _ in range(120)]
        for told in played(PAPER, story, provisions=True).told:  # type: ignore[arg-type]
            seen |= {type(effect).__name__ for effect in told}
    assert {
        "LeaseGranted",
        "LeaseQueued",
        "LeaseEnded",
        "LeaseRefused",
        "ReclaimLease",
        "StartReplica",
        "StopReplica",
        "MigrationFailed",
        "ReplicaMoved",
        "MoveRefused",
        "ProvisionHost",
        "KernelPlaced",
        "KernelPending",
        "UsageRecorded",
    } <= seen


BY_NOBODY = {"KernelPlaced", "KernelPending", "StartReplica", "StopReplica", "ProvisionHost", "Prewarm"}
PLACED = ("kernel", "answer", "lost", "pin", "mover")
LIVE = [number for number, kind in enumerate(KINDS) if kind not in PLACED]


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(story=st.lists(st.tuples(st.sampled_from(LIVE), number, number, number), max_size=80))
def test_of_kernels_that_place_themselves_nothing_is_wanted_that_a_live_service_cannot_do(
    story: list[Step],
) -> None:
    told = played(PAPER, story, provisions=False).told
    assert not BY_NOBODY & {type(effect).__name__ for effects in told for effect in effects}
