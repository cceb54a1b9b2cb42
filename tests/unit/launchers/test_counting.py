"""GPUs that an engine counts: what is taken and left, which grants wait, what bounces."""

from __future__ import annotations

import random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import Effect, LeaseEnded, LeaseGranted, LeaseRefused
from replkernel_scheduler.events import Event, HostUp, LeaseAsked, LeaseLingered, LeaseReleased
from replkernel_scheduler.policies.built_in import notebook
from replkernel_scheduler.settings import CoreSettings
from replkernel_scheduler.types import (
    Fence,
    Gpu,
    GpuUuid,
    HostName,
    KernelId,
    Lease,
    LeaseId,
    LeaseRequest,
    RequestId,
    UserName,
)
from replkernel_server.launchers.counting import Counting, LeaveGpu, Step, TakeGpu
from replkernel_server.launchers.engine_usage import USER, EngineUsage

from tests.support.examples import examples

HOST = HostName("ray-a")
GPUS = tuple(GpuUuid(f"GPU-{number}") for number in range(4))


def lease(fence: int, *numbers: int, host: str = HOST, user: str = "u") -> Lease:
    gpus = tuple(GPUS[number] for number in numbers)
    name = f"lease-{fence}"
    return Lease(
        LeaseId(name),
        RequestId(f"q{fence}"),
        KernelId("k"),
        HostName(host),
        gpus,
        Fence(fence),
        60.0,
        60.0,
        UserName(user),
    )


def taken(counting: Counting) -> list[Step]:
    steps, counting.steps = counting.steps, []
    return steps


def ready(*leases: Lease) -> Counting:
    counting = Counting("ray-", leases)
    assert counting.offered(HOST, GPUS) == []
    assert counting.held(HOST, {}) == []
    return counting


def test_a_grant_is_told_once_the_engine_has_given_every_gpu_and_with_those_gpus() -> None:
    counting, wanted = ready(), lease(1, 0, 1)
    assert counting.decided([LeaseGranted(wanted)]) == []
    assert taken(counting) == [TakeGpu(HOST, GPUS[0]), TakeGpu(HOST, GPUS[1])]
    assert counting.given(HOST, GPUS[0], "3") == []
    assert counting.waits(wanted.lease)
    (told,) = counting.given(HOST, GPUS[1], "GPU-2")
    assert told == LeaseGranted(msgspec.structs.replace(wanted, gpus=(GPUS[3], GPUS[2])))
    assert not counting.waits(wanted.lease)
    assert counting.decided([LeaseGranted(wanted)]) == [told], "a renewal says the same"
    assert taken(counting) == []


def test_a_lease_that_ends_has_its_gpus_left_and_one_whose_request_is_asked_anew_ends_unheard() -> None:
    counting, wanted = ready(), lease(1, 0)
    counting.decided([LeaseGranted(wanted)])
    taken(counting)
    counting.asked_anew(wanted.lease)
    assert counting.decided([LeaseEnded(wanted, "released")]) == []
    assert counting.given(HOST, GPUS[0], "0") == []
    assert taken(counting) == [LeaveGpu(HOST, GPUS[0])], "what came too late is left"
    counting.decided([LeaseGranted(lease(2, 0))])
    taken(counting)
    counting.given(HOST, GPUS[0], "0")
    over = LeaseEnded(lease(2, 0), "expired")
    assert counting.decided([over]) == [over]
    assert taken(counting) == [LeaveGpu(HOST, GPUS[0])]


def test_who_waits_for_a_lease_that_ends_before_it_was_counted_is_refused_with_the_reason() -> None:
    counting, wanted = ready(), lease(1, 0)
    assert counting.decided([LeaseGranted(wanted)]) == []
    (refused,) = counting.decided([LeaseEnded(wanted, "host down")])
    assert isinstance(refused, LeaseRefused) and refused.request == wanted.request
    assert "(host down)" in refused.why and "Run the cell again" in refused.why


