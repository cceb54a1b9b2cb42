"""Plays batch jobs beside notebooks: how long they start, train and are saved, as SideCar's costs say.

Law: it decides nothing; the core (`harvest`) says who runs where with how many GPUs. Work is conserved:
what a job has left is what it had less what it did; a host that fails takes what was not saved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replkernel_scheduler.elastic.types import SIDECAR
from replkernel_scheduler.events import FREES, LATE
from replkernel_scheduler.harvest.core import HarvestCore
from replkernel_scheduler.harvest.types import (
    HarvestEvent,
    JobEnded,
    JobLeased,
    JobLeaseEnded,
    JobName,
    JobRefused,
    JobRuns,
    JobsDue,
    JobSpec,
    JobStopped,
    JobSubmitted,
    ReshapeJob,
    StartJob,
    StopJob,
)
from replkernel_scheduler.sim.elastic_way import ElasticWay, samples_of
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.event_queue import EventQueue
from replkernel_scheduler.sim.figures import Figures
from replkernel_scheduler.sim.nodes import Hosts
from replkernel_scheduler.sim.records import Job
from replkernel_scheduler.sim.task import Parts, Task
from replkernel_scheduler.types import UserName

SAVES_S = SIDECAR.checkpoint_s + SIDECAR.process_stop_s
"""From being asked until the GPUs are given back: saved, stopped."""


class HarvestRun:
    """A job: `left` samples at `since`, if it trains; `version` tells what was put down before a change.

    `ends`: it has trained, and is saved and stopped. `rests_at` is since when it has no GPUs. The newest
    attempt was begun at `began`, from `saved` samples; `lost` is the newest that was lost with its host.
    """

    __slots__ = (
        "attempt", "began", "ends", "gpus", "held", "left", "lost", "rests_at", "saved", "since", "spec",
        "task", "trains", "version",
    )  # fmt: skip

    def __init__(self, task: Task, spec: JobSpec, left: float) -> None:
        """Start as submitted."""
        self.task, self.spec, self.left, self.saved = task, spec, left, left
        self.attempt = self.gpus = self.held = self.lost = self.version = 0
        self.since = self.began = 0.0
        self.rests_at = task.submitted
        self.trains = self.ends = False


class Harvest:
    """All batch jobs that are not over."""

    def __init__(
        self,
        core: HarvestCore,
        event_queue: EventQueue,
        feed: Callable[[HarvestEvent, float], None],
        figures: Figures,
        way: ElasticWay,
        gpus: int,
        nodes: tuple[Hosts, ...] = (),
    ) -> None:
        """Start with none; hosts have `gpus`, where they are not listed by their `nodes`."""
        self._core, self._event_queue, self._feed, self._figures = core, event_queue, feed, figures
        self._way, self._each, self._nodes = way, gpus, nodes
        self._runs: dict[JobName, HarvestRun] = {}
        self._armed: float | None = None

    @property
    def open(self) -> int:
        """Return how many jobs are not over."""
        return len(self._runs)

    def submit(self, job: Job, task: Task, now: float) -> None:
        """Hand a job in."""
        name = JobName(task.name)
        if name in self._runs:
            raise SimulationError(f"job {name} is there twice: give each job an id of its own.")
        kind = self._way.kind(job, self._each)
        samples = float(samples_of(dict.fromkeys(kind.iteration_s, 0.0)))
        task.duration_s = min(kind.run_s(samples, gpus) for gpus in kind.iteration_s)
        task.parts = Parts()
        model, each = "", self._each
        if self._nodes and job.gpu_models:
            model, *others = job.gpu_models
            if others:
                self._figures.given_up(task, "refused", "jobs beside notebooks name one model of GPUs")
                return
            each = max([alike.gpus for alike in self._nodes if alike.gpu_model == model], default=0)
        if kind.least > each:
            self._figures.given_up(task, "refused", f"no host has the {kind.least} GPUs")
            return
        spec = JobSpec(job=name, type=kind, samples=samples, owner=UserName(task.user), gpu_model=model)
        self._runs[name] = HarvestRun(task, spec, samples)
        self._feed(JobSubmitted(spec), now)

    def arm(self) -> None:
        """Put down when the core wants to look at its jobs, after everything else of that time."""
        at = self._core.jobs_due()
        if at is not None and self._runs and (self._armed is None or at < self._armed):
            self._armed = at
            self._event_queue.post(max(at, self._core.now), LATE, self._look, at)

    def _look(self, at: float, now: float) -> None:
        if at == self._armed:
            self._armed = None
            self._feed(JobsDue(), now)

    # -- what the core wants ------------------------------------------------------------------------

    def answers(self) -> dict[type[Any], Callable[[Any, float], None]]:
        """Say who answers which effect; the others are for people."""
        return {
            JobRefused: self._refused,
            JobLeased: self._leased,
            JobLeaseEnded: self._lease_ended,
            StartJob: self._start,
            ReshapeJob: self._reshape,
            StopJob: self._stop,
        }

    def _refused(self, effect: JobRefused, now: float) -> None:
        self._figures.given_up(self._runs.pop(effect.job).task, "refused", effect.why)

    def _leased(self, effect: JobLeased, now: float) -> None:
        """Count a job's GPUs; with the first of them its wait is over."""
        run = self._runs[effect.job]
        if not run.held:
            assert run.task.parts is not None
            run.task.parts.waited_s += now - run.rests_at
        run.held += len(effect.lease.gpus)
        self._count(len(effect.lease.gpus), now)

    def _lease_ended(self, effect: JobLeaseEnded, now: float) -> None:
        """Count them no longer; a job that lost them unasked has lost what was not saved."""
        run = self._runs.get(effect.job)
        if run is None:
            return
        run.held -= len(effect.lease.gpus)
        if not run.held:
            run.rests_at = now
        self._count(-len(effect.lease.gpus), now)
        if effect.why != "released" and run.lost != run.attempt:
            run.lost = run.attempt
            self._figures.run_lost(now, run.gpus * (now - run.began))
            self._halt(run, now, saved=False)
            run.left = run.saved

    def _count(self, gpus: int, now: float) -> None:
        self._figures.committed.add(gpus, now)
        assert self._figures.idle_time is not None
        self._figures.idle_time.add(now, jobs=gpus)

    def _start(self, effect: StartJob, now: float) -> None:
        """Have a job train once its processes are up."""
        run = self._runs[effect.spec.job]
        if run.task.host is None:
            run.task.bound, run.task.host = now, effect.host
        takes_s = SIDECAR.process_start_s if run.task.started else SIDECAR.start_s
        self._begin(run, effect.attempt, len(effect.gpus), takes_s, now)

    def _reshape(self, effect: ReshapeJob, now: float) -> None:
        """Have a job saved, stopped, and go on with more GPUs."""
        self._begin(self._runs[effect.job], effect.attempt, len(effect.gpus), SIDECAR.up_s, now)

    def _stop(self, effect: StopJob, now: float) -> None:
        """Have a job saved and stopped; one that ends is over by then at the latest."""
        run = self._runs[effect.job]
        if run.ends:
            self._event_queue.post(now + SAVES_S, FREES, self._over, (run, run.version))
            return
        self._halt(run, now, saved=effect.saves)
        self._event_queue.post(now + SAVES_S, FREES, self._stopped, (run, effect.attempt))

    # -- jobs ---------------------------------------------------------------------------------------

    def _begin(self, run: HarvestRun, attempt: int, gpus: int, takes_s: float, now: float) -> None:
        self._halt(run, now, saved=True)
        run.attempt, run.gpus, run.began, run.saved = attempt, gpus, now, run.left
        self._event_queue.post(now + takes_s, FREES, self._train, (run, run.version))

    def _train(self, what: tuple[HarvestRun, int], now: float) -> None:
        run, version = what
        if version != run.version:
            return
        if not run.task.started:
            assert run.task.parts is not None
            run.task.started, run.task.parts.loaded_s = now, now - run.began
        run.trains, run.since = True, now
        self._event_queue.post(
            now + run.spec.type.run_s(run.left, run.gpus), FREES, self._trained, (run, run.version)
        )
        self._feed(JobRuns(run.spec.job, run.attempt, run.left), now)

    def _halt(self, run: HarvestRun, now: float, *, saved: bool) -> None:
        run.version += 1
        run.ends = False
        if not run.trains:
            return
        assert run.task.parts is not None
        run.trains = False
        run.task.parts.tries += 1
        run.task.parts.ran_s += now - run.since
        if saved:
            run.left = max(0.0, run.left - (now - run.since) * run.spec.type.rate(run.gpus))

    def _stopped(self, what: tuple[HarvestRun, int], now: float) -> None:
        run, attempt = what
        if run.spec.job in self._runs:
            self._feed(JobStopped(run.spec.job, attempt, run.left), now)

    def _trained(self, what: tuple[HarvestRun, int], now: float) -> None:
        run, version = what
        if version != run.version:
            return
        self._halt(run, now, saved=True)
        run.ends, run.task.ended = True, now
        self._event_queue.post(now + SIDECAR.finish_s, FREES, self._over, (run, run.version))

    def _over(self, what: tuple[HarvestRun, int], now: float) -> None:
        run, version = what
        if version != run.version:
            return
        run.version += 1
        task, parts = run.task, run.task.parts
        assert parts is not None
        del self._runs[run.spec.job]
        task.done = now
        parts.paused_s = now - task.submitted - parts.waited_s - parts.loaded_s - parts.ran_s
        task.gpus = run.held
        self._figures.finished(task, now)
        assert self._figures.idle_time is not None
        self._figures.idle_time.add(now, jobs=-run.held)
        self._feed(JobEnded(run.spec.job, run.attempt), now)
