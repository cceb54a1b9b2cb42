"""Jobs on cores and memory alone: SQ(M) and MQ beside notebooks that use what they really use.

Laws, on stories that nobody thought of: the jobs that stay on a host have no more of its memory and cores
than there is, whatever notebooks do; a service that is killed at any moment goes on as if it had not been.
"""

from __future__ import annotations

import random
from itertools import pairwise

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import ReleaseHost
from replkernel_scheduler.events import HostAway, HostDown, HostDrained, HostUndrained, HostUp, TimeReached
from replkernel_scheduler.harvest.core import HarvestCore
from replkernel_scheduler.harvest.desk import LOOK_EVERY_S
from replkernel_scheduler.harvest.leasing import STAYS_WITHIN, Pace
from replkernel_scheduler.harvest.processors import LEAVES_S, PAUSE_S, PAUSE_S_MAX
from replkernel_scheduler.harvest.types import (
    Cores,
    HarvestEffect,
    HarvestEvent,
    HostJobs,
    HostUsed,
    JobEnded,
    JobHoldAsked,
    JobHosts,
    JobName,
    JobOver,
    JobRefused,
    JobRuns,
    JobsDue,
    JobSpec,
    JobStopAsked,
    JobStopped,
    JobSubmitted,
    StartJob,
    StopJob,
    type_on_cores,
)
from replkernel_scheduler.jobs.core import JobsCore
from replkernel_scheduler.jobs.protocol import Discipline, Queues
from replkernel_scheduler.jobs.types import JobOver as Ended
from replkernel_scheduler.jobs.types import JobWanted, NodeShape
from replkernel_scheduler.jobs.types import StartJob as Start
from replkernel_scheduler.policies.built_in import notebook
from replkernel_scheduler.policies.discipline_easy import Easy
from replkernel_scheduler.policies.discipline_fcfs import Fcfs
from replkernel_scheduler.policies.queues_multi import MultiQueue
from replkernel_scheduler.policies.queues_single import SingleQueue
from replkernel_scheduler.policies.scaling_buffered import Buffered
from replkernel_scheduler.settings import CoreSettings
from replkernel_scheduler.types import Fence, Gpu, GpuUuid, HostName, UserName

from tests.support.examples import examples
from tests.unit.scheduler.beside import Beside, of

ANN, BOB = UserName("ann"), UserName("bob")


class NoMeter:
    """Nobody shares a core, so nobody asks."""

    def done_s(self, job: str, now: float) -> float:
        raise AssertionError(job)


class OnCores(Beside):
    """Hosts with cores and memory, and jobs that want no GPU."""

    def __init__(self, queues: Queues | None = None, discipline: Discipline | None = None) -> None:
        self.queues, self.discipline = queues or SingleQueue(2), discipline
        self.began: dict[str, tuple[float, str]] = {}
        super().__init__(pace=Pace())

    def _made(self, dice: random.Random) -> HarvestCore:
        core = SchedulerCore(dice, notebook(), CoreSettings(), Fence(0))
        return HarvestCore(core, self.pace, self.queues, self.discipline)

    def machine(
        self, name: str, cores: int = 4, memory_gb: float = 16.0, *, busy: int = 0, used_gb: float = 2.0
    ) -> None:
        gpus = (Gpu(GpuUuid(f"GPU-{name}-0")),)
        self.feed(HostUp(HostName(name), gpus, float(cores), memory_gb))
        self.uses(name, busy, used_gb)

    def uses(self, name: str, busy: int = 0, used_gb: float = 2.0) -> list[HarvestEffect]:
        effects = self.feed(HostUsed(HostName(name), busy, used_gb))
        self.until(self.now)
        return effects

    def wants(
        self, job: str, cores: int = 1, memory_gb: float = 1.0, *, takes_s: float = 3600.0,
        owner: UserName = ANN, priority: int = 0,
    ) -> str | None:  # fmt: skip
        """Submit a job; return where it starts at once, if anywhere."""
        spec = JobSpec(
            job=JobName(job), type=type_on_cores(job), owner=owner, priority=priority,
            cores=Cores(cores, memory_gb, takes_s),
        )  # fmt: skip
        self.feed(JobSubmitted(spec))
        self.until(self.now)
        return self.where(job)

    def where(self, job: str) -> str | None:
        return next((view.host for view in self.core.jobs() if view.spec.job == job), None)

    def why(self, job: str) -> str:
        return self.core.desk.jobs.by_name[JobName(job)].refused

    def _see(self, effect: HarvestEffect) -> None:
        super()._see(effect)
        if isinstance(effect, StartJob) and not effect.gpus:
            self.began[effect.spec.job] = (self.now, effect.host)

    def over(self, name: str, *, lingers: bool = False) -> None:
        self.ended(name)
        self.until(self.now)


