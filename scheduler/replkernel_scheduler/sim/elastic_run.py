"""One run of a trace of jobs that are reshaped, with the figures that every run has.

Law: it only watches: the driver under it decides nothing, and is the one that the papers' suite plays. A job
waits until it is launched, loads until it trains, and is paused while it is reshaped and while its end is
saved; so JCT = W + L + T + P. Its slowdown is against the fewest seconds that any of its GPU counts takes.
"""

from __future__ import annotations

from collections.abc import Iterable

from replkernel_scheduler.elastic.types import ElasticEvent, Launch, Reshape, TrainingWanted
from replkernel_scheduler.errors import SchedulerError
from replkernel_scheduler.sim.driver import WATCH_EVERY, Watcher, job_in
from replkernel_scheduler.sim.elastic_simulation import Arrival, ElasticSimulation, Trained
from replkernel_scheduler.sim.elastic_way import ElasticWay, samples_of
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.figures import Figures, RowSink
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.records import Record
from replkernel_scheduler.sim.task import Parts, Task
from replkernel_scheduler.types import HostName


class ElasticRun(ElasticSimulation):
    """The driver, watched."""

    def __init__(
        self,
        records: Iterable[Record],
        origin: float,
        way: ElasticWay,
        plan: Plan,
        *,
        rows: RowSink | None = None,
        watch: Watcher | None = None,
    ) -> None:
        """Play `records` from `origin` on."""
        self.figures = Figures(rows, plan.warmup_s)
        self.figures.hosts.add(plan.hosts, 0.0)
        self.figures.gpus.add(plan.gpus, 0.0)
        self.events = self.played = 0
        self._watch = watch
        self.event: object = None
        self._tasks: dict[str, Task] = {}
        arrivals = [self._arrival(record, origin, way, plan) for record in records]
        super().__init__(
            arrivals, tuple([host.gpus for host in plan.host_list()]), way.costs, way.policy, plan.seed
        )

    def run(self) -> Figures:  # type: ignore[override]
        """Play to the end, and return the figures."""
        super().run()
        for job, task in self._tasks.items():
            if not self.jobs[job].over:
                why = self.refused.get(job, "it still waited when nothing else could happen")
                self.figures.given_up(task, "refused" if job in self.refused else "unserved", why)
        return self.figures

    def _arrival(self, record: Record, origin: float, way: ElasticWay, plan: Plan) -> Arrival:
        record = job_in(record)
        if record.job in self._tasks:
            raise SimulationError(f"job {record.job} is there twice: give each job an id of its own.")
        kind, at = way.kind(record, plan.gpus_per_host), record.at - origin
        samples = float(samples_of(dict.fromkeys(kind.iteration_s, 0.0)))
        fastest_s = min(kind.run_s(samples, gpus) for gpus in kind.iteration_s)
        task = Task.of_job(record, len(self._tasks) + 1, at, fastest_s)
        self._tasks[record.job] = task
        return Arrival(at, TrainingWanted(record.job, kind, samples))

    def _feed(self, event: ElasticEvent, now: float) -> None:
        self.played += isinstance(event, TrainingWanted)
        self.events += 1
        if self._watch is not None and not self.events % WATCH_EVERY:
            self._watch(self.events, self.played)
        self.event = event
        try:
            super()._feed(event, now)
        except SchedulerError as error:
            raise SimulationError(str(error)) from error
        book, committed = self.core.book, self.figures.committed
        committed.add(sum(book.hosts) - sum(book.idle) - committed.value, now)

    def _launch(self, effect: Launch, now: float) -> None:
        task = self._tasks[effect.job]
        task.bound, task.gpus, task.host = now, effect.gpus, HostName(f"host-{effect.host:04}")
        super()._launch(effect, now)

    def _reshape(self, effect: Reshape, now: float) -> None:
        self._tasks[effect.job].gpus = effect.gpus
        super()._reshape(effect, now)

    def _trained(self, what: tuple[Trained, int], now: float) -> None:
        if what[0].runs and what[1] == what[0].version:
            self._tasks[what[0].wanted.job].ended = now
        super()._trained(what, now)

    def _over(self, story: Trained, now: float) -> None:
        task = self._tasks[story.wanted.job]
        task.started, task.done, task.parts = story.started, now, Parts()
        parts = task.parts
        parts.waited_s, parts.loaded_s = story.launched - story.at, story.started - story.launched
        parts.ran_s = task.ended - story.started - story.stopped_s
        parts.paused_s = story.stopped_s + now - task.ended
        parts.tries = 1 + story.shrunk + story.grown
        self.figures.finished(task, now)
        super()._over(story, now)
