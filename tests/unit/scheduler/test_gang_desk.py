"""The desk of cells on several hosts, without a socket: who is told what, whose agents start processes."""

from __future__ import annotations

import msgspec
from replkernel_scheduler.events import Event, KernelEnded, LeaseReleased
from replkernel_scheduler.gangs.desk import END_S
from replkernel_scheduler.gangs.types import GangId
from replkernel_scheduler.types import Fence, KernelId, LeaseId
from replkernel_server.scheduling.desk_words import Joined, Left
from replkernel_server.scheduling.gang_desk import CELL_ENDS_S, GANGS_OF_USER_MAX, GIVEN_UP, RETURN_S
from replkernel_server.scheduling.identity import Identity

from replkernel.leasing import wire
from replkernel.records import HostName
from tests.unit.scheduler.desk import ALICE, BOB, ROOT, JobRoom

WISH = wire.GangWish("k", 2, 2, "/work", "curve://h:1/aa", "seal")


class GangRoom(JobRoom):
    """Two hosts of two GPUs, with agents of two users."""

    def __init__(self) -> None:
        super().__init__()
        self.agents = {host: self.agent(host, 2, ROOT) for host in "ab"}
        self.lines = {(host, who.user): self.line(host, who) for host in "ab" for who in (ALICE, BOB)}

    def cell(self, name: str = "g", who: Identity = ALICE) -> int:
        client = len(self.heard) + 1
        self.heard[client] = []
        self.do(self.desk.handle(Joined(client, wire.Hello(1, "gang", name), who), self.now))
        return client

    def wishes(self, wish: wire.GangWish = WISH, name: str = "g", who: Identity = ALICE) -> int:
        client = self.cell(name, who)
        if client not in self.closed:
            self.say(client, wish)
        return client

    def leave(self, client: int) -> None:
        self.do(self.desk.handle(Left(client), self.now))

    def feed(self, event: Event, client: int | None = None) -> None:
        super().feed(event, client)
        assert self.desk.gangs is not None
        self.desk.gangs.check_invariants()

    def agent_back(self, host: str, *gangs: str, ranks: bool = True) -> int:
        """Have alice's agent come back on a host, which has launchers of these cells."""
        self.leave(self.lines[host, "alice"])
        self.lines[host, "alice"] = client = self.join("jobs", host, ALICE)  # type: ignore[arg-type]
        self.say(client, wire.JobsHere(ranks=ranks, gangs=gangs))
        return client

    def passes(self, seconds: float) -> None:
        """Let time pass on hosts that are well."""
        for _ in range(round(seconds / 2)):
            for agent in self.agents.values():
                self.say(agent, wire.HostBeat())
            self.wait(2.0)

    def stopped(self, within_s: float = 0.0) -> list[tuple[str, str]]:
        """Return on which hosts agents of which user were told to end the cell g."""
        stop = wire.StopRanks("g", within_s)
        return sorted(line for line, client in self.lines.items() if stop in self.heard[client])

    def told(self, client: int) -> list[wire.FromScheduler]:
        return [message for message in self.heard[client] if not isinstance(message, wire.Welcome)]

    def starts(self) -> dict[tuple[str, str], int]:
        """Return how many GPUs each agent was told to start processes on."""
        return {
            line: sum(len(one.gpus) for one in self.heard[client] if isinstance(one, wire.StartRanks))
            for line, client in self.lines.items()
        }

    def leased(self) -> int:
        return sum(len(each.lease.gpus) for each in self.core.view().leases)


def test_a_cell_hears_of_all_its_leases_at_once_and_its_own_agents_start_it() -> None:
    room = GangRoom()
    cell = room.wishes()
    (has,) = [message for message in room.told(cell) if isinstance(message, wire.GangHas)]
    assert [(str(lease.host), len(lease.gpus)) for lease in has.leases] == [("a", 2), ("b", 2)]
    assert room.starts() == {("a", "alice"): 2, ("b", "alice"): 2, ("a", "bob"): 0, ("b", "bob"): 0}
    room.say(cell, wire.GangDone())
    assert room.leased() == 0


def test_a_cell_that_waits_is_told_so_and_starts_nothing() -> None:
    room = GangRoom()
    first = room.wishes()
    second = room.wishes(name="h", who=BOB)
    assert room.told(second) == [wire.GangWaiting(1, 0, None)]
    assert room.starts()["a", "bob"] == 0
    room.say(first, wire.GangDone())
    assert isinstance(room.told(second)[-1], wire.GangHas)
    assert room.starts()["a", "bob"] == 2


def test_a_wish_that_no_hosts_can_meet_is_refused() -> None:
    room = GangRoom()
    cell = room.wishes(wire.GangWish("k", 3, 2, "/work", "e", "s"))
    assert room.told(cell) == [
        wire.GangEnded("No two hosts have 3 GPUs each: 2 hosts have 2 GPUs each at most.", refused=True)
    ]
    (told,) = room.told(room.wishes(wire.GangWish("k", 1, 3, "/work", "e", "s"), "h"))
    assert isinstance(told, wire.GangEnded) and told.refused
    assert "wants 3 hosts, and your agents that can start its processes are on a, b" in told.why