def test_a_core_takes_as_many_jobs_as_its_multiplicity_says() -> None:
    world = OnCores(SingleQueue(2))
    world.machine("a", 2)
    assert [world.wants(f"j{number}") for number in range(5)] == ["a"] * 4 + [None]
    assert world.why("j4") == "It waits for 1 core and 1 GiB; a has 0 cores and 8.4 GiB left."
    world.over("j0")
    assert world.where("j4") == "a"


def test_cores_that_notebooks_use_count_and_those_they_only_keep_do_not() -> None:
    world = OnCores(SingleQueue(1))
    world.machine("a", 4, busy=3)
    assert world.wants("j0") == "a"
    assert world.wants("j1") is None
    world.uses("a", busy=0)
    assert world.where("j1") == "a"
    assert of(StopJob, world.uses("a", busy=4)) == [], "a cell that computes takes the cores by itself"


def test_a_host_takes_no_more_than_its_memory_less_a_reserve() -> None:
    world = OnCores()
    world.machine("a", 4, 10.0, used_gb=3.0)
    assert world.wants("j0", memory_gb=4.0) == "a"
    assert world.wants("j1", memory_gb=2.5) is None
    assert world.wants("j2", memory_gb=2.0, takes_s=7200.0) is None, "it would have j1 start later"
    assert world.wants("never", memory_gb=7.0) is None
    assert (
        world.why("never")
        == "It wants 1 core and 7 GiB; beside notebooks, a has 4 cores and 6.0 GiB at most."
    )
    world.uses("a", used_gb=2.4)
    assert world.where("j1") == "a"


def test_notebooks_that_need_memory_have_the_newest_jobs_leave_and_come_back() -> None:
    world = OnCores()
    world.machine("a", 4, 10.0, used_gb=1.0)
    assert (world.wants("j0", memory_gb=4.0), world.wants("j1", memory_gb=3.0)) == ("a", "a")
    world.runs("j0")
    (stop,) = of(StopJob, world.uses("a", used_gb=4.0))
    assert (stop.job, stop.until, stop.why, stop.saves) == ("j1", world.now + LEAVES_S, "wanted back", True)
    assert world.job("j0").state == "running"
    world.stopped("j1")
    assert world.job("j1").state == "waiting"
    world.uses("a", used_gb=2.0)
    assert world.where("j1") is None
    assert world.why("j1") == "Notebooks needed its memory; it starts again after a pause."
    world.until(world.now + PAUSE_S + LOOK_EVERY_S)
    assert world.where("j1") == "a" and world.job("j1").attempt == 2
    changes = [(each.gpus, each.why) for each in world.core.desk.jobs.by_name[JobName("j1")].changes]
    assert changes == [(1, "idle"), (0, "wanted back"), (1, "idle")]


def test_who_is_told_to_leave_again_and_again_pauses_longer_each_time_until_it_has_run_for_long() -> None:
    world = OnCores()
    world.machine("a", 4, 10.0, used_gb=1.0)
    assert world.wants("j0", memory_gb=4.0) == "a"

    def paused_s() -> float:
        """Have it leave; return how long it then waits where there is room again."""
        told = world.now
        world.uses("a", used_gb=8.0)
        world.stopped("j0")
        world.uses("a", used_gb=1.0)
        while world.where("j0") is None:
            world.until(world.now + 1.0)
        return world.now - told

    pauses = [paused_s() for _ in range(9)]
    for number, pause_s in enumerate(pauses):
        least_s = min(PAUSE_S * 2**number, PAUSE_S_MAX)
        assert least_s <= pause_s <= least_s + LOOK_EVERY_S
    world.until(world.now + PAUSE_S_MAX)
    assert paused_s() <= PAUSE_S + LOOK_EVERY_S


