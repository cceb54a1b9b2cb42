"""The laws hold in every story in which cells are paused, also for a core that goes on from an image."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import PauseLease
from replkernel_scheduler.image import CoreImage
from replkernel_scheduler.policies.built_in import notebook

from tests.support.examples import examples
from tests.unit.scheduler.stories import KINDS, Step, World

OFTEN = [KINDS.index(kind) for kind in "ask ask ask ask ask answer answer answer renew linger time".split()]
UP, REPORT = KINDS.index("up"), KINDS.index("report")
BEGIN: list[Step] = [(UP, 0, 2, 0), (UP, 1, 4, 0), *[(REPORT, kernel, 11, 0) for kernel in range(7)]]
"""Two hosts of a few GPUs, and kernels on both."""
number = st.integers(0, 40)
kinds = st.one_of(st.sampled_from(OFTEN), st.integers(0, len(KINDS) - 1))
steps = st.lists(st.tuples(kinds, number, number, number), max_size=80)
encode = msgspec.msgpack.encode


def played(story: list[Step]) -> World:
    world = World(notebook(), 7, provisions=False, pauses=True)
    for step in (*BEGIN, *story):
        world.play(step)
    return world


def stories(count: int) -> list[list[Step]]:
    dice = random.Random(11)

    def step() -> Step:
        kind = dice.choice(OFTEN) if dice.random() < 0.9 else dice.randrange(len(KINDS))
        return kind, dice.randrange(40), dice.randrange(40), dice.randrange(40)

    return [[step() for _ in range(200)] for _ in range(count)]


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(story=steps)
def test_the_laws_hold_and_the_same_story_is_the_same(story: list[Step]) -> None:
    world, again = played(story), played(story)
    assert encode(again.told) == encode(world.told)


@pytest.mark.parametrize("story", stories(25))
def test_a_core_that_goes_on_from_an_image_decides_the_same(story: list[Step]) -> None:
    world = played(story)
    core = SchedulerCore(random.Random(7), notebook(), World(notebook(), provisions=False).settings)
    for number, (at, event) in enumerate(world.journal):
        assert encode(core.handle(event, at)) == encode(world.told[number])
        if number % 20 == 7:
            image = msgspec.msgpack.decode(encode(core.image()), type=CoreImage)
            dice = core._parts.dice
            core = SchedulerCore(dice, notebook(), World(notebook(), provisions=False).settings)
            core.restore(image)
    assert encode(core.image()) == encode(world.core.image())


def test_stories_pause_cells_and_have_them_go_on() -> None:
    """A generator that paused nobody would prove nothing."""
    paused = told = 0
    for story in stories(25):
        world = played(story)
        paused += sum(isinstance(effect, PauseLease) for effects in world.told for effect in effects)
        told += world.core.image().pauses is not None
    assert paused > 50
    assert told > 20
