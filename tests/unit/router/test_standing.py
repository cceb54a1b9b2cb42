"""What a router leaves in the kernel's record: nothing of a kernel that ended, all of one that goes on."""

from __future__ import annotations

import pytest

from replkernel.protocol.agent_to_router import KernelEnded
from replkernel.protocol.router_to_agent import EndKernel
from replkernel.records import KernelId
from replkernel.router.core import events
from tests.support.router_world import World

ENDED = [events.Register("ended")]


@pytest.mark.parametrize("restart", [True, False])
def test_the_record_of_a_kernel_that_is_shut_down_or_restarted_goes_before_the_router(
    *, restart: bool
) -> None:
    world = World().up()
    world.request("shutdown_request", {"restart": restart}, channel="control")
    assert world.of(events.Register) == []
    world.say(KernelEnded(KernelId("k")))
    assert world.last[-2:] == [*ENDED, events.Exit(0)]


def test_a_kernel_that_must_not_outlive_its_parent_ends_with_it() -> None:
    world = World().up()
    world.feed(events.EndSignal("its parent process is gone"))
    assert [type(effect.message) for effect in world.of(events.ToAgent)] == [EndKernel]
    world.say(KernelEnded(KernelId("k")))
    assert world.of(events.Register) == ENDED


def test_a_signal_ends_only_the_router_and_leaves_the_kernel_to_its_agents() -> None:
    world = World().up()
    world.feed(events.EndSignal("SIGTERM", returns=True))
    assert world.of(events.Exit) == [events.Exit(0)]
    assert world.of(events.Register) == []
    assert world.of(events.ToAgent) == []


def test_without_launcher_and_clients_a_kernel_ends_or_is_put_to_rest() -> None:
    world = World().up()
    world.feed(events.LauncherGone("its launcher is gone"))
    assert [type(effect.message) for effect in world.of(events.ToAgent)] == [EndKernel]

    world = World().up()
    world.feed(events.LauncherGone("its launcher is gone", returns=True))
    told = [effect.message for effect in world.of(events.ToAgent)]
    assert not any(isinstance(message, EndKernel) for message in told)
    assert world.of(events.Exit) == []