def test_who_has_the_higher_priority_stays() -> None:
    world = OnCores()
    world.machine("a", 4, 10.0, used_gb=1.0)
    world.wants("j0", memory_gb=4.0)
    world.wants("j1", memory_gb=4.0, priority=1)
    (stop,) = of(StopJob, world.uses("a", used_gb=4.0))
    assert stop.job == "j0"


def test_a_short_job_passes_a_wide_one_and_a_long_one_does_not() -> None:
    world = OnCores(SingleQueue(1))
    world.machine("a", 4)
    assert world.wants("first", 3, takes_s=1000.0) == "a"
    assert world.wants("wide", 4, takes_s=1000.0) is None
    assert world.wants("long", 1, takes_s=2000.0) is None
    assert world.wants("short", 1, takes_s=500.0) == "a"


def test_saved_work_of_a_job_that_had_to_leave_counts_for_those_behind_it() -> None:
    world = OnCores(SingleQueue(1))
    world.machine("a", 4)
    world.wants("first", 3, takes_s=1000.0)
    world.runs("first")
    world.until(world.now + 800.0)
    world.uses("a", used_gb=15.0)
    world.stopped("first")
    world.uses("a")
    world.until(world.now + 60.0)
    assert world.where("first") == "a"
    assert world.wants("wide", 4, takes_s=1000.0) is None
    assert world.wants("short", 1, takes_s=500.0) is None, "the wide one starts in 200 s, not in 1000"
    assert world.wants("shorter", 1, takes_s=100.0) == "a"


def test_unsaved_work_has_to_be_done_again() -> None:
    world = OnCores(SingleQueue(1))
    world.machine("a", 4)
    world.wants("first", 3, takes_s=1000.0)
    world.runs("first")
    world.until(world.now + 800.0)
    world.feed(HostDown(HostName("a")))
    world.machine("a", 4)
    assert world.where("first") == "a"
    world.wants("wide", 4, takes_s=1000.0)
    assert world.wants("short", 1, takes_s=500.0) == "a"


def test_a_look_serves_some_of_many_queues_and_the_next_one_goes_on() -> None:
    world = OnCores(SingleQueue(1))
    world.pace = Pace(1.0, 256, 2)
    world.core = world._made(world.dice)
    users = [UserName(f"u{number}") for number in range(4)]
    for number, user in enumerate(users):
        world.machine(f"h{number}", 4)
        world.feed(JobHosts(user, (HostName(f"h{number}"),)))
    for number, user in enumerate(users):
        spec = JobSpec(
            job=JobName(f"j{number}"), type=type_on_cores("j"), owner=user, cores=Cores(1, 1.0)
        )  # fmt: skip
        world.feed(JobSubmitted(spec))
    started = []
    for _ in range(4):
        started.append(sum(view.host is not None for view in world.core.jobs()))
        world.until(world.now + 1.0)
        if len(started) == 2:
            world.restart()
    assert started[-1] == 4
    assert max(after - before for before, after in pairwise(started)) <= 2


def test_nobody_waits_behind_a_job_that_notebooks_leave_no_room_for() -> None:
    world = OnCores(SingleQueue(1))
    world.machine("a", 4, busy=2)
    assert world.wants("wide", 4) is None
    assert world.wants("narrow", 2) == "a"
    world.uses("a", busy=0)
    assert world.where("wide") is None
    world.over("narrow")
    assert world.where("wide") == "a"


def test_mq_keeps_a_part_of_the_hosts_for_notebooks_alone() -> None:
    world = OnCores(MultiQueue(r=50.0, mb=1))
    for name in "abcd":
        world.machine(name, 1)
    assert [world.wants(f"j{number}") for number in range(3)] == ["c", "d", None]


