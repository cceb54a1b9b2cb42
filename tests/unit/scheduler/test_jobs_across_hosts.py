"""Jobs on several hosts: all of them or none, left together, and none computes where another one may."""

from __future__ import annotations

import pytest
from replkernel_scheduler.effects import ReclaimLease
from replkernel_scheduler.events import HostDown, HostUp, LeaseLingered, QuotaSet
from replkernel_scheduler.gangs.desk import END_S
from replkernel_scheduler.harvest.desk import FORGETS_S, LOOK_EVERY_S
from replkernel_scheduler.harvest.spanning import HOLDS_UP_S
from replkernel_scheduler.harvest.types import (
    HostJobs,
    JobEnded,
    JobHoldAsked,
    JobHosts,
    JobLeaseEnded,
    JobName,
    JobProgress,
    JobRefused,
    JobSpec,
    JobStopped,
    JobSubmitted,
    ReshapeJob,
    StartJob,
    StopJob,
    type_of_shapes,
)
from replkernel_scheduler.types import Gpu, GpuUuid, HostName, UserName, UserQuota

from tests.unit.scheduler.beside import Beside, host_of, of

LONG = 1e6
TRAIN = JobName("train")


@pytest.fixture
def world() -> Beside:
    world = Beside()
    world.host("a", 4)
    world.host("b", 4)
    return world


def each(world: Beside) -> dict[str, int]:
    """Return how many GPUs the job computes on, by their hosts."""
    process = world.processes.get(TRAIN)
    hosts = [gpu.split("-")[1] for gpu in process.gpus] if process is not None else []
    return {host: hosts.count(host) for host in sorted(set(hosts))}


def all_of(world: Beside, kind: type) -> list[object]:
    return [effect for _, _, effects in world.journal for effect in of(kind, effects)]


def test_a_job_starts_with_the_largest_shape_that_all_of_its_hosts_have(world: Beside) -> None:
    world.cell("c", 2, "b")
    world.submit("train", 2, 4, 8, hosts=2)
    assert each(world) == {"a": 2, "b": 2}
    (started,) = all_of(world, StartJob)
    assert isinstance(started, StartJob)
    assert (started.host, [other.host for other in started.others]) == ("a", ["b"])


def test_a_job_holds_nothing_while_one_of_its_hosts_has_too_little(world: Beside) -> None:
    world.cell("c", 3, "b")
    world.submit("train", 4, 8, hosts=2)
    assert world.job("train").held == 0
    world.submit("other", 4)
    assert world.job("other").held == 4, "what it cannot use is others'"
    world.over("c")
    world.ended("other")
    world.until(world.now)
    assert each(world) == {"a": 4, "b": 4}


def test_all_hosts_get_back_together_what_a_cell_wants_of_one(world: Beside) -> None:
    world.submit("train", 2, 4, 8, hosts=2, samples=LONG)
    world.runs("train")
    world.cell("c", 1, "b")
    (stop,) = all_of(world, StopJob)
    assert isinstance(stop, StopJob)
    assert (stop.host, stop.saves) == ("a", True)
    world.stopped("train")
    assert "c" in world.cells
    assert each(world) == {"a": 2, "b": 2}
    assert world.job("train").held == 4, "and the other host's spare ones are back, too"


def test_a_job_gives_all_back_where_one_host_has_too_little_left_and_comes_back(world: Beside) -> None:
    world.submit("train", 4, 8, hosts=2, samples=LONG)
    world.runs("train")
    world.cell("c", 3, "b")
    world.stopped("train")
    assert (world.job("train").state, world.job("train").held) == ("waiting", 0)
    world.over("c")
    assert each(world) == {"a": 4, "b": 4}


def test_a_job_grows_into_gpus_that_are_idle_on_each_of_its_hosts(world: Beside) -> None:
    world.cell("c", 2, "a")
    world.cell("d", 2, "b")
    world.submit("train", 4, 8, hosts=2, samples=LONG)
    world.runs("train")
    world.over("c")
    world.until(world.now + 2 * LOOK_EVERY_S)
    assert not all_of(world, ReshapeJob), "one host alone is no use"
    world.over("d")
    world.until(world.now + 2 * LOOK_EVERY_S)
    assert each(world) == {"a": 4, "b": 4}


