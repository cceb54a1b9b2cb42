"""The laws hold in random stories in which GPUs are booked; an image taken anywhere goes on alike."""

from __future__ import annotations

import random

import msgspec
import pytest
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.events import BookingCancelled, BookingJoined, BookingMade
from replkernel_scheduler.image import CoreImage
from replkernel_scheduler.policies import built_in
from replkernel_scheduler.types import Booking, BookingId, UserName

from tests.unit.scheduler.stories import KINDS, World

STEPS = 300
POLICIES = {"notebook": built_in.notebook(), "fcfs-batch": built_in.fcfs_batch()}


def booked(world: World, dice: random.Random) -> None:
    name, user = BookingId(f"b{dice.randrange(3)}"), UserName(dice.choice(["", "ada", "bob"]))
    at = world.now + dice.choice([0.0, 5.0, 100.0])
    match dice.randrange(4):
        case 0:
            world.feed(BookingCancelled(name))
        case 1:
            world.feed(BookingJoined(name, user))
        case _:
            lasts_s = dice.choice([1.0, 50.0])
            world.feed(BookingMade(Booking(name, dice.randrange(1, 9), at, at + lasts_s, at, (user,), "g")))


@pytest.mark.parametrize("policies", POLICIES)
@pytest.mark.parametrize("seed", range(12))
def test_the_laws_hold_while_gpus_are_booked(seed: int, policies: str) -> None:
    dice, world, seen = random.Random(seed), World(POLICIES[policies], 7, provisions=False), 0
    for _ in range(STEPS):
        if dice.random() < 0.2:
            booked(world, dice)
        else:
            world.play(tuple(dice.randrange(len(KINDS)) for _ in range(4)))  # type: ignore[arg-type]
        seen += sum(one.ready for one in world.core.bookings())
    assert seen, "nothing was ever ready"
    image = msgspec.msgpack.decode(msgspec.msgpack.encode(world.core.image()), type=CoreImage)
    other = SchedulerCore(random.Random(0), POLICIES[policies])
    other.restore(image)
    other.check_invariants()
    assert other.bookings() == world.core.bookings() and other.view() == world.core.view()
    assert other.image() == world.core.image()
