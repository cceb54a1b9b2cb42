"""Which members of two sets without an order may belong together: those that look the same from within.

Pure. Law: a colour depends on what an object holds, never on where it lies or in which order it was met.
"""

from __future__ import annotations

from collections.abc import Sequence

from replkernel.state.format.dump_graph import Node, Value

COLOUR_ROUNDS = 12
COLOURED_MAX = 200_000
"""So far objects inside sets are looked into to find out which of them belong together."""

UNORDERED = frozenset({"set", "frozenset", "bag"})


class Undecided(Exception):
    """Members of a set are too much alike to tell which of them belong together."""


def colours_of(nodes: Sequence[Node]) -> dict[int, int]:
    """Return a number for each node that equal ones share, whatever order their sets have."""
    reached: dict[int, Node] = {}
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if id(node) in reached:
            continue
        reached[id(node)] = node
        if len(reached) > COLOURED_MAX:
            raise Undecided("A set holds too large objects.")
        todo += [part for part in _all_parts(node) if isinstance(part, Node)]
    colours = dict.fromkeys(reached, 0)

    def colour(value: object) -> int:
        return colours[id(value)] if isinstance(value, Node) else hash(value)

    for _ in range(COLOUR_ROUNDS):
        before = colours
        now = {}
        for key, node in reached.items():
            shades = [colour(part) for part in _all_parts(node)]
            if node.kind in UNORDERED or node.kind == "unordered dict":
                shades.sort()
            now[key] = hash((node.kind, *shades))
        colours = now
        if len(set(now.values())) == len(set(before.values())) == len(reached):
            break
    return colours


def _all_parts(node: Node) -> list[Value]:
    if not node.effects:
        return node.parts
    return [*node.parts, *(value for effect in node.effects for value in effect)]
