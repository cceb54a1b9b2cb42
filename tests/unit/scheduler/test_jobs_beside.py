"""Jobs beside notebooks, as a live scheduler decides: cells first, nothing twice, nothing forgotten."""

from __future__ import annotations

import random

import msgspec
import pytest
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import LeaseGranted, ReclaimLease, UsageRecorded
from replkernel_scheduler.elastic.types import JobType
from replkernel_scheduler.events import (
    HostAway,
    HostDown,
    HostUp,
    LeaseAsked,
    LeaseLingered,
    LeaseReleased,
    PricesSet,
    QuotaSet,
)
from replkernel_scheduler.harvest.asking import LEASE_S, RESTED_S, Asking
from replkernel_scheduler.harvest.core import HarvestCore
from replkernel_scheduler.harvest.desk import LOOK_EVERY_S
from replkernel_scheduler.harvest.jobs import JobRecord
from replkernel_scheduler.harvest.leasing import Pace, Place
from replkernel_scheduler.harvest.past import IN_ALL_MAX, OF_USER_MAX, PastJobs
from replkernel_scheduler.harvest.types import (
    HostJobs,
    JobEnded,
    JobHoldAsked,
    JobHosts,
    JobName,
    JobOver,
    JobProgress,
    JobRefused,
    JobRuns,
    JobsDue,
    JobSpec,
    JobStopAsked,
    JobStopped,
    JobSubmitted,
    PastJob,
    ReshapeJob,
    StartJob,
    StopJob,
    type_as_seen,
    type_of_shapes,
)
from replkernel_scheduler.policies.built_in import notebook
from replkernel_scheduler.settings import CoreSettings
from replkernel_scheduler.types import (
    Fence,
    Gpu,
    GpuUuid,
    HostName,
    KernelId,
    LeaseRequest,
    Prices,
    RequestId,
    UserName,
    UserQuota,
)
from replkernel_server.scheduling.accounting import gpu_s_of_jobs, job_rows, user_rows

from tests.unit.scheduler.beside import Beside, of

LONG = 1e6


@pytest.fixture
def world() -> Beside:
    world = Beside()
    world.host("a", 4)
    return world


def test_a_job_starts_in_the_largest_shape_that_is_idle(world: Beside) -> None:
    world.cell("c", 1)
    world.submit("train", 1, 2, 4)
    assert len(world.processes[JobName("train")].gpus) == 2
    assert world.job("train").state == "starting"


def test_a_cell_has_a_jobs_gpus_once_they_are_left_and_the_job_goes_on_with_the_rest(world: Beside) -> None:
    world.cell("c", 2)
    world.submit("train", 1, 2)
    world.runs("train")
    world.over("c")
    world.until(world.now + LOOK_EVERY_S)
    assert len(world.processes[JobName("train")].gpus) == 2, "it may not have four"

    effects = world.cell("d", 3)
    (stop,) = of(StopJob, effects)
    assert (stop.why, stop.saves, stop.job) == ("wanted back", True, "train")
    assert not of(ReclaimLease, effects), "nobody else is asked"
    effects = world.stopped("train")
    assert "d" in world.cells
    (start,) = of(StartJob, effects)
    assert len(start.gpus) == 1, "it keeps the one of its two that nobody wants"


def test_a_job_keeps_those_of_its_leases_that_nobody_wants(world: Beside) -> None:
    world.cell("c", 3)
    world.submit("train", 1, 2, 4, samples=LONG)
    world.runs("train")
    world.over("c")
    world.until(world.now + LOOK_EVERY_S)
    world.runs("train")
    assert world.job("train").held == 4
    world.cell("d", 1)
    effects = world.stopped("train", 500.0)
    assert "d" in world.cells
    (start,) = of(StartJob, effects)
    assert len(start.gpus) == 2
    assert start.attempt == world.job("train").attempt == 3


def test_a_job_grows_only_where_that_gains_and_nobody_waits(world: Beside) -> None:
    world.cell("c", 2)
    world.submit("long", 1, 2, 4, samples=LONG)
    world.runs("long")
    world.over("c")
    world.until(world.now + LOOK_EVERY_S)
    assert len(world.processes[JobName("long")].gpus) == 4
    assert of(ReshapeJob, world.journal[-2][2] + world.journal[-1][2])

    short = Beside()
    short.host("a", 4)
    short.cell("c", 2)
    short.submit("short", 1, 2, 4, samples=30.0)
    short.runs("short")
    short.over("c")
    short.until(short.now + LOOK_EVERY_S / 2)
    assert len(short.processes[JobName("short")].gpus) == 2


def test_a_job_of_unknown_length_grows_once_it_has_done_enough(world: Beside) -> None:
    world.cell("c", 2)
    world.submit("train", 1, 2, 4)
    world.runs("train")
    world.over("c")
    world.until(world.now + LOOK_EVERY_S)
    assert len(world.processes[JobName("train")].gpus) == 2, "so far it is thought to end soon"
    world.until(world.now + 600)
    assert len(world.processes[JobName("train")].gpus) == 4


