"""Hosts whose agents open GPUs for their holders: nobody hears of a lease before, and failures are told."""

from __future__ import annotations

from replkernel_scheduler.types import UserName
from replkernel_server.launchers.counting import Counting
from replkernel_server.scheduling.desk_words import Left
from replkernel_server.scheduling.identity import Identity

from replkernel.leasing import wire
from replkernel.records import HostName
from tests.unit.scheduler.desk import ALICE, BOB, Room

KEEPER = Identity(UserName("service/replkernel-agents"), may_lease=False)
GPUS = (wire.OfferedGpu("GPU-0", "H100", 80.0), wire.OfferedGpu("GPU-1", "H100", 80.0))


def guarded(room: Room, who: Identity = KEEPER) -> int:
    guard = room.join("agent", "a", who)
    room.say(guard, wire.HostOffer(GPUS, guarded=True))
    return guard


def kernel(room: Room, name: str, who: Identity = ALICE) -> int:
    router = room.join("router", name, who)
    room.say(router, wire.KernelHere((HostName("a"),)))
    return router


def of(room: Room, client: int, kind: type) -> list:  # type: ignore[type-arg]
    return [message for message in room.heard[client] if type(message) is kind]


def here(room: Room, guard: int) -> list[wire.LeaseHere]:
    """Return the leases that the guard was told of last."""
    return list(of(room, guard, wire.HostLeases)[-1].leases)


def test_a_grant_is_told_once_the_gpus_are_open() -> None:
    room = Room()
    guard, router = guarded(room), kernel(room, "k")
    assert here(room, guard) == []
    heard = room.say(router, wire.LeaseWish("r", 1))
    assert heard == [wire.Waiting("r", 0)], "told before anybody has opened the GPU"
    [lease] = here(room, guard)
    assert (lease.user, lease.kernel_id, lease.gpus) == ("alice", "k", ("GPU-0",))
    room.say(guard, wire.LeasesOpen((lease.lease,)))
    [granted] = of(room, router, wire.Granted)
    assert granted.lease.lease == lease.lease
    room.say(router, wire.LeaseBack(lease.lease, granted.lease.fence))
    assert here(room, guard) == []


def test_a_lease_whose_gpus_cannot_be_opened_is_returned_and_its_cell_refused_by_name() -> None:
    room = Room()
    guard, router = guarded(room), kernel(room, "k")
    room.say(router, wire.LeaseWish("r", 2))
    [lease] = here(room, guard)
    room.say(guard, wire.LeasesOpen((), (wire.NotOpened(lease.lease, "the hook says no"),)))
    [denied] = of(room, router, wire.Denied)
    assert (
        denied.request == "r" and "host a has not opened" in denied.why and "the hook says no" in denied.why
    )
    assert not of(room, router, wire.Granted) and not of(room, router, wire.LeaseOver)
    assert here(room, guard) == [], "the lease was not returned"
    other = kernel(room, "k2", BOB)
    room.say(other, wire.LeaseWish("r2", 2))
    assert here(room, guard)[0].user == "bob", "the GPUs are not free again"


def test_a_gpu_that_one_holder_leaves_is_closed_before_the_next_is_told() -> None:
    room = Room()
    guard, first, second = guarded(room), kernel(room, "k"), kernel(room, "k2", BOB)
    room.say(first, wire.LeaseWish("r", 2))
    [lease] = here(room, guard)
    room.say(guard, wire.LeasesOpen((lease.lease,)))
    fence = of(room, first, wire.Granted)[0].lease.fence
    room.say(second, wire.LeaseWish("r2", 2))
    room.say(first, wire.LeaseBack(lease.lease, fence))
    assert [each.user for each in here(room, guard)] == ["bob"]
    assert not of(room, second, wire.Granted)
    room.say(guard, wire.LeasesOpen((lease.lease,)))  # Said of the lease that is over: it opens nothing.
    assert not of(room, second, wire.Granted)


def test_a_guard_that_comes_back_is_told_all_and_asked_again() -> None:
    room = Room()
    guard, router = guarded(room), kernel(room, "k")
    room.say(router, wire.LeaseWish("r", 1))
    [lease] = here(room, guard)
    room.do(room.desk.handle(Left(guard), room.now))
    again = guarded(room)
    assert here(room, again) == [lease]
    room.say(again, wire.LeasesOpen((lease.lease,)))
    assert len(of(room, router, wire.Granted)) == 1