def test_who_asks_is_not_told_of_a_lease_that_ended_before_it_was_counted() -> None:
    counting, wanted = ready(), lease(1, 0)
    counting.decided([LeaseGranted(wanted)])
    assert not counting.may_be_told(wanted)
    counting.decided([LeaseEnded(wanted, "released")])
    assert not counting.waits(wanted.lease) and not counting.may_be_told(wanted)
    assert counting.may_be_told(lease(2, 0, host="h1"))
    counting.decided([LeaseGranted(lease(3, 0))])
    counting.given(HOST, GPUS[0], "0")
    assert counting.may_be_told(lease(3, 0))


def test_gpus_that_are_used_again_stay_where_they_are() -> None:
    counting, first, second = ready(), lease(1, 0, 1), lease(2, 0, 1)
    counting.decided([LeaseGranted(first)])
    counting.given(HOST, GPUS[0], "0")
    counting.given(HOST, GPUS[1], "1")
    taken(counting)
    told = counting.decided([LeaseEnded(first, "reused"), LeaseGranted(second)])
    assert told == [LeaseEnded(first, "reused"), LeaseGranted(second)]
    assert taken(counting) == []


def test_other_hosts_and_the_engines_own_jobs_are_not_counted() -> None:
    counting = ready()
    others: list[Effect] = [LeaseGranted(lease(1, 0, host="h1")), LeaseGranted(lease(2, 0, user=USER))]
    assert counting.decided(others) == others
    assert taken(counting) == []


def test_after_a_restart_nothing_is_taken_before_the_engine_says_what_is_held() -> None:
    counting = Counting("ray-", [lease(1, 0), lease(2, 1)])
    assert counting.offered(HOST, GPUS) == []
    assert counting.decided([LeaseGranted(lease(1, 0))]) == [], "a renewal waits for what is held"
    assert taken(counting) == []
    assert counting.held(HOST, {GPUS[0]: "2", GPUS[3]: "0"}) == [
        LeaseGranted(msgspec.structs.replace(lease(1, 0), gpus=(GPUS[2],)))
    ]
    assert taken(counting) == [LeaveGpu(HOST, GPUS[3]), TakeGpu(HOST, GPUS[1])]
    gone = LeaseEnded(lease(2, 1), "expired")
    assert counting.decided([gone]) == [gone], "its holder knew it"


def test_a_gpu_is_not_named_before_its_hosts_agent_has_offered_it() -> None:
    counting = Counting("ray-", [lease(1, 0)])
    assert counting.held(HOST, {GPUS[0]: "2"}) == []
    assert counting.decided([LeaseGranted(lease(1, 0))]) == []
    assert counting.waits(LeaseId("lease-1"))
    (told,) = counting.offered(HOST, GPUS)
    assert isinstance(told, LeaseGranted) and told.lease.gpus == (GPUS[2],)
    assert taken(counting) == []


def test_a_failed_taking_is_tried_again_when_it_is_looked_at() -> None:
    counting = ready()
    counting.decided([LeaseGranted(lease(1, 0))])
    assert taken(counting) == [TakeGpu(HOST, GPUS[0])]
    counting.look_again()
    assert taken(counting) == []
    counting.failed(HOST, GPUS[0])
    counting.look_again()
    assert taken(counting) == [TakeGpu(HOST, GPUS[0])]
    counting.lost(HOST)
    counting.look_again()
    assert taken(counting) == [], "its host is gone"


def test_gpus_that_only_one_of_the_two_knows_are_seen() -> None:
    counting = ready()
    assert [counting.surplus(HOST, known) for known in (2, 4, 6)] == [2, 0, 0]
    assert counting.is_offered(HOST, "3") and counting.is_offered(HOST, "GPU-3")
    assert not counting.is_offered(HOST, "4") and not counting.is_offered(HOST, "GPU-4")
    assert not counting.is_offered(HostName("ray-b"), "0")


