"""SideCar: its case study, and jobs of Gavel's profiles on 16 GPUs, reshaped or not.

The paper does not publish the sizes of its jobs. Those of the case study are inferred from its times (so the
starts agree by construction, the three makespans from two speeds); those of the workloads are ours.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator, Mapping
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

from replkernel_scheduler.elastic.protocol import Reshaping
from replkernel_scheduler.elastic.types import SIDECAR, TERMINATION, JobType, ReshapeCosts, TrainingWanted
from replkernel_scheduler.policies.reshape_grow import GrowOnly
from replkernel_scheduler.policies.reshape_never import NeverReshape
from replkernel_scheduler.policies.reshape_sidecar import SideCar
from replkernel_scheduler.sim.elastic_simulation import Arrival, ElasticSimulation, Trained

from tests.paper.report import Course, Row
from tests.paper.traces import trace

PAPER = "SideCar"
AS_PRINTED = SideCar(gain=float("-inf"))
"""Algorithm 2 as the paper prints it: it grows jobs even at a loss."""
CASE_NAME, CASE_STEP_S = "case study, GPUs: ", 12.0
CASE_SEED = 3
"""The default scheduler draws sizes; with this seed 4 and 4, as the published times want it."""
SEEDS = 10
JOBS, BETWEEN_S = 30, 120.0
STEP_S = 120.0
"""Of the picture of jobs that wait."""
HOSTS = (8, 8)
MODEL = "v100"
"""That of the hosts, where they are alike; else of the first one."""
SHORTEST_S, LONGEST_S = 300.0, 7200.0
WAYS: dict[str, tuple[Reshaping, ReshapeCosts]] = {
    "default": (NeverReshape(), SIDECAR),
    "termination": (GrowOnly(), TERMINATION),
    "SideCar": (SideCar(), SIDECAR),
}


def case_study() -> list[Arrival]:
    """Return two jobs on 4 GPUs: 429 s and 412 s with all four, at 97 % and 80 % of that speed with two."""
    first = JobType("first", 1, {2: 0.5 / 0.97, 4: 1.0})
    second = JobType("second", 1, {2: 0.5 / 0.8, 4: 1.0})
    wanted = (TrainingWanted("1", first, 4 * 429.0), TrainingWanted("2", second, 4 * 412.0))
    return [Arrival(0.0, wanted[0]), Arrival(180.0, wanted[1])]


def rows(short: bool) -> Iterator[Row | Course]:
    """Yield the case study; without `short` the workloads too."""
    yield from _case_rows()
    if not short:
        yield from _workload_rows()
        yield from _mixed_rows(WORKLOAD_FOUR)
        yield from _mixed_rows(FURTHER_APART)


class Watched(ElasticSimulation):
    """A run that keeps how many GPUs each job has trained with, from when on."""

    def __init__(self, *run: Any) -> None:
        super().__init__(*run)
        self.trains: dict[str, list[tuple[float, int]]] = {job: [(0.0, 0)] for job in self.jobs}

    def _runs(self, story: Trained, now: float) -> None:
        super()._runs(story, now)
        self.trains[story.wanted.job].append((now, story.gpus))

    def _pauses(self, what: tuple[Trained, float], now: float) -> None:
        super()._pauses(what, now)
        self.trains[what[0].wanted.job].append((now, 0))

    def _trained(self, what: tuple[Trained, int], now: float) -> None:
        super()._trained(what, now)
        if not what[0].runs:
            self.trains[what[0].wanted.job].append((now, 0))

    def courses(self, name: str) -> Iterator[Course]:
        """Yield the GPUs of each job, at the middle of each step."""
        for job, trains in self.trains.items():
            steps = range(int(self.makespan / CASE_STEP_S) + 1)
            at = [(step + 0.5) * CASE_STEP_S for step in steps]
            values = [float([gpus for since, gpus in trains if since <= middle][-1]) for middle in at]
            yield Course(PAPER, f"{CASE_NAME}{name}: job {job}", CASE_STEP_S, tuple(values))


def _case_rows() -> Iterator[Row | Course]:
    sizes = "the jobs' sizes and speeds are inferred from these times"
    for name, policy, costs, makespan, start in (
        ("default", NeverReshape(), SIDECAR, 1249, 807),
        ("termination", AS_PRINTED, TERMINATION, 1143, 384),
        ("SideCar", AS_PRINTED, SIDECAR, 845, 290),
    ):
        simulation = Watched(case_study(), (4,), costs, policy, CASE_SEED)
        second = simulation.run()["2"]
        yield from simulation.courses(name)
        yield Row(PAPER, f"case study, {name}: makespan", makespan, simulation.makespan, "s", sizes)
        yield Row(PAPER, f"case study, {name}: job 2 trains", start, second.started, "s", sizes)
    for name, costs in (("termination", TERMINATION), ("SideCar", SIDECAR)):
        again = ElasticSimulation(case_study(), (4,), costs, SideCar())
        again.run()
        why = "growing only where it gains: on this case study both do better without"
        yield Row(PAPER, f"case study, {name}, our algorithm 2: makespan", None, again.makespan, "s", why)


def _workload_rows() -> Iterator[Row | Course]:
    types = profiles(MODEL)
    figures: dict[str, list[tuple[float, float, float]]] = {}
    left: dict[str, list[int]] = {}
    grown: dict[str, list[int]] = {}
    drawn: dict[str, list[int]] = {}
    for seed in range(SEEDS):
        jobs = workload(types, seed)
        for name, (policy, costs) in WAYS.items():
            simulation = ElasticSimulation(jobs, HOSTS, costs, policy, seed)
            stories = simulation.run().values()
            times = [story.over - story.at for story in stories]
            stopped = sum(story.stopped_s for story in stories) / sum(times)
            figures.setdefault(name, []).append((simulation.makespan, fmean(times), stopped))
            left.setdefault(name, []).append(waiting(stories, jobs[-1].at))
            grown.setdefault(name, []).append(sum(story.grown for story in stories))
            if not seed:
                steps = range(int(simulation.makespan / STEP_S) + 1)
                drawn[name] = [waiting(stories, step * STEP_S) for step in steps]
    published = {"default": (39.25, 59.25), "termination": (18.0, 33.75)}
    why = f"sizes and arrivals are ours: {JOBS} jobs, {SEEDS} seeds, Gavel's V100 profiles"
    for name, targets in published.items():
        for place, what in enumerate(("makespan", "mean JCT")):
            less = fmean(
                100 * (1 - ours[place] / other[place])
                for ours, other in zip(figures["SideCar"], figures[name], strict=True)
            )
            text = f"{JOBS} jobs on 16 GPUs: {what} less than {name} (paper: mean of W1 to W4)"
            yield Row(PAPER, text, targets[place], less, "%", why)
    for name, pending in (("default", 12), ("termination", 3), ("SideCar", 0)):
        text = f"{JOBS} jobs on 16 GPUs, {name}: jobs that wait when the last one comes (paper: W1)"
        yield Row(PAPER, text, pending, fmean(left[name]), "jobs", why)
    for name, times_grown in (("termination", 16), ("SideCar", 46)):
        text = f"{JOBS} jobs on 16 GPUs, {name}: times that a job gets more GPUs (paper: W1)"
        yield Row(PAPER, text, times_grown, fmean(grown[name]), "times", why)
    longest = max(map(len, drawn.values()))
    for name, counts in drawn.items():
        yield Course(PAPER, name, STEP_S, tuple(map(float, counts + [0] * (longest - len(counts)))))
    for name, share in (("termination", 26.7), ("SideCar", 7.9)):
        ours = 100 * fmean(figure[2] for figure in figures[name])
        yield Row(PAPER, f"the same, {name}: share of JCT stopped by reshaping", share, ours, "%", why)


def waiting(stories: Iterable[Trained], at: float) -> int:
    """Return how many jobs have come by then, and have no GPUs yet; who comes just then is not among them."""
    return sum(story.at < at < story.launched for story in stories)


class Less(NamedTuple):
    """How many percent less SideCar takes than another way."""

    makespan: float
    completion: float


class Mixed(NamedTuple):
    """A workload on GPUs of two models: the older one, and what the paper publishes of it, if anything."""

    name: str
    older: str
    less: Mapping[str, Less]
    stopped: Mapping[str, float]


WORKLOAD_FOUR = Mixed(
    " (Workload Four)",
    "p100",
    {"default": Less(36.0, 55.0), "termination": Less(18.0, 36.0)},
    {"termination": 28.6, "SideCar": 8.3},
)
FURTHER_APART = Mixed("", "k80", {}, {})
"""The paper has none such: what a choice by the makespan does where one model is far slower."""


def _mixed_rows(mixed: Mixed) -> Iterator[Row]:
    """Yield a workload on two models of GPUs: where a job is launched says how fast it is."""
    models = (MODEL, mixed.older)
    newer, older = ({kind.name: kind for kind in profiles(model)} for model in models)
    types = [kind for name, kind in newer.items() if _sizes(kind) == _sizes(older.get(name))]
    found: dict[str, list[tuple[float, float, float]]] = {}
    for seed in range(SEEDS):
        jobs = [_mixed(arrival, mixed.older, older) for arrival in workload(types, seed)]
        for name, (policy, costs) in WAYS.items():
            simulation = ElasticSimulation(jobs, HOSTS, costs, policy, seed, models)
            stories = simulation.run().values()
            times = [story.over - story.at for story in stories]
            stopped = sum(story.stopped_s for story in stories) / sum(times)
            found.setdefault(name, []).append((simulation.makespan, fmean(times), stopped))
    why = f"sizes and arrivals are ours: {JOBS} jobs, {SEEDS} seeds, Gavel's profiles of both models"
    where = f"{JOBS} jobs on 8 {MODEL.upper()} and 8 {mixed.older.upper()}{mixed.name}"
    for name in ("default", "termination"):
        targets = mixed.less.get(name, (None, None))
        for place, what in enumerate(("makespan", "mean JCT")):
            less = fmean(
                100 * (1 - ours[place] / other[place])
                for ours, other in zip(found["SideCar"], found[name], strict=True)
            )
            yield Row(PAPER, f"{where}: {what} less than {name}", targets[place], less, "%", why)
    for name in ("termination", "SideCar"):
        share = 100 * fmean(figures[2] for figures in found[name])
        text = f"{where}, {name}: share of JCT stopped by reshaping"
        yield Row(PAPER, text, mixed.stopped.get(name), share, "%", why)


def _sizes(kind: JobType | None) -> list[int]:
    return [] if kind is None else sorted(kind.iteration_s)


def _mixed(arrival: Arrival, model: str, older: dict[str, JobType]) -> Arrival:
    """Return a job that knows how fast it is on the older model too."""
    wanted = arrival.wanted
    on_models = {model: older[wanted.type.name]}
    return Arrival(arrival.at, TrainingWanted(wanted.job, wanted.type, wanted.samples, on_models))


def profiles(gpu: str) -> list[JobType]:
    """Return Gavel's job types on one model of GPU, with the counts that it has figures for.

    Its figures are batches a second of all GPUs together; an iteration of n GPUs does n of them.
    """
    with lzma.open(trace("gavel/simulation_throughputs.json.xz"), "rt") as file:
        table = json.load(file)[gpu]
    found: dict[str, dict[int, float]] = {}
    for key, speeds in table.items():
        name, _, count = key.strip("()").rpartition(", ")
        if speeds["null"] > 0:
            found.setdefault(name.strip("'"), {})[int(count)] = int(count) / speeds["null"]
    return [JobType(name, 1, counts) for name, counts in sorted(found.items()) if len(counts) > 1]


def workload(types: list[JobType], seed: int) -> list[Arrival]:
    """Return jobs that come at random, each between 5 minutes and 2 hours on one GPU."""
    dice = Random(seed)
    jobs, at = [], 0.0
    for number in range(JOBS):
        at += dice.expovariate(1 / BETWEEN_S)
        kind = dice.choice(types)
        alone_s = SHORTEST_S * (LONGEST_S / SHORTEST_S) ** dice.random()
        jobs.append(Arrival(at, TrainingWanted(f"{number}", kind, alone_s * kind.rate(1))))
    return jobs
