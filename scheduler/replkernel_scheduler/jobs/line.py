"""One part with its queue: who runs where, when they are thought to end, who waits.

Law: a job is thought to need what is left of the time asked for, times the multiplicity of its fullest core
(spec 4.1); what it has done the machines tell, and where nobody shares a core that is the time elapsed. A job
that has done more than asked for is thought to end now.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, merge

from replkernel_scheduler.jobs.lengths import Lengths
from replkernel_scheduler.jobs.meter import Meter
from replkernel_scheduler.jobs.shape import Shape
from replkernel_scheduler.jobs.table import NodeTable
from replkernel_scheduler.jobs.types import JobWanted, NodeShape, Part, Place


class Running:
    """A job that runs; `ends` is when it was thought to, as it was looked at last.

    `multiplicity` is how many processes its fullest core has.
    """

    __slots__ = ("ends", "multiplicity", "number", "places", "since", "wanted")

    def __init__(self, wanted: JobWanted, number: int, places: tuple[Place, ...], now: float) -> None:
        """Start with all of its work before it."""
        self.wanted, self.number, self.places = wanted, number, places
        self.since, self.ends, self.multiplicity = now, now + wanted.requested_s, 1


class Line:
    """The queue, the table of nodes, and the jobs that run on them."""

    def __init__(
        self, number: int, part: Part, node: NodeShape, meter: Meter, nodes: Sequence[NodeShape] = ()
    ) -> None:
        """Start empty, as the part with this number; `nodes` as in a table of them."""
        self.number, self.part, self.node, self._meter = number, part, node, meter
        self.shared = part.multiplicity > 1
        self.alone = not self.shared and not node.memory_gb and not nodes
        """Nobody shares a core, and memory is no limit: free cores are all there is to know."""
        self.table = NodeTable(part, node, nodes)
        self.waiting: dict[str, tuple[JobWanted, Shape]] = {}
        self._by_shape: dict[Shape, dict[str, tuple[int, JobWanted]]] = {}
        """Who waits, by shape: with the number of its arrival."""
        self.lengths: dict[Shape, Lengths] = {}
        """The same where jobs are alone."""
        self.running: dict[str, Running] = {}
        self._by_end: list[tuple[float, int, Running]] = []
        """Where nobody shares a core: the jobs by their ends, which stand from their starts on."""
        self.changes = 0
        self._on: dict[tuple[int, int], list[Running]] = {}
        self._number = self._arrived = 0

    def wait(self, wanted: JobWanted, shape: Shape) -> None:
        """Let a job wait at the end of the queue."""
        self._arrived += 1
        self.waiting[wanted.job] = (wanted, shape)
        self._by_shape.setdefault(shape, {})[wanted.job] = (self._arrived, wanted)
        if self.alone:
            lengths = self.lengths.get(shape)
            if lengths is None:
                lengths = self.lengths[shape] = Lengths()
            lengths.add(self._arrived, wanted)

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
        arrived = alike.pop(wanted.job)[0]
        if self.alone:
            self.lengths[shape].remove(arrived)
        if not alike:
            del self._by_shape[shape]
            self.lengths.pop(shape, None)
        run = Running(wanted, self._number, places, now)
        self.running[wanted.job] = run
        self.table.take(places, wanted.memory_gb)
        if self.shared:
            for key in _keys(places):
                self._on.setdefault(key, []).append(run)
            self._count(places)
        else:
            insort(self._by_end, (run.ends, run.number, run))

    def runs(self, wanted: JobWanted, places: tuple[Place, ...], since: float) -> None:
        """Have a job on its cores that runs since then."""
        self.wait(wanted, Shape(len(places), len(places[0].cores), len(places[-1].cores)))
        self.start(wanted, places, since)

    def end(self, job: str) -> None:
        """Take a job off its cores."""
        self.changes += 1
        run = self.running.pop(job)
        self.table.give(run.places, run.wanted.memory_gb)
        if self.shared:
            for key in _keys(run.places):
                self._on[key].remove(run)
            self._count(run.places)
        else:
            del self._by_end[bisect_left(self._by_end, (run.ends, run.number))]

    def by_end(self, now: float) -> Iterator[Running]:
        """Yield the jobs that run in the order of their ends, as they are thought to be now."""
        if not self.shared:
            for _, _, run in self._by_end:
                yield run
            return
        for run in self.running.values():
            done_s = self._meter.done_s(run.wanted.job, now) if run.since < now else 0.0
            run.ends = now + max(0.0, run.wanted.requested_s - done_s) * run.multiplicity
        ends = [(run.ends, run.number, run) for run in self.running.values()]
        heapify(ends)
        while ends:
            yield heappop(ends)[2]

    def slowed(self, places: tuple[Place, ...]) -> Iterator[Running]:
        """Yield the jobs whose fullest core would have one process more, with one on each of these cores.

        Some of them more than once.
        """
        loads = self.table.loads
        for node, core in _keys(places):
            for run in self._on.get((node, core), ()):
                if run.multiplicity == loads[node][core]:
                    yield run

    def multiplicity(self, places: tuple[Place, ...]) -> int:
        """Return how many processes the fullest of these cores has."""
        loads = self.table.loads
        return max([loads[node][core] for node, cores in places for core in cores])

    def _count(self, places: tuple[Place, ...]) -> None:
        """Count the processes on the fullest cores of those that are on these cores anew."""
        for run in {run.number: run for key in _keys(places) for run in self._on[key]}.values():
            run.multiplicity = self.multiplicity(run.places)


def _number(entry: tuple[int, JobWanted, Shape]) -> int:
    return entry[0]


def _keys(places: tuple[Place, ...]) -> list[tuple[int, int]]:
    return [(node, core) for node, cores in places for core in cores]