def test_jobs_take_nothing_of_what_somebody_waits_for(world: Beside) -> None:
    world.cell("c", 3)
    world.cell("d", 2)
    world.submit("train", 1)
    assert world.job("train").state == "waiting", "the idle GPU is half of what a cell waits for"
    world.over("c")
    assert "d" in world.cells
    assert world.job("train").state == "starting"


def test_the_higher_priority_goes_first(world: Beside) -> None:
    world.cell("c", 4)
    world.submit("low", 4)
    world.submit("high", 4, priority=1)
    world.over("c")
    assert (world.job("high").state, world.job("low").state) == ("starting", "waiting")


def test_news_of_an_older_attempt_changes_nothing(world: Beside) -> None:
    world.submit("train", 1, 2, 4)
    world.runs("train")
    world.cell("c", 4)
    world.stopped("train")
    world.over("c")
    before = world.job("train")
    assert before.attempt == 2
    name = JobName("train")
    for event in (JobStopped(name, 1), JobRuns(name, 1), JobEnded(name, 1), JobProgress(name, 1, 3.0)):
        assert world.feed(event) == []
    assert world.job("train") == before


def test_a_job_whose_host_is_gone_goes_on_elsewhere_and_what_comes_back_is_stopped(world: Beside) -> None:
    world.submit("train", 2)
    world.runs("train")
    world.feed(HostDown(HostName("a")))
    world.until(world.now)
    assert world.job("train").state == "waiting"
    world.host("b", 2)
    world.until(world.now + LOOK_EVERY_S)
    assert world.job("train").host == "b"
    (stop,) = of(StopJob, world.feed(HostJobs(HostName("a"), ((JobName("train"), 1),))))
    assert (stop.host, stop.attempt, stop.saves, stop.why) == ("a", 1, False, "stale")


def test_a_job_goes_on_where_its_host_is_out_of_sight_for_a_while(world: Beside) -> None:
    world.submit("train", 2)
    world.runs("train")
    world.feed(HostAway(HostName("a")))
    world.host("a", 4)
    assert world.feed(HostJobs(HostName("a"), ((JobName("train"), 1),))) == []
    assert world.job("train").state == "running"


def test_a_job_that_its_agent_lost_is_started_again(world: Beside) -> None:
    world.submit("train", 2)
    world.runs("train")
    world.processes.clear()
    (start,) = of(StartJob, world.feed(HostJobs(HostName("a"), ())))
    assert start.attempt == 2


def test_a_job_on_hold_that_ended_while_its_agent_was_away_was_stopped_by_its_owner(world: Beside) -> None:
    world.submit("train", 2)
    world.runs("train")
    world.feed(JobHoldAsked(JobName("train"), held=True))
    world.processes.clear()
    world.feed(HostJobs(HostName("a"), ()))
    assert world.job("train").state == "waiting"
    assert world.core.desk.jobs.by_name[JobName("train")].changes[-1].why == "asked"


def test_an_agent_that_missed_it_is_told_again_to_stop(world: Beside) -> None:
    world.submit("train", 4)
    world.runs("train")
    world.cell("c", 1)
    (stop,) = of(StopJob, world.feed(HostJobs(HostName("a"), ((JobName("train"), 1),))))
    assert (stop.why, stop.saves) == ("wanted back", True)


def test_who_does_not_leave_in_time_is_ended(world: Beside) -> None:
    world.cell("c", 2)
    world.submit("train", 1, 2, 4, samples=LONG)
    world.runs("train")
    world.over("c")
    world.until(world.now + LOOK_EVERY_S)
    (stop,) = of(StopJob, world.cell("d", 2))
    assert stop.until is not None
    world.until(stop.until)
    assert "d" in world.cells
    last = [stop for _, _, effects in world.journal for stop in of(StopJob, effects)][-1]
    assert (last.why, last.saves) == ("lease over", False)
    world.feed(JobStopped(JobName("train"), last.attempt))
    world.until(world.now)
    assert len(world.processes[JobName("train")].gpus) == 2


def test_its_owner_stops_a_job_that_runs_or_waits(world: Beside) -> None:
    world.submit("train", 4)
    world.submit("behind", 4)
    (over,) = of(JobOver, world.feed(JobStopAsked(JobName("behind"))))
    assert over.why == "stopped"
    world.runs("train")
    (stop,) = of(StopJob, world.feed(JobStopAsked(JobName("train")), after_s=10.0))
    assert (stop.why, stop.saves, stop.until) == ("asked", True, None)
    (over,) = of(JobOver, world.stopped("train"))
    assert (over.why, over.gpu_s) == ("stopped", 40.0)
    assert world.core.jobs() == []
    world.cell("c", 4)
    assert "c" in world.cells


