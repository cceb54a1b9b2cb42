"""The nodes of one part: how many processes each core has, and where a job's would go.

Law: a core never has more processes than the multiplicity, a node never less memory than its jobs need.
`with_free[k]` counts the nodes that have k or more cores with room, so most questions need no look at nodes;
`by_assigned` has the nodes by their processes (full ones are in none of its lists), so the emptiest are found
without looking at the others.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container, Sequence

from replkernel_scheduler.jobs.shape import Shape
from replkernel_scheduler.jobs.types import NodeShape, Part, Place

FEW = 16
"""So many nodes are put among the idle ones one by one: more of them by sorting all."""


class NodeTable:
    """Processes by node and core."""

    __slots__ = (
        "_full", "_mixed", "assigned", "by_assigned", "cores", "free", "loads", "memory", "memory_of", "most",
        "with_free",
    )  # fmt: skip

    def __init__(self, part: Part, node: NodeShape, nodes: Sequence[NodeShape] = ()) -> None:
        """Start empty. `nodes`: what each has where not all are as `node`, which then is the largest."""
        count, self._mixed = part.nodes, bool(nodes)
        self.cores, self.most = node.cores, part.multiplicity
        self.free = [each.cores for each in nodes] if nodes else [node.cores] * count
        self.loads = [[0] * cores for cores in self.free]
        self.assigned = [0] * count
        self.by_assigned: list[list[int]] = [[] for _ in range(node.cores * part.multiplicity)]
        self.by_assigned[0] = list(range(count))
        every_gb = node.memory_gb or float("inf")
        self.memory_of = [each.memory_gb for each in nodes] if nodes else [every_gb] * count
        self.memory = self.memory_of.copy()
        self.with_free = (
            [sum([cores >= k for cores in self.free]) for k in range(node.cores + 1)]
            if nodes
            else [count] * (node.cores + 1)
        )
        every = {cores: tuple(range(cores)) for cores in {*self.free}}
        self._full = [Place(number, every[cores]) for number, cores in enumerate(self.free)]

    def find(self, shape: Shape, memory_gb: float, barred: Container[int] = ()) -> tuple[Place, ...] | None:
        """Return where a job of this shape goes: the nodes with the fewest processes, their emptiest cores.

        None if there is no room now. `barred` nodes are not taken.
        """
        count, each, last = shape
        if self.with_free[each] < count:
            return None
        chosen = self._emptiest(count, each, each * memory_gb, barred)
        if chosen is None:
            return None
        if each == last == self.cores:
            full = self._full
            return tuple([full[node] for node in chosen])
        if count == 1:
            return (self._place(chosen[0], each),)
        return (*(self._place(node, each) for node in chosen[:-1]), self._place(chosen[-1], last))

    def take(self, places: tuple[Place, ...], memory_gb: float) -> None:
        """Assign a process to each core of `places`."""
        if self.most == 1 and len(places[-1].cores) == self.cores:
            self._take_whole(places, memory_gb)
            return
        most = self.most
        for node, cores in places:
            loads, before = self.loads[node], self.free[node]
            full = 0
            for core in cores:
                load = loads[core] = loads[core] + 1
                if load >= most:
                    assert load == most, f"core {core} of node {node} has {load} processes"
                    full += 1
            self._assign(node, len(cores))
            self.memory[node] -= memory_gb * len(cores)
            self.free[node] = before - full
            for room in range(before - full + 1, before + 1):
                self.with_free[room] -= 1

    def give(self, places: tuple[Place, ...], memory_gb: float) -> None:
        """Take the processes off again."""
        if self.most == 1 and len(places[-1].cores) == self.cores:
            self._give_whole(places)
            return
        most = self.most
        for node, cores in places:
            loads, before = self.loads[node], self.free[node]
            opened = 0
            for core in cores:
                opened += loads[core] == most
                loads[core] -= 1
            self._assign(node, -len(cores))
            # An empty node has all of it again, whatever rounding has left over.
            self.memory[node] = (
                self.memory[node] + memory_gb * len(cores) if self.assigned[node] else self.memory_of[node]
            )
            self.free[node] = before + opened
            for room in range(before + 1, before + opened + 1):
                self.with_free[room] += 1

    def _take_whole(self, places: tuple[Place, ...], memory_gb: float) -> None:
        """The same for empty nodes that a job fills (the last one has no fewer processes than the others)."""
        idle, each = self.by_assigned[0], self.cores
        nodes = [place.node for place in places]
        if idle[: len(nodes)] == nodes:
            del idle[: len(nodes)]
        else:
            for node in nodes:
                del idle[bisect_left(idle, node)]
        for node in nodes:
            assert not self.assigned[node], f"node {node} is not empty"
            self.loads[node] = [1] * each
            self.assigned[node], self.free[node] = each, 0
            self.memory[node] -= memory_gb * each
        for room in range(1, each + 1):
            self.with_free[room] -= len(places)

    def _give_whole(self, places: tuple[Place, ...]) -> None:
        idle, each = self.by_assigned[0], self.cores
        nodes = [place.node for place in places]
        if len(nodes) < FEW:
            for node in nodes:
                insort(idle, node)
        else:
            idle += nodes
            idle.sort()  # Two runs, each in order.
        for node in nodes:
            self.loads[node] = [0] * each
            self.assigned[node], self.free[node] = 0, each
            self.memory[node] = self.memory_of[node]
        for room in range(1, each + 1):
            self.with_free[room] += len(places)

    def _assign(self, node: int, more: int) -> None:
        before = self.assigned[node]
        after = self.assigned[node] = before + more
        if before < len(self.by_assigned):
            level = self.by_assigned[before]
            del level[bisect_left(level, node)]
        if after < len(self.by_assigned):
            insort(self.by_assigned[after], node)

    def _emptiest(self, count: int, each: int, needed_gb: float, barred: Container[int]) -> list[int] | None:
        """Return the nodes with the fewest processes that have the room, the first ones of equals."""
        by_assigned, free, memory = self.by_assigned, self.free, self.memory
        if not needed_gb and not barred and not self._mixed and len(by_assigned[0]) >= count:
            return by_assigned[0][:count]
        if len(free) <= len(by_assigned):
            fit = [
                n for n in range(len(free)) if free[n] >= each and memory[n] >= needed_gb and n not in barred
            ]
            fit.sort(key=self.assigned.__getitem__)
            return fit[:count] if len(fit) >= count else None
        chosen: list[int] = []
        # A node with more processes than these has fewer cores with room.
        for level in by_assigned[: self.cores * self.most - each + 1]:
            for node in level:
                if free[node] >= each and memory[node] >= needed_gb and node not in barred:
                    chosen.append(node)
                    if len(chosen) == count:
                        return chosen
        return None

    def _place(self, node: int, count: int) -> Place:
        if count == self.cores:
            return self._full[node]
        loads = self.loads[node]
        if self.most == 1:
            cores, core = [], -1
            for _ in range(count):
                core = loads.index(0, core + 1)
                cores.append(core)
            return Place(node, tuple(cores))
        return Place(node, tuple(sorted(range(len(loads)), key=loads.__getitem__)[:count]))
