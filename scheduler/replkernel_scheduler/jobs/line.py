"""One part with its queue: who runs where, when they are thought to end, who waits.

Law: the core sees no progress, only starts and ends. So a job is thought to have done its elapsed time over
the multiplicity of its fullest core, and to need the rest of what was asked for at that pace (spec 4.1). A
job that ran longer than asked for is thought to end now.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import merge

from replkernel_scheduler.jobs.shape import Shape
from replkernel_scheduler.jobs.table import NodeTable
from replkernel_scheduler.jobs.types import JobWanted, NodeShape, Part, Place


class Running:
    """A job that runs; `ends` is when it is thought to."""

    __slots__ = ("ends", "left_s", "multiplicity", "number", "places", "since", "wanted")

    def __init__(self, wanted: JobWanted, number: int, places: tuple[Place, ...], now: float) -> None:
        """Start with all of its work before it."""
        self.wanted, self.number, self.places = wanted, number, places
        self.since, self.left_s, self.multiplicity = now, wanted.requested_s, 1
        self.ends = now + self.left_s

    def paced(self, multiplicity: int, now: float) -> None:
        """Go on with its fullest core at `multiplicity` from now on."""
        self.left_s = max(0.0, self.left_s - (now - self.since) / self.multiplicity)
        self.since, self.multiplicity = now, multiplicity
        self.ends = now + self.left_s * multiplicity


class Line:
    """The queue, the table of nodes, and the jobs that run on them, by the end they are thought to have."""

    def __init__(self, number: int, part: Part, node: NodeShape) -> None:
        """Start empty, as the part with this number."""
        self.number, self.part, self.node = number, part, node
        self.table = NodeTable(part, node)
        self.waiting: dict[str, tuple[JobWanted, Shape]] = {}
        self._by_shape: dict[Shape, dict[str, tuple[int, JobWanted]]] = {}
        """Who waits, by shape: with the number of its arrival."""
        self.running: dict[str, Running] = {}
        self.by_end: list[tuple[float, int, Running]] = []
        self.changes = 0
        self._on: dict[tuple[int, int], list[Running]] = {}
        self._number = self._arrived = 0

    def wait(self, wanted: JobWanted, shape: Shape) -> None:
        """Let a job wait at the end of the queue."""
        self._arrived += 1
        self.waiting[wanted.job] = (wanted, shape)
        self._by_shape.setdefault(shape, {})[wanted.job] = (self._arrived, wanted)

    def that_may_fit(self) -> Iterator[tuple[JobWanted, Shape]]:
        """Yield in their order those that wait whose shape finds nodes now, memory apart."""
        with_free = self.table.with_free
        fit = [
            [(number, wanted, shape) for number, wanted in jobs.values()]
            for shape, jobs in self._by_shape.items()
            if with_free[shape.each] >= shape.nodes
        ]
        one_by_one = fit[0] if len(fit) == 1 else merge(*fit, key=_number)
        for _, wanted, shape in one_by_one:
            yield wanted, shape

    def start(self, wanted: JobWanted, places: tuple[Place, ...], now: float) -> None:
        """Let a job run from now on."""
        self.changes += 1
        self._number += 1
        shape = self.waiting.pop(wanted.job)[1]
        alike = self._by_shape[shape]
        del alike[wanted.job]
        if not alike:
            del self._by_shape[shape]
        run = Running(wanted, self._number, places, now)
        self.running[wanted.job] = run
        self.table.take(places, wanted.memory_gb)
        insort(self.by_end, (run.ends, run.number, run))
        if self.part.multiplicity > 1:
            for key in _keys(places):
                self._on.setdefault(key, []).append(run)
            self._pace(places, now)

    def end(self, job: str, now: float) -> None:
        """Take a job off its cores."""
        self.changes += 1
        run = self.running.pop(job)
        self.table.give(run.places, run.wanted.memory_gb)
        self._forget(run)
        if self.part.multiplicity > 1:
            for key in _keys(run.places):
                self._on[key].remove(run)
            self._pace(run.places, now)

    def sharers(self, places: tuple[Place, ...]) -> Iterator[Running]:
        """Yield the jobs on these cores, some of them more than once."""
        for key in _keys(places):
            yield from self._on.get(key, ())

    def multiplicity(self, places: tuple[Place, ...]) -> int:
        """Return how many processes the fullest of these cores has."""
        loads = self.table.loads
        return max([loads[node][core] for node, cores in places for core in cores])

    def _pace(self, places: tuple[Place, ...], now: float) -> None:
        for run in {run.number: run for run in self.sharers(places)}.values():
            multiplicity = self.multiplicity(run.places)
            if multiplicity != run.multiplicity:
                self._forget(run)
                run.paced(multiplicity, now)
                insort(self.by_end, (run.ends, run.number, run))

    def _forget(self, run: Running) -> None:
        del self.by_end[bisect_left(self.by_end, (run.ends, run.number))]


def _number(entry: tuple[int, JobWanted, Shape]) -> int:
    return entry[0]


def _keys(places: tuple[Place, ...]) -> list[tuple[int, int]]:
    return [(node, core) for node, cores in places for core in cores]
