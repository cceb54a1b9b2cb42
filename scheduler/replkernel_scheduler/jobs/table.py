"""The nodes of one part: how many processes each core has, and where a job's would go.

Law: a core never has more processes than the multiplicity, a node never less memory than its jobs need;
`with_free[k]` counts the nodes that have k or more cores with room, so most questions need no look at nodes.
"""

from __future__ import annotations

from collections.abc import Container

from replkernel_scheduler.jobs.shape import Shape
from replkernel_scheduler.jobs.types import NodeShape, Part, Place


class NodeTable:
    """Processes by node and core."""

    __slots__ = ("assigned", "cores", "free", "loads", "memory", "memory_each", "most", "with_free")

    def __init__(self, part: Part, node: NodeShape) -> None:
        """Start empty."""
        count = part.nodes
        self.cores, self.most = node.cores, part.multiplicity
        self.loads = [[0] * node.cores for _ in range(count)]
        self.assigned = [0] * count
        self.free = [node.cores] * count
        self.memory_each = node.memory_gb or float("inf")
        self.memory = [self.memory_each] * count
        self.with_free = [count] * (node.cores + 1)

    def find(self, shape: Shape, memory_gb: float, barred: Container[int] = ()) -> tuple[Place, ...] | None:
        """Return where a job of this shape goes: the nodes with the fewest processes, their emptiest cores.

        None if there is no room now. `barred` nodes are not taken.
        """
        each = shape.each
        if self.with_free[each] < shape.nodes:
            return None
        need, free, memory, assigned = each * memory_gb, self.free, self.memory, self.assigned
        fit = [
            node
            for node in range(len(free))
            if free[node] >= each and memory[node] >= need and node not in barred
        ]
        if len(fit) < shape.nodes:
            return None
        if shape.nodes == 1:
            return (self._place(min(fit, key=assigned.__getitem__), each),)
        fit.sort(key=assigned.__getitem__)
        chosen = fit[: shape.nodes]
        return (*(self._place(node, each) for node in chosen[:-1]), self._place(chosen[-1], shape.last))

    def take(self, places: tuple[Place, ...], memory_gb: float) -> None:
        """Assign a process to each core of `places`."""
        for node, cores in places:
            loads, before = self.loads[node], self.free[node]
            full = 0
            for core in cores:
                loads[core] += 1
                assert loads[core] <= self.most, f"core {core} of node {node} has {loads[core]} processes"
                full += loads[core] == self.most
            self.assigned[node] += len(cores)
            self.memory[node] -= memory_gb * len(cores)
            self.free[node] = before - full
            for room in range(before - full + 1, before + 1):
                self.with_free[room] -= 1

    def give(self, places: tuple[Place, ...], memory_gb: float) -> None:
        """Take the processes off again."""
        for node, cores in places:
            loads, before = self.loads[node], self.free[node]
            opened = 0
            for core in cores:
                opened += loads[core] == self.most
                loads[core] -= 1
            self.assigned[node] -= len(cores)
            # An empty node has all of it again, whatever rounding has left over.
            self.memory[node] = (
                self.memory[node] + memory_gb * len(cores) if self.assigned[node] else self.memory_each
            )
            self.free[node] = before + opened
            for room in range(before + 1, before + opened + 1):
                self.with_free[room] += 1

    def copy(self) -> NodeTable:
        """Return a table to try things on."""
        other: NodeTable = NodeTable.__new__(NodeTable)
        other.cores, other.most, other.memory_each = self.cores, self.most, self.memory_each
        other.loads = [loads.copy() for loads in self.loads]
        other.assigned, other.free = self.assigned.copy(), self.free.copy()
        other.memory, other.with_free = self.memory.copy(), self.with_free.copy()
        return other

    def _place(self, node: int, count: int) -> Place:
        loads = self.loads[node]
        if count == self.cores:
            return Place(node, tuple(range(count)))
        return Place(node, tuple(sorted(range(self.cores), key=loads.__getitem__)[:count]))
