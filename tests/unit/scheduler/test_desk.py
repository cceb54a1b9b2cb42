"""The desk of agents and routers, without a socket: several users, hosts in several hands, and its clock."""

from __future__ import annotations

from replkernel_scheduler.types import UserName, UserQuota
from replkernel_server.launchers.counting import Counting
from replkernel_server.scheduling.desk_words import Feed, Left, Said, TimeCame
from replkernel_server.scheduling.host_desk import LOST_S
from replkernel_server.scheduling.identity import Identity

from replkernel.leasing import wire
from tests.support.scheduler_client import offer
from tests.unit.scheduler.desk import ALICE, BOB, GUEST, ROOT, Room


def test_a_kernel_is_its_users_and_another_user_is_refused() -> None:
    room = Room()
    room.router("k", who=ALICE)
    other = room.join("router", "k", BOB)
    assert "another user's" in room.closed[other]
    assert [kernel.user for kernel in room.core.view().kernels] == ["alice"]


def test_a_lease_is_charged_to_who_the_token_is_and_stopped_by_that_quota() -> None:
    room = Room()
    room.agent("a", 8, ROOT)
    small = Identity(UserName("alice"), quota=UserQuota(gpu_quota=2))
    one = room.router("k", who=small)
    room.lease(one, "r1", 2)
    denied = room.say(one, wire.LeaseWish("r2", 1))[0]
    assert isinstance(denied, wire.Denied) and "gpu_quota of alice is 2 GPUs" in denied.why
    room.lease(room.router("b", who=BOB), "r3", 3)
    room.router("k2", who=small)
    assert [type(event).__name__ for event in room.fed].count("QuotaSet") == 1, "only what is news is told"


def test_two_users_agents_speak_for_one_machine_with_the_same_gpus_but_nobody_replaces_them() -> None:
    room = Room()
    one, two = room.agent("a", 2, ALICE), room.agent("a", 2, BOB)
    assert [said for said in room.heard[two] if isinstance(said, wire.Refused)] == []
    third = room.join("agent", "a", Identity(UserName("carol")))
    said = room.say(third, offer("a", 7))
    assert isinstance(said[0], wire.Refused) and "another user's agent" in said[0].why
    assert len(room.core.view().hosts[0].gpus) == 2
    room.say(one, wire.HostLeaves())
    assert room.hosts() == ["a"], "bob's agent is still there"
    room.say(two, wire.HostLeaves())
    assert room.hosts() == []


def test_an_agent_that_cannot_read_its_gpus_keeps_those_that_its_host_has_with_their_leases() -> None:
    room = Room()
    agent = room.agent("a", 2, ALICE)
    room.lease(room.router("k"), "r1", 2)
    unread = wire.HostOffer((), 16.0, 64.0, unread=True)
    for restarts in (False, True):
        room.do(room.desk.handle(Left(agent), room.now))
        if restarts:
            room.restart(20.0)
            room.say(room.router("k"))
        agent = room.join("agent", "a", ALICE)
        assert room.say(agent, unread, wire.HostBeat()) == []
        [lease] = room.core.view().leases
        assert lease.phase == "active" and len(room.core.view().hosts[0].gpus) == 2
    assert room.say(agent, offer("a", 2)) == [] and len(room.core.view().leases) == 1
    part = wire.HostOffer(offer("a", 2).gpus[1:], 16.0, 64.0, unread=True)
    assert room.say(agent, part) == [] and len(room.core.view().hosts[0].gpus) == 2
    room.say(agent, offer("a", 1))
    assert room.core.view().leases == (), "what was read and is not there is gone"


def test_an_agent_that_cannot_read_its_gpus_is_a_host_without_any_and_nobody_elses() -> None:
    room = Room()
    unread = wire.HostOffer((), 16.0, 64.0, unread=True)
    agent = room.join("agent", "a", ALICE)
    room.say(agent, unread)
    assert room.hosts() == ["a"] and room.core.view().hosts[0].gpus == ()
    room.say(agent, offer("a", 2))
    bob = room.join("agent", "a", BOB)
    [said] = room.say(bob, unread)
    assert isinstance(said, wire.Refused) and "driver does not answer" in said.why
    assert room.say(bob, offer("a", 2)) == []


