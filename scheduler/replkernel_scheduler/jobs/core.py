"""The core of jobs that share processors: what comes, ends, and starts therefore.

Law: a pure state machine, `handle(event, now) -> effects`. A job belongs to one part, by the policy `queues`;
who of its queue starts is the policy `discipline`'s suggestion. A job that a part's empty nodes could not
take is refused at once, so nobody waits in vain.
"""

from __future__ import annotations

from replkernel_scheduler.errors import SchedulerError
from replkernel_scheduler.jobs.line import Line
from replkernel_scheduler.jobs.meter import Meter
from replkernel_scheduler.jobs.protocol import Discipline, Queues
from replkernel_scheduler.jobs.shape import shape
from replkernel_scheduler.jobs.types import (
    JobEffect,
    JobEvent,
    JobOver,
    JobWanted,
    NodeShape,
    RefuseJob,
    StartJob,
)


class JobsCore:
    """All parts and their queues."""

    def __init__(
        self, nodes: int, node: NodeShape, queues: Queues, discipline: Discipline, meter: Meter
    ) -> None:
        """Divide `nodes` nodes as `queues` says; `meter` tells what jobs that share cores have done."""
        self.lines = [Line(number, part, node, meter) for number, part in enumerate(queues.parts(nodes))]
        self._node, self._queues, self._discipline = node, queues, discipline
        self._line_of: dict[str, Line] = {}

    def handle(self, event: JobEvent, now: float) -> list[JobEffect]:
        """Take one event; raise SchedulerError for a job that is known already, or never started."""
        return self._wanted(event, now) if isinstance(event, JobWanted) else self._over(event, now)

    def check_invariants(self) -> None:
        """Check the tables against the jobs that run; O(n), for tests."""
        for line in self.lines:
            loads = [[0] * self._node.cores for _ in range(line.part.nodes)]
            for run in line.running.values():
                assert sum(len(place.cores) for place in run.places) == run.wanted.width
                assert len({place.node for place in run.places}) == len(run.places)
                for node, cores in run.places:
                    for core in set(cores):
                        loads[node][core] += 1
            assert loads == line.table.loads
            assert max(map(max, loads)) <= line.part.multiplicity
            assert line.table.assigned == [sum(row) for row in loads]
            free = [sum([load < line.part.multiplicity for load in row]) for row in loads]
            assert line.table.free == free
            levels = sorted(
                (number, node) for number, level in enumerate(line.table.by_assigned) for node in level
            )
            most = self._node.cores * line.part.multiplicity
            loads_by_node = [(load, node) for node, load in enumerate(line.table.assigned) if load < most]
            assert levels == sorted(loads_by_node)
            assert line.table.with_free == [sum([f >= k for f in free]) for k in range(self._node.cores + 1)]
            if line.shared:
                assert all(run.multiplicity == line.multiplicity(run.places) for run in line.running.values())
            else:
                in_order = sorted(line.running.values(), key=lambda run: (run.ends, run.number))
                assert list(line.by_end(0.0)) == in_order

    def _wanted(self, wanted: JobWanted, now: float) -> list[JobEffect]:
        if wanted.job in self._line_of:
            raise SchedulerError(f"job {wanted.job} was asked for twice: give each job an id of its own.")
        line = self.lines[self._queues.part(wanted)]
        placed = shape(wanted.width, self._node.cores, line.part.nodes)
        needed_gb = placed.each * wanted.memory_gb if placed else 0.0
        if placed is None or needed_gb > (self._node.memory_gb or float("inf")):
            return [RefuseJob(wanted.job, f"it fits on no empty nodes of the queue {line.part.name}")]
        self._line_of[wanted.job] = line
        line.wait(wanted, placed)
        return self._serve(line, wanted, now)

    def _over(self, event: JobOver, now: float) -> list[JobEffect]:
        line = self._line_of.get(event.job)
        if line is None or event.job not in line.running:
            raise SchedulerError(f"job {event.job} does not run, so it cannot end: hand in each end once.")
        del self._line_of[event.job]
        line.end(event.job)
        return self._serve(line, None, now)

    def _serve(self, line: Line, fresh: JobWanted | None, now: float) -> list[JobEffect]:
        effects: list[JobEffect] = []
        for wanted, places in self._discipline.serve(line, fresh, now):
            line.start(wanted, places, now)
            effects.append(StartJob(wanted.job, line.number, places))
        return effects