def test_a_job_that_ends_frees_its_gpus_and_tells_what_it_had_of_them(world: Beside) -> None:
    world.submit("train", 1, 2)
    world.runs("train", 100.0)
    assert world.job("train").ends_at == pytest.approx(100 / 1.8, abs=1.0)
    world.until(world.now + 50.0)
    (over,) = of(JobOver, world.ended("train"))
    assert (over.why, over.gpu_s) == ("done", 100.0)


def test_neither_rows_of_accounts_nor_grants_of_jobs_reach_those_who_serve_cells(world: Beside) -> None:
    world.submit("train", 1, 2, 4)
    world.runs("train")
    world.until(LEASE_S * 2)
    assert world.job("train").state == "running", "its lease was renewed"
    said = [effect for _, _, effects in world.journal for effect in effects]
    assert not of(UsageRecorded, said) + of(LeaseGranted, said)


@pytest.mark.parametrize(
    ("job", "speeds"),
    [("train", {4: 1.0}), ("other", {}), ("other", {0: 1.0}), ("other", {65: 1.0}), ("other", {1: 0.0})],
)
def test_an_impossible_job_is_refused(world: Beside, job: str, speeds: dict[int, float]) -> None:
    world.submit("train", 4)
    (refused,) = world.feed(JobSubmitted(JobSpec(job=JobName(job), type=JobType("x", 1, speeds))))
    assert isinstance(refused, JobRefused)
    assert [each.spec.job for each in world.core.jobs()] == ["train"]


def test_a_service_that_was_killed_goes_on_with_the_jobs_that_run(world: Beside) -> None:
    world.cell("c", 1)
    world.submit("train", 1, 2)
    world.submit("behind", 4)
    world.runs("train")
    before = world.core.jobs()
    world.restart()
    assert world.core.jobs() == before
    assert world.feed(HostJobs(HostName("a"), ((JobName("train"), 1),))) == []
    (stop,) = of(StopJob, world.cell("d", 3))
    assert stop.job == "train"


def test_a_job_on_hold_is_saved_gives_its_gpus_back_and_goes_on_when_it_may(world: Beside) -> None:
    world.submit("train", 1, 2)
    world.runs("train", 100.0)
    (stop,) = of(StopJob, world.feed(JobHoldAsked(JobName("train"))))
    assert (stop.why, stop.saves, stop.until) == ("asked", True, None)
    world.stopped("train", 40.0)
    world.until(world.now + 200.0)
    held = world.job("train")
    assert (held.state, held.held, held.on_hold, held.left) == ("waiting", 0, True, 40.0)
    world.restart()
    world.feed(JobHoldAsked(JobName("train"), False))
    world.until(world.now + 1.0)
    again = world.job("train")
    assert (again.state, again.attempt, again.on_hold) == ("starting", 2, False)


def test_a_job_that_may_go_on_before_it_has_stopped_starts_again_on_its_gpus(world: Beside) -> None:
    world.submit("train", 1)
    world.runs("train")
    world.feed(JobHoldAsked(JobName("train")))
    world.feed(JobHoldAsked(JobName("train"), False))
    (start,) = of(StartJob, world.stopped("train"))
    assert start.attempt == 2


def test_a_job_starts_only_where_an_agent_can_start_its_owners(world: Beside) -> None:
    world.host("b", 8)
    world.feed(JobHosts(UserName("ann"), (HostName("a"),)))
    world.submit("train", 1, 2)
    assert world.job("train").host == "a"
    world.feed(JobHosts(UserName("ann"), ()))
    world.submit("other", 1)
    assert world.job("other").state == "waiting"
    world.restart()
    world.feed(JobHosts(UserName("ann"), (HostName("b"),)))
    world.until(world.now + 1.0)
    assert world.job("other").host == "b"


def test_an_agent_speaks_of_its_own_users_jobs_alone(world: Beside) -> None:
    world.submit("train", 1)
    world.runs("train")
    assert world.feed(HostJobs(HostName("a"), (), UserName("bob"))) == []
    assert world.job("train").state == "running"
    world.processes[JobName("train")].told = True
    (stop,) = of(StopJob, world.feed(HostJobs(HostName("a"), ((JobName("train"), 1),), UserName("bob"))))
    assert stop.why == "stale"


def test_a_lease_of_a_job_that_somebody_else_gives_back_is_lost_for_it(world: Beside) -> None:
    world.submit("train", 1)
    world.runs("train")
    (lease,) = world.core.desk.jobs.by_name[JobName("train")].leases.values()
    world.processes.clear()
    world.feed(LeaseReleased(lease.lease, lease.fence))
    world.until(world.now + 1.0)
    assert (world.job("train").state, world.job("train").attempt) == ("starting", 2)