def test_a_guard_that_comes_back_has_opened_nothing_until_it_says_so() -> None:
    room = Room()
    guard, router = guarded(room), kernel(room, "k")
    room.say(router, wire.LeaseWish("r", 1))
    [lease] = here(room, guard)
    room.say(guard, wire.LeasesOpen((lease.lease,)))
    room.do(room.desk.handle(Left(guard), room.now))
    again, back = guarded(room), kernel(room, "k")
    room.say(back, wire.LeaseWish("r", 1))
    assert not of(room, back, wire.Granted)
    room.say(again, wire.LeasesOpen((lease.lease,)))
    assert len(of(room, back, wire.Granted)) == 1


def test_a_host_that_comes_back_without_a_guard_has_none() -> None:
    room = Room()
    guard, router = guarded(room), kernel(room, "k")
    room.do(room.desk.handle(Left(guard), room.now))
    room.say(room.join("agent", "a", KEEPER), wire.HostOffer(GPUS))
    room.say(router, wire.LeaseWish("r", 1))
    assert len(of(room, router, wire.Granted)) == 1


def test_a_host_out_of_sight_takes_no_gpus_that_are_open_from_their_holder() -> None:
    room = Room()
    guard, router = guarded(room), kernel(room, "k")
    room.say(router, wire.LeaseWish("r", 1))
    room.say(guard, wire.LeasesOpen((here(room, guard)[0].lease,)))
    room.do(room.desk.handle(Left(guard), room.now))
    room.wait(30.0)
    assert not of(room, router, wire.LeaseOver)


def test_a_host_that_is_lost_before_it_has_opened_its_gpus_refuses_whoever_waits() -> None:
    room = Room()
    guard, router = guarded(room), kernel(room, "k")
    room.say(router, wire.LeaseWish("r", 1))
    room.do(room.desk.handle(Left(guard), room.now))
    room.wait(30.0)
    [denied] = of(room, router, wire.Denied)
    assert "before host a had opened its GPUs" in denied.why


def test_another_users_agent_neither_opens_gpus_nor_learns_of_leases() -> None:
    room = Room()
    guard, router = guarded(room), kernel(room, "k")
    mallory = room.join("agent", "a", BOB)
    said = room.say(mallory, wire.HostOffer(GPUS, guarded=True))
    assert isinstance(said[0], wire.Refused) and "another user's agent" in said[0].why
    room.say(router, wire.LeaseWish("r", 1))
    [lease] = here(room, guard)
    assert not of(room, mallory, wire.HostLeases), "whose leases there are is told to a stranger"
    room.say(mallory, wire.LeasesOpen((lease.lease,)))
    room.say(mallory, wire.LeasesOpen((), (wire.NotOpened(lease.lease, "no"),)))
    assert not of(room, router, wire.Granted) and not of(room, router, wire.Denied)


def test_another_users_agent_does_not_take_the_guard_away() -> None:
    room = Room()
    guard, router = guarded(room), kernel(room, "k")
    room.say(room.join("agent", "a", BOB), wire.HostOffer(GPUS))
    assert room.say(router, wire.LeaseWish("r", 1)) == [wire.Waiting("r", 0)]
    assert len(here(room, guard)) == 1


def test_whoever_waited_when_the_scheduler_began_anew_is_granted_or_refused_as_any_other() -> None:
    for opens in (True, False):
        room = Room()
        guard, router = guarded(room), kernel(room, "k")
        room.say(router, wire.LeaseWish("r", 1))
        room.restart(30.0)
        guard, router = guarded(room), kernel(room, "k")
        room.say(router, wire.LeaseWish("r", 1))
        [lease] = here(room, guard)
        assert not of(room, router, wire.Granted)
        failed = () if opens else (wire.NotOpened(lease.lease, "the hook says no"),)
        room.say(guard, wire.LeasesOpen((lease.lease,) if opens else (), failed))
        assert len(of(room, router, wire.Granted)) == opens
        assert len(of(room, router, wire.Denied)) == (not opens)


def test_who_asks_before_the_guard_is_back_in_a_scheduler_that_began_anew_waits_for_it() -> None:
    room = Room()
    guarded(room)
    room.restart(30.0)
    router = kernel(room, "k")
    assert room.say(router, wire.LeaseWish("r", 1)) == [wire.Waiting("r", 0)]
    guard = guarded(room)
    [lease] = here(room, guard)
    assert not of(room, router, wire.Granted), "told before anybody has opened the GPU"
    room.say(guard, wire.LeasesOpen((lease.lease,)))
    assert len(of(room, router, wire.Granted)) == 1