def test_one_that_is_nearly_done_is_not_started_again_to_grow(world: Beside) -> None:
    world.cell("c", 2, "a")
    world.submit("train", 4, 8, hosts=2, samples=1.0)
    world.runs("train")
    world.over("c")
    world.until(world.now + 2 * LOOK_EVERY_S)
    assert not all_of(world, ReshapeJob)


@pytest.mark.parametrize("rests", [("nb",), ("nb", "busy")])
def test_lingering_gpus_are_asked_back_where_a_job_gets_all_its_hosts_by_that(
    world: Beside, rests: tuple[str, ...]
) -> None:
    world.feed(JobHosts(UserName("ann"), (HostName("a"), HostName("b"))))
    world.cell("nb", 4, "a")
    world.cell("busy", 4, "b")
    for name in rests:
        lease = world.cells[name]
        world.feed(LeaseLingered(lease.lease, lease.fence))
    world.submit("train", 4, 8, hosts=2)
    world.until(world.now + 400.0)
    assert len(all_of(world, ReclaimLease)) == (2 if len(rests) == 2 else 0)


def test_hosts_of_different_models_are_not_had_together(world: Beside) -> None:
    world.feed(HostUp(HostName("c"), tuple(Gpu(GpuUuid(f"GPU-c-{i}"), "H200") for i in range(4))))
    world.feed(JobHosts(UserName("ann"), (HostName("a"), HostName("c"))))
    world.cell("nb", 4, "a")
    lease = world.cells["nb"]
    world.feed(LeaseLingered(lease.lease, lease.fence))
    world.submit("train", 8, hosts=2)
    world.until(world.now + 400.0)
    assert not all_of(world, ReclaimLease)


def mixed(*hosts: str) -> Beside:
    """Return a world of hosts with GPUs of several models, each as `a 4xH100 2xA100`."""
    world = Beside()
    for host in hosts:
        name, *pools = host.split()
        counts = [(int(count), model) for count, _, model in (pool.partition("x") for pool in pools)]
        gpus = [
            Gpu(GpuUuid(f"GPU-{name}-{model}{i}"), model) for count, model in counts for i in range(count)
        ]
        world.feed(HostUp(HostName(name), tuple(gpus)))
    world.feed(JobHosts(UserName("ann"), tuple(HostName(host.split()[0]) for host in hosts)))
    return world


def why(world: Beside) -> str:
    return world.core.desk.jobs.by_name[TRAIN].refused


def test_a_job_takes_the_model_with_which_it_is_done_first(world: Beside) -> None:
    world = mixed("a 4xH100", "b 4xH100", "c 4xA100", "d 4xA100")
    world.cell("nb", 4, "a")
    world.submit("train", 8, hosts=2, samples=LONG)
    assert each(world) == {"c": 4, "d": 4}
    world.runs("train")
    world.feed(JobProgress(TRAIN, 1, LONG, ((8, 1.0),)), after_s=10.0)
    world.over("nb")
    world.cell("nb", 4, "c")
    world.stopped("train")
    assert each(world) == {"a": 4, "b": 4}
    world.runs("train")
    world.feed(JobProgress(TRAIN, 2, LONG, ((8, 3.0),)), after_s=10.0)
    world.over("nb")
    world.feed(JobHoldAsked(TRAIN, held=True))
    world.stopped("train")
    world.restart()
    world.feed(JobHoldAsked(TRAIN, held=False))
    world.until(world.now + 2.0)
    assert each(world) == {"a": 4, "b": 4}, "A100 comes first by name, H100 by when it is done"


