"""Cells that leave their GPUs idle: told with the figure, by setting interrupted, not without readings."""

from __future__ import annotations

import pytest
from msgspec import UNSET
from msgspec.structs import replace
from replkernel_scheduler.types import (
    Fence,
    GpuUuid,
    HostName,
    KernelId,
    Lease,
    LeaseId,
    RequestId,
    Share,
    UserQuota,
)
from replkernel_server.errors import ServiceSettingError
from replkernel_server.scheduling.desk_words import Joined, Left
from replkernel_server.scheduling.identity import IdentityUnknown
from replkernel_server.scheduling.quotas import quota_of
from replkernel_server.scheduling.underuse import Idle, Rule, Underuse, read_rule

from replkernel.leasing import wire
from replkernel.leasing.wire import GpuUse
from tests.unit.scheduler.desk import ALICE, ROOT, Room

HOST = HostName("a")
LEASE = Lease(
    LeaseId("l"), RequestId("r"), KernelId("k"), HOST, (GpuUuid("g0"), GpuUuid("g1")), Fence(1), 60.0, 60.0
)
RULE = Rule(0.05, 100.0, 200.0)
EVERY_S = 2.0


class Day:
    """One lease, and readings of its GPUs each two seconds."""

    def __init__(
        self, rule: Rule | None = RULE, lease: Lease = LEASE, quota: UserQuota | None = None
    ) -> None:
        self.underuse, self.now = Underuse(rule), 0.0
        self.underuse.began(lease, 0.0, quota)

    def passes(self, seconds: float, *shares: float, read: bool = True, hears: bool = True) -> list[Idle]:
        """Have the GPUs compute these shares for a while; return what is told."""
        told: list[Idle] = []
        for _ in range(round(seconds / EVERY_S)):
            self.now += EVERY_S
            uses = [GpuUse(f"g{number}", share, read=read) for number, share in enumerate(shares)]
            told += self.underuse.seen(HOST, uses, self.now, lambda _: hears)
        return told


def test_a_cell_is_told_once_with_what_its_gpus_did_and_interrupted_later() -> None:
    day = Day()
    assert day.passes(98.0, 0.01, 0.03) == []
    (told,) = day.passes(100.0, 0.01, 0.03)
    assert (told.kernel_id, told.lease, told.for_s, told.ends_in_s) == ("k", "l", 100.0, 200.0)
    assert told.share == pytest.approx(0.02)
    (ended,) = day.passes(400.0, 0.01, 0.03)
    assert (ended.for_s, ended.ends_in_s) == (300.0, 0.0)


def test_a_lease_that_is_told_of_again_does_not_begin_the_time_anew() -> None:
    day = Day()
    assert day.passes(98.0, 0.01, 0.03) == []
    day.underuse.began(LEASE, day.now)
    assert len(day.passes(4.0, 0.01, 0.03)) == 1


def test_without_that_setting_nobody_is_interrupted() -> None:
    day = Day(Rule(0.05, 100.0))
    (told,) = day.passes(5_000.0, 0.0, 0.0)
    assert told.ends_in_s is None
    assert Day(None).passes(5_000.0, 0.0, 0.0) == []


@pytest.mark.parametrize("busy", [(0.05, 0.05), (0.1, 0.0), (0.0, 1.0)])
def test_one_reading_at_the_bound_begins_the_time_anew(busy: tuple[float, float]) -> None:
    day = Day()
    assert day.passes(98.0, 0.0, 0.0) + day.passes(EVERY_S, *busy) + day.passes(98.0, 0.0, 0.0) == []
    assert len(day.passes(EVERY_S, 0.0, 0.0)) == 1
    assert day.passes(190.0, 0.0, 0.0) + day.passes(EVERY_S, *busy) + day.passes(98.0, 0.0, 0.0) == []
    (again,) = day.passes(EVERY_S, 0.0, 0.0)
    assert again.ends_in_s == 200.0, "who was interrupted would have been told that long before"