def test_an_agent_that_has_shown_the_same_gpus_may_come_back_without_reading_them() -> None:
    room = Room()
    first, agent = room.agent("a", 2, ALICE), room.agent("a", 2, BOB)
    room.lease(room.router("k", who=BOB), "r1", 2)
    room.say(first, wire.HostLeaves())
    room.do(room.desk.handle(Left(agent), room.now))
    again = room.join("agent", "a", BOB)
    assert room.say(again, wire.HostOffer((), 16.0, 64.0, unread=True), wire.HostBeat()) == []
    room.wait(LOST_S - 1.0)
    room.say(again, wire.HostBeat())
    room.wait(LOST_S - 1.0)
    assert room.hosts() == ["a"] and len(room.core.view().leases) == 1


def test_gpus_that_are_kept_since_they_cannot_be_read_become_no_more_than_a_host_may_have() -> None:
    room = Room()
    agent = room.agent("a", 2)
    for turn in range(3):
        gpus = tuple(wire.OfferedGpu(f"GPU-{turn}-{number}", "H100", 80.0) for number in range(40))
        room.say(agent, wire.HostOffer(gpus, 16.0, 64.0, unread=True))
        here = [gpu.uuid for gpu in room.core.view().hosts[0].gpus]
        assert len(here) <= wire.GPUS_OF_HOST_MAX and {gpu.uuid for gpu in gpus} <= set(here)


def test_a_gpu_that_another_host_has_is_refused_and_offered_again_when_that_host_is_gone() -> None:
    room = Room()
    first = room.agent("a", 1)
    second = room.join("agent", "b")
    said = room.say(second, offer("a", 1))
    assert isinstance(said[0], wire.Refused) and "is offered by host a" in said[0].why
    room.say(first, wire.HostLeaves())
    assert room.say(second, wire.HostBeat()) == [] and room.hosts() == [], "not at every beat"
    room.now += 10.0
    room.say(second, wire.HostBeat())
    assert room.hosts() == ["b"]


def test_who_may_not_offer_hosts_is_told_so() -> None:
    room = Room()
    assert "may not offer a host's GPUs" in room.closed[room.join("agent", "a", GUEST)]


def test_a_silent_host_is_out_of_sight_after_three_beats_and_back_with_the_next() -> None:
    room = Room()
    agent, router = room.agent("a"), room.router("k")
    lease = room.lease(router, "r1")
    room.wait(5.9)
    assert room.hosts() == ["a"]
    room.say(agent, wire.HostBeat())
    room.wait(5.9)
    assert room.hosts() == ["a"]
    room.wait(0.7)
    assert [(host.name, host.state) for host in room.core.view().hosts] == [("a", "down")]
    assert isinstance(room.say(router, wire.LeaseKept(lease.lease, lease.fence))[0], wire.Granted)
    room.say(agent, wire.HostBeat())
    assert room.hosts() == ["a"]
    assert room.lease(router, "r2").host == "a", "its kernel is there again without a word of its router"


def test_a_scheduler_that_was_held_up_listens_first_and_takes_nobody_down() -> None:
    room = Room()
    agent = room.agent("a")
    room.now += 100.0  # nothing was read meanwhile, the timer is late
    room.do(room.desk.handle(TimeCame(), room.now))
    room.say(agent, wire.HostBeat())
    room.wait(5.0)
    assert room.hosts() == ["a"]
    room.wait(2.0)
    assert room.hosts() == []


def test_a_wish_without_a_host_is_kept_for_a_while_then_denied_by_name() -> None:
    room = Room()
    router = room.router("k")
    assert room.say(router, wire.LeaseWish("r", 1)) == [wire.Waiting("r", 0)]
    room.wait(9.9)
    assert len(room.heard[router]) == 2
    room.wait(0.2)
    denied = room.heard[router][-1]
    assert isinstance(denied, wire.Denied) and "start an agent on a host" in denied.why


