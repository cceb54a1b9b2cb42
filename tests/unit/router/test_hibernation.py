"""A kernel at rest, as its router decides it: saved, stopped, woken; and brought back when all is gone."""

from __future__ import annotations

import pytest

from replkernel.protocol.agent_to_router import (
    AgentWelcome,
    CheckpointFound,
    CheckpointWritten,
    KernelHibernated,
    KernelTakenOver,
    ReplicaPrepared,
    ReplicaUnfaithful,
)
from replkernel.protocol.message import Message
from replkernel.protocol.router_to_agent import (
    EndKernel,
    FindCheckpoint,
    HibernateKernel,
    PrepareReplica,
    StartReplica,
)
from replkernel.records import Fence, HostName, KernelId, Pin, ReplicaId, Seq
from replkernel.router.core import events
from replkernel.router.core.fleet import PEERS_WAIT_S
from replkernel.router.core.hibernation import LEADER_LIMIT_S, LEADER_LOOK_S, SAVE_LIMIT_S, STOP_LIMIT_S
from tests.support.router_world import HOST, World

K = KernelId("k")
NAME = "k/checkpoint-one-000001-0000000000000009"
FOUND = CheckpointFound(K, NAME, "digest", 1, Seq(1), Seq(1), Fence(1), 1)
NAMES = ("r1", "r2", "r3")


def told(world: World, kind: type[Message], effects: list[events.Effect] | None = None) -> list[Message]:
    """Return what agents were told of one kind, by the last event unless told otherwise."""
    said = [effect.message for effect in world.of(events.ToAgent, effects)]
    return [message for message in said if isinstance(message, kind)]


def standing(world: World) -> list[str]:
    return [effect.standing for effect in world.of(events.Register)]


def grouped(hosts: tuple[HostName, ...] = (HOST,), *, linger_s: float | None = None) -> World:
    """Return a kernel whose group has been started and that has run a cell."""
    world = World(hosts=hosts, linger_s=linger_s).up()
    prepare(world)
    world.run("r1")
    world.commit("r1", 1)
    return world


def prepare(world: World) -> list[StartReplica]:
    for number, name in enumerate(NAMES):
        world.say(ReplicaPrepared(ReplicaId(name), f"127.0.0.1:{number}"))
    return [message for message in told(world, StartReplica) if isinstance(message, StartReplica)]


def ask(world: World) -> str:
    return world.request("replkernel_hibernate_request", channel="control")


def asleep(*, linger_s: float | None = None) -> World:
    world = grouped(linger_s=linger_s)
    ask(world)
    world.say(CheckpointWritten(K, "c", Seq(1)))
    world.say(KernelHibernated(K))
    return world


def test_a_checkpoint_comes_before_the_stop_and_the_answer_after_it() -> None:
    world = grouped()
    wish = ask(world)
    assert told(world, HibernateKernel) == [HibernateKernel(K, "checkpoint", Seq(1))]
    world.say(CheckpointWritten(K, "c", Seq(1)))
    assert told(world, HibernateKernel) == [HibernateKernel(K, "stop")]
    assert {effect.replica for effect in world.of(events.DropReplica)} == set(NAMES)
    assert "replkernel_hibernate_reply:ok" not in world.seen(wish)
    world.say(KernelHibernated(K))
    assert standing(world) == ["hibernated"]
    assert world.answer(wish)["state"] == "hibernated"


def test_a_change_left_for_later_is_durable_before_the_checkpoint() -> None:
    world = grouped()
    world.run("r1")
    world.commit("r1", 2, owing=("model",))
    ask(world)
    kinds = [type(effect.message).__name__ for effect in world.of(events.ToAgent, world.all)]
    assert kinds[-2:] == ["SettleReplica", "HibernateKernel"]


def test_hibernation_waits_for_the_cell_that_runs() -> None:
    world = grouped()
    cell = world.execute()
    world.begin("r1", cell, 2)
    ask(world)
    assert told(world, HibernateKernel) == []
    effects = world.finish("r1", cell, count=2)
    assert told(world, HibernateKernel, effects) == [HibernateKernel(K, "checkpoint", Seq(2))]