def test_who_reaches_only_hosts_that_are_kept_for_notebooks_is_told_so() -> None:
    world = OnCores(MultiQueue(r=10.0, mb=1))
    world.feed(JobHosts(BOB, (HostName("a"),)))
    world.machine("a")
    world.machine("b")
    assert world.wants("j0") == "b"
    assert world.wants("j1", owner=BOB) is None
    assert world.why("j1") == "The scheduler's policy keeps host a for notebooks alone."
    world.feed(HostUp(HostName("silent"), (), 4.0, 16.0))
    world.feed(JobHosts(BOB, (HostName("silent"),)))
    world.until(world.now + 1.0)
    assert world.why("j1") == "No host on which an agent of yours runs takes jobs on cores."


def test_a_host_of_which_nothing_was_told_takes_none_nor_does_one_that_the_owner_does_not_reach() -> None:
    world = OnCores()
    world.feed(HostUp(HostName("silent"), (), 4.0, 16.0))
    assert world.wants("j0") is None
    assert world.why("j0") == "No host on which an agent of yours runs takes jobs on cores."
    world.feed(JobHosts(BOB, (HostName("b"),)))
    world.machine("a")
    assert world.where("j0") == "a"
    assert world.wants("j1", owner=BOB) is None
    world.machine("b")
    assert world.where("j1") == "b"


def test_a_job_whose_host_is_gone_starts_elsewhere_and_one_that_is_drained_has_it_leave() -> None:
    world = OnCores()
    world.machine("a")
    assert world.wants("j0") == "a"
    world.machine("b")
    world.feed(HostDown(HostName("a")))
    world.until(world.now)
    assert world.where("j0") == "b" and world.job("j0").attempt == 2
    (stop,) = of(StopJob, world.feed(HostDrained(HostName("b"))))
    assert stop.saves
    world.stopped("j0")
    assert world.job("j0").state == "waiting"


@pytest.mark.parametrize(
    ("cores", "memory_gb", "goes_on"), [(2, 16.0, False), (8, 4.0, False), (8, 16.0, True)]
)
def test_a_program_that_fails_is_not_kept_for_a_host_that_is_too_small_for_it(
    cores: int, memory_gb: float, goes_on: bool
) -> None:
    world = OnCores()
    world.machine("a", 8)
    assert world.wants("j0", 4, 4.0) == "a"
    world.machine("b", cores, memory_gb)
    world.feed(JobEnded(JobName("j0"), 1, "failed", "it ended with exit code 1", elsewhere=True))
    world.until(world.now)
    assert world.where("j0") == ("b" if goes_on else None)
    assert [past.why for past in world.core.desk.past] == ([] if goes_on else ["failed"])


def test_a_job_of_a_lost_host_is_ended_there_before_it_starts_elsewhere() -> None:
    world = OnCores()
    world.machine("a")
    assert (world.wants("j0"), world.wants("saves")) == ("a", "a")
    world.runs("j0")
    world.feed(JobHoldAsked(JobName("saves")))
    effects = world.feed(HostDown(HostName("a")))
    stops = {(stop.job, stop.attempt, stop.host, stop.saves) for stop in of(StopJob, effects)}
    assert stops == {("j0", 1, "a", False), ("saves", 1, "a", False)}
    assert of(StartJob, effects) == []
    world.machine("b")
    assert world.where("j0") == "b" and world.job("j0").attempt == 2
    assert world.job("saves").state == "waiting"


def test_on_a_host_that_came_back_with_fewer_cores_a_job_has_all_of_its_memory_until_it_leaves() -> None:
    world = OnCores()
    world.machine("a", 4, 16.0, used_gb=2.0)
    assert world.wants("j0", 4, 8.0) == "a"
    (stop,) = of(StopJob, world.feed(HostUp(HostName("a"), (Gpu(GpuUuid("GPU-a-0")),), 3.0, 16.0)))
    assert stop.job == "j0"
    assert world.wants("j1", 1, 5.0) is None
    world.stopped("j0")
    assert world.where("j1") == "a"