def test_a_wish_that_comes_right_after_its_host_finds_the_kernel_there() -> None:
    """The core hears of the host after the desk, and then, before the wish, where the kernel is."""
    room = Room()
    router, agent = room.router("k"), room.join("agent", "a")
    acts = room.desk.handle(Said(agent, offer("a", 2)), 0.0)
    acts += room.desk.handle(Said(router, wire.LeaseWish("cell", 1)), 0.0)
    fed = [type(act.event).__name__ for act in acts if isinstance(act, Feed)]
    assert fed == ["HostUp", "KernelReported", "LeaseAsked"]
    room.do(acts)
    assert isinstance(room.heard[router][-1], wire.Granted)


def test_a_router_that_is_away_too_long_is_given_up_with_what_it_holds_and_wishes() -> None:
    room = Room()
    room.agent("a", 1, ROOT)
    host = room.agent("a", 1, ROOT)
    one, two = room.router("k1"), room.router("k2")
    room.lease(one, "r1")
    room.say(two, wire.LeaseWish("r2", 1))
    room.do(room.desk.handle(Left(two), room.now))
    room.do(room.desk.handle(Left(one), room.now))
    for _ in range(59):
        room.wait(1.0)
        room.say(host, wire.HostBeat())
    assert len(room.core.view().kernels) == 2
    room.wait(2.0)
    view = room.core.view()
    assert (view.kernels, view.waiting, view.leases) == ((), (), ())


def test_after_a_restart_hosts_and_kernels_have_their_grace_and_leases_are_still_theirs() -> None:
    room = Room()
    room.agent("a", 1, ALICE)
    lease = room.lease(room.router("k"), "r1")
    room.restart(20.0)
    room.wait(19.0)
    assert room.hosts() == ["a"]
    thief = room.join("router", "k", BOB)
    assert "another user's" in room.closed[thief]
    router = room.join("router", "k", ALICE)
    held = (wire.HeldLease(lease.lease, lease.fence), wire.HeldLease("lease-0", 1))
    said = room.say(router, wire.KernelHere(("a",), leases=held))  # type: ignore[arg-type]
    assert [type(message).__name__ for message in said] == ["Granted", "LeaseOver"]
    room.wait(2.0)
    assert room.hosts() == []


def test_a_lease_whose_return_got_lost_is_given_back_and_one_that_is_asked_for_again_is_kept() -> None:
    room = Room()
    room.agent("a", 3, ROOT)
    first = room.router("k")
    returned, granted, held = (room.lease(first, name) for name in ("returned", "granted", "held"))
    room.do(room.desk.handle(Left(first), room.now))
    again = room.join("router", "k")
    told = (wire.HeldLease(held.lease, held.fence),)
    room.say(again, wire.KernelHere(("a",), leases=told))  # type: ignore[arg-type]
    assert room.lease(again, "granted") == granted, "its word was lost, and it is said again"
    room.say(again, wire.KernelHere(("a",), leases=told))  # type: ignore[arg-type]
    room.wait(4.9)
    assert len(room.core.view().leases) == 3
    room.wait(0.2)
    assert {entry.lease.lease for entry in room.core.view().leases} == {held.lease, granted.lease}
    assert room.heard[again][-1] == wire.LeaseOver(returned.lease, "released")


def test_a_wish_whose_withdrawal_got_lost_leaves_the_queue_and_one_said_again_keeps_its_place() -> None:
    room = Room()
    room.agent("a", 1, ROOT)
    room.lease(room.router("holder"), "r0")
    given_up, kept = room.router("k1"), room.router("k2")
    room.say(given_up, wire.LeaseWish("gone", 1))
    room.say(kept, wire.LeaseWish("kept", 1))
    room.restart(20.0)
    room.agent("a", 1, ROOT)
    room.router("k1")
    room.say(room.router("k2"), wire.LeaseWish("kept", 1))
    room.wait(4.9)
    assert [wish.request.request for wish in room.core.view().waiting] == ["gone", "kept"]
    room.wait(0.2)
    assert [wish.request.request for wish in room.core.view().waiting] == ["kept"]
    assert list(room.desk.owners.wishes_of) == ["k2"], "nothing is kept of what is over"