def test_jobs_that_are_over_are_remembered_with_how_they_ended(world: Beside) -> None:
    world.submit("train", 1)
    world.runs("train")
    world.processes.clear()
    world.feed(JobEnded(JobName("train"), 1, "failed", "it ended with exit code 3"))
    world.restart()
    (past,) = world.core.desk.past
    assert (past.why, past.said, past.ran_on) == ("failed", "it ended with exit code 3", "a")


def test_a_job_starts_on_the_model_on_which_it_was_seen_to_be_faster(world: Beside) -> None:
    name = JobName("train")
    world.submit("train", 1, 2, samples=LONG)
    for host, speed, gpus in (("a", 1.0, 4), ("fast", 8.0, 2)):
        if host == "fast":
            fast = tuple(Gpu(GpuUuid(f"GPU-{host}-{i}"), "V100") for i in range(gpus))
            world.feed(HostUp(HostName(host), fast))
            world.until(world.now + LOOK_EVERY_S + 1.0)
        world.runs("train")
        assert world.job("train").host == host
        world.feed(JobProgress(name, world.job("train").attempt, LONG, ((2, speed),)))
        world.cell(f"c-{host}", gpus, host)
        world.stopped("train")
    assert world.job("train").state == "waiting"
    world.feed(JobHoldAsked(name))
    for host in ("a", "fast"):
        world.over(f"c-{host}")
    world.restart()
    world.feed(JobHoldAsked(name, held=False))
    world.until(world.now + 1.0)
    assert world.job("train").host == "fast", "though the other has more that idles"
    record = world.core.desk.jobs.by_name[name]
    assert record.type_on("V100").rate(2) == pytest.approx(8.0 * record.type_on("").rate(2))


def test_gpus_that_linger_for_two_minutes_are_asked_back_for_a_waiting_job(world: Beside) -> None:
    world.feed(JobHosts(UserName("ann"), (HostName("a"),)))
    world.cell("busy", 2)
    world.cell("rests", 1)
    world.submit("first", 1)
    world.runs("first")
    world.over("rests", lingers=True)
    world.submit("second", 1)
    before = len(world.journal)
    world.until(world.now + RESTED_S - 1.0)
    said = [effect for _, _, effects in world.journal[before:] for effect in effects]
    assert not of(ReclaimLease, said), "it may still be used"
    world.until(world.now + 2 * LOOK_EVERY_S)
    said = [effect for _, _, effects in world.journal[before:] for effect in effects]
    asked = {ask.lease.request: ask.lease for ask in of(ReclaimLease, said)}
    assert list(asked) == ["rests"]
    assert not of(StopJob, said), "no job leaves for another one"
    world.feed(LeaseReleased(asked[RequestId("rests")].lease, asked[RequestId("rests")].fence))
    world.until(world.now + 1.0)
    assert world.job("second").state == "starting"


def test_a_job_grows_into_what_a_notebook_left_two_minutes_ago(world: Beside) -> None:
    world.feed(JobHosts(UserName("ann"), (HostName("a"),)))
    world.cell("rests", 2)
    world.cell("busy", 1)
    world.submit("train", 1, 2, 4, samples=1e6)
    world.runs("train")
    world.over("rests", lingers=True)
    before = len(world.journal)
    world.until(world.now + RESTED_S - 1.0)
    said = [effect for _, _, effects in world.journal[before:] for effect in effects]
    assert not of(ReclaimLease, said), "it may still be used"
    world.until(world.now + LOOK_EVERY_S + 1.0)
    said = [effect for _, _, effects in world.journal[before:] for effect in effects]
    (asked,) = of(ReclaimLease, said)
    assert asked.lease.request == "rests" and not of(ReshapeJob, said)
    world.feed(LeaseReleased(asked.lease.lease, asked.lease.fence))
    world.until(world.now + 5.0)
    assert world.job("train").held == 2, "one more of the two that came is of no use to it"
    changes = [(change.gpus, change.why) for change in world.core.desk.jobs.by_name[JobName("train")].changes]
    assert changes == [(1, "idle"), (2, "more idle")]


def test_nothing_is_asked_back_for_a_job_that_would_not_gain_by_growing(world: Beside) -> None:
    world.feed(JobHosts(UserName("ann"), (HostName("a"),)))
    world.cell("rests", 3)
    world.submit("train", 1, 2, 4, samples=150.0)
    world.runs("train")
    world.over("rests", lingers=True)
    before = len(world.journal)
    world.until(world.now + 450.0)
    assert not of(ReclaimLease, [effect for _, _, effects in world.journal[before:] for effect in effects])


def test_a_notebook_that_goes_on_in_time_keeps_its_gpus_from_jobs(world: Beside) -> None:
    world.feed(JobHosts(UserName("ann"), (HostName("a"),)))
    world.cell("c0", 4, kernel="k")
    world.submit("train", 1)
    for number in range(10):
        world.over(f"c{number}", lingers=True)
        world.until(world.now + RESTED_S / 2)
        world.cell(f"c{number + 1}", 4, kernel="k")
        assert f"c{number + 1}" in world.cells
    assert world.job("train").state == "waiting"


