"""Where a job that waits can start is found as if every place and every job there had been looked at."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st
from replkernel_scheduler.elastic.book import Training
from replkernel_scheduler.elastic.types import SIDECAR, JobType, Launch, TrainingWanted
from replkernel_scheduler.harvest.floor import Floor
from replkernel_scheduler.harvest.jobs import JobRecord
from replkernel_scheduler.harvest.leasing import Place
from replkernel_scheduler.harvest.openings import LEAVES_S, Giver, samples_of, undominated
from replkernel_scheduler.harvest.types import JobName, JobSpec, type_of_shapes
from replkernel_scheduler.policies.reshape_sidecar import SideCar
from replkernel_scheduler.types import Fence, GpuUuid, HostName, KernelId, Lease, LeaseId, RequestId

from tests.support.examples import examples

NOW = 1000.0
SHAPES = ((1,), (1, 2), (1, 2, 4), (2, 4), (4, 8), (1, 2, 4, 8))
MODELS = ("A100", "A100", "V100")


class Dice:
    def random(self) -> float:
        return 0.0


class EveryPlace(Floor):
    """The rules themselves look at it: everything anew, for each job."""

    newcomer: JobRecord

    def worth_a_look(self, wanted: TrainingWanted) -> Iterable[int]:
        return range(len(self.places))

    def type_on(self, wanted: TrainingWanted, host: int) -> JobType:
        return wanted.type_on(self.places[host].model)

    def new_end(self, wanted: TrainingWanted, gpus: int, donor: bool, now: float, host: int = 0) -> float:
        begins_s = SIDECAR.process_start_s if self.newcomer.attempt else SIDECAR.start_s
        run_s = self.type_on(wanted, host).run_s(wanted.samples, gpus)
        return now + begins_s + (LEAVES_S if donor else 0.0) + run_s + SIDECAR.finish_s

    def best(self, job: JobRecord, idle: dict[Place, int], sizes: list[int]) -> Launch | None:
        self.newcomer = job
        self.offer(job, idle)

        def among(kind: JobType) -> JobType:
            return JobType(kind.name, kind.batch, {gpus: kind.iteration_s[gpus] for gpus in sizes})

        on_models = {model: among(job.type_on(model)) for model in job.speeds_on}
        wanted = TrainingWanted(str(job.spec.job), among(job.type), samples_of(job), on_models)
        launch = SideCar(gain=0.0).launch(self, wanted, Dice(), NOW)
        if launch is None or launch.donor is None or not self.waits(wanted, launch, idle):
            return launch
        self.giving = set()
        return SideCar(gain=0.0).launch(self, wanted, Dice(), NOW)

    def waits(self, wanted: TrainingWanted, launch: Launch, idle: dict[Place, int]) -> bool:
        assert launch.donor is not None
        outlook, donor = self.outlook(NOW), self.trainings[launch.donor]
        left = donor.gpus - (launch.gpus - self.idle[launch.host])
        new = self.new_end(wanted, launch.gpus, True, NOW, launch.host)
        room = outlook.score(new, launch.donor, self.reshaped_end(donor, left, NOW))
        there = [each for each in self.trainings.values() if self.places[each.host] in idle]
        wait = outlook.score(min([self.after(wanted, each) for each in there], default=inf))
        return (wait.makespan, wait.completions) <= (room.makespan, room.completions)

    def after(self, wanted: TrainingWanted, training: Training) -> float:
        sizes = [gpus for gpus in wanted.type.iteration_s if gpus <= self.idle[training.host] + training.gpus]
        if not sizes or training.state != "running" or not training.samples_left(NOW):
            return inf
        free = self.end(training, NOW) - SIDECAR.finish_s
        return self.new_end(wanted, max(sizes), False, free, training.host)


samples = st.sampled_from([None, 0.0, 1.0, 50.0, 500.0, 2e3, 1e4, 1e6]) | st.floats(1.0, 1e4)


@st.composite
def running(draw: st.DrawFn, number: int) -> JobRecord:
    """A job that mostly has more than it needs."""
    shapes, host = draw(st.sampled_from([(1, 2, 4, 8), *SHAPES])), HostName(draw(st.sampled_from("ab")))
    job = draw(waiting(f"r{number}", shapes))
    job.host, job.model = host, draw(st.sampled_from(MODELS))
    job.state, job.since = draw(st.sampled_from(["running"] * 4 + ["starting", "stopping"])), 900.0
    job.gpus = tuple([GpuUuid(f"{number}-{i}") for i in range(draw(st.sampled_from(shapes[::-1])))])
    for gpu in job.gpus:
        name = LeaseId(f"l-{gpu}")
        job.leases[name] = Lease(name, RequestId(name), KernelId(name), host, (gpu,), Fence(1), 1e5, 1e9)
    return job


@st.composite
def waiting(draw: st.DrawFn, name: str, shapes: tuple[int, ...]) -> JobRecord:
    kind, priority = type_of_shapes("t", shapes), draw(st.integers(0, 1))
    job = JobRecord(JobSpec(job=JobName(name), type=kind, priority=priority), draw(samples))
    job.attempt, job.leases = draw(st.integers(0, 1)), {}
    if draw(st.integers(0, 3)) == 0:  # It was seen on both models, and is twice as fast on one.
        job.seen, job.seen_on, job.speeds = kind, "A100", ((shapes[0], 2.0),)
        job.speeds_on = {"A100": job.speeds, "V100": ((shapes[0], 1.0),)}
    return job


@settings(max_examples=examples(300))
@given(st.data())
def test_where_a_job_can_start_is_as_if_everybody_were_looked_at(data: st.DataObject) -> None:
    there = [data.draw(running(number)) for number in range(data.draw(st.integers(2, 8)))]
    places = sorted({Place(HostName(host), model) for host in "ab" for model in MODELS})
    idle = {place: data.draw(st.integers(0, 1)) for place in places if data.draw(st.integers(0, 9))}
    quick, naive = Floor(there, lambda _: [], NOW), EveryPlace(there, lambda _: [], NOW)
    for number in range(8):
        job = data.draw(waiting(f"w{number}", data.draw(st.sampled_from(SHAPES))))
        sizes = sorted(job.spec.type.iteration_s, reverse=True)
        launch = quick.openings(job, idle).best(job, sizes)
        assert launch == naive.best(job, idle, sizes)


ends = st.integers(0, 6).map(float)


@given(st.lists(st.tuples(ends, ends), min_size=1, max_size=8), ends)
def test_who_is_never_the_choice_is_left_out_and_nobody_else(
    several: list[tuple[float, float]], new: float
) -> None:
    givers = [Giver(end, later, host // 2, f"j{host}") for host, (end, later) in enumerate(several)]

    def choice(among: list[Giver]) -> Giver:
        return min(among, key=lambda each: (max(each.makespan, new), each.later_s + new, each.host))

    assert choice(undominated(givers)) == choice(givers)