def test_fewer_gpus_of_a_faster_model_are_taken_where_they_are_done_first() -> None:
    world = mixed("a 2xH100 4xA100", "b 2xH100 4xA100")
    world.submit("train", 4, 8, hosts=2, samples=LONG)
    for attempt, speeds in enumerate((((4, 1.0), (8, 1.9)), ((4, 3.0),)), 1):
        world.runs("train")
        world.feed(JobProgress(TRAIN, attempt, LONG, speeds), after_s=10.0)
        world.cell("nb", 3, "a")
        world.stopped("train")
    assert world.core.desk.jobs.by_name[TRAIN].model == "H100"
    world.over("nb")
    world.feed(JobHoldAsked(TRAIN, held=True))
    world.stopped("train")
    world.feed(JobHoldAsked(TRAIN, held=False))
    world.until(world.now + 2.0)
    assert world.core.desk.jobs.by_name[TRAIN].model == "H100"


def test_a_model_of_which_no_host_has_most_is_found_all_the_same() -> None:
    world = mixed("a 3xH100 2xA100", "b 3xV100 2xA100")
    world.submit("train", 4, hosts=2)
    assert world.core.desk.jobs.by_name[TRAIN].model == "A100"
    assert each(world) == {"a": 2, "b": 2}


def test_one_whose_hosts_have_no_model_in_common_says_what_it_needs_and_keeps_nobody_from_growing() -> None:
    world = mixed("a 4xH100", "b 3xH100", "c 1xA100")
    world.cell("nb", 2, "a")
    world.cell("on", 3, "b")
    world.submit("other", 2, 4, samples=LONG)
    world.runs("other")
    world.submit("train", 8, hosts=2)
    at_most = "at most 6 of H100 are there."
    assert why(world) == f"It needs 8 GPUs of one model on 2 hosts, 4 on each; {at_most}"
    world.over("nb")
    world.until(world.now + 2 * LOOK_EVERY_S)
    assert world.job("other").held == 4


def test_one_that_waits_for_idle_gpus_says_how_many_are_idle_of_each_model() -> None:
    world = mixed("a 4xH100 4xA100", "b 4xH100 4xA100", "c 4xA100")
    for name, gpus, host in (("h", 1, "a"), ("i", 3, "b"), ("j", 2, "b"), ("k", 3, "c")):
        world.cell(name, gpus, host)
    world.submit("train", 8, hosts=2)
    at_most = "at most 4 of A100 and 2 of H100 are idle."
    assert why(world) == f"It needs 8 GPUs of one model on 2 hosts, 4 on each; {at_most}"
    for name in "hij":
        world.over(name)
    world.until(world.now + 2.0)
    assert each(world) == {"a": 4, "b": 4}


def test_one_that_names_a_model_gets_that_or_says_so() -> None:
    world = mixed("a 4xH100 4xA100", "b 2xH100 4xA100")
    for name, gpus in (("train", 8), ("small", 4)):
        kind = type_of_shapes(name, (gpus,))
        spec = JobSpec(job=JobName(name), type=kind, owner=UserName("ann"), gpu_model="H100", hosts=2)
        world.feed(JobSubmitted(spec))
    world.until(world.now)
    assert why(world) == "It needs 8 H100 on 2 hosts, 4 on each; at most 4 are there."
    assert world.core.desk.jobs.by_name[JobName("small")].model == "H100"


def test_a_program_that_has_failed_on_all_hosts_of_one_model_is_tried_on_another_model() -> None:
    world = mixed("a 4xH100", "b 4xH100", "c 4xA100", "d 4xA100")
    world.submit("train", 8, hosts=2, samples=LONG)
    assert [fails(world), fails(world)] == [["c", "d"], ["a", "b"]]


def test_a_lost_host_ends_the_others_and_it_goes_on_with_another_one(world: Beside) -> None:
    world.submit("train", 8, hosts=2, samples=LONG)
    world.runs("train")
    attempt = world.job("train").attempt
    world.feed(HostDown(HostName("b")))
    stops = all_of(world, StopJob)
    assert [(stop.host, stop.saves) for stop in stops if isinstance(stop, StopJob)] == [("a", False)]
    assert world.job("train").held == 4, "what the others compute on is nobody else's meanwhile"
    world.host("c", 4)
    world.until(world.now + 1.0)
    assert world.job("train").state == "stopping"
    world.feed(JobStopped(TRAIN, attempt))
    world.until(world.now)
    assert each(world) == {"a": 4, "c": 4}
    assert world.job("train").attempt == attempt + 1