def test_a_job_that_is_refused_what_idles_asks_for_less_and_keeps_the_reason(world: Beside) -> None:
    world.feed(QuotaSet(UserName("ann"), UserQuota(gpu_quota=2)))
    world.submit("train", 1, 2, 4)
    assert len(world.processes[JobName("train")].gpus) == 2
    world.submit("more", 1)
    record = world.core.desk.jobs.by_name[JobName("more")]
    assert (record.state, record.refused) == (
        "waiting",
        "Your other jobs hold 2 of the 2 GPUs that gpu_quota allows; this one needs at least 1.",
    )
    world.runs("train")
    world.ended("train")
    world.until(world.now + LOOK_EVERY_S)
    assert world.job("more").held == 1
    world.feed(QuotaSet(UserName("ann"), UserQuota(gpu_quota=0)))
    world.host("b", 2)
    world.submit("none", 1)
    world.restart()
    record = world.core.desk.jobs.by_name[JobName("none")]
    assert (record.state, "0 GPUs that gpu_quota allows" in record.refused) == ("waiting", True)
    world.feed(QuotaSet(UserName("ann"), UserQuota()))
    world.until(world.now + LOOK_EVERY_S)
    assert (world.job("none").state, record.refused) == ("starting", "")


def test_a_budget_that_is_spent_leaves_jobs_what_idles(world: Beside) -> None:
    world.feed(PricesSet(Prices(host_hour=10.0)))
    world.feed(QuotaSet(UserName("ann"), UserQuota(budget_month=0.0)))
    world.submit("train", 1)
    assert world.job("train").state == "starting"


def test_where_kernels_keep_what_they_leave_there_are_no_jobs() -> None:
    keeping = msgspec.structs.replace(notebook(), keeps=True)
    core = HarvestCore(SchedulerCore(random.Random(0), keeping, CoreSettings(), Fence(0)))
    (refused,) = core.handle(JobSubmitted(JobSpec(job=JobName("j"), type=type_of_shapes("j", (1,)))), 0.0)
    assert isinstance(refused, JobRefused) and "Kernels keep their GPUs" in refused.why


def test_jobs_are_no_cells_in_the_sums_by_which_cells_are_judged(world: Beside) -> None:
    world.cell("c", 1)
    world.until(100.0)
    world.over("c")
    accounts = world.core.core.image()
    for number in range(12):
        world.submit(f"train-{number}", 1)
        world.runs(f"train-{number}")
        world.ended(f"train-{number}")
    after = world.core.core.image()
    assert (after.mean_hold_s, after.user_sums) == (accounts.mean_hold_s, accounts.user_sums)
    assert after.mean_hold_s == 100.0
    assert after.kernel_sums == accounts.kernel_sums
    assert {user.tag for user in after.users if user.name == "ann"} <= {after.virtual}


def test_no_notebook_leaves_gpus_that_a_job_cannot_use(world: Beside) -> None:
    world.feed(JobHosts(UserName("ann"), (HostName("a"),)))
    world.cell("rests", 4)
    world.over("rests", lingers=True)
    for name, model, vram_gb in (("model", "H100", 0.0), ("memory", "", 80.0)):
        kind = type_of_shapes(name, (1,))
        spec = JobSpec(
            job=JobName(name), type=kind, owner=UserName("ann"), gpu_model=model, vram_gb=vram_gb
        )  # fmt: skip
        world.feed(JobSubmitted(spec))
    world.until(world.now + 2 * RESTED_S + LOOK_EVERY_S)
    said = [effect for _, _, effects in world.journal for effect in effects]
    assert not of(ReclaimLease, said)


def test_those_that_wait_are_looked_at_once_a_second_however_often_gpus_come_free() -> None:
    world = Beside(pace=Pace(1.0, 8))
    world.host("a", 4)
    world.cell("all", 4)
    for number in range(10):
        world.submit(f"waits-{number}", 4)
    world.over("all")
    before = len(world.journal)
    for number in range(100):
        world.cell(f"c{number}", 3)
        world.until(world.now + 0.01)
        world.over(f"c{number}")
    looks = [at for event, at, _ in world.journal[before:] if isinstance(event, JobsDue)]
    assert 1 <= len(looks) <= 3
    world.restart()
    world.until(world.now + 2.0)
    assert [job.state for job in world.core.jobs()].count("starting") == 1


def test_a_look_that_stops_goes_on_with_those_behind() -> None:
    world = Beside(pace=Pace(1.0, 8))
    world.host("a", 4)
    world.cell("c", 2)
    for number in range(20):
        world.submit(f"large-{number}", 4)
    world.submit("small", 1)
    world.until(world.now + 1.5)
    assert world.job("small").state == "waiting", "it is behind 16 that get nothing"
    world.restart()
    world.until(world.now + 2.0)
    assert world.job("small").state == "starting"