def test_a_kernel_that_cannot_be_saved_stays_and_says_why() -> None:
    world = grouped()
    wish = ask(world)
    world.say(CheckpointWritten(K, why="`line` cannot be kept."))
    assert told(world, HibernateKernel) == []
    assert "`line` cannot be kept." in world.answer(wish)["evalue"]
    cell = world.run("r1")
    assert world.sent_to(cell) == ["r1"]


def test_a_value_that_no_other_process_could_rebuild_keeps_the_one_that_has_it() -> None:
    world = grouped()
    pin = Pin("x", "Drops", ReplicaId("r1"), Seq(1), "x.kept[0]", "Its load failed.")
    for name in ("r2", "r3"):
        world.say(ReplicaUnfaithful(ReplicaId(name), (pin,)))
    wish = ask(world)
    world.say(CheckpointWritten(K, "c", Seq(1)))
    assert told(world, HibernateKernel) == []
    assert "`x.kept[0]` (Drops) cannot be rebuilt faithfully: Its load failed" in world.answer(wish)["evalue"]
    for name in ("r2", "r3"):
        world.say(ReplicaUnfaithful(ReplicaId(name)))
    ask(world)
    world.say(CheckpointWritten(K, "c", Seq(1)))
    assert told(world, HibernateKernel) == [HibernateKernel(K, "stop")]


def test_hosts_are_told_what_went_with_lost_processes() -> None:
    world = grouped()
    world.run("r1")
    world.lose("r1")
    world.ready("r1")
    ask(world)
    (wish,) = told(world, HibernateKernel)
    assert wish.gone == {ReplicaId("r1"): Seq(2)}


def test_hosts_that_say_nothing_do_not_hold_it_for_ever() -> None:
    world = grouped()
    wish = ask(world)
    cell = world.execute()
    assert world.sent_to(cell) == [], "a cell waits while the state is saved"
    world.wait(SAVE_LIMIT_S + 1)
    assert "CannotHibernate" in world.answer(wish)["ename"]
    assert world.sent_to(cell) == ["r1"]


def test_hosts_of_which_none_leads_at_its_turn_are_asked_again() -> None:
    """The lead follows the executor: the old leader may have given it up, the new one spoken before."""
    world = grouped()
    wish = ask(world)
    world.say(CheckpointWritten(K))
    assert "replkernel_hibernate_reply:error" not in world.seen(wish)
    assert told(world, HibernateKernel, world.wait(LEADER_LOOK_S)) == [
        HibernateKernel(K, "checkpoint", Seq(1))
    ]
    world.say(CheckpointWritten(K, "c", Seq(1)))
    assert told(world, HibernateKernel) == [HibernateKernel(K, "stop")]


def test_a_kernel_whose_group_is_not_founded_yet_rests_once_it_is() -> None:
    """The first replica runs cells before the others are there, and before there is a group."""
    world = World(hosts=(HOST,)).up("r1")
    world.run("r1")
    wish = ask(world)
    assert "replkernel_hibernate_reply:error" not in world.seen(wish)
    world.wait(LEADER_LOOK_S)
    world.up("r2", "r3")
    prepare(world)
    world.commit("r1", 1)
    assert told(world, HibernateKernel, world.wait(LEADER_LOOK_S)) == [
        HibernateKernel(K, "checkpoint", Seq(1))
    ]
    world.say(CheckpointWritten(K, "c", Seq(1)))
    assert told(world, HibernateKernel) == [HibernateKernel(K, "stop")]


def test_hosts_of_which_none_ever_leads_are_not_asked_for_ever() -> None:
    world = grouped()
    wish = ask(world)
    for _ in range(int(LEADER_LIMIT_S / LEADER_LOOK_S) + 2):
        world.say(CheckpointWritten(K))
        world.wait(LEADER_LOOK_S)
    assert "No host leads" in world.answer(wish)["evalue"]
    assert world.sent_to(world.run("r1")) == ["r1"]


