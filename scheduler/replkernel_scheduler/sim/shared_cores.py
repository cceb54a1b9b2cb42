"""How jobs on shared cores really advance: the machines under the core of jobs, which it does not see.

Law (spec 4.2): a job's speed is 1 / (m C_o), where m is the most busy processes on any of its cores, and C_o
is OVERHEAD from two on. Idle phases slow nobody and take their time whatever happens. A job with processes on
several nodes goes at the pace of the slowest. Work is conserved: the busy time done is the job's own.
"""

from __future__ import annotations

from collections.abc import Callable

from replkernel_scheduler.jobs.types import Place
from replkernel_scheduler.sim.event_queue import EventQueue
from replkernel_scheduler.sim.records import Job

OVERHEAD = 1.2
PHASE_ENDS = 0
"""The turn of a phase's end in the event queue: as what frees, before all else at its time."""


class SharedRun:
    """A job while it runs; `phases` are seconds alone, the even ones idle, the odd ones busy."""

    __slots__ = ("begun", "cores", "done_s", "job", "left_s", "pace", "phase", "phases", "since", "version")

    def __init__(self, job: Job, cores: list[int], now: float) -> None:
        """Start before its first phase."""
        self.job, self.cores, self.phases = job, cores, phases_of(job)
        self.begun = self.since = now
        self.phase, self.version, self.pace = -1, 0, 0.0
        self.left_s = self.done_s = 0.0


def phases_of(job: Job) -> tuple[float, ...]:
    """Return idle, busy, idle, …, busy, idle: a job without a pattern is busy all the time."""
    pattern = job.pattern
    if pattern is None or not pattern.phases:
        return (0.0, job.duration_s, 0.0)
    return (pattern.prolog_s, *pattern.phases, pattern.epilog_s)


class SharedCores:
    """Who is on which core, and who of them is busy."""

    def __init__(
        self,
        nodes: int,
        cores_each: int,
        event_queue: EventQueue,
        over: Callable[[SharedRun, float], None],
        overhead: float = OVERHEAD,
    ) -> None:
        """Tell `over` of each job whose last phase has ended."""
        self._each, self._event_queue, self._over, self._overhead = cores_each, event_queue, over, overhead
        self._busy = [0] * (nodes * cores_each)
        self._on: list[list[SharedRun]] = [[] for _ in range(nodes * cores_each)]
        self._sharing: dict[str, SharedRun] = {}
        self.processes_max = 0

    def start_alone(self, job: Job, now: float) -> None:
        """Let a job run on cores that nobody shares: its phases take the time that they take."""
        run = SharedRun(job, [], now)
        ends = now
        for phase_s in run.phases:
            ends += phase_s
        self.processes_max = max(1, self.processes_max)
        self._event_queue.post(ends, PHASE_ENDS, self._ended_alone, run)

    def _ended_alone(self, run: SharedRun, now: float) -> None:
        run.done_s, run.phase = sum(run.phases), len(run.phases)
        self._over(run, now)

    def start(self, job: Job, places: tuple[Place, ...], first_node: int, now: float) -> None:
        """Let a job run on its cores; its nodes are counted from `first_node`."""
        each = self._each
        cores = [(first_node + node) * each + core for node, chosen in places for core in chosen]
        run = self._sharing[job.job] = SharedRun(job, cores, now)
        for core in cores:
            on = self._on[core]
            on.append(run)
            if len(on) > self.processes_max:
                self.processes_max = len(on)
        self._next_phase(run, now)

    def done_s(self, job: str, now: float) -> float:
        """Return the seconds of its run that a job has behind it, counted as if it were alone."""
        run = self._sharing[job]
        under_way_s = run.phases[run.phase] - run.left_s + (now - run.since) * run.pace
        return run.done_s + under_way_s

    def _next_phase(self, run: SharedRun, now: float) -> None:
        """Go to the next phase that takes time; after the last the job is over."""
        phases = run.phases
        while True:
            run.phase += 1
            if run.phase == len(phases):
                for core in run.cores:
                    self._on[core].remove(run)
                del self._sharing[run.job.job]
                self._over(run, now)
                return
            if phases[run.phase] > 0:
                break
        run.left_s, run.since = phases[run.phase], now
        if run.phase % 2:
            self._turn(run, 1, now)
        else:
            run.pace = 1.0
            self._event_queue.post(now + run.left_s, PHASE_ENDS, self._ended, (run, run.version))

    def _ended(self, what: tuple[SharedRun, int], now: float) -> None:
        run, version = what
        if version != run.version:
            return  # Somebody has come or gone meanwhile; another end was put down.
        run.version += 1
        run.done_s += run.phases[run.phase]
        if run.phase % 2:
            self._turn(run, -1, now)
        self._next_phase(run, now)

    def _turn(self, run: SharedRun, step: int, now: float) -> None:
        """Make a job's processes busy (1) or not any more (-1), and pace it and those beside it anew."""
        busy, on = self._busy, self._on
        beside: list[SharedRun] = []
        for core in run.cores:
            busy[core] += step
            if len(on[core]) > 1:
                beside += on[core]
        if step > 0:
            run.pace = 0.0
            self._repace(run, now)
        for other in dict.fromkeys(beside):
            if other is not run and other.phase % 2 and other.pace:
                self._repace(other, now)

    def _repace(self, run: SharedRun, now: float) -> None:
        busy = self._busy
        most = max([busy[core] for core in run.cores])
        pace = 1.0 if most == 1 else 1.0 / (most * self._overhead)
        if pace == run.pace:
            return
        run.left_s -= (now - run.since) * run.pace
        run.since, run.pace = now, pace
        run.version += 1
        self._event_queue.post(now + max(0.0, run.left_s) / pace, PHASE_ENDS, self._ended, (run, run.version))