def test_a_cell_that_comes_back_in_time_has_lost_nothing_and_starts_nothing_twice() -> None:
    room = GangRoom()
    room.leave(room.wishes())
    room.wait(RETURN_S - 1)
    again = room.wishes()
    assert isinstance(room.told(again)[-1], wire.GangHas)
    assert room.starts()["a", "alice"] == 2
    room.wait(RETURN_S + 1)
    assert room.leased() == 4


def test_a_cell_that_does_not_come_back_gives_its_gpus_back() -> None:
    room = GangRoom()
    room.leave(room.wishes())
    room.wait(RETURN_S + 1 + END_S)
    assert room.leased() == 0
    assert not room.beside.gangs.by_id


def test_after_a_restart_cells_have_the_grace_to_come_back() -> None:
    room = GangRoom()
    room.wishes()
    room.restart(30.0)
    assert GangId("g") in room.beside.gangs.by_id
    room.wait(31.0 + END_S)
    assert not room.beside.gangs.by_id


def test_a_cell_that_is_back_after_a_restart_before_the_agents_goes_on_with_what_it_has() -> None:
    room = GangRoom()
    room.wishes()
    room.restart(30.0)
    cell = room.wishes()
    (has,) = room.told(cell)
    assert isinstance(has, wire.GangHas) and len(has.leases) == 2
    room.wait(31.0)
    assert room.leased() == 4


def test_nobody_speaks_for_another_users_cell_or_kernel() -> None:
    room = GangRoom()
    room.wishes()
    thief = room.cell("g", BOB)
    assert room.closed[thief] == "The cell g is another user's."
    router = room.join("router", "bobs", BOB)
    room.say(router, wire.KernelHere(("a",)))
    cell = room.wishes(wire.GangWish("bobs", 1, 2, "/work", "e", "s"), "other")
    assert room.told(cell) == [wire.GangEnded("Kernel bobs is another user's.", refused=True)]


def test_a_user_has_only_so_many_cells_on_several_hosts() -> None:
    room = GangRoom()
    for number in range(GANGS_OF_USER_MAX):
        room.wishes(name=f"g{number}")
    assert "the most that one user may have" in room.closed[room.cell("more")]
    assert room.cell("bobs", BOB) not in room.closed


def test_an_agent_that_cannot_start_anything_is_heard_if_it_is_the_users() -> None:
    room = GangRoom()
    cell = room.wishes()
    room.say(room.lines["b", "bob"], wire.RanksFailed("g", "Nonsense."))
    assert not any(isinstance(message, wire.GangEnded) for message in room.told(cell))
    room.say(room.lines["b", "alice"], wire.RanksFailed("g", "Host b has no directory /work."))
    assert room.told(cell)[-1] == wire.GangEnded("Host b has no directory /work.")


def held(room: GangRoom, cell: int) -> tuple[wire.HeldLease, ...]:
    """Return the leases of which a cell was told last."""
    has = [message for message in room.told(cell) if isinstance(message, wire.GangHas)][-1]
    return tuple([wire.HeldLease(lease.lease, lease.fence) for lease in has.leases])


def test_a_cell_that_comes_back_too_late_is_told_so_and_gets_nothing_anew() -> None:
    room = GangRoom()
    cell = room.wishes()
    has = held(room, cell)
    room.leave(cell)
    room.wait(RETURN_S + 1)
    late = room.wishes(msgspec.structs.replace(WISH, leases=has))
    assert room.told(late) == [wire.GangEnded(GIVEN_UP)], "while its processes may be there"
    room.wait(END_S)
    room.leave(late)
    later = room.wishes(msgspec.structs.replace(WISH, leases=has))
    assert room.told(later) == [wire.GangEnded(GIVEN_UP)]
    room.wait(RETURN_S + 1)
    assert room.leased() == 0 and not room.beside.gangs.by_id


def test_the_processes_of_a_cell_that_is_away_are_ended_by_their_agents_before_anybody_else_comes() -> None:
    room = GangRoom()
    room.leave(room.wishes())
    other = room.wishes(name="h", who=BOB)
    room.passes(RETURN_S + 2)
    assert room.stopped() == [("a", "alice"), ("b", "alice")]
    assert not any(isinstance(message, wire.GangHas) for message in room.told(other))
    room.passes(END_S)
    assert isinstance(room.told(other)[-1], wire.GangHas)


def test_an_agent_that_comes_back_ends_what_is_nobodys_any_more() -> None:
    room = GangRoom()
    room.leave(room.wishes())
    room.leave(room.lines["a", "alice"])
    room.wait(RETURN_S + END_S + 1)
    assert room.agent_back("a", "g") and ("a", "alice") in room.stopped()


def test_nothing_of_a_cell_that_lives_is_ended_when_its_agent_comes_back() -> None:
    room = GangRoom()
    room.say(room.wishes(), wire.GangBegan())
    room.agent_back("a", "g")
    assert room.stopped() == [] and room.starts()["a", "alice"] == 0