def test_a_holder_who_names_his_lease_before_the_guard_is_back_hears_that_he_has_it() -> None:
    room = Room()
    guard, router = guarded(room), kernel(room, "k")
    room.say(router, wire.LeaseWish("r", 1))
    room.say(guard, wire.LeasesOpen((here(room, guard)[0].lease,)))
    lease = of(room, router, wire.Granted)[0].lease
    room.restart(30.0)
    back, held = room.join("router", "k"), (wire.HeldLease(lease.lease, lease.fence),)
    room.say(back, wire.KernelHere((HostName("a"),), leases=held))
    assert len(of(room, back, wire.Granted)) == 1


def test_who_asks_before_an_agent_is_back_is_granted_once_it_shows_that_it_guards_nothing() -> None:
    room = Room()
    room.agent("a")
    room.restart(30.0)
    router = kernel(room, "k")
    assert room.say(router, wire.LeaseWish("r", 1)) == [wire.Waiting("r", 0)]
    room.agent("a")
    assert len(of(room, router, wire.Granted)) == 1


def test_a_grant_that_waits_for_a_guard_is_told_when_its_host_comes_back_without_one() -> None:
    room = Room()
    guard, router = guarded(room), kernel(room, "k")
    room.say(router, wire.LeaseWish("r", 1))
    room.do(room.desk.handle(Left(guard), room.now))
    room.say(room.join("agent", "a", KEEPER), wire.HostOffer(GPUS))
    assert len(of(room, router, wire.Granted)) == 1


def test_a_holder_whose_gpus_cannot_be_opened_again_is_told_why_the_lease_is_over() -> None:
    room = Room()
    guard, router = guarded(room), kernel(room, "k")
    room.say(router, wire.LeaseWish("r", 1))
    [lease] = here(room, guard)
    room.say(guard, wire.LeasesOpen((lease.lease,)))
    room.do(room.desk.handle(Left(guard), room.now))
    room.say(guarded(room), wire.LeasesOpen((), (wire.NotOpened(lease.lease, "it broke"),)))
    [over] = of(room, router, wire.LeaseOver)
    assert over.lease == lease.lease and "it broke" in over.why


def test_a_guard_is_refused_where_an_engine_says_which_gpus_a_lease_has() -> None:
    room = Room()
    room.desk.counting = Counting("a")
    guard = guarded(room)
    assert "its device hook cannot be asked" in of(room, guard, wire.Refused)[0].why
    assert room.hosts() == []


def test_a_gpu_that_could_not_be_closed_is_leased_last_until_it_was() -> None:
    room = Room()
    guard, router = guarded(room), kernel(room, "k", BOB)
    room.say(guard, wire.LeasesOpen(stuck=("GPU-0",)))

    def leased(request: str) -> wire.LeaseHere:
        room.say(router, wire.LeaseWish(request, 1))
        [lease] = here(room, guard)
        room.say(guard, wire.LeasesOpen((lease.lease,), stuck=("GPU-0",)))
        return lease

    lease = leased("r")
    assert lease.gpus == ("GPU-1",)
    [granted] = of(room, router, wire.Granted)
    other = kernel(room, "k2")
    room.say(other, wire.LeaseWish("r2", 1))  # Perhaps it is hers, and else she is told why not.
    assert {each.gpus for each in here(room, guard)} == {("GPU-0",), ("GPU-1",)}
    assert not of(room, router, wire.LeaseOver), "a lease on another GPU ended"
    [hers] = [each.lease for each in here(room, guard) if each.user == "alice"]
    failed = wire.NotOpened(hers, "GPU-0 could not be closed")
    room.say(guard, wire.LeasesOpen((lease.lease,), (failed,), ("GPU-0",)))
    assert "could not be closed" in of(room, other, wire.Denied)[0].why
    room.say(router, wire.LeaseBack(lease.lease, granted.lease.fence))
    room.say(guard, wire.LeasesOpen())
    room.say(router, wire.LeaseWish("r3", 1))
    assert here(room, guard)[-1].gpus == ("GPU-0",)


def test_an_agent_that_is_no_guard_says_of_no_gpu_that_it_could_not_be_closed() -> None:
    room = Room()
    guard, router = guarded(room), kernel(room, "k")
    other = room.join("agent", "a", BOB)
    room.say(other, wire.LeasesOpen(stuck=("GPU-0",)))
    room.say(router, wire.LeaseWish("r", 1))
    assert here(room, guard)[0].gpus == ("GPU-0",)
