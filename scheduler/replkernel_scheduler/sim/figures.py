"""What a run is measured by (spec 0.5), gathered as it goes.

Law: it only counts what the driver tells, and looks at no clock but the run's. Numbers are kept for each
task, so percentiles are exact; a row for each task goes to whoever wants rows. What comes during the warm-up
is not counted: tasks by when they were submitted, all else by when it happens. Courses are of the whole run.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TypeAlias

from replkernel_scheduler.sim.fairness import Lived, finish_time_fairness, integral_of
from replkernel_scheduler.sim.fragments import Fragments
from replkernel_scheduler.sim.history import History
from replkernel_scheduler.sim.idle_time import IdleTime
from replkernel_scheduler.sim.level import CountedFrom, Level
from replkernel_scheduler.sim.nodes import Hosts
from replkernel_scheduler.sim.power import Draws
from replkernel_scheduler.sim.task import Outcome, Task
from replkernel_scheduler.types import HostName

WHYS_MAX = 20
BOUND_S = 10.0
"""Shorter runs count as this long (Feitelson): else a job of a second would tell of nothing else."""
RowSink: TypeAlias = Callable[[Task, Outcome], None]


class Figures:
    """Levels over time, samples of tasks, and counts."""

    def __init__(self, rows: RowSink | None = None, warmup_s: float = 0.0) -> None:
        """Start at nothing; each task that is over is handed to `rows`, and counts after the warm-up."""
        self._rows = rows
        self.warmup_s = warmup_s
        self.hosts, self.executing, self.replicas = (self.level() for _ in range(3))
        self.gpus, self.committed = self.level(), self.level()
        self.reserved, self.subscribed = self.level(), self.level()
        self.added, self.released, self.moves = History(), History(), History()
        self.waiting = History()
        """Of tasks that were served, from when they were submitted until they had GPUs."""
        self.delays, self.cell_times = array("d"), array("d")
        self.waits, self.loads, self.job_times, self.slowdowns = (array("d") for _ in range(4))
        self.job_submitted, self.job_alone, self.job_gpus = (array("d") for _ in range(3))
        self.place_waits = array("d")
        """How long each session waited until its replicas were placed."""
        self.done_at, self.done_gpu_s = array("d"), array("d")
        self.futile = array("d")
        self.futile_gpu_s = 0.0
        self.preemptions = 0
        self.kinds: dict[str, array[int]] = {}
        """Which of the jobs' samples belong to which kind of jobs, where kinds are told apart."""
        self.immediate_cells = self.cells_with_one_before = self.reused = self.moved = 0
        self.outcomes: dict[Outcome, int] = dict.fromkeys(("done", "refused", "failed", "unserved"), 0)
        self.whys: dict[str, int] = {}
        self.migrations = self.migrations_failed = self.scaled_out = self.scaled_in = 0
        self.host_faults = self.lost_runs = 0
        self.unserved_gpu_s = 0.0
        self.lost_gpu_s = 0.0
        self.early_tasks, self.early_gpu_s = 0, 0.0
        self._early_jobs: list[Lived] = []
        """Jobs of the warm-up that were served: others had to share the cluster with them."""
        self.shared_cores = False
        """Several processes may be on one core, so those in use say nothing of how much is used."""
        self._fairness: list[float] | None = None
        self.idle_time: IdleTime | None = None
        """Kept where jobs have what notebooks leave."""
        self.draws: Draws | None = None
        """Kept where models of GPUs differ in what they draw."""
        self.fragments: Fragments | None = None
        """Kept where tasks have their GPUs on hosts of their own, and nobody reserves any."""

    def level(self, *, course: bool = True) -> Level:
        """Return a level that counts after the warm-up; without a `course` only its integral is kept."""
        history = History() if course else None
        return CountedFrom(self.warmup_s, history) if self.warmup_s else Level(history)

    def host_up(self, name: HostName, shape: Hosts, now: float) -> None:
        """Take note of a host."""
        self.hosts.add(1, now)
        self.gpus.add(shape.gpus, now)
        for kept in (self.draws, self.fragments):
            if kept is not None:
                kept.host_up(name, shape, now)

    def host_down(self, name: HostName, shape: Hosts, now: float) -> None:
        """Take note that a host is gone."""
        self.hosts.add(-1, now)
        self.gpus.add(-shape.gpus, now)
        for kept in (self.draws, self.fragments):
            if kept is not None:
                kept.host_down(name, shape, now)

    def host_failed(self, now: float) -> None:
        """Take note that a host has failed."""
        self.host_faults += now >= self.warmup_s

    def host_added(self, now: float) -> None:
        """Take note that a host is asked for."""
        self.scaled_out += now >= self.warmup_s
        self.added.count(now)

    def host_released(self, now: float) -> None:
        """Take note that a host was given back."""
        self.scaled_in += now >= self.warmup_s
        self.released.count(now)

    def replica_moves(self, now: float) -> None:
        """Take note that a replica begins to move."""
        self.migrations += now >= self.warmup_s
        self.moves.count(now)

    def move_failed(self, now: float) -> None:
        """Take note that a replica does not come to move."""
        self.migrations_failed += now >= self.warmup_s

    def placed(self, opened: float, now: float) -> None:
        """Take note that a session's replicas have places."""
        if opened >= self.warmup_s:
            self.place_waits.append(now - opened)

    def loaded_in_vain(self, gpu_s: float, now: float) -> None:
        """Take note of loading that a preemption made futile."""
        if now >= self.warmup_s:
            self.futile_gpu_s += gpu_s

    def bound(self, task: Task, now: float) -> None:
        """Take note that a task holds its GPUs."""
        self.committed.add(task.amount, now)
        if self.draws is not None:
            self.draws.take(task, now)
        if self.fragments is not None:
            self.fragments.take(task, now)
        if not task.job:
            self.executing.add(1, now)
            if self.idle_time is not None:
                self.idle_time.add(now, cells=task.amount)

    def lost(self, task: Task, now: float) -> None:
        """Take note that a task's run was lost with its host."""
        self._freed(task, now)
        self.run_lost(now, task.amount * (now - task.bound))

    def run_lost(self, now: float, gpu_s: float = 0.0) -> None:
        """Take note of a run that was lost, after so many GPU-seconds."""
        if now >= self.warmup_s:
            self.lost_runs += 1
            self.lost_gpu_s += gpu_s

    def finished(self, task: Task, now: float) -> None:
        """Take note of a task that was served."""
        self._freed(task, now)
        self.waiting.hold(1.0, task.submitted, task.bound)
        if task.submitted < self.warmup_s:
            if task.job:
                self._early_jobs.append(
                    Lived(task.submitted, now - task.submitted, task.duration_s, task.amount)
                )
            self._over(task, "done")
            return
        self.done_at.append(now)
        self.done_gpu_s.append(task.amount * task.duration_s)
        self.moved += task.moved
        if task.job:
            parts = task.parts
            waited_s = parts.waited_s if parts else task.bound - task.submitted
            ran_s = parts.ran_s if parts else task.ended - task.started
            self.waits.append(waited_s)
            self.loads.append(parts.loaded_s if parts else task.started - task.bound)
            self.futile.append(parts.futile_s if parts else 0.0)
            self.preemptions += parts.tries - 1 if parts else 0
            self.job_times.append(now - task.submitted)
            self.slowdowns.append((waited_s + ran_s) / task.duration_s)
            self.job_submitted.append(task.submitted)
            self.job_alone.append(task.duration_s)
            self.job_gpus.append(task.amount)
            if task.kind:
                self.kinds.setdefault(task.kind, array("L")).append(len(self.waits) - 1)
        else:
            self.delays.append(task.started - task.submitted)
            self.cell_times.append(now - task.submitted)
            self.immediate_cells += task.immediate
            self.reused += task.reused
            self.cells_with_one_before += task.before is not None
        self._over(task, "done")

    def bounded_slowdowns(self) -> list[float]:
        """Return by how many times each job took longer than alone, of which BOUND_S count at least."""
        both = zip(self.job_times, self.job_alone, strict=True)
        return [max(1.0, took_s / max(alone_s, BOUND_S)) for took_s, alone_s in both]

    def fairness(self, now: float) -> list[float]:
        """Return the finish-time fairness of each job of a run that ended at `now`."""
        if self._fairness is None:
            history = self.gpus.history
            assert history is not None, "The GPUs of a run keep their history."
            course = self.gpus.course(now)
            columns = (self.job_submitted, self.job_times, self.job_alone, self.job_gpus)
            jobs = [Lived(*values) for values in zip(*columns, strict=True)]
            everybody = [*jobs, *self._early_jobs]
            found = finish_time_fairness(everybody, integral_of(course, history.step_s))
            self._fairness = found[: len(jobs)]
        return self._fairness

    def given_up(self, task: Task, outcome: Outcome, why: str) -> None:
        """Take note of a task that will never be served."""
        if task.submitted >= self.warmup_s:
            if why in self.whys or len(self.whys) < WHYS_MAX:
                self.whys[why] = self.whys.get(why, 0) + 1
            self.unserved_gpu_s += task.amount * task.duration_s
        self._over(task, outcome)

    def _freed(self, task: Task, now: float) -> None:
        self.committed.add(-task.amount, now)
        if self.draws is not None:
            self.draws.give(task, now)
        if self.fragments is not None:
            self.fragments.give(task, now)
        if not task.job:
            self.executing.add(-1, now)
            if self.idle_time is not None:
                self.idle_time.add(now, cells=-task.amount)

    def _over(self, task: Task, outcome: Outcome) -> None:
        if task.submitted < self.warmup_s:
            task.early = True
            self.early_tasks += 1
            self.early_gpu_s += task.amount * task.duration_s
        else:
            self.outcomes[outcome] += 1
        if self._rows is not None:
            self._rows(task, outcome)