def test_other_hosts_leases_stay_until_the_cell_has_ended_its_processes() -> None:
    room = GangRoom()
    cell = room.wishes()
    lease = held(room, cell)[1]
    other = room.wishes(wire.GangWish("o", 1, 2, "/work", "e", "s"), "h", BOB)
    room.feed(LeaseReleased(LeaseId(lease.lease), Fence(lease.fence)))
    assert isinstance(room.told(cell)[-1], wire.GangEnded)
    assert room.stopped(CELL_ENDS_S) == [("a", "alice")], "should the cell not hear that"
    assert not any(isinstance(message, wire.GangHas) for message in room.told(other))
    room.say(cell, wire.GangDone())
    assert isinstance(room.told(other)[-1], wire.GangHas)


def test_a_host_of_which_the_cell_is_not_sure_is_ended_by_its_agent_and_kept_meanwhile() -> None:
    room = GangRoom()
    cell = room.wishes()
    room.say(cell, wire.GangDone((HostName("b"),)))
    assert room.stopped() == [("b", "alice")] and room.leased() == 2
    room.leave(cell)
    room.wait(END_S + 1)
    assert room.leased() == 0


def test_a_cell_whose_connection_ends_before_it_says_what_it_wishes_gives_back_what_the_core_has() -> None:
    room = GangRoom()
    room.wishes()
    room.restart(30.0)
    room.leave(room.cell())
    room.wait(RETURN_S + END_S + 1)
    assert room.leased() == 0 and not room.beside.gangs.by_id


def test_an_agent_that_was_away_when_the_gpus_came_starts_its_part_when_it_is_back() -> None:
    room = GangRoom()
    room.wishes(name="first", who=BOB)
    cell = room.wishes()
    room.leave(room.lines["b", "alice"])
    room.say((room.desk.gangs and room.desk.gangs.cells[GangId("first")].client) or 0, wire.GangDone())
    assert isinstance(room.told(cell)[-1], wire.GangHas), "it is not over because of that"
    assert room.starts()["a", "alice"] == 2
    room.agent_back("b")
    assert room.starts()["b", "alice"] == 2
    room.agent_back("b")
    assert room.starts()["b", "alice"] == 2, "told again, for it may not know: its client is another one"


def test_a_grant_that_was_durable_and_not_told_is_started_after_a_restart() -> None:
    room = GangRoom()
    room.wishes()
    room.restart(30.0)
    room.wishes()
    room.lines = {(host, who.user): room.line(host, who) for host in "ab" for who in (ALICE, BOB)}
    assert room.starts() == {("a", "alice"): 2, ("b", "alice"): 2, ("a", "bob"): 0, ("b", "bob"): 0}


def test_a_cell_that_has_begun_says_so_and_nothing_is_started_again() -> None:
    room = GangRoom()
    has = held(room, room.wishes())
    room.restart(30.0)
    room.wishes(msgspec.structs.replace(WISH, leases=has, began=True))
    room.lines = {(host, who.user): room.line(host, who) for host in "ab" for who in (ALICE, BOB)}
    assert set(room.starts().values()) == {0}


def test_a_cell_that_comes_back_hears_what_is_known_without_an_event() -> None:
    room = GangRoom()
    room.leave(room.wishes())
    fed = len(room.fed)
    assert isinstance(room.told(room.wishes())[-1], wire.GangHas)
    assert len(room.fed) == fed, "so a journal without room keeps nobody from it"
    waits = room.wishes(name="w", who=BOB)
    room.leave(waits)
    assert room.told(room.wishes(name="w", who=BOB)) == room.told(waits)


def test_an_agent_of_a_release_that_cannot_start_processes_does_not_count() -> None:
    room = GangRoom()
    room.agent_back("a", ranks=False)
    room.agent_back("b", ranks=False)
    (told,) = room.told(room.wishes())
    assert (
        isinstance(told, wire.GangEnded)
        and "no agent of yours that can start its processes is there" in told.why
    )
    assert room.starts()["a", "alice"] == 0


def test_a_lease_that_ends_ends_the_cell() -> None:
    room = GangRoom()
    cell = room.wishes()
    room.say(room.agents["b"], wire.HostLeaves())
    room.wait(400.0)
    ended = room.told(cell)[-1]
    assert isinstance(ended, wire.GangEnded) and "host b is over (host down)" in ended.why
    assert not room.beside.gangs.by_id


def test_the_kernels_router_hears_nothing_of_a_cells_leases() -> None:
    room = GangRoom()
    router = room.join("router", "k", ALICE)
    room.say(router, wire.KernelHere(("a", "b")))
    room.wishes()
    assert not any(isinstance(message, wire.Granted | wire.LeaseOver) for message in room.heard[router])
    room.feed(KernelEnded(KernelId("k")))
    assert room.leased() == 4, "its cell is connected, and says itself when it is over"


def test_a_gangs_own_names_are_refused_to_kernels() -> None:
    room = GangRoom()
    assert "begins with 'gang.'" in room.closed[room.join("router", "gang.g", ALICE)]
