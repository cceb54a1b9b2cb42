"""A core that goes on from an image decides, tells and knows what the first one would have: byte for byte."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import Effect, LeaseGranted
from replkernel_scheduler.errors import ImageUnfit, UnexpectedEvent
from replkernel_scheduler.events import HostNotProvisioned, HostUp, KernelReported, LeaseAsked, LeaseLingered
from replkernel_scheduler.image import CoreImage
from replkernel_scheduler.policies import built_in
from replkernel_scheduler.settings import CoreSettings, Policies
from replkernel_scheduler.types import (
    Gpu,
    GpuUuid,
    HostName,
    HostShape,
    KernelId,
    KernelSpec,
    LeaseRequest,
    RequestId,
    ReservationId,
)

from tests.support.examples import WHOLE, examples
from tests.unit.scheduler.stories import Step, World
from tests.unit.scheduler.test_stories import POLICIES, steps

encode = msgspec.msgpack.encode


class Restarted(World):
    """A world whose core is replaced by one from its image after every `every` events."""

    def __init__(self, policies: Policies, every: int, *, provisions: bool, shares: bool = False) -> None:
        self.dice = random.Random(7)
        super().__init__(policies, 7, provisions=provisions, shares=shares)
        shape = HostShape(4, "A100", 40.0, 16.0, 64.0) if provisions else None
        self.policies = policies
        self.settings = CoreSettings(host_shape=shape, hosts_min=1, hosts_buffer=1, hosts_max=8)
        self.core = SchedulerCore(self.dice, policies, self.settings)
        self.every = every

    def play(self, step: Step) -> None:
        super().play(step)
        if len(self.journal) % self.every == 0:
            self.restart()

    def restart(self) -> None:
        dice = random.Random(0)
        dice.setstate(self.dice.getstate())
        image = encode(self.core.image())
        core = SchedulerCore(dice, self.policies, self.settings)
        core.restore(msgspec.msgpack.decode(image, type=CoreImage))
        core.check_invariants()
        assert encode(core.image()) == image
        assert encode(core.view()) == encode(self.core.view())
        self.core, self.dice = core, dice


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(story=steps, every=st.integers(1, 9), provisions=st.booleans())
def test_decisions_are_the_same_however_often_a_core_began_anew_from_an_image(
    name: str, story: list[Step], every: int, provisions: bool
) -> None:
    first = World(POLICIES[name], 7, provisions=provisions)
    again = Restarted(POLICIES[name], every, provisions=provisions)
    for step in story:
        first.play(step)
        again.play(step)
    assert encode(again.told) == encode(first.told)
    assert encode(again.core.view()) == encode(first.core.view())
    assert encode(again.core.image()) == encode(first.core.image())
    assert again.core.deadline() == first.core.deadline()


@pytest.mark.parametrize("name", POLICIES)
def test_a_restart_from_the_image_changes_no_long_story(name: str) -> None:
    for seed in range(4 if WHOLE else 1):
        dice = random.Random(seed)
        first = World(POLICIES[name], 7)
        again = Restarted(POLICIES[name], 3, provisions=True)
        for _ in range(150):
            step = (dice.randrange(42), dice.randrange(42), dice.randrange(42), dice.randrange(42))
            first.play(step)
            again.play(step)
        assert encode(again.told) == encode(first.told)
        assert encode(again.core.image()) == encode(first.core.image())


def core() -> SchedulerCore:
    return SchedulerCore(random.Random(1), built_in.notebook())


def test_the_story_of_a_fault_is_told_after_an_image_too() -> None:
    first = core()
    first.handle(HostUp(HostName("a"), (Gpu(GpuUuid("g")),)), 1.0)
    other = core()
    other.restore(msgspec.msgpack.decode(encode(first.image()), type=CoreImage))
    said = []
    for one in (first, other):
        with pytest.raises(UnexpectedEvent) as caught:
            one.handle(HostUp(HostName("a"), (), 0.0, 0.0, ReservationId("host-9")), 2.0)
        said.append(str(caught.value))
        with pytest.raises(UnexpectedEvent):
            one.handle(HostNotProvisioned(ReservationId("host-9")), 3.0)
    assert said[0] == said[1] and len(said[0].splitlines()) > 1


def test_an_image_whose_parts_do_not_fit_is_refused() -> None:
    first = core()
    first.handle(HostUp(HostName("a"), (Gpu(GpuUuid("g")),)), 1.0)
    first.handle(LeaseAsked(LeaseRequest(RequestId("r"), KernelId("k"), 1, 9.0)), 2.0)
    image = first.image()
    replace = msgspec.structs.replace
    for wrong in (
        replace(image, hosts=()),
        replace(image, shapes=()),
        replace(image, leases=(*image.leases, *image.leases)),
        replace(image, resting=((KernelId("k"), (image.leases[0].lease.lease[:-1],)),)),
        replace(image, short=(KernelId("other"),)),
    ):
        with pytest.raises(ImageUnfit):
            core().restore(wrong)


def test_the_host_whose_lingering_gpus_are_asked_back_is_the_same_after_an_image() -> None:
    def started() -> SchedulerCore:
        return SchedulerCore(random.Random(1), built_in.notebook(), CoreSettings())

    def ask(core: SchedulerCore, name: str, kernel: str, gpus: int) -> list[Effect]:
        wish = LeaseRequest(RequestId(name), KernelId(kernel), gpus, 600.0)
        return core.handle(LeaseAsked(wish), 2.0)

    def linger(core: SchedulerCore, name: str, kernel: str, gpus: int) -> None:
        (granted,) = (e for e in ask(core, name, kernel, gpus) if isinstance(e, LeaseGranted))
        core.handle(LeaseLingered(granted.lease.lease, granted.lease.fence), 2.0)

    core = started()
    for host in ("a", "b", "c"):
        gpus = tuple(Gpu(GpuUuid(f"{host}{number}"), "A100", 40.0) for number in range(2))
        core.handle(HostUp(HostName(host), gpus), 0.0)
    for host, kernel in (("a", "mine"), ("b", "one"), ("c", "two")):
        spec = KernelSpec(KernelId(kernel), gpus=2, replicas=1)
        core.handle(KernelReported(spec, (HostName(host),), moves=True), 1.0)
    linger(core, "two's", "two", 2)  # Host c is seen with this load before host b is with another one.
    linger(core, "one's", "one", 1)
    ask(core, "first", "mine", 1)
    again = started()
    again.restore(core.image())
    assert encode(ask(again, "second", "mine", 2)) == encode(ask(core, "second", "mine", 2))