def test_where_the_first_host_is_lost_the_others_have_time_to_end(world: Beside) -> None:
    world.submit("train", 8, hosts=2, samples=LONG)
    world.runs("train")
    lost_at = world.now
    world.feed(HostDown(HostName("a")))
    world.host("c", 4)
    world.until(lost_at + END_S - 1.0)
    assert world.job("train").held == 4
    world.until(lost_at + END_S + 1.0)
    assert each(world) == {"b": 4, "c": 4}, "nobody had to say that what is lost is over"
    assert len(all_of(world, JobLeaseEnded)) == 8


def test_where_the_first_hosts_agent_is_given_up_the_others_end_before_it_goes_on(world: Beside) -> None:
    world.feed(JobHosts(UserName("ann"), (HostName("a"), HostName("b"))))
    world.submit("train", 8, hosts=2, samples=LONG)
    world.runs("train")
    world.host("c", 4)
    world.away = {"a"}
    world.feed(JobHosts(UserName("ann"), (HostName("b"), HostName("c"))))
    given_up_at = world.now
    world.feed(HostJobs(HostName("a"), (), UserName("ann")))
    (stop,) = all_of(world, StopJob)
    assert isinstance(stop, StopJob) and not stop.saves
    world.until(given_up_at + END_S - 1.0)
    assert (world.job("train").held, world.job("train").attempt) == (8, 1)
    world.until(given_up_at + END_S + 2.0)
    assert each(world) == {"b": 4, "c": 4}


def test_a_job_that_nobody_can_end_has_longer_and_ends_at_once_when_its_first_host_is_back(
    world: Beside,
) -> None:
    ann, hosts = UserName("ann"), (HostName("a"), HostName("b"))
    world.feed(JobHosts(ann, hosts))
    world.submit("train", 8, hosts=2, samples=LONG)
    world.runs("train")
    world.feed(JobHosts(ann, ()))
    world.feed(HostJobs(HostName("a"), (), ann))
    world.until(world.now + 2 * END_S)
    assert world.job("train").held == 8
    world.feed(JobHosts(ann, hosts))
    (again,) = of(StopJob, world.feed(HostJobs(HostName("a"), ((TRAIN, 1),), ann)))
    assert (again.host, again.saves) == ("a", False)
    world.feed(JobStopped(TRAIN, 1))
    world.until(world.now + 2.0)
    assert (world.job("train").attempt, each(world)) == (2, {"a": 4, "b": 4})


def test_where_all_hosts_are_lost_one_after_the_other_the_next_attempt_is_left_alone(world: Beside) -> None:
    world.submit("train", 8, hosts=2, samples=LONG)
    world.host("c", 4)
    world.host("d", 4)
    world.feed(HostDown(HostName("a")))
    world.feed(HostDown(HostName("b")))
    world.until(world.now + 2 * END_S)
    assert (world.job("train").attempt, each(world)) == (2, {"c": 4, "d": 4})


def test_a_service_that_is_killed_knows_of_the_lost_first_host(world: Beside) -> None:
    world.submit("train", 8, hosts=2, samples=LONG)
    world.feed(HostDown(HostName("a")))
    world.restart()
    world.until(world.now + END_S + 1.0)
    assert (world.job("train").state, world.job("train").held) == ("waiting", 0)


def test_a_job_runs_only_where_its_owner_has_agents_and_blocks_nobody_while_it_has_none(
    world: Beside,
) -> None:
    world.feed(JobHosts(UserName("ann"), (HostName("a"),)))
    world.cell("c", 2, "a")
    world.submit("train", 2, hosts=2)
    world.submit("other", 2, 4, samples=LONG)
    world.runs("other")
    assert world.job("train").state == "waiting"
    world.over("c")
    world.until(world.now + 2 * LOOK_EVERY_S)
    assert world.job("other").held == 4
    world.feed(JobHosts(UserName("ann"), (HostName("a"), HostName("b"))))
    world.ended("other")
    world.until(world.now + 2.0)
    assert each(world) == {"a": 1, "b": 1}