def test_a_drained_host_is_given_back_once_its_last_job_has_saved() -> None:
    world = OnCores()
    world.machine("a")
    assert (world.wants("j0"), world.wants("j1")) == ("a", "a")
    effects = world.feed(HostDrained(HostName("a")))
    assert {stop.job for stop in of(StopJob, effects)} == {"j0", "j1"}
    assert of(ReleaseHost, effects) == [], "its jobs save"
    assert world.core.core.draining_awaits(HostName("a")) == {"job: until it is saved": 2}
    assert of(ReleaseHost, world.stopped("j0")) == []
    assert of(ReleaseHost, world.ended("j1")) == [ReleaseHost(HostName("a"))]
    assert world.core.core.draining_awaits(HostName("a")) == {}


def test_a_host_on_which_a_job_runs_is_not_scaled_in() -> None:
    policies = msgspec.structs.replace(notebook(), scaling=Buffered())
    core = SchedulerCore(random.Random(0), policies, CoreSettings(hosts_min=1, hosts_buffer=0))
    world = HarvestCore(core, queues=SingleQueue(2))
    now = 0.0

    def feed(event: HarvestEvent) -> list[HarvestEffect]:
        effects = world.handle(event, now)
        while (due := world.jobs_due()) is not None and due <= now:
            effects += world.handle(JobsDue(), now)
        return effects

    for name in "ab":
        feed(HostUp(HostName(name), (Gpu(GpuUuid(f"GPU-{name}")),), 4.0, 16.0))
    feed(HostUsed(HostName("a"), 0, 2.0))
    spec = JobSpec(job=JobName("j0"), type=type_on_cores("j0"), owner=ANN, cores=Cores(1, 1.0))
    (start,) = of(StartJob, feed(JobSubmitted(spec)))
    feed(HostUp(HostName("c"), (Gpu(GpuUuid("GPU-c")),), 4.0, 16.0))
    released = set[str]()
    while now < 1000.0:
        now = min(each for each in (world.deadline(), world.jobs_due()) if each is not None)
        released |= {each.host for each in of(ReleaseHost, feed(TimeReached()))}
    assert start.host == "a"
    assert released and core.hosts_up() == ["a"]


def test_a_held_job_goes_on_and_is_accounted_for_the_cores_that_it_had() -> None:
    world = OnCores()
    world.machine("a")
    world.wants("j0", 2)
    world.runs("j0")
    world.until(10.0)
    world.feed(JobHoldAsked(JobName("j0")))
    world.stopped("j0")
    assert world.job("j0").state == "waiting"
    world.until(20.0)
    world.feed(JobHoldAsked(JobName("j0"), False))
    world.until(20.0)
    assert world.where("j0") == "a"
    world.until(25.0)
    (over,) = of(JobOver, world.ended("j0"))
    assert (over.core_s, over.gpu_s) == (30.0, 0.0)
    (past,) = world.core.desk.past
    assert past.core_s == 30.0


def test_an_agent_that_comes_back_without_a_job_has_it_started_again() -> None:
    world = OnCores()
    world.machine("a")
    world.wants("j0")
    world.runs("j0")
    effects = world.feed(HostJobs(HostName("a"), (), ANN))
    world.until(world.now)
    assert of(StopJob, effects) == []
    assert world.job("j0").attempt == 2


def test_jobs_on_gpus_and_on_cores_do_not_wait_for_each_other() -> None:
    world = OnCores()
    world.machine("a", 1, 16.0)
    world.submit("gpus", 1)
    assert world.wants("j0") == "a"
    assert world.where("gpus") == "a"
    world.submit("more", 1)
    assert world.where("more") is None
    assert world.wants("j1") == "a"


@pytest.mark.parametrize(("cores", "memory_gb"), [(0, 1.0), (1025, 1.0), (1, 0.0), (1, 1e6)])
def test_cores_that_no_host_can_have_are_refused(cores: int, memory_gb: float) -> None:
    world = OnCores()
    spec = JobSpec(job=JobName("j"), type=type_on_cores("j"), cores=Cores(cores, memory_gb))
    (refused,) = of(JobRefused, world.feed(JobSubmitted(spec)))
    assert "1 to 1024 cores" in refused.why