def test_one_users_past_jobs_do_not_push_out_anothers(world: Beside) -> None:
    def submit_and_stop(name: str, owner: str) -> None:
        kind = type_of_shapes(name, (4,))
        world.feed(JobSubmitted(JobSpec(job=JobName(name), type=kind, owner=UserName(owner))))
        world.feed(JobStopAsked(JobName(name)))

    world.cell("c", 1, "a")
    submit_and_stop("anns", "ann")
    for number in range(OF_USER_MAX + 10):
        submit_and_stop(f"bobs-{number}", "bob")
    world.restart()
    names = [past.spec.job for past in world.core.desk.past]
    assert names[0] == "anns"
    assert names[1:] == [f"bobs-{number}" for number in range(10, OF_USER_MAX + 10)]


def test_of_too_many_past_jobs_in_all_those_of_who_has_the_most_go() -> None:
    past = PastJobs()
    for number in range(IN_ALL_MAX):
        owner = UserName(f"user-{number % 40}" if number >= 60 else "first")
        if number < OF_USER_MAX or number >= 60:
            spec = JobSpec(job=JobName(f"{number}"), type=type_of_shapes("x", (1,)), owner=owner)
            past.add(PastJob(spec, "done", "", 0.0, None, 0.0))
    for number in range(20):
        spec = JobSpec(
            job=JobName(f"new-{number}"), type=type_of_shapes("x", (1,)), owner=UserName(f"{number}")
        )
        past.add(PastJob(spec, "done", "", 0.0, None, 0.0))
    kept = [job.spec.job for job in past]
    assert len(kept) == IN_ALL_MAX and kept[0] == "10" and kept[-1] == "new-19"


def test_a_forgotten_jobs_gpu_hours_stay_with_its_owner(world: Beside) -> None:
    world.submit("first", 2)
    world.runs("first")
    world.until(world.now + 1800.0)
    world.ended("first")
    world.submit("second", 1)
    world.runs("second")
    world.until(world.now + 3600.0)
    world.restart()
    desk, now = world.core.desk, world.now
    rows = [(row.job, row.user, row.state, row.gpu_hours) for row in job_rows(desk, now)]
    assert rows == [("first", "ann", "done", 1.0), ("second", "ann", "running", 1.0)]
    desk.past.restore((), tuple(desk.past.gpu_s.items()))
    assert gpu_s_of_jobs(desk, now) == {"ann": 7200.0}
    (row,) = [row for row in user_rows(world.core.core.view(), gpu_s_of_jobs(desk, now)) if row.user == "ann"]
    assert (row.job_gpu_hours, row.gpu_hours) == (2.0, 0.0)


def test_jobs_on_ones_own_machine_have_a_row_as_well_where_no_user_has_a_name(world: Beside) -> None:
    assert not list(user_rows(world.core.core.view(), {}))
    spec = JobSpec(job=JobName("train"), type=type_of_shapes("train", (2,)))
    world.feed(JobSubmitted(spec))
    world.until(world.now)
    world.runs("train")
    world.until(world.now + 1800.0)
    (row,) = user_rows(world.core.core.view(), gpu_s_of_jobs(world.core.desk, world.now))
    assert (row.user, row.cells, row.job_gpu_hours) == ("", 0, pytest.approx(1.0, rel=1e-2))


def test_each_change_of_a_jobs_gpus_is_remembered_with_its_reason(world: Beside) -> None:
    world.cell("half", 2)
    world.submit("train", 1, 2, 4, samples=LONG)
    world.runs("train")
    world.over("half")
    world.until(world.now + LOOK_EVERY_S)
    world.runs("train")
    world.cell("other half", 2)
    world.stopped("train")
    world.runs("train")
    world.cell("all", 2)
    world.stopped("train")
    world.restart()
    changes = world.core.desk.jobs.by_name[JobName("train")].changes
    assert [(change.gpus, change.why) for change in changes] == [
        (2, "idle"), (4, "more idle"), (2, "wanted back"), (0, "wanted back"),
    ]  # fmt: skip


def test_a_newcomer_has_another_job_make_room_and_both_go_on(world: Beside) -> None:
    world.submit("old", 1, 2, 4, samples=LONG)
    world.runs("old")
    world.submit("new", 1, 2, 4, samples=LONG)
    stop = of(StopJob, world.journal[-1][2])[0]
    assert (stop.job, stop.why, stop.saves, stop.until) == ("old", "made room", True, None)
    assert world.job("new").state == "waiting"
    world.restart()
    effects = world.stopped("old")
    assert [(start.spec.job, len(start.gpus)) for start in of(StartJob, effects)] == [("old", 2), ("new", 2)]
    jobs = world.core.desk.jobs.by_name
    assert [jobs[JobName(name)].changes[-1].why for name in ("old", "new")] == ["made room", "given"]