@pytest.mark.parametrize(("shape", "waits_s"), [(32, LOOK_EVERY_S), (8, HOLDS_UP_S)])
def test_others_grow_while_one_waits_in_vain_or_for_long(world: Beside, shape: int, waits_s: float) -> None:
    world.feed(JobHosts(UserName("ann"), (HostName("a"), HostName("b"))))
    world.host("large", 16)  # Its owner has no agent there.
    world.cell("c", 2, "a")
    world.cell("d", 4, "b")
    world.submit("train", shape, hosts=2)
    world.submit("other", 2, 4, samples=LONG)
    world.runs("other")
    world.over("c")
    world.until(waits_s - LOOK_EVERY_S)
    assert world.job("other").held == 2
    world.until(waits_s + 2 * LOOK_EVERY_S)
    assert world.job("other").held == 4
    refused = world.core.desk.jobs.by_name[TRAIN].refused
    there = "at most 8 are there" if shape == 32 else "none are idle"
    assert refused == f"It needs {shape} GPUs of one model on 2 hosts, {shape // 2} on each; {there}."


@pytest.mark.parametrize(
    ("hosts", "shapes", "why"),
    [(1, (2,), "2 to 64"), (65, (65,), "number from 1 to 64"), (2, (2, 3), "multiples of 2")],
)
def test_gpus_that_hosts_cannot_share_equally_are_refused(
    world: Beside, hosts: int, shapes: tuple[int, ...], why: str
) -> None:
    spec = JobSpec(job=TRAIN, type=type_of_shapes("train", shapes), hosts=hosts)
    (refused,) = of(JobRefused, world.feed(JobSubmitted(spec)))
    assert why in refused.why


def fails(world: Beside, job: JobName = TRAIN) -> list[str]:
    """Have a program fail too often where it is; return where it was."""
    process = world.processes.pop(job)
    there = sorted({host_of(gpu) for gpu in process.gpus})
    world.feed(JobEnded(job, process.attempt, "failed", "it ended with exit code 1", elsewhere=True))
    world.until(world.now + 1.0)
    return there


def test_a_program_that_fails_is_started_where_it_has_not_failed_yet(world: Beside) -> None:
    world.host("c", 4)
    world.submit("train", 8, hosts=2, samples=LONG)
    tried = [fails(world), fails(world)]
    world.restart()
    tried.append(fails(world))
    assert sorted(tried) == [["a", "b"], ["a", "c"], ["b", "c"]]
    (past,) = world.core.desk.past
    assert (past.why, past.said) == ("failed", "it ended with exit code 1")


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_program_that_fails_has_failed_where_there_are_no_other_hosts(world: Beside, hosts: int) -> None:
    world.feed(JobHosts(UserName("ann"), (HostName("a"), HostName("b"))[:hosts]))
    world.submit("train", 4 * hosts, hosts=hosts)
    fails(world)
    assert not world.core.jobs()


def test_a_job_waits_for_a_host_where_it_has_not_failed_and_has_any_when_there_is_none(world: Beside) -> None:
    ann = UserName("ann")
    world.feed(JobHosts(ann, (HostName("a"), HostName("b"))))
    world.cell("c", 4, "b")
    world.submit("train", 4)
    assert fails(world) == ["a"]
    assert world.job("train").state == "waiting"
    world.feed(JobHosts(ann, (HostName("a"),)))
    world.until(world.now + 1.0)
    assert each(world) == {"a": 4}