arrivals = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 4), st.integers(1, 100), st.sampled_from([0.5, 1.0, 2.0])),
    min_size=1,
    max_size=25,
)


@settings(max_examples=examples(100), deadline=None)
@example(  # j02 and j04 are thought to end at once
    [
        (13, 3, 33, 2.0),
        (10, 1, 56, 2.0),
        (9, 3, 80, 2.0),
        (21, 1, 80, 2.0),
        (13, 3, 33, 0.5),
        (10, 4, 1, 0.5),
        (13, 1, 13, 0.5),
        (6, 1, 18, 0.5),
    ],
    Easy(),
)
@example(  # and here they start at once as well
    [
        (5, 1, 4, 1.0),
        (2, 1, 16, 2.0),
        (0, 4, 4, 2.0),
        (0, 4, 4, 2.0),
        (0, 1, 4, 1.0),
        (2, 3, 16, 1.0),
        (0, 2, 16, 2.0),
    ],
    Easy(),
)
@given(wanted=arrivals, discipline=st.sampled_from([Easy(), Fcfs()]))
def test_jobs_start_where_and_when_the_simulated_core_starts_them(
    wanted: list[tuple[int, int, int, float]], discipline: Discipline
) -> None:
    """`wanted`: after how long each comes, its cores, what it is said to take, how much of that it does."""
    simulated: dict[str, tuple[float, str]] = {}
    core = JobsCore(3, NodeShape(4), SingleQueue(1), discipline, NoMeter())
    world = OnCores(SingleQueue(1), discipline)
    for host in "abc":
        world.machine(host, 4, 1e4)
    agenda: list[tuple[float, int, str]] = []
    at, jobs = 0.0, dict[str, tuple[int, int, float]]()
    for number, (after_s, cores, takes_s, share) in enumerate(wanted):
        at += after_s
        agenda.append((at, 1, f"j{number:02}"))
        jobs[f"j{number:02}"] = (cores, takes_s, share)
    while agenda:
        agenda.sort()
        at, arrives, name = agenda.pop(0)
        cores, takes_s, share = jobs[name]
        event = JobWanted(name, cores, float(takes_s)) if arrives else Ended(name)
        for effect in core.handle(event, at):
            assert isinstance(effect, Start)
            simulated[effect.job] = (at, "abc"[effect.places[0].node])
            agenda.append((at + jobs[effect.job][1] * jobs[effect.job][2], 0, effect.job))
        world.until(at)
        if arrives:
            world.wants(name, cores, takes_s=float(takes_s))
        else:
            world.over(name)
    assert world.began == simulated


# -- laws ---------------------------------------------------------------------------------------------

STEPS_S = (0.0, 0.0, 1.0, 5.0, 61.0, 700.0)
MACHINES = {"a": (4, 8.0), "b": (2, 16.0)}
steps = st.lists(
    st.tuples(st.sampled_from(STEPS_S), st.integers(0, 13), st.integers(0, 40), st.integers(0, 5)),
    max_size=40,
)
ways = st.sampled_from([SingleQueue(1), SingleQueue(2), SingleQueue(4), MultiQueue(r=50.0, mb=1)])