def test_nobody_makes_room_for_a_job_below_him_nor_where_waiting_is_as_good() -> None:
    world = Beside()
    world.host("a", 4)
    world.submit("high", 1, 4, samples=LONG, priority=1)
    world.runs("high")
    world.submit("low", 1, samples=LONG)
    assert world.job("low").state == "waiting" and world.job("high").state == "running"

    ending = Beside()
    ending.host("a", 4)
    ending.submit("ends", 2, 4, samples=3.0)
    ending.runs("ends")
    ending.submit("next", 2, samples=LONG)
    assert (ending.job("next").state, ending.job("ends").state) == ("waiting", "running")


def test_nobody_waits_for_a_job_that_has_run_longer_than_it_was_thought_to() -> None:
    world = Beside()
    world.host("a", 5)
    world.submit("overrun", 2, samples=10.0)
    world.runs("overrun")
    world.submit("big", 1, 2, samples=1000.0)
    world.runs("big")
    world.until(100.0)
    world.submit("new", 1, 2, samples=LONG)
    assert world.job("overrun").state == "running"
    assert world.processes[JobName("big")].told, "it makes room, as overrun may run on for hours"


def test_where_waiting_is_as_good_as_having_room_made_a_job_starts_on_what_is_idle() -> None:
    world = Beside()
    world.host("a", 5)
    world.submit("ends", 2, samples=10.0)
    world.runs("ends")
    world.submit("big", 1, 2, samples=1000.0)
    world.runs("big")
    world.submit("new", 1, 2, samples=LONG)
    assert not world.processes[JobName("big")].told
    assert (world.job("new").state, world.job("new").held) == ("starting", 1)


def test_nobody_waits_for_the_end_of_a_job_where_he_cannot_be() -> None:
    world = Beside()
    world.host("a", 4)
    world.host("b", 4)
    world.feed(JobHosts(UserName("ann"), (HostName("b"),)))
    world.submit("elsewhere", 2, 4, samples=10.0)
    world.runs("elsewhere")
    world.feed(JobHosts(UserName("ann"), (HostName("a"),)))
    world.submit("old", 2, 4, samples=LONG)
    world.runs("old")
    world.submit("new", 2, samples=LONG)
    assert world.job("elsewhere").host == "b" and world.job("elsewhere").state == "running"
    assert world.processes[JobName("old")].told


def test_a_job_that_was_refused_after_all_is_nowhere_and_its_last_end_counts(world: Beside) -> None:
    world.feed(QuotaSet(UserName("ann"), UserQuota(gpu_quota=2)))
    world.submit("train", 2)
    world.runs("train")
    attempt = world.processes[JobName("train")].attempt
    world.feed(HostDown(HostName("a")))
    wish = LeaseRequest(RequestId("c"), KernelId("c"), 1, 1e5, (HostName("b"),), user=UserName("ann"))
    world.host("b", 4)
    world.feed(LeaseAsked(wish))
    world.until(world.now + LOOK_EVERY_S)
    train = world.job("train")
    assert (train.state, train.host, train.held) == ("waiting", None, 0), "with the cell's it is one too many"
    world.feed(JobEnded(JobName("train"), attempt))
    assert not world.core.jobs(), "it was done when its host was lost"


def in_one_lease(self: Asking, job: JobRecord, places: list[Place], now: float) -> bool:
    """Ask as earlier releases did: a journal may still have such leases."""
    place, missing = places[0], len(places)
    request, spec = RequestId(f"job.{job.spec.job}.0"), job.spec
    wish = LeaseRequest(
        request, KernelId(request), missing, LEASE_S, (place.host,), spec.owner, place.model, holder="job"
    )  # fmt: skip
    self._request, self._asker = request, job
    self._leasing.feed(LeaseAsked(wish), now)
    (lease,) = job.leases.values()
    self._leasing.feed(LeaseLingered(lease.lease, lease.fence), now)
    self._request, self._asker, job.model = None, None, place.model
    return True