def test_notebooks_are_not_asked_for_hosts_on_which_it_does_not_start_as_it_has_failed_there(
    world: Beside,
) -> None:
    world.host("c", 4)
    world.feed(JobHosts(UserName("ann"), (HostName("a"), HostName("b"), HostName("c"))))
    world.cell("busy", 4, "c")
    world.submit("train", 8, hosts=2, samples=LONG)
    assert fails(world) == ["a", "b"]
    world.cell("nb", 4, "a")
    rests = world.cells["nb"]
    world.feed(LeaseLingered(rests.lease, rests.fence))
    world.until(world.now + 400.0)
    assert not all_of(world, ReclaimLease), "it would wait for c all the same"
    rests = world.cells["busy"]
    world.feed(LeaseLingered(rests.lease, rests.fence))
    world.until(world.now + 400.0)
    (told,) = all_of(world, ReclaimLease)
    assert isinstance(told, ReclaimLease) and told.lease.host == "c"
    assert each(world) == {"b": 4, "c": 4}


def test_what_failed_long_ago_does_not_count(world: Beside) -> None:
    world.submit("train", 4, samples=LONG)
    first = fails(world)
    world.until(world.now + FORGETS_S)
    assert fails(world) != first
    assert list(each(world)) == first


@pytest.mark.parametrize("holds", [0, 2])
@pytest.mark.parametrize("hosts", [1, 2])
def test_one_that_its_owners_quota_alone_keeps_waiting_says_so_and_keeps_nobody_from_growing(
    world: Beside, hosts: int, holds: int
) -> None:
    world.feed(QuotaSet(UserName("ann"), UserQuota(gpu_quota=2)))
    world.cell("nb", 2, "a")
    world.cell("on", 4, "b")
    kind = type_of_shapes("other", (2, 4))
    world.feed(JobSubmitted(JobSpec(job=JobName("other"), type=kind, owner=UserName("bob"), samples=LONG)))
    world.until(world.now)
    world.runs("other")
    assert world.job("other").host == "a"
    if holds:
        world.over("on")
        world.submit("own", holds, samples=LONG)
        world.cell("on", 4 - holds, "b")
    world.submit("train", 4 - holds, hosts=hosts)
    world.until(world.now + 1.0)
    allows = f"Your other jobs hold {holds} of the 2 GPUs that gpu_quota allows"
    assert why(world) == f"{allows}; this one needs at least {4 - holds}."
    world.over("nb")
    world.until(world.now + 2 * LOOK_EVERY_S)
    assert world.job("other").held == 4


def test_hosts_whose_agents_cannot_run_jobs_on_several_hosts_have_all_others(world: Beside) -> None:
    world.feed(JobHosts(UserName("ann"), (HostName("a"), HostName("b")), across=(HostName("a"),)))
    world.submit("train", 2, hosts=2)
    world.submit("one", 4)
    world.submit("two", 4)
    world.restart()
    assert world.job("train").state == "waiting"
    assert {world.job("one").host, world.job("two").host} == {"a", "b"}


def test_a_job_that_no_host_could_take_is_refused_by_name(world: Beside) -> None:
    world.submit("wide", 8, 16)
    world.submit("spread", 16, hosts=2)
    refused = [effect for effect in all_of(world, JobRefused) if isinstance(effect, JobRefused)]
    assert [(each.job, each.why) for each in refused] == [
        (job, "No host has 8 GPUs; the largest possible request is 4 GPUs.") for job in ("wide", "spread")
    ]


def test_one_that_none_of_its_owners_hosts_could_take_says_so_and_keeps_nobody_from_growing(
    world: Beside,
) -> None:
    world.host("large", 8)
    world.feed(JobHosts(UserName("ann"), (HostName("a"), HostName("b"))))
    world.cell("c", 2, "a")
    world.cell("d", 4, "b")
    world.submit("other", 2, 4, samples=LONG)
    world.runs("other")
    world.submit("wide", 8)
    world.over("c")
    world.until(world.now + 2 * LOOK_EVERY_S)
    assert world.job("other").held == 4
    refused = world.core.desk.jobs.by_name[JobName("wide")].refused
    assert refused == "No host on which an agent of yours runs has 8 such GPUs."
    world.feed(JobHosts(UserName("ann"), (HostName("a"), HostName("b"), HostName("large"))))
    world.until(world.now + 1.0)
    assert world.job("wide").held == 8
