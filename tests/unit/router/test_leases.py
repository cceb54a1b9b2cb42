"""The kernel's leases by themselves: what is told to the scheduler, when, and what is kept of its answers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from replkernel.leasing.request import GpuRequest
from replkernel.leasing.wire import (
    GPUS_OF_LEASE_MAX,
    LEASES_TOLD_MAX,
    SCHEDULER_ENDS,
    Denied,
    FromClient,
    Granted,
    GrantedLease,
    HeldLease,
    KernelGone,
    KernelHere,
    LeaseBack,
    LeaseKept,
    LeaseLingers,
    LeaseOver,
    LeaseShrank,
    LeaseWanted,
    LeaseWish,
    Refused,
    Waiting,
    WishOver,
    decode_from_client,
    encode,
)
from replkernel.protocol.agent_to_router import LeaseFreed
from replkernel.protocol.router_to_agent import FreeLease, LimitReplica
from replkernel.records import HostName, KernelId, ReplicaId
from replkernel.router.core.events import Effect, OpenScheduler, ToAgent, ToScheduler
from replkernel.router.core.leases import DENIED, NO_SCHEDULER, Leases
from replkernel.router.core.registration import OWED_MAX

HOSTS = (HostName("a"), HostName("b"))
R1 = ReplicaId("r1")
TWO = GpuRequest(2)


def told(effects: list[Effect]) -> list[FromClient]:
    return [effect.message for effect in effects if isinstance(effect, ToScheduler)]


def freeing(name: str) -> Effect:
    return ToAgent(HOSTS[0], FreeLease(KernelId("k"), R1, name))


def lease(
    name: str, request: str = "", *, gpus: tuple[str, ...] = ("g0", "g1"), fence: int = 1
) -> GrantedLease:
    return GrantedLease(name, request, HOSTS[0], gpus, fence, 60.0)


@pytest.fixture
def leases() -> Leases:
    """Leases of a kernel whose scheduler listens."""
    found = Leases("k")
    found.scheduler.hosts_are(HOSTS)
    found.scheduler.open()
    found.came_up(0.0)
    return found


def computes(leases: Leases, cell: str = "m1", name: str = "l1") -> None:
    """Have a cell be granted a lease and begin."""
    leases.ask(cell, TWO)
    assert leases.wish is not None
    leases.hear(Granted(lease(name, leases.wish.request)), 0.0)
    leases.begins(cell, R1)
    leases.check_invariants()


def test_a_scheduler_is_looked_for_when_the_first_cell_asks_and_told_who_asks_then_what() -> None:
    leases = Leases("k")
    assert leases.scheduler.hosts_are(HOSTS) == []
    assert leases.ask("m1", GpuRequest(2, 20.0, "H100"), (HOSTS[1],)) == [OpenScheduler()]
    assert leases.ask("m1", GpuRequest(2, 20.0, "H100")) == []
    assert told(leases.came_up(0.0)) == [
        KernelHere(HOSTS),
        LeaseWish("k:m1", 2, (HOSTS[1],), "H100", 20.0),
    ]


def test_a_grant_is_the_cells_until_it_is_over_and_lingers_then(leases: Leases) -> None:
    computes(leases)
    held = leases.held_leases.of_cell("m1")
    assert held is not None and held.lease.gpus == ("g0", "g1")
    assert told(leases.over("m1", 1.5)) == [LeaseLingers("l1", 1, 1.5)]
    assert leases.held_leases.of_cell("m1") is None
    assert [held.lease.lease for held in leases.held_leases.lingering()] == ["l1"]


def test_every_lease_in_hand_is_renewed_at_a_third_of_its_time(leases: Leases) -> None:
    computes(leases, "m1", "l1")
    leases.over("m1", 1.0)
    computes(leases, "m2", "l2")
    assert leases.deadline() == 20.0
    assert leases.advance(19.9) == []
    assert told(leases.advance(20.0)) == [LeaseKept("l1", 1), LeaseKept("l2", 1)]
    assert leases.deadline() == 40.0


def test_a_grant_that_nobody_waits_for_goes_back(leases: Leases) -> None:
    leases.ask("m1", TWO)
    assert told(leases.leave("m1")) == [WishOver("k:m1")]
    effects, _ = leases.hear(Granted(lease("l1", "k:m1", fence=7)), 0.0)
    assert told(effects) == [LeaseBack("l1", 7)]
    assert leases.held_leases.by_id == {}


def test_a_cell_that_leaves_gives_its_grant_back(leases: Leases) -> None:
    leases.ask("m1", TWO)
    leases.hear(Granted(lease("l1", "k:m1")), 0.0)
    assert told(leases.leave("m1")) == [LeaseBack("l1", 1)]


def test_a_denial_and_a_refusal_name_why_and_nobody_is_told_that_such_a_wish_is_over(leases: Leases) -> None:
    leases.ask("m1", TWO)
    leases.hear(Denied("k:another", "not you"), 0.0)
    assert leases.fault_of("m1") is None
    leases.hear(Denied("k:m1", "No host has 2 GPUs."), 0.0)
    fault = leases.fault_of("m1")
    assert fault is not None and (fault.ename, fault.evalue) == (DENIED, "No host has 2 GPUs.")
    assert told(leases.leave("m1")) == []
    leases.ask("m2", TWO)
    leases.hear(Refused("Slower."), 0.0)
    fault = leases.fault_of("m2")
    assert fault is not None and fault.evalue == "Slower."


def test_a_scheduler_that_ends_has_refused_nothing(leases: Leases) -> None:
    leases.ask("m1", TWO)
    assert leases.hear(Refused(SCHEDULER_ENDS), 0.0)[0] == [], "it is no news: another one follows"
    assert leases.fault_of("m1") is None


def test_a_refusal_of_something_else_costs_no_cell_that_waits(leases: Leases) -> None:
    leases.ask("m1", TWO)
    leases.hear(Waiting("k:m1", 3, 12.0), 0.0)
    leases.hear(Refused("Slower."), 0.0)
    assert leases.fault_of("m1") is None


def test_who_waits_behind_a_scheduler_that_comes_back_asks_again_by_the_same_name(leases: Leases) -> None:
    computes(leases, "m1", "l1")
    leases.over("m1", 1.0)
    computes(leases, "m2", "l2")
    leases.over("m2", 1.0)
    leases.ask("m3", TWO)
    leases.went_down("It is away.")
    assert leases.advance(1000.0) == [] and leases.deadline() is None
    assert told(leases.came_up(1000.0)) == [
        KernelHere(HOSTS, leases=(HeldLease("l1", 1), HeldLease("l2", 1))),
        LeaseLingers("l1", 1),
        LeaseLingers("l2", 1),
        LeaseWish("k:m3", 2),
    ]
    assert leases.deadline() == 1020.0


def test_a_scheduler_that_is_gone_is_looked_for_while_it_has_to_hear_of_a_lease(leases: Leases) -> None:
    seek = [OpenScheduler(starts=False)]
    leases.went_down("It is away.")
    assert leases.is_missing("There is none.") == [], "it has nothing of ours"
    leases.scheduler.open()
    leases.came_up(1.0)
    computes(leases)
    leases.went_down("It is away again.")
    assert leases.is_missing("There is none.") == seek, "who comes back ends what nobody renews"
    assert leases.is_missing("None can be read.") == seek, "as often as it is given up"
    assert leases.scheduler.open() == [OpenScheduler()], "who needs one has it started"
    leases.is_missing("None starts.")
    leases.over("m1", 1.0, lost=True)
    assert leases.is_missing("There is none.") == seek, "it is owed what was given back"
    assert told(leases.came_up(2.0)) == [KernelHere(HOSTS), LeaseBack("l1", 1, 1.0)]
    assert leases.scheduler.open() == [], "it was found"
    leases.check_invariants()


def test_a_cell_that_waits_for_a_scheduler_which_went_away_has_it_looked_for_again(leases: Leases) -> None:
    assert leases.went_down("It is away.") == [], "nobody needs it"
    assert leases.ask("m1", TWO) == [OpenScheduler()]
    leases.came_up(1.0)
    assert leases.went_down("It is away again.") == [OpenScheduler()], "the wish waits still"
    leases.came_up(2.0)
    leases.hear(Denied("k:m1", "There is none."), 2.0)
    assert leases.went_down("It is away once more.") == [], "who was denied does not wait"


def test_a_lease_given_back_while_the_scheduler_was_away_is_told_when_it_returns(leases: Leases) -> None:
    computes(leases)
    leases.went_down("It is away.")
    assert leases.over("m1", 2.0, lost=True) == []
    assert told(leases.came_up(5.0)) == [KernelHere(HOSTS), LeaseBack("l1", 1, 2.0)]
    leases.went_down("It is away.")
    for number in range(OWED_MAX + 5):
        leases.hear(LeaseWanted(f"x{number}", 1, 30.0), 5.0)
    leases.check_invariants()


def test_a_lease_that_is_wanted_goes_back_when_its_process_has_left_the_gpus(leases: Leases) -> None:
    computes(leases)
    assert told(leases.hear(LeaseWanted("l1", 1, 30.0), 0.0)[0]) == []
    assert leases.over("m1", 1.0) == [ToScheduler(LeaseLingers("l1", 1, 1.0)), freeing("l1")]
    assert told(leases.freed(LeaseFreed(R1, "l1", 4000))) == [LeaseBack("l1", 1)]
    computes(leases, "m2", "l2")
    leases.over("m2", 1.0)
    assert leases.hear(LeaseWanted("l2", 1, 30.0), 0.0)[0] == [freeing("l2")]
    assert told(leases.freed(LeaseFreed(R1, "l2"))) == [LeaseBack("l2", 1)]
    assert told(leases.hear(LeaseWanted("l9", 4, 30.0), 0.0)[0]) == [LeaseBack("l9", 4)]
    assert leases.held_leases.by_id == {}


def test_a_lease_that_is_over_is_told_of_while_its_cell_computes_and_not_otherwise(leases: Leases) -> None:
    computes(leases)
    _, fallen = leases.hear(LeaseOver("l1", "expired"), 0.0)
    assert fallen is not None and (fallen.cell, fallen.why) == ("m1", "expired")
    assert leases.over("m1", 1.0) == []
    computes(leases, "m2", "l2")
    leases.over("m2", 1.0)
    assert leases.hear(LeaseOver("l2", "reused"), 0.0) == ([], None)
    assert leases.hear(LeaseOver("l3", "never known"), 0.0) == ([], None)


def test_a_cell_that_lost_its_grant_before_it_began_asks_anew_under_another_name(leases: Leases) -> None:
    leases.ask("m1", TWO)
    leases.hear(Granted(lease("l1", "k:m1")), 0.0)
    assert leases.hear(LeaseOver("l1", "host down"), 0.0) == ([], None)
    assert told(leases.ask("m1", TWO)) == [LeaseWish("k:m1:1", 2)]
    assert told(leases.again("m1", TWO, (HOSTS[1],))) == []
    leases.hear(Granted(lease("l2", "k:m1:1")), 0.0)
    assert told(leases.again("m1", TWO, (HOSTS[1],))) == [
        LeaseBack("l2", 1),
        LeaseWish("k:m1:2", 2, (HOSTS[1],)),
    ]


def test_a_lease_whose_gpus_a_newer_one_took_over_in_part_shrinks(leases: Leases) -> None:
    computes(leases)
    leases.over("m1", 1.0)
    leases.hear(LeaseShrank(lease("l1", gpus=("g1",))), 0.0)
    assert [held.lease.gpus for held in leases.held_leases.lingering()] == [("g1",)]


def test_a_lease_that_lingers_for_a_process_goes_back_with_it(leases: Leases) -> None:
    computes(leases)
    leases.over("m1", 1.0)
    assert told(leases.process_lost(ReplicaId("r2"))) == []
    assert told(leases.process_lost(R1)) == [LeaseBack("l1", 1)]


def test_a_release_gives_back_what_lingers_now_and_what_computes_later(leases: Leases) -> None:
    computes(leases, "m1", "l1")
    leases.over("m1", 1.0)
    computes(leases, "m2", "l2")
    assert leases.release() == [freeing("l1")]
    assert told(leases.freed(LeaseFreed(R1, "l1"))) == [LeaseBack("l1", 1)]
    assert leases.over("m2", 1.0) == [ToScheduler(LeaseLingers("l2", 1, 1.0)), freeing("l2")]
    assert told(leases.freed(LeaseFreed(R1, "l2"))) == [LeaseBack("l2", 1)]


def test_a_lease_whose_state_cannot_leave_its_gpus_is_kept(leases: Leases) -> None:
    computes(leases)
    leases.over("m1", 1.0)
    leases.hear(LeaseWanted("l1", 1, 30.0), 2.0)
    kept = LeaseFreed(R1, "l1", 0, "a CUDA graph holds it")
    assert not leases.is_kept("l1")
    assert told(leases.freed(kept)) == [LeaseKept("l1", 1, stays=True)], "nobody may be given these GPUs"
    assert leases.is_kept("l1")
    assert [held.lease.lease for held in leases.held_leases.lingering()] == ["l1"]
    assert leases.hear(LeaseWanted("l1", 1, 30.0), 3.0)[0] == [freeing("l1")]
    assert told(leases.freed(kept)) == []


def test_a_notebook_that_could_not_leave_its_gpu_tries_again_with_each_renewal(
    leases: Leases,
) -> None:
    computes(leases)
    leases.over("m1", 1.0)
    leases.hear(LeaseWanted("l1", 1, 30.0), 2.0)
    leases.freed(LeaseFreed(R1, "l1", 0, "a thread computes"))
    again = [ToScheduler(LeaseKept("l1", 1, stays=True)), freeing("l1")]
    assert leases.advance(20.0) == again
    leases.freed(LeaseFreed(R1, "l1", 0, "a thread computes"))
    assert leases.advance(40.0) == again
    assert told(leases.freed(LeaseFreed(R1, "l1"))) == [LeaseBack("l1", 1)]
    assert leases.advance(60.0) == []


def test_a_lease_lasts_for_as_long_as_state_that_is_leaving_is_seen_on_its_gpus(leases: Leases) -> None:
    computes(leases)
    leases.over("m1", 1.0, gpu_bytes=1)
    assert leases.used(R1, ["g0"]) == [], "nobody wants it back"
    leases.hear(LeaseWanted("l1", 1, 30.0), 2.0)
    assert told(leases.used(R1, ["g0"])) == [LeaseKept("l1", 1, leaves=True)]
    assert leases.used(R1, ["g0", "g7"]) == [], "it is told with each renewal from now on"
    assert told(leases.advance(20.0)) == [LeaseKept("l1", 1, leaves=True)]
    assert leases.used(R1, ["g7"]) == []
    assert told(leases.advance(40.0)) == [LeaseKept("l1", 1)], "nothing is there any more"
    assert told(leases.freed(LeaseFreed(R1, "l1"))) == [LeaseBack("l1", 1)]


def test_a_lease_that_is_over_before_its_process_has_left_is_told_of(leases: Leases) -> None:
    computes(leases)
    leases.over("m1", 1.0, gpu_bytes=1)
    leases.hear(LeaseWanted("l1", 1, 30.0), 2.0)
    assert leases.may_be_used("l1")
    effects, fallen = leases.hear(LeaseOver("l1", "not given back"), 32.0)
    assert fallen is None
    assert "g0, g1" in str(effects) and "not given back" in str(effects)
    assert leases.freed(LeaseFreed(R1, "l1")) == []


def test_the_end_of_a_lease_is_no_alarm_where_the_notebook_had_nothing_on_its_gpus(leases: Leases) -> None:
    computes(leases)
    leases.over("m1", 1.0)
    leases.hear(LeaseWanted("l1", 1, 30.0), 2.0)
    assert not leases.may_be_used("l1")
    assert leases.hear(LeaseOver("l1", "not given back"), 32.0) == ([], None)


def test_a_lease_that_a_newer_one_of_the_kernel_took_over_is_not_told_of(leases: Leases) -> None:
    computes(leases)
    leases.over("m1", 1.0)
    leases.hear(LeaseWanted("l1", 1, 30.0), 2.0)
    computes(leases, "m2", "l2")
    assert leases.hear(LeaseOver("l1", "reused"), 3.0) == ([], None)


def test_an_answer_about_a_lease_that_computes_again_or_of_another_process_gives_nothing_back(
    leases: Leases,
) -> None:
    computes(leases)
    assert leases.freed(LeaseFreed(R1, "l1")) == []
    leases.over("m1", 1.0)
    assert leases.freed(LeaseFreed(R1, "l1")) == [], "nobody has asked"
    leases.hear(LeaseWanted("l1", 1, 30.0), 2.0)
    assert leases.freed(LeaseFreed(ReplicaId("r2"), "l1")) == []
    assert told(leases.process_lost(R1)) == [LeaseBack("l1", 1)]
    assert leases.freed(LeaseFreed(R1, "l1")) == []


def test_without_a_scheduler_a_wish_fails_and_the_next_one_looks_again() -> None:
    leases = Leases("k", governed=True)
    leases.ask("m1", TWO)
    leases.is_missing("start one")
    fault = leases.fault_of("m1")
    assert fault is not None and (fault.ename, fault.evalue) == (NO_SCHEDULER, "start one")
    assert not leases.scheduler.governed
    leases.leave("m1")
    assert leases.ask("m2", TWO) == [OpenScheduler()]


def test_a_kernel_that_rests_has_nothing_and_says_so_when_it_wakes(leases: Leases) -> None:
    computes(leases)
    assert told(leases.kernel_rests()) == [KernelGone()]
    assert told(leases.came_up(1.0)) == []
    assert leases.scheduler.hosts_are((HOSTS[0],)) == []
    assert told(leases.scheduler.kernel_wakes()) == [KernelHere((HOSTS[0],))]
    assert leases.held_leases.by_id == {}


def test_the_notebooks_path_is_told_printable_and_of_a_long_one_the_end() -> None:
    for path, shown in (
        ("work/train.ipynb", "work/train.ipynb"),
        ("a\x1b[31m\n\udc80.ipynb", "a\ufffd[31m\ufffd\ufffd.ipynb"),
        ("/very" * 100 + "/a.ipynb", "…" + ("/very" * 100 + "/a.ipynb")[-199:]),
    ):
        leases = Leases("k", notebook=path)
        leases.scheduler.hosts_are(HOSTS)
        leases.scheduler.open()
        assert told(leases.came_up(0.0)) == [KernelHere(HOSTS, notebook=shown)]
        decode_from_client(encode(KernelHere(HOSTS, notebook=shown)))


def test_a_default_is_told_within_what_one_lease_can_have(leases: Leases) -> None:
    assert told(leases.scheduler.prefer(GpuRequest(2, 20.0, "H100"))) == [KernelHere(HOSTS, 2, "H100", 20.0)]
    assert told(leases.scheduler.prefer(GpuRequest(100))) == [KernelHere(HOSTS, GPUS_OF_LEASE_MAX)]
    assert told(leases.scheduler.prefer(None)) == [KernelHere(HOSTS)]
    assert told(leases.scheduler.hosts_are(HOSTS)) == []
    assert told(leases.scheduler.hosts_are((HOSTS[1],))) == [KernelHere((HOSTS[1],))]


def test_a_kernel_subscribes_to_its_request_from_the_beginning_until_its_notebook_asks_for_more() -> None:
    leases = Leases("k", request=GpuRequest(1, cpu=2.0, memory_gib=16.0), tells=True)
    leases.scheduler.hosts_are(HOSTS)
    assert leases.scheduler.begin() == [OpenScheduler()]
    assert told(leases.came_up(0.0)) == [KernelHere(HOSTS, 1, cpu=2.0, memory_gb=16.0)]
    assert told(leases.scheduler.prefer(GpuRequest(2))) == [KernelHere(HOSTS, 2)]
    assert told(leases.scheduler.prefer(None)) == [KernelHere(HOSTS, 1, cpu=2.0, memory_gb=16.0)]
    assert Leases("k", request=GpuRequest(1)).scheduler.begin() == []


def test_a_cell_s_process_is_held_to_its_cores_and_memory_and_has_all_again_however_it_ends(
    leases: Leases,
) -> None:
    asked = GpuRequest(2, cpu=1.5, memory_gib=0.5)

    def limit(cpu: float = 0.0, memory_bytes: int = 0) -> Effect:
        return ToAgent(HOSTS[0], LimitReplica(KernelId("k"), R1, cpu, memory_bytes))

    def begin(cell: str, name: str) -> list[Effect]:
        leases.ask(cell, asked)
        assert leases.wish is not None
        wish = leases.wish.message()
        assert (wish.cpu, wish.memory_gb) == (1.5, 0.5)
        leases.hear(Granted(lease(name, wish.request)), 0.0)
        return leases.begins(cell, R1)

    assert begin("m1", "l1") == [limit(1.5, 2**29)]
    assert leases.over("m1", 1.0)[0] == limit()
    assert limit() not in leases.over("m1", 1.0)
    begin("m2", "l2")
    leases.hear(LeaseOver("l2", "expired"), 1.0)
    assert leases.over("m2", 1.0) == [limit()]
    begin("m3", "l3")
    assert leases.begins("m3", None) == [limit()]
    assert begin("m3", "l3") == [limit(1.5, 2**29)]
    assert leases.over("m3", None, lost=True)[0] == limit()
    leases.resumed(lease("l4"), "m4", R1, 2.0, asked)
    assert leases.over("m4", 1.0)[0] == limit()
    leases.resumed(lease("l5"), "m5", R1, 2.0, TWO)
    assert limit() not in leases.over("m5", 1.0)


def test_a_router_that_takes_over_holds_what_runs_and_the_last_of_what_does_not() -> None:
    leases = Leases("k")
    assert leases.resumed(lease("l1"), "", R1, 0.0) == [OpenScheduler()]
    leases.resumed(lease("l2", fence=2), "", R1, 0.0)
    leases.resumed(lease("l3", fence=3), "m3", R1, 0.0)
    assert told(leases.came_up(1.0)) == [
        KernelHere(HOSTS[:0], leases=(HeldLease("l2", 2), HeldLease("l3", 3))),
        LeaseLingers("l2", 2),
    ]
    _, fallen = leases.hear(LeaseOver("l3", "expired"), 1.0)
    assert fallen is not None and fallen.cell == "m3"


def test_a_client_s_long_message_id_still_makes_a_name_that_the_wire_takes(leases: Leases) -> None:
    leases.ask("m" * 5000, TWO)
    assert leases.wish is not None and len(leases.wish.request) <= 200
    first = leases.wish.request
    leases.ask("n" + "m" * 4999, TWO)
    assert leases.wish.request != first


def test_no_more_leases_are_held_than_can_be_told_of(leases: Leases) -> None:
    for number in range(LEASES_TOLD_MAX + 3):
        computes(leases, f"m{number}", f"l{number}")
        leases.over(f"m{number}", 1.0)
    assert len(leases.held_leases.by_id) == LEASES_TOLD_MAX
    assert "l0" not in leases.held_leases.by_id


def part_of_one(name: str, request: str) -> GrantedLease:
    return GrantedLease(name, request, HOSTS[0], ("g0",), 1, 60.0, part=0.5, vram_gb=40.0)


def test_a_part_of_a_gpu_is_asked_for_and_always_held_to_its_memory(leases: Leases) -> None:
    half = GpuRequest(1, part=0.5, shared=True)
    (wish,) = told(leases.ask("m1", half))
    assert isinstance(wish, LeaseWish)
    assert (wish.gpus, wish.part, wish.shared) == (1, 0.5, True)
    leases.hear(Granted(part_of_one("l1", wish.request)), 1.0)
    assert leases.vram_limit("m1") == 40.0, "though REPLKERNEL_VRAM says nothing"


def test_a_cell_that_only_reaches_what_lies_on_a_part_asks_for_the_same_part(leases: Leases) -> None:
    half = GpuRequest(1, 8.0, part=0.5)
    (wish,) = told(leases.ask("m1", half))
    assert leases.like_before(1) == GpuRequest(1)
    assert isinstance(wish, LeaseWish)
    leases.hear(Granted(part_of_one("l1", wish.request)), 1.0)
    assert leases.like_before(1) == half
    assert leases.like_before(2) == TWO


def test_a_router_that_takes_over_knows_the_part_that_its_notebook_has() -> None:
    leases = Leases("k")
    leases.resumed(part_of_one("l1", "r1"), "", R1, 0.0)
    assert leases.like_before(1) == GpuRequest(1, 40.0, part=0.5)
    leases.resumed(replace(part_of_one("l2", "r2"), shared=True), "", R1, 0.0)
    assert leases.like_before(1) == GpuRequest(1, 40.0, part=0.5, shared=True), "it is shared as before"
