"""Which modules import each other in a circle, `python -m` this: who reads one of these needs all of them.

Imports for annotations alone, and those inside functions, count like others.
"""

from __future__ import annotations

import grimp

PACKAGES = ("replkernel", "replkernel_scheduler", "replkernel_server")
Graph = dict[str, set[str]]


def imports() -> Graph:
    """Return what each module of the product imports of the others."""
    found = grimp.build_graph(*PACKAGES, cache_dir=None)
    return {module: found.find_modules_directly_imported_by(module) for module in found.modules}


def cycles(graph: Graph) -> list[list[str]]:
    """Return the largest sets of modules each of which leads to all others of its set, larger ones first."""
    graph = _trimmed(_trimmed(graph))
    reached = {module: _reached(graph, module) for module in graph}
    sets = {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in graph if module in reached[module]
    }  # fmt: skip
    return sorted(map(sorted, sets), key=lambda one: (-len(one), one))


def _trimmed(graph: Graph) -> Graph:
    """Return the graph, its arrows turned round, without modules that lead to no cycle."""
    left = dict(graph)
    while ends := [module for module, imported in left.items() if not imported & left.keys()]:
        for module in ends:
            del left[module]
    turned: Graph = {module: set() for module in left}
    for module, imported in left.items():
        for other in imported & left.keys():
            turned[other].add(module)
    return turned


def _reached(graph: Graph, start: str) -> set[str]:
    found, ahead = set[str](), [start]
    while ahead:
        more = graph[ahead.pop()] - found
        found |= more
        ahead += more
    return found


if __name__ == "__main__":
    for one in cycles(imports()):
        print(len(one), *one, sep="\n  ")
