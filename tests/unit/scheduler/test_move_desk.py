"""Moves at the desk: the kernel's router is told, its answer counts while the order is in force, and once."""

from __future__ import annotations

from replkernel_scheduler.events import TimeReached

from replkernel.leasing import wire
from replkernel.records import HostName
from tests.support.scheduler_client import offer
from tests.unit.scheduler.desk import BOB, Room

D = HostName("d")
ABC = tuple(HostName(name) for name in "abc")


def agents(room: Room) -> None:
    for name in "abc":
        room.say(room.join("agent", name), wire.HostOffer(()))
    room.say(room.join("agent", "d"), offer("d", 2))


def moving(room: Room) -> tuple[int, wire.MoveReplica]:
    """Return the router of a kernel on a, b, c whose cell needs d, and its order."""
    agents(room)
    router = room.join("router", "k")
    room.say(router, wire.KernelHere(ABC, moves=True, executor="a"))
    heard = room.say(router, wire.LeaseWish("cell", 2))
    (order,) = [message for message in heard if isinstance(message, wire.MoveReplica)]
    return router, order


def kinds(messages: list[wire.FromScheduler]) -> list[str]:
    return [type(message).__name__ for message in messages]


def test_the_cell_is_granted_its_gpus_once_the_replica_is_there() -> None:
    room = Room()
    router, order = moving(room)
    assert order.host == "d"
    assert order.source in "bc"
    heard = room.say(router, wire.ReplicaMoved(order.order))
    assert "Granted" in kinds(heard)
    assert kinds(room.say(router, wire.ReplicaMoved(order.order))) == [], "twice is once"


def test_an_order_is_said_again_to_a_router_that_comes_back_and_after_a_restart() -> None:
    room = Room()
    _, order = moving(room)
    again = room.join("router", "k")
    assert order in room.say(again, wire.KernelHere(ABC, moves=True, executor="a"))
    room.restart(30.0)
    agents(room)
    third = room.join("router", "k")
    assert order in room.say(third, wire.KernelHere(ABC, moves=True, executor="a"))
    hosts = (*(host for host in ABC if host != order.source), D)
    heard = room.say(third, wire.KernelHere(hosts, moves=True, executor="a"))
    assert "MoveReplica" not in kinds(heard)
    assert "Granted" in kinds(heard), "where it is says that it has moved"


def test_an_answer_to_an_older_order_changes_nothing() -> None:
    room = Room()
    router, order = moving(room)
    room.say(router, wire.MoveFailed(order.order, "host d has no agent here"))
    room.now = room.core.deadline() or 0.0
    room.feed(TimeReached())
    second = room.heard[router][-1]
    assert isinstance(second, wire.MoveReplica)
    assert second.order != order.order
    fed = len(room.fed)
    room.say(router, wire.MoveFailed(order.order, "late"), wire.ReplicaMoved(order.order))
    assert len(room.fed) == fed
    assert "Granted" in kinds(room.say(router, wire.ReplicaMoved(second.order)))


def test_a_cell_that_leaves_takes_the_order_back() -> None:
    room = Room()
    router, order = moving(room)
    assert room.say(router, wire.WishOver("cell")) == [wire.MoveOver(D)]
    assert room.say(router, wire.ReplicaMoved(order.order)) == []


def test_nobody_answers_for_anothers_kernel() -> None:
    room = Room()
    router, order = moving(room)
    stranger = room.join("router", "other", BOB)
    room.say(stranger, wire.KernelHere(ABC, moves=True))
    fed = len(room.fed)
    assert room.say(stranger, wire.ReplicaMoved(order.order)) == []
    assert len(room.fed) == fed
    assert "Granted" in kinds(room.say(router, wire.ReplicaMoved(order.order)))


def test_a_notebooks_own_wish_is_ordered_or_denied() -> None:
    room = Room()
    for name in "abcd":
        room.say(room.join("agent", name), wire.HostOffer(()))
    router = room.join("router", "k")
    room.say(router, wire.KernelHere(ABC, moves=True, executor="a"))
    (denied,) = room.say(router, wire.MoveWish(HostName("e")))
    assert denied == wire.MoveDenied(HostName("e"), "No replica moves: no host e is up.")
    (order,) = room.say(router, wire.MoveWish(D))
    assert isinstance(order, wire.MoveReplica)
    assert order.host == "d"