def test_a_gpu_that_nobody_has_read_is_no_reason() -> None:
    assert Day().passes(5_000.0, 0.0, 0.0, read=False) == [], "so of an agent that does not say it either"
    assert Day().passes(5_000.0, 0.0) == [], "one of two GPUs is not read"
    day = Day()
    assert day.passes(98.0, 0.0, 0.0) == []
    day.now += 60.0  # The agent was away.
    assert day.passes(100.0, 0.0, 0.0) == []


def test_who_could_not_be_told_is_told_later_and_interrupted_no_sooner_after_that() -> None:
    day = Day()
    assert day.passes(1_000.0, 0.0, 0.0, hears=False) == []
    (told,) = day.passes(198.0, 0.0, 0.0)
    assert told.ends_in_s == 200.0
    assert day.passes(50.0, 0.0, 0.0, hears=False) == []
    (ended,) = day.passes(EVERY_S, 0.0, 0.0)
    assert ended.ends_in_s == 0.0


def test_a_cell_that_is_over_and_a_part_of_a_gpu_are_not_looked_at() -> None:
    day = Day()
    day.underuse.over(LEASE.lease)
    day.underuse.over(LEASE.lease)
    assert day.passes(5_000.0, 0.0, 0.0) == []
    assert Day(lease=replace(LEASE, share=Share(500))).passes(5_000.0, 0.0, 0.0) == []


def test_the_setting_is_read_or_refused_by_name() -> None:
    assert read_rule("X", "") is None
    assert read_rule("X", "below=5 minutes=15") == Rule(0.05, 900.0)
    assert read_rule("X", "below=5 minutes=0.5 interrupt=30") == Rule(0.05, 30.0, 1800.0)
    for wrong in (
        "5",
        "below=5",
        "minutes=3",
        "below=0 minutes=1",
        "below=101 minutes=1",
        "below=5 minutes=nan",
    ):
        with pytest.raises(ServiceSettingError, match="write it like 'below=5 minutes=15 interrupt=30'"):
            read_rule("X", wrong)