def test_a_job_whose_lease_cannot_be_parted_is_not_stopped_to_make_room(
    world: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(Asking, "ask_for", in_one_lease)
        world.submit("old", 1, 2, 4, samples=LONG)
    world.runs("old")
    world.restart()
    world.submit("new", 1, 2, 4, samples=LONG)
    world.until(world.now + 3 * LOOK_EVERY_S)
    assert not world.processes[JobName("old")].told
    assert (world.job("old").held, world.job("new").state) == (4, "waiting")


def test_gpus_that_a_job_leaves_for_another_go_to_a_cell_that_comes_meanwhile(world: Beside) -> None:
    world.submit("old", 1, 2, 4, samples=LONG)
    world.runs("old")
    world.submit("new", 1, 2, samples=LONG)
    world.cell("c", 2)
    world.stopped("old")
    assert "c" in world.cells
    assert (world.job("old").held, world.job("new").held) == (2, 0)


def test_nobody_else_starts_or_grows_where_a_job_makes_room(world: Beside) -> None:
    world.cell("c", 1)
    world.submit("old", 1, 2, samples=LONG)
    world.runs("old")
    world.submit("new", 2, samples=LONG)
    assert world.processes[JobName("old")].told
    world.submit("third", 1, samples=LONG)
    assert world.job("third").state == "waiting", "the idle one is as good as the newcomer's"
    world.stopped("old")
    assert (world.job("old").held, world.job("new").held) == (1, 2)
    world.over("c")
    world.until(world.now + 1.0)
    assert world.job("third").state == "starting"


def test_a_job_that_makes_room_goes_on_with_all_where_nobody_waits_for_it_any_more(world: Beside) -> None:
    world.submit("old", 1, 2, 4, samples=LONG)
    world.runs("old")
    world.submit("new", 1, 2, 4, samples=LONG)
    world.feed(JobStopAsked(JobName("new")))
    (start,) = of(StartJob, world.stopped("old"))
    assert len(start.gpus) == 4


def test_lingering_gpus_are_asked_back_before_a_job_makes_room(world: Beside) -> None:
    world.feed(JobHosts(UserName("ann"), (HostName("a"),)))
    world.cell("rests", 2)
    world.submit("old", 1, 2, samples=LONG)
    world.runs("old")
    world.over("rests", lingers=True)
    world.until(world.now + RESTED_S + 1.0)
    world.submit("new", 1, samples=LONG)
    (asked,) = of(ReclaimLease, [effect for _, _, effects in world.journal for effect in effects])
    assert asked.lease.request == "rests" and not world.processes[JobName("old")].told
    world.feed(LeaseReleased(asked.lease.lease, asked.lease.fence))
    world.until(world.now + 1.0)
    assert world.job("new").state == "starting"


def test_a_job_that_cells_push_out_goes_on_where_more_is_idle(world: Beside) -> None:
    world.submit("train", 1, 2, 4, samples=LONG)
    world.runs("train")
    world.host("b", 4)
    world.cell("c", 2, hosts="a")
    (start,) = of(StartJob, world.stopped("train"))
    assert (start.host, len(start.gpus)) == ("b", 4)
    assert "c" in world.cells


def test_a_job_that_was_seen_to_be_no_faster_with_more_gpus_grows_no_more(world: Beside) -> None:
    world.cell("c", 2)
    world.submit("train", 1, 2, 4, samples=LONG)
    world.runs("train")
    name, attempt = JobName("train"), world.processes[JobName("train")].attempt
    world.feed(JobProgress(name, attempt, LONG, ((1, 3.0), (2, 3.0), (4, 3.0))))
    world.restart()
    world.over("c")
    world.until(world.now + 3 * LOOK_EVERY_S)
    assert len(world.processes[name].gpus) == 2
    world.feed(JobProgress(name, attempt, LONG, ((2, 3.0), (4, 5.0))))
    world.until(world.now + 3 * LOOK_EVERY_S)
    assert len(world.processes[name].gpus) == 4


def test_speeds_that_were_seen_keep_the_unit_of_what_is_left_and_the_guess_beside_them() -> None:
    kind = type_of_shapes("x", (1, 2, 4))
    seen = type_as_seen(kind, ((2, 10.0), (1, 10.0), (64, 1.0), (4, float("inf"))), 2)
    assert seen.rate(2) == pytest.approx(kind.rate(2))
    assert seen.rate(1) == pytest.approx(kind.rate(2)), "both were seen"
    assert seen.rate(4) == pytest.approx(1.8 * kind.rate(2)), "the guess, beside the nearest"
    assert type_as_seen(kind, (), 2) is kind


def test_of_a_job_that_leaves_slowly_no_more_is_asked_than_cells_want(world: Beside) -> None:
    world.cell("b", 2)
    world.submit("train", 1, 2, samples=LONG)
    world.runs("train")
    world.over("b")
    world.cell("c", 3)
    record = world.core.desk.jobs.by_name[JobName("train")]
    assert len(record.back) == 1
    world.until(world.now + 5.0)
    assert len(record.back) == 1, "who is late is thought not to come, and others are asked; it is no other"
    (start,) = of(StartJob, world.stopped("train"))
    assert len(start.gpus) == 1 and "c" in world.cells
    assert [change.gpus for change in record.changes] == [2, 1]


def test_a_service_that_was_killed_knows_where_jobs_can_start(world: Beside) -> None:
    world.host("b", 8)
    world.feed(JobHosts(UserName("ann"), (HostName("a"),)))
    world.restart()
    world.submit("train", 1, 2, 4)
    assert world.job("train").host == "a", "there is more on the other host, and no agent of hers"