def test_a_cell_wakes_it_with_everything_and_is_run_once() -> None:
    world = asleep()
    cell = world.execute()
    assert standing(world) == ["live"]
    assert [type(message) for message in told(world, Message)].count(FindCheckpoint) == 1
    assert len(told(world, PrepareReplica)) == 3
    assert prepare(world) == [], "no group before the store has said what there is"
    world.say(FOUND)
    started = [message for message in told(world, StartReplica) if isinstance(message, StartReplica)]
    assert [message.checkpoint for message in started] == [FOUND.name] * 3
    assert {message.generation for message in started} == {2}
    assert len({message.secret for message in started}) == 1
    assert started[0].secret != "secret"
    world.ready("r1", applied=1)
    assert world.sent_to(cell) == ["r1"]
    envelope = world.envelope(cell)
    assert (envelope.seq, envelope.needs) == (2, 1)
    assert envelope.fence > FOUND.fence


@pytest.mark.parametrize("kind", ["kernel_info_request", "comm_info_request"])
def test_a_message_that_needs_no_replica_does_not_wake_the_kernel(kind: str) -> None:
    world = asleep()
    asked = world.request(kind)
    assert told(world, PrepareReplica) == []
    assert world.answer(asked)["status"] == "ok"
    world.request("debug_request", {"command": "debugInfo"}, channel="control")
    assert told(world, PrepareReplica) == []
    world.request("complete_request")
    assert len(told(world, PrepareReplica)) == 3


def test_a_router_at_rest_stays_while_it_has_a_client_and_a_while_after_the_last_one() -> None:
    world = asleep(linger_s=60.0)
    world.feed(events.ClientsCounted(1))
    assert world.of(events.Exit, world.wait(100.0)) == []
    world.feed(events.ClientsCounted(0))
    assert world.of(events.Exit, world.wait(59.0)) == []
    world.now += 1.0
    assert world.of(events.Exit, world.feed(events.Tick())) == [events.Exit(0)]


def test_an_end_at_rest_has_the_store_tidied() -> None:
    world = asleep()
    world.request("shutdown_request", {"restart": False}, channel="control")
    (end,) = told(world, EndKernel)
    assert isinstance(end, EndKernel)
    assert end.spec is not None
    assert end.spec.kernel_id == K


def test_a_host_that_does_not_confirm_the_stop_is_not_awaited_for_ever() -> None:
    world = grouped()
    wish = ask(world)
    world.say(CheckpointWritten(K, "c", Seq(1)))
    world.wait(STOP_LIMIT_S + 1)
    assert world.answer(wish)["state"] == "hibernated"


# -- when all is gone --------------------------------------------------------------------------------


def lose_agents(world: World, hosts: tuple[HostName, ...] = (HOST,)) -> None:
    """Have the agents die with their disks and others take their places."""
    for host in hosts:
        world.feed(events.AgentGone(host))
        world.feed(events.AgentFound(host, "other"))
        world.say(AgentWelcome(host, 3), host)


def test_a_kernel_without_any_replica_is_brought_back_from_its_checkpoint() -> None:
    world = grouped()
    lose_agents(world)
    assert told(world, FindCheckpoint)
    world.say(FOUND)
    assert prepare(world)[0].checkpoint == FOUND.name
    world.ready("r2", applied=1)
    cell = world.execute()
    assert world.sent_to(cell) == ["r2"]
    assert not [text for text in world.seen(cell) if text == "stream"]


def test_cells_that_no_checkpoint_has_are_told() -> None:
    world = grouped()
    world.run("r1")
    world.run("r1")
    lose_agents(world)
    world.say(FOUND)
    logged = [effect.text for effect in world.of(events.Log)]
    assert any("as of cell [1]" in text and "the last 2 cells" in text for text in logged)


def test_a_store_without_a_checkpoint_is_told_and_the_kernel_begins_anew() -> None:
    world = grouped()
    lose_agents(world)
    world.say(CheckpointFound(K))
    assert any("its variables are lost" in effect.text for effect in world.of(events.Log))
    assert prepare(world)[0].checkpoint == ""


