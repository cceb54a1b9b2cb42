"""Hosts on other machines: processes are reached by sealed addresses there, their numbers mean nothing."""

from __future__ import annotations

from replkernel.protocol.agent_to_router import AgentWelcome, ReplicaReady
from replkernel.protocol.kernel_spec import Endpoints
from replkernel.protocol.router_to_agent import RouterHello
from replkernel.records import HostName, ReplicaId, Seq
from replkernel.router.core import events
from tests.support.router_world import World

NEAR, FAR = HostName("near"), HostName("far")
CHANNELS = ("shell", "control", "stdin", "iopub", "executions")
SEALED = Endpoints(*(f"curve://10.0.0.5:{number}/00" for number in range(5)))
HERE = Endpoints(*(f"ipc://{name}" for name in CHANNELS), far=SEALED)


def two_hosts() -> World:
    world = World(hosts=(NEAR, FAR))
    world.feed(events.AgentFound(NEAR, "token"))
    world.feed(events.AgentFound(FAR, "token", far=True))
    return world


def hello(effects: list[events.Effect]) -> RouterHello:
    (effect,) = (effect for effect in effects if isinstance(effect, events.ToAgent))
    assert isinstance(effect.message, RouterHello)
    return effect.message


def test_an_agent_of_another_machine_is_not_told_a_process_to_watch() -> None:
    world = World(hosts=(NEAR, FAR))
    assert hello(world.feed(events.AgentFound(NEAR, "token"))).pid > 0
    assert hello(world.feed(events.AgentFound(FAR, "token", far=True))).pid == 0


def test_a_replica_is_connected_to_as_its_host_is_reached() -> None:
    world = two_hosts()
    connected = []
    for host, name in ((NEAR, "r1"), (FAR, "r2")):
        world.say(AgentWelcome(host, 2), host)
        ready = ReplicaReady(ReplicaId(name), host, 4711, HERE, Seq(0), b"{}")
        connected += world.of(events.ConnectReplica, world.say(ready, host))
    assert [(effect.replica, effect.endpoints, effect.pid) for effect in connected] == [
        ("r1", HERE, 4711),
        ("r2", SEALED, 0),
    ]


def test_the_same_process_on_another_machine_is_not_connected_to_twice() -> None:
    world = two_hosts()
    world.say(AgentWelcome(FAR, 2), FAR)
    ready = ReplicaReady(ReplicaId("r2"), FAR, 4711, HERE, Seq(0), b"{}")
    world.say(ready, FAR)
    world.output("r2", "iopub_welcome", "", {})
    assert world.of(events.ConnectReplica, world.say(ready, FAR)) == []


def test_a_cell_whose_machine_is_away_says_so() -> None:
    world = two_hosts()
    world.say(AgentWelcome(FAR, 2), FAR)
    world.say(ReplicaReady(ReplicaId("r2"), FAR, 4711, HERE, Seq(0), b"{}"), FAR)
    world.output("r2", "iopub_welcome", "", {})
    world.execute("pass")
    world.feed(events.AgentGone(FAR))
    told = str(world.wait(10.5))
    assert "host far) has not begun this cell for 10 s: its host cannot be reached" in told
    assert "process" not in told.partition("has not begun")[0].rpartition("replica")[2]