class Story(OnCores):
    """Numbers become events; agents answer when their number comes."""

    def __init__(self, queues: Queues) -> None:
        super().__init__(queues)
        self.named = 0
        self.told: dict[str, float] = {}
        for name, (cores, memory_gb) in MACHINES.items():
            self.machine(name, cores, memory_gb)

    def uses(self, name: str, busy: int = 0, used_gb: float = 2.0) -> list[HarvestEffect]:
        self.told[name] = used_gb
        return super().uses(name, busy, used_gb)

    def play(self, after_s: float, kind: int, which: int, size: int) -> None:
        self.until(self.now + after_s)
        names = sorted(self.processes)
        job = names[which % len(names)] if names else None
        self.named += 1
        match kind:
            case 0 | 1 | 2 | 3:
                memory_gb, owner = (0.3, 1.0, 3.1, 7.0)[which % 4], (ANN, BOB)[which % 2]
                self.wants(
                    f"j{self.named}", 1 + size, memory_gb, takes_s=(5.0, 600.0)[which % 2], owner=owner,
                    priority=which % 3 // 2,
                )  # fmt: skip
            case 4 | 5:
                self.uses("ab"[which % 2], size % 5, which / 4)
            case 6 | 7 if job is not None and self.processes[job].told:
                self.stopped(job)
            case 6 | 7 if job is not None:
                self.feed(JobRuns(job, self.processes[job].attempt))
            case 8 if job is not None:
                self.feed(JobEnded(job, self.processes.pop(job).attempt))
            case 9 if job is not None and which % 3 == 0:
                self.feed(JobStopped(job, self.processes.pop(job).attempt))
            case 10 if self.core.jobs():
                jobs = self.core.jobs()
                name = jobs[which % len(jobs)].spec.job
                self.feed(JobStopAsked(name) if size < 2 else JobHoldAsked(name, size < 4))
            case 11:
                self.feed(JobHosts(BOB, tuple(HostName(host) for host in "ab"[: size % 3])))
            case 12 | 13:
                self.host_says("ab"[which % 2], size)
            case _:
                pass
        self.until(self.now)

    def host_says(self, name: str, what: int) -> None:
        host, (cores, memory_gb) = HostName(name), MACHINES[name]
        if what == 0:
            for job in [job for job, each in self.processes.items() if each.host == host]:
                del self.processes[job]
            self.feed(HostDown(host))
            self.machine(name, cores, memory_gb)
        elif what == 1:
            self.feed(HostAway(host))
            self.feed(HostUp(host, (), float(cores), memory_gb))
        elif what == 2:
            self.feed(HostDrained(host))
            self.feed(HostUndrained(host))
        elif what == 3:
            self.feed(HostUp(host, (), cores / 2, memory_gb / 2))
            self.feed(HostUp(host, (), float(cores), memory_gb))
        else:
            there = [(job, each.attempt) for job, each in self.processes.items() if each.host == host]
            self.feed(HostJobs(host, tuple(there)))

    def _hand_in(self, event: HarvestEvent) -> list[HarvestEffect]:
        effects = super()._hand_in(event)
        for name, (cores, memory_gb) in MACHINES.items():
            there = [job for job in self.core.jobs() if job.host == name and job.state != "stopping"]
            wanted = [job.spec.cores for job in there if isinstance(job.spec.cores, Cores)]
            most = self.queues.parts(2)[-1].multiplicity
            assert sum(each.count for each in wanted) <= cores * most
            held_gb = sum(each.memory_gb for each in wanted)
            left_gb = memory_gb * STAYS_WITHIN - self.told.get(name, 0.0)
            assert held_gb <= max(0.0, left_gb) + 1e-3, "notebooks lack the memory that jobs have"
        return effects

    def _see(self, effect: HarvestEffect) -> None:
        if isinstance(effect, StartJob):
            assert effect.spec.job not in self.processes, "it runs twice"
        super()._see(effect)


@settings(max_examples=examples(300), deadline=None)
@given(story=steps, queues=ways)
def test_jobs_never_have_more_than_there_is(story: list[tuple[float, int, int, int]], queues: Queues) -> None:
    world = Story(queues)
    for step in story:
        world.play(*step)


@settings(max_examples=examples(100), deadline=None)
@given(story=steps, queues=ways, every=st.integers(1, 5))
def test_a_service_that_is_killed_goes_on_as_if_it_had_not_been(
    story: list[tuple[float, int, int, int]], queues: Queues, every: int
) -> None:
    whole, killed = Story(queues), Story(queues)
    for number, step in enumerate(story):
        whole.play(*step)
        killed.play(*step)
        if number % every == 0:
            killed.restart()
    assert msgspec.msgpack.encode(killed.journal) == msgspec.msgpack.encode(whole.journal)
    assert msgspec.msgpack.encode(killed.core.image()) == msgspec.msgpack.encode(whole.core.image())
    again = OnCores(queues)
    for event, at, effects in whole.journal:
        written = msgspec.json.encode(event)
        assert again.core.handle(msgspec.json.decode(written, type=HarvestEvent), at) == effects