def test_a_store_that_cannot_be_searched_is_asked_again() -> None:
    world = grouped()
    lose_agents(world)
    world.say(CheckpointFound(K, why="The store is away."))
    assert any("The store is away." in effect.text for effect in world.of(events.Log))
    prepare(world)
    assert world.of(events.ToAgent) == []
    world.wait(6)
    assert told(world, FindCheckpoint)
    world.say(FOUND)
    assert told(world, StartReplica)


def test_one_agent_that_is_away_does_not_found_another_group() -> None:
    hosts = (HostName("a"), HostName("b"), HostName("c"))
    world = grouped(hosts)
    world.feed(events.AgentGone(hosts[0]))
    lose_agents(world, hosts[1:2])
    assert not told(world, FindCheckpoint, world.all)


def test_a_cell_on_a_host_that_lost_its_disk_ends_and_the_next_runs_elsewhere() -> None:
    hosts = (HostName("a"), HostName("b"), HostName("c"))
    world = grouped(hosts)
    cell = world.execute()
    world.begin("r1", cell, 2)
    lose_agents(world, hosts[:1])
    assert "its host has lost what it kept" in world.answer(cell)["evalue"]
    after = world.execute()
    world.wait(4)
    assert world.sent_to(after) in (["r2"], ["r3"])


def test_most_disks_lost_makes_the_survivor_the_base() -> None:
    hosts = (HostName("a"), HostName("b"), HostName("c"))
    world = grouped(hosts)
    lose_agents(world, hosts[1:])
    wishes = [
        (effect.host, effect.message)
        for effect in world.of(events.ToAgent)
        if isinstance(effect.message, HibernateKernel)
    ]
    gone = {ReplicaId("r2"): Seq(1)}
    assert wishes == [(hosts[0], HibernateKernel(K, "checkpoint", Seq(1), forced=True, gone=gone))]
    world.say(CheckpointWritten(K, "c", Seq(1)), hosts[0])
    world.say(KernelHibernated(K), hosts[0])
    assert len(told(world, FindCheckpoint)) == 1
    assert len(told(world, PrepareReplica)) == 3


def test_a_host_that_lost_what_it_kept_of_most_replicas_ends_the_cell_and_goes_on_from_the_one_left() -> None:
    world = grouped()
    cell = world.execute()
    world.begin("r1", cell, 2)
    host = world.fleet.replicas[ReplicaId("r1")].host
    world.feed(events.AgentGone(host))
    world.feed(events.AgentFound(host, "token"))
    kept = AgentWelcome(host, 3, "one", replicas=(ReplicaId("r3"),), last_seq=Seq(1))
    world.say(kept, host)
    wish = HibernateKernel(K, "checkpoint", Seq(1), forced=True)
    assert told(world, HibernateKernel) == [wish]
    world.say(CheckpointWritten(K, "c", Seq(1)), host)
    assert "ExecutorLost" in world.answer(cell)["ename"]
    world.say(KernelHibernated(K), host)
    assert len(told(world, FindCheckpoint)) == 1
    assert len(told(world, PrepareReplica)) == 3


def test_a_host_that_lost_what_it_kept_of_one_replica_has_that_one_replaced() -> None:
    world = grouped()
    cell = world.execute()
    world.begin("r1", cell, 2)
    host = world.fleet.replicas[ReplicaId("r1")].host
    world.feed(events.AgentGone(host))
    world.feed(events.AgentFound(host, "token"))
    replicas = (ReplicaId("r2"), ReplicaId("r3"))
    world.say(AgentWelcome(host, 3, "one", replicas=replicas, last_seq=Seq(1)), host)
    assert "has lost what it kept of it" in world.answer(cell)["evalue"]
    prepared = [wish.replica for wish in told(world, PrepareReplica, world.all)]
    assert prepared[-1] == "r4"