def test_a_kernels_router_hears_of_its_own_cell_while_that_runs() -> None:
    room = Room()
    agent = room.agent("a", 2, ROOT)
    room.desk.follows(RULE, room.core.view(), room.now)
    router = room.join("router", "k", ALICE)
    room.say(router, wire.KernelHere(("a",)))
    room.say(router, wire.LeaseWish("r", 2))
    granted = next(message for message in room.heard[router] if isinstance(message, wire.Granted)).lease

    def beats(seconds: int) -> list[wire.LeaseIdle]:
        before = len(room.heard[router])
        for _ in range(seconds // 2):
            room.wait(2.0)
            room.say(agent, wire.HostBeat(tuple(GpuUse(gpu, 0.01, read=True) for gpu in granted.gpus)))
        return [message for message in room.heard[router][before:] if isinstance(message, wire.LeaseIdle)]

    assert beats(98) == []
    room.say(router, wire.LeaseKept(granted.lease, granted.fence))
    assert beats(2) == [wire.LeaseIdle(granted.lease, 0.01, 100.0, 200.0)], "a renewal begins nothing anew"
    room.say(router, wire.LeaseLingers(granted.lease, granted.fence))
    assert beats(1_000) == []
    room.say(router, wire.LeaseWish("r2", 2))
    assert len(beats(100)) == 1, "the next cell has a time of its own"


def test_a_cell_whose_router_is_away_is_told_first_and_interrupted_as_long_after_that() -> None:
    room = Room()
    agent, router = room.agent("a", 1, ROOT), room.router("k")
    lease = room.lease(router, "r")
    room.desk.follows(Rule(0.05, 10.0, 20.0), room.core.view(), room.now)

    def beats(seconds: int) -> None:
        for _ in range(seconds // 2):
            room.wait(2.0)
            room.say(agent, wire.HostBeat((GpuUse(lease.gpus[0], 0.0, read=True),)))

    room.do(room.desk.handle(Left(router), room.now))
    beats(40)
    back = room.join("router", "k")
    room.say(back, wire.KernelHere(("a",), leases=(wire.HeldLease(lease.lease, lease.fence),)))  # type: ignore[arg-type]
    beats(18)
    assert [said.ends_in_s for said in room.heard[back] if isinstance(said, wire.LeaseIdle)] == [20.0]
    beats(4)
    assert [said.ends_in_s for said in room.heard[back] if isinstance(said, wire.LeaseIdle)] == [20.0, 0.0]


def test_a_router_of_a_release_that_does_not_know_the_word_is_told_nothing() -> None:
    room = Room()
    agent = room.agent("a", 1, ROOT)
    client = len(room.heard) + 1
    room.heard[client] = []
    room.do(room.desk.handle(Joined(client, wire.Hello(1, "router", "k"), ALICE), room.now))
    room.say(client, wire.KernelHere(("a",)))  # type: ignore[arg-type]
    lease = room.lease(client, "r")
    room.desk.follows(Rule(0.05, 10.0, 20.0), room.core.view(), room.now)
    for _ in range(50):
        room.wait(2.0)
        room.say(agent, wire.HostBeat((GpuUse(lease.gpus[0], 0.0, read=True),)))
    assert not any(isinstance(said, wire.LeaseIdle) for said in room.heard[client])


def test_cells_that_run_already_are_looked_at_from_now_on() -> None:
    room = Room()
    agent = room.agent("a", 1, ROOT)
    router = room.join("router", "k", ALICE)
    room.say(router, wire.KernelHere(("a",)))
    room.say(router, wire.LeaseWish("r", 1))
    room.desk.follows(Rule(0.05, 10.0), room.core.view(), room.now)
    (gpu,) = next(message for message in room.heard[router] if isinstance(message, wire.Granted)).lease.gpus
    for _ in range(5):
        room.wait(2.0)
        room.say(agent, wire.HostBeat((GpuUse(gpu, 0.0, read=True),)))
    assert any(isinstance(message, wire.LeaseIdle) for message in room.heard[router])


def test_a_quota_has_a_rule_of_its_own_or_none_at_all() -> None:
    own = Day(RULE, quota=UserQuota(idle_gpus="below=50 minutes=1"))
    (told,) = own.passes(100.0, 0.4, 0.4)
    assert (told.for_s, told.ends_in_s) == (60.0, None)
    assert Day(RULE, quota=UserQuota(idle_gpus="off")).passes(5_000.0, 0.0, 0.0) == []
    assert Day(None, quota=UserQuota(idle_gpus="below=50 minutes=1")).passes(100.0, 0.4, 0.4)
    assert Day(RULE, quota=UserQuota(gpu_quota=1)).passes(5_000.0, 0.0, 0.0)


def test_of_several_groups_the_mildest_rule_counts() -> None:
    groups: dict[str, dict[str, object]] = {
        "class": {"idle_gpus": "below=10 minutes=5 interrupt=30"},
        "lab": {"idle_gpus": "below=5 minutes=60 interrupt=10"},
        "others": {"gpu_quota": 4},
    }
    assert quota_of(groups).idle_gpus == "below=5 minutes=60 interrupt=30"
    assert quota_of({"class": groups["class"]}).idle_gpus == groups["class"]["idle_gpus"]
    assert quota_of(groups | {"told": {"idle_gpus": "below=50 minutes=1"}}).idle_gpus == "below=5 minutes=60"
    for free in ("off", None):
        assert quota_of(groups | {"free": {"idle_gpus": free}}).idle_gpus == "off"
    assert quota_of({"others": groups["others"]}).idle_gpus is UNSET


@pytest.mark.parametrize("value", ["", "below=5", "minutes=-1 below=5", 5, True, ["off"]])
def test_a_groups_rule_without_sense_is_refused_by_name(value: object) -> None:
    with pytest.raises(IdentityUnknown, match="idle_gpus of the Hub's group class"):
        quota_of({"class": {"idle_gpus": value}})