def test_a_wish_that_waits_for_a_host_and_is_not_said_again_is_never_asked_for() -> None:
    room = Room()
    router = room.router("k")
    room.say(router, wire.LeaseWish("gone", 1))
    room.do(room.desk.handle(Left(router), room.now))
    room.router("k")
    room.wait(5.1)
    room.agent("a", 1, ROOT)
    assert (room.core.view().waiting, room.core.view().leases) == ((), ())


def test_how_busy_gpus_are_is_known_and_never_told_to_the_core() -> None:
    room = Room()
    agent = room.agent("a", 1)
    before = len(room.fed)
    room.say(agent, wire.HostBeat((wire.GpuUse("GPU-a-0", 0.7, 12.5), wire.GpuUse("nobody's", 1.0))))
    assert len(room.fed) == before
    use = room.desk.hosts.use_of(room.core.view().hosts[0].name)
    assert list(use) == ["GPU-a-0"] and use["GPU-a-0"].utilisation == 0.7


def test_a_hibernating_kernel_gives_everything_back_and_may_come_again() -> None:
    room = Room()
    room.agent("a", 1)
    router = room.router("k")
    room.lease(router, "r1")
    assert [type(said).__name__ for said in room.say(router, wire.KernelGone())] == ["LeaseOver"]
    assert isinstance(room.say(router, wire.LeaseWish("r2", 1))[0], wire.Denied)
    room.do(room.desk.handle(Left(router), room.now))
    assert room.desk.kernels.kernels == {}
    room.lease(room.router("k", who=BOB), "r3")


def test_parts_of_a_gpu_are_granted_with_what_they_may_take_and_refused_where_an_engine_counts() -> None:
    room = Room()
    agent = room.join("agent", "a")
    room.say(agent, offer("a", 1))
    routers = [room.join("router", name) for name in ("k1", "k2", "k3")]
    for router in routers:
        room.say(router, wire.KernelHere(("a",)))  # type: ignore[arg-type]
    granted = [room.say(routers[0], wire.LeaseWish("r1", 1, part=0.5))[0]]
    granted += room.say(routers[1], wire.LeaseWish("r2", 1, vram_gb=10.0, part=0.5))
    leases = [said.lease for said in granted if isinstance(said, wire.Granted)]
    assert [(lease.gpus, lease.part, lease.vram_gb) for lease in leases] == [
        (leases[0].gpus, 0.5, 40.0),
        (leases[0].gpus, 0.5, 10.0),
    ]
    assert isinstance(room.say(routers[2], wire.LeaseWish("r3", 1, part=0.5))[0], wire.Waiting)
    room.desk.counting = Counting("ray-")
    (denied,) = room.say(routers[2], wire.LeaseWish("r4", 1, part=0.5))
    assert isinstance(denied, wire.Denied)
    assert "ask for a whole GPU" in denied.why


def test_those_who_share_a_gpu_come_to_as_many_as_the_setting_says() -> None:
    room = Room()
    room.desk.routers.sharing = 2
    room.say(room.join("agent", "a"), offer("a", 1))
    answers = []
    for number in range(3):
        router = room.join("router", f"k{number}")
        room.say(router, wire.KernelHere(("a",)))  # type: ignore[arg-type]
        wish = wire.LeaseWish(f"r{number}", 1, vram_gb=10.0, part=1.0, shared=True)
        answers.append(room.say(router, wish)[0])
    assert list(map(type, answers)) == [wire.Granted, wire.Granted, wire.Waiting]
    assert isinstance(answers[0], wire.Granted) and answers[0].lease.shared, "a router that takes over knows"
