"""GPUs on several hosts for one cell: all at once or not at all, in the core that everybody else asks."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replkernel_scheduler.effects import ReclaimLease, UsageRecorded
from replkernel_scheduler.events import (
    HostAway,
    HostDown,
    HostDrained,
    HostUndrained,
    KernelEnded,
    LeaseReleased,
    LeaseWithdrawn,
    PricesSet,
    QuotaSet,
)
from replkernel_scheduler.gangs.desk import END_S, LEASE_S
from replkernel_scheduler.gangs.types import (
    GangAsked,
    GangEnds,
    GangGranted,
    GangId,
    GangLeased,
    GangLeaseEnded,
    GangLeft,
    GangOver,
    GangSpec,
    GangWaits,
)
from replkernel_scheduler.harvest.types import HarvestEffect, HarvestEvent
from replkernel_scheduler.types import HostName, KernelId, Lease, Prices, RequestId, UserName, UserQuota

from tests.support.examples import examples
from tests.unit.scheduler.beside import Beside, of


class World(Beside):
    """A core with hosts of four GPUs, and gangs by short names."""

    def __init__(self, hosts: str = "a b") -> None:
        super().__init__()
        for name in hosts.split():
            self.host(name, 4)

    def gang(
        self, name: str, gpus: int, hosts: int = 2, among: str = "", user: str = "ann"
    ) -> list[HarvestEffect]:
        spec = GangSpec(
            gang=GangId(name),
            kernel_id=KernelId(f"kernel-of-{name}"),
            user=UserName(user),
            gpus=gpus,
            hosts=hosts,
            among=tuple(HostName(host) for host in among.split()),
        )
        return self.feed(GangAsked(spec))

    def leave(self, name: str, unsure: str = "") -> list[HarvestEffect]:
        return self.feed(GangLeft(GangId(name), tuple(HostName(host) for host in unsure.split())))

    def idle(self) -> int:
        return sum(self.core.core.room(host).gpus for host in self.core.core.hosts_up())


def granted(effects: list[HarvestEffect]) -> dict[str, list[str]]:
    """Return the hosts of each gang that is told of its leases."""
    return {str(each.gang): [str(lease.host) for lease in each.leases] for each in of(GangGranted, effects)}


def over(effects: list[HarvestEffect]) -> list[tuple[str, bool]]:
    return [(each.why, each.refused) for each in of(GangOver, effects)]


def test_a_gang_has_all_of_its_hosts_at_once() -> None:
    world = World()
    effects = world.gang("g", 4)
    (one,) = of(GangGranted, effects)
    assert [(lease.host, len(lease.gpus)) for lease in one.leases] == [("a", 4), ("b", 4)]
    assert world.idle() == 0
    assert over(world.leave("g")) == [("", False)]
    assert world.idle() == 8


def test_a_gang_is_told_of_nothing_before_it_has_all() -> None:
    world = World()
    world.cell("c", 1, "b")
    effects = world.gang("g", 4)
    assert granted(effects) == {}
    (waits,) = of(GangWaits, effects)
    assert (waits.place, waits.has) == (1, 1)
    world.over("c")
    _, _, effects = world.journal[-1]
    assert granted(effects) == {"g": ["a", "b"]}


def test_gpus_that_a_gang_gathers_are_not_given_to_others() -> None:
    world = World()
    world.cell("c", 1, "b")
    world.gang("g", 4, user="")
    world.cell("later", 1)  # Three idle GPUs of b are claimed, those of a are the gang's.
    assert "later" not in world.cells
    world.over("c")
    assert granted(world.journal[-1][2]) == {"g": ["a", "b"]}
    world.leave("g")
    assert "later" in world.cells


def test_lingering_gpus_are_asked_back_for_a_gang() -> None:
    world = World()
    world.cell("c", 2, "b")
    world.over("c", lingers=True)
    effects = world.gang("g", 4)
    assert granted(effects) == {}
    assert [each.lease.request for each in of(ReclaimLease, effects)] == ["c"]


@pytest.mark.parametrize(
    ("gpus", "hosts", "why"),
    [
        (8, 2, "No two hosts have 8 GPUs each: 2 hosts have 4 GPUs each at most."),
        (4, 3, "No three hosts have 4 GPUs each: 2 hosts could serve this user, with 4 GPUs each at most."),
        (4, 1, "A cell runs on 2 to 64 hosts with a GPU at least on each, not on 1."),
    ],
)
def test_a_gang_that_no_hosts_could_serve_is_refused_by_name(gpus: int, hosts: int, why: str) -> None:
    world = World()
    assert over(world.gang("g", gpus, hosts)) == [(why, True)]
    assert world.idle() == 8


def test_a_gang_stays_on_the_hosts_that_it_may_have() -> None:
    world = World("a b c")
    assert granted(world.gang("g", 2, among="a c")) == {"g": ["a", "c"]}
    assert over(world.gang("h", 2, among="a")) == [
        ("No two hosts have 2 GPUs each: one host could serve this user.", True)
    ]


def test_a_quota_counts_a_gang_as_a_whole() -> None:
    world = World()
    world.feed(QuotaSet(UserName("ann"), UserQuota(gpu_quota=4)))
    assert over(world.gang("g", 4)) == [
        ("The gpu_quota of ann is 4 GPUs at once, and this asks for 8.", True)
    ]
    assert granted(world.gang("h", 2)) == {"h": ["a", "b"]}
    refused = over(world.gang("i", 1))
    assert refused[0][1] and "4 are in use" in refused[0][0]
    assert world.idle() == 4


def test_a_quota_that_is_in_use_refuses_a_gang_before_it_has_its_first_host() -> None:
    world = World()
    world.feed(PricesSet(Prices((("", 1.0),), factor=1.0)))
    world.feed(QuotaSet(UserName("ann"), UserQuota(gpu_quota=4)))
    assert granted(world.gang("h", 1)) == {"h": ["a", "b"]}
    effects = world.gang("g", 2)
    assert over(effects) == [
        (
            "The gpu_quota of ann is 4 GPUs at once; 2 are in use, 0 are waited for, and this asks for 4.",
            True,
        )
    ]
    assert not of(UsageRecorded, effects) and not of(GangLeased, effects)


def test_a_gang_that_waited_is_held_against_what_is_in_use_by_then() -> None:
    world = World("a b c d")
    world.feed(QuotaSet(UserName("ann"), UserQuota(gpu_quota=8)))
    world.cell("long", 1, "a")
    world.gang("first", 4, 2, among="a b", user="bob")
    world.cell("other", 4, "c")
    world.gang("g", 3, 2, among="c d")
    assert granted(world.gang("h", 2, 2, among="d b")) == {}
    world.feed(QuotaSet(UserName("ann"), UserQuota(gpu_quota=4)))
    world.over("other")
    ((why, refused),) = over(world.journal[-1][2])
    assert refused and "quota of ann is 4 GPUs at once; 0 are in use" in why and "asks for 6" in why


def test_two_gangs_never_wait_for_each_other() -> None:
    world = World("a b c")
    world.cell("c1", 1, "c")
    world.gang("g", 4, 3)
    world.gang("h", 4, 3)
    assert of(GangWaits, world.journal[-1][2])[-1].place == 2
    world.over("c1")
    assert granted(world.journal[-1][2]) == {"g": ["a", "b", "c"]}
    assert granted(world.leave("g")) == {"h": ["a", "b", "c"]}


def test_a_gang_behind_another_one_is_served_where_all_of_it_is_idle() -> None:
    world = World("a b c d")
    world.cell("long", 4, "a")
    world.gang("first", 4, 2, among="a b")
    assert granted(world.gang("second", 4, 2, among="c d")) == {"second": ["c", "d"]}
    assert granted(world.gang("third", 4, 2, among="b c")) == {}
    assert world.core.gangs.by_id[GangId("third")].leases == {}


def test_a_host_that_goes_takes_the_whole_gang_with_it() -> None:
    world = World()
    world.gang("g", 4)
    effects = world.feed(HostDown(HostName("b")))
    why = "The lease on host b is over (host down), so those on the others are, too."
    assert of(GangEnds, effects) == [GangEnds(GangId("g"), (HostName("a"),), why)]
    assert world.idle() == 0, "its processes on a are not over yet"
    effects = world.leave("g")
    assert over(effects) == [("", False)] and world.idle() == 4
    assert [each.lease.host for each in of(GangLeaseEnded, effects)] == ["a"]


def test_gpus_that_a_gang_still_computes_on_are_nobody_elses_until_it_has_ended() -> None:
    world = World()
    world.gang("g", 4)
    world.cell("next", 4)
    world.cell("after", 4)
    lease = next(iter(world.core.gangs.by_id[GangId("g")].leases.values()))
    world.feed(LeaseReleased(lease.lease, lease.fence))
    assert set(world.cells) & {"next", "after"} == {"next"}, "the host that was given back, and no other"
    world.leave("g")
    assert "after" in world.cells


def test_a_gang_that_is_not_heard_of_while_it_ends_is_over_after_a_bound() -> None:
    world = World()
    world.gang("g", 4)
    world.feed(HostDown(HostName("b")))
    world.until(END_S - 0.5)
    assert world.idle() == 0
    world.until(END_S)
    assert world.idle() == 4 and not world.core.gangs.by_id


def test_hosts_of_which_a_gang_knows_nothing_are_kept_a_while_longer_than_the_others() -> None:
    world = World()
    world.gang("g", 4)
    effects = world.leave("g", unsure="b")
    assert of(GangEnds, effects) == [GangEnds(GangId("g"), (HostName("b"),))]
    assert world.idle() == 4 and not over(effects)
    world.until(END_S - 0.5)
    world.leave("g", unsure="b")
    assert world.idle() == 4
    world.until(END_S)
    assert world.idle() == 8, "saying it again makes it no longer"


def test_a_gang_that_gathers_is_refused_once_its_hosts_are_gone() -> None:
    world = World()
    world.cell("c", 1, "b")
    world.gang("g", 4)
    assert over(world.feed(HostDown(HostName("b")))) == [
        ("No two hosts have 4 GPUs each: one host could serve this user.", True)
    ]
    assert world.idle() == 4


def test_a_gang_that_gathers_looks_elsewhere_for_a_host_that_went() -> None:
    world = World("a b c")
    world.cell("c", 1, "b")
    world.cell("d", 1, "c")
    world.gang("g", 4)
    world.feed(HostDown(HostName("a")))
    world.over("c")
    world.over("d")
    assert granted(world.journal[-1][2]) == {"g": ["b", "c"]}


@pytest.mark.parametrize("undrained", [False, True])
def test_a_gang_that_gathers_has_a_host_that_comes_later(undrained: bool) -> None:
    world = World("a b n" if undrained else "a b")
    if undrained:
        world.feed(HostDrained(HostName("n")))
    world.cell("c", 4, "b")
    world.gang("g", 4)
    if undrained:
        effects = world.feed(HostUndrained(HostName("n")))
    else:
        world.host("n", 4)
        effects = world.journal[-1][2]
    assert granted(effects) == {"g": ["a", "n"]}


def test_a_gang_keeps_what_it_gathered_however_long_that_takes() -> None:
    world = World()
    world.cell("c", 4, "b")
    world.gang("g", 4)
    world.until(1.1 * LEASE_S)
    assert world.core.gangs.by_id[GangId("g")].leases, "it has waited for longer than leases last"
    world.over("c")
    assert granted(world.journal[-1][2]) == {"g": ["a", "b"]}
    world.until(3 * LEASE_S)
    assert world.idle() == 0 and GangId("g") in world.core.gangs.by_id


def test_asking_again_is_the_same_gang() -> None:
    world = World()
    world.gang("g", 4)
    assert granted(world.gang("g", 4)) == {"g": ["a", "b"]}
    assert world.leave("unknown") == []


def test_a_gang_lasts_until_its_asker_leaves() -> None:
    world = World()
    world.gang("g", 4)
    world.until(10 * 86_400.0)
    assert world.idle() == 0


def test_jobs_make_room_for_a_gang() -> None:
    world = World()
    world.submit("j", 2)
    world.runs("j")
    assert granted(world.gang("g", 4)) == {}
    assert world.processes and all(each.told for each in world.processes.values())
    assert granted(world.stopped("j")) == {"g": ["a", "b"]}


def test_a_gangs_use_is_accounted_to_its_user_and_kernel() -> None:
    world = World()
    world.feed(PricesSet(Prices((("", 1.0),), factor=1.0)))
    world.gang("g", 2)
    world.until(3600.0)
    rows = [each.usage for each in of(UsageRecorded, world.leave("g"))]
    assert {(row.kernel_id, row.user, row.host, row.gpus) for row in rows} == {
        ("kernel-of-g", "ann", "a", 2),
        ("kernel-of-g", "ann", "b", 2),
    }
    (ann,) = [each for each in world.core.core.view().users if each.user == "ann"]
    assert ann.usage.gpu_s == pytest.approx(4 * 3600.0)
    assert sum(row.cost for row in rows if isinstance(row.cost, float)) == pytest.approx(4.0)


STEPS_S = (0.0, 0.0, 1.0, 30.0, 700.0, 50_000.0)
steps = st.lists(
    st.tuples(st.sampled_from(STEPS_S), st.integers(0, 11), st.integers(0, 40), st.integers(0, 5)),
    max_size=40,
)


class Story(World):
    """Numbers become events."""

    def __init__(self) -> None:
        super().__init__("a b c")
        self.named = 0

    def _leases(self, gang: GangId) -> list[Lease]:
        return list(self.core.gangs.by_id[gang].leases.values())

    def play(self, after_s: float, kind: int, which: int, size: int) -> None:
        self.until(self.now + after_s)
        self.named += 1
        gangs = list(self.core.gangs.by_id)
        host = HostName("abc"[which % 3])
        match kind:
            case 0 | 1 | 2:
                among = ("", "a b", "b c a")[which % 3]
                self.gang(f"g{self.named}", 1 + size % 4, 2 + which % 2, among)
            case 3 | 4 if gangs:
                self.leave(gangs[which % len(gangs)], ("", "", "b", "a b c")[size % 4])
            case 5 | 6:
                self.cell(f"c{self.named}", 1 + size % 4, ("", host)[which % 2], f"k{which % 3}")
            case 7 | 8 if self.cells:
                self.over(sorted(self.cells)[which % len(self.cells)], lingers=kind == 7)
            case 9:
                self.submit(f"j{self.named}", 1 + size % 4)
            case 10 if size == 0:
                self.feed(HostDown(host))
                self.host(host, 4)
            case 10 if size == 1:
                self.feed(HostAway(host))
                self.host(host, 4 - which % 2)
            case 10 if size == 2:
                self.feed(HostDrained(host))
                self.feed(HostUndrained(host))
            case 10 if size == 4 and (held := [gang for gang in gangs if self._leases(gang)]):
                lease = self._leases(held[which % len(held)])[0]
                self.feed(LeaseReleased(lease.lease, lease.fence))
            case 10 if size == 3:
                self.feed(QuotaSet(UserName("ann"), UserQuota(gpu_quota=(4, 8, None)[which % 3])))
            case 10:
                self.feed(KernelEnded(KernelId(f"k{which % 3}")))
            case 11 if self.processes:
                self.stopped(sorted(self.processes)[which % len(self.processes)])
            case 11:
                self.feed(LeaseWithdrawn(RequestId(f"c{which}")))
            case _:
                pass
        self.until(self.now)


@pytest.mark.timeout(300)
@settings(max_examples=examples(120, 12), deadline=None)
@given(story=steps)
def test_a_gang_has_all_or_nothing_in_any_story(story: list[tuple[float, int, int, int]]) -> None:
    world = Story()
    for step in story:
        world.play(*step)
    for gang in list(world.core.gangs.by_id):
        world.leave(gang)
    assert not [lease for lease in world.core.core.view().leases if lease.lease.request.startswith("gang.")]
    assert not [each for each in world.core.core.view().waiting if each.request.request.startswith("gang.")]


@pytest.mark.timeout(300)
@settings(max_examples=examples(40), deadline=None)
@given(story=steps, every=st.integers(1, 5))
def test_a_service_that_is_killed_goes_on_with_its_gangs(
    story: list[tuple[float, int, int, int]], every: int
) -> None:
    whole, killed = Story(), Story()
    for number, step in enumerate(story):
        whole.play(*step)
        killed.play(*step)
        if number % every == 0:
            killed.restart()
    assert msgspec.msgpack.encode(killed.journal) == msgspec.msgpack.encode(whole.journal)
    again = Beside()
    for event, at, effects in whole.journal:
        written = msgspec.json.encode(event)
        assert again.core.handle(msgspec.json.decode(written, type=HarvestEvent), at) == effects


def test_every_lease_of_a_gang_is_told_to_whom_it_concerns() -> None:
    world = World()
    effects = world.gang("g", 4)
    assert {each.lease.host for each in of(GangLeased, effects)} == {"a", "b"}
    assert {each.lease.host for each in of(GangLeaseEnded, world.leave("g"))} == {"a", "b"}