def test_a_kernel_that_goes_on_elsewhere_runs_nothing_any_more_and_says_so() -> None:
    world = grouped()
    cell = world.execute()
    world.begin("r1", cell, 2)
    world.say(KernelTakenOver(K, 1))
    assert world.fleet.ready(), "it is our own group"
    world.say(KernelTakenOver(K, 2))
    assert told(world, HibernateKernel) == [HibernateKernel(K, "stop")]
    assert "the kernel goes on elsewhere" in world.answer(cell)["evalue"]
    world.say(KernelHibernated(K))
    for _ in range(2):
        after = world.execute()
        assert world.answer(after)["ename"] == "KernelTakenOver"
        assert "Open the notebook there" in world.answer(after)["evalue"]
    lose_agents(world)
    world.wait(1000)
    assert not told(world, FindCheckpoint, world.all), "it does not take the kernel back"
    assert world.answer(world.execute())["ename"] == "KernelTakenOver"


def test_hosts_that_came_too_late_for_the_group_are_no_loss() -> None:
    hosts = (HostName("a"), HostName("b"), HostName("c"))
    world = World(hosts=hosts)
    world.feed(events.AgentFound(hosts[0], "token"))
    world.say(AgentWelcome(hosts[0], 2), hosts[0])
    world.say(ReplicaPrepared(ReplicaId("r1"), "127.0.0.1:1"), hosts[0])
    world.wait(PEERS_WAIT_S + 1)
    world.ready("r1")
    cell = world.execute()
    for host in hosts[1:]:
        world.feed(events.AgentFound(host, "token"))
        world.say(AgentWelcome(host, 2), host)
        assert told(world, HibernateKernel) == []
    world.begin("r1", cell)
    world.finish("r1", cell)
    assert "execute_reply:ok" in world.seen(cell)


def test_a_router_that_dies_before_there_is_a_group_costs_nothing_and_nothing_is_said_to_be_lost() -> None:
    """What the first router had asked of the other hosts reaches them after the second one has."""
    hosts = (HostName("a"), HostName("b"), HostName("c"))
    world = World(hosts=hosts, resuming=True)
    for host, kept in zip(hosts, [("one", (ReplicaId("r1"),)), ("", ()), ("", ())], strict=True):
        world.feed(events.AgentFound(host, "token"))
        world.say(AgentWelcome(host, 2, *kept), host)
    for number, (host, name) in enumerate(zip(hosts, NAMES, strict=True)):
        world.say(ReplicaPrepared(ReplicaId(name), f"127.0.0.1:{number}"), host)
    assert len(told(world, FindCheckpoint)) == 1, "there may have been another group before"
    world.say(CheckpointFound(K), hosts[0])
    world.say(ReplicaPrepared(ReplicaId("r1"), "127.0.0.1:0"), hosts[0])
    assert [start.replica for start in told(world, StartReplica, world.all)] == list(NAMES)
    assert not any("are lost" in effect.text for effect in world.of(events.Log, world.all))


def test_a_group_that_was_given_up_is_stopped_when_it_comes_back() -> None:
    world = asleep()
    world.execute()
    world.say(FOUND)
    prepare(world)
    world.feed(events.AgentGone(HOST))
    world.feed(events.AgentFound(HOST, "token"))
    world.say(AgentWelcome(HOST, 2, "one", generation=1))
    assert told(world, HibernateKernel) == [HibernateKernel(K, "stop")]


def save(world: World) -> str:
    return world.request("replkernel_save_request", channel="control")


def test_a_copy_is_written_and_nothing_is_stopped() -> None:
    world = grouped()
    wish = save(world)
    assert told(world, HibernateKernel) == [HibernateKernel(K, "checkpoint", Seq(1), pinned=True)]
    world.say(CheckpointWritten(K, "c", Seq(1)))
    assert told(world, HibernateKernel) == []
    assert world.answer(wish)["busy"] is False
    world.run("r1")


def test_a_copy_does_not_wait_for_the_cell_that_runs() -> None:
    world = grouped()
    world.begin("r1", world.execute(), 2)
    assert world.answer(save(world))["busy"] is True


def test_a_copy_that_fails_says_why_and_the_kernel_goes_on() -> None:
    world = grouped()
    wish = save(world)
    world.say(CheckpointWritten(K, why="The store is down."))
    assert "The store is down." in world.answer(wish)["evalue"]
    world.run("r1")
    world.commit("r1", 2)
    ask(world)
    assert told(world, HibernateKernel) == [HibernateKernel(K, "checkpoint", Seq(2))]