class World:
    """A core, what is told of it, and an engine of four GPUs whose other jobs come and go."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.core = SchedulerCore(random.Random(seed), notebook(), CoreSettings(), Fence(0))
        self.counting, self.engine_usage = ready(), EngineUsage()
        self.ours: dict[GpuUuid, str] = {}
        self.jobs: set[str] = set()
        self.told: dict[LeaseId, Lease] = {}
        self.doing: list[Step] = []
        self.now, self.asked = 0.0, 0
        self.feed(HostUp(HOST, tuple(Gpu(uuid) for uuid in GPUS)))

    def feed(self, *events: Event) -> None:
        for event in events:
            self.now += 0.01
            effects = self.core.handle(event, self.now)
            self.tell(self.counting.decided(effects))
            self.engine_usage.decided(effects)
            self.doing += taken(self.counting)
            self.core.check_invariants()

    def tell(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, LeaseGranted) and effect.lease.user != USER:
                self.told[effect.lease.lease] = effect.lease
            elif isinstance(effect, LeaseEnded):
                self.told.pop(effect.lease.lease, None)
            assert not isinstance(effect, LeaseRefused), "what bounces is asked anew"

    def free(self) -> list[str]:
        return [str(n) for n in range(4) if str(n) not in self.jobs and str(n) not in self.ours.values()]

    def engine_does_one(self) -> None:
        """Carry out the oldest order, as the engine does: any GPU that is free, or none."""
        step = self.doing.pop(0)
        if isinstance(step, LeaveGpu):
            self.ours.pop(step.gpu, None)
        elif self.free():
            self.ours[step.gpu] = self.dice.choice(self.free())
            self.tell(self.counting.given(HOST, step.gpu, self.ours[step.gpu]))
            self.doing += taken(self.counting)
        else:
            self.bounce(step)

    def bounce(self, step: TakeGpu) -> None:
        found = self.counting.none_free(HOST, step.gpu)
        if found is None:
            return
        wish = self.core.wish_of(found.lease)
        assert wish is not None
        self.feed(*self.engine_usage.counted(HOST, self.engine_usage.count(HOST) + 1))
        self.counting.asked_anew(found.lease)
        self.feed(LeaseReleased(found.lease, found.fence, 0.0), LeaseAsked(wish))

    def check(self) -> None:
        """No lease that somebody was told of has a GPU that the engine does not count as ours."""
        held = [gpu for lease in self.told.values() for gpu in lease.gpus]
        ours = {GPUS[int(number)] for number in self.ours.values()}
        assert len(held) == len(set(held))
        assert set(held) <= ours
        assert not ours & {GPUS[int(number)] for number in self.jobs}

    def quiet(self) -> None:
        """Let the engine do all that is ordered, and count its jobs."""
        for _ in range(50):
            while self.doing:
                self.engine_does_one()
                self.check()
            self.feed(*self.engine_usage.counted(HOST, len(self.jobs)))
            if not self.doing:
                break
        assert not self.doing
        leased = {gpu for lease in self.told.values() for gpu in lease.gpus}
        assert leased == {GPUS[int(number)] for number in self.ours.values()}


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(("ask", "back", "job", "end", "do", "do", "count"))))
def test_a_told_grant_is_counted_and_in_quiet_leases_equal_the_engines_count(
    seed: int, acts: list[str]
) -> None:
    world = World(seed)
    for act in acts:
        if act == "ask":
            world.asked += 1
            name = RequestId(f"r{world.asked}")
            wish = LeaseRequest(name, KernelId(f"k{world.asked}"), world.dice.randint(1, 4), 600.0, (HOST,))
            world.feed(LeaseAsked(wish))
        elif act == "back" and world.told:
            one = world.told[world.dice.choice(sorted(world.told))]
            how = world.dice.choice((LeaseReleased, LeaseLingered))
            world.feed(how(one.lease, one.fence, 0.0))
        elif act == "job" and world.free():
            world.jobs.add(world.dice.choice(world.free()))
        elif act == "end" and world.jobs:
            world.jobs.remove(world.dice.choice(sorted(world.jobs)))
        elif act == "do" and world.doing:
            world.engine_does_one()
        elif act == "count":
            world.feed(*world.engine_usage.counted(HOST, len(world.jobs)))
        world.check()
    world.quiet()
