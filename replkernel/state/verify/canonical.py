"""Tells whether two dumps describe the same value, and where they do not. Pure; runs nothing of the user's.

Two dumps of equal values may differ in their bytes: text is shared by one process and not by another, sets
have no order, padding between the fields of a record is garbage. What a user can tell apart is a difference:
which mutable objects are one object, the order of a dictionary, the type of a number, the bits of a NaN.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from replkernel.state.format.dump_graph import NONE, Node, Source, Value, read_graph
from replkernel.state.verify.canonical_rules import (
    VALUE_CALLS,
    VALUE_PACKAGES,
    class_name,
    class_names,
    element_bytes,
    global_of,
    normalise,
)

DIFFERENCES_MAX = 50
"""No more differences between two dumps are told."""

_IMMUTABLE = frozenset({"tuple", "frozenset", "masked", "elements"})


class Difference(msgspec.Struct, frozen=True):
    """One place where two dumps differ: its path, beginning with the variable, and what differs there.

    `library` tells that it lies in an object which its library loads in a way of its own.
    """

    path: str
    what: str
    library: bool = False

    def sentence(self) -> str:
        """Return what differs in words."""
        return f"What was rebuilt is not what was captured: {self.path} differs ({self.what})."


class Classes(Protocol):
    """What a comparison must know of classes, by ``("g", module, name)`` or by ``("class", id)``."""

    def is_set(self, name: tuple[Any, ...]) -> bool:
        """Tell whether it is a kind of set."""

    def has_loader(self, name: tuple[Any, ...]) -> bool:
        """Tell whether it belongs to a library that says itself how its objects are loaded."""


def compare(one: Source, other: Source, classes: Classes) -> list[Difference]:
    """Return where two dumps differ, in the order in which their objects are met; nothing when nowhere.

    Raises Unreadable for what is no dump, and Undecided.
    """
    if one.head.roots != other.head.roots or one.head.single != other.head.single:
        return [Difference(", ".join(one.head.roots), "names")]
    return _Comparison(one, other, classes).run()


class _Comparison:
    """Walks two graphs side by side; each mutable object of one must always meet the same of the other."""

    def __init__(self, one: Source, other: Source, classes: Classes) -> None:
        self._sources = one, other
        self._classes = classes
        self._graphs: list[Value] = []
        for source in (one, other):
            graph = read_graph(source)
            normalise(graph, source, classes.is_set)
            self._graphs.append(graph)
        self._twins: dict[int, Node] = {}
        self._back: dict[int, Node] = {}
        self._places: dict[int, Path] = {}
        """Where each object with an identity was met first."""
        self._met: set[tuple[int, int]] = set()
        self._guessed = False
        self._found: list[Difference] = []
        self._todo: list[tuple[Value, Value, Path, bool]] = []
        self._sets: list[tuple[list[Value], list[Value], Path]] = []
        """Sets come last: what else is known of their members by then tells which belong together."""

    def run(self) -> list[Difference]:
        """Return the differences."""
        self._begin()
        todo = self._todo
        while (todo or self._sets) and len(self._found) < DIFFERENCES_MAX:
            if not todo:
                self._members(*self._sets.pop(0))
                continue
            one, other, path, attributes = todo.pop()
            if isinstance(one, Node) and isinstance(other, Node):
                self._nodes(one, other, path, attributes)
            elif one != other:
                self._differ(path, _atoms_differ(one, other))
        if self._found and self._guessed:
            raise Undecided("Members of a set cannot be told apart.")
        return self._found

    def _begin(self) -> None:
        one, other = self._graphs
        head = self._sources[0].head
        if head.single:
            self._todo.append((one, other, (None, head.roots[0]), False))
            return
        assert isinstance(one, Node) and isinstance(other, Node)
        names = [f"class {name}" for name in class_names(one)]
        for place, attributes in ((2, True), (1, False), (0, False)):
            mine, theirs = one.parts[place], other.parts[place]
            if place == 2:
                self._todo.append((mine, theirs, None, attributes))
                continue
            assert isinstance(mine, Node) and isinstance(theirs, Node)
            if len(mine.parts) != len(theirs.parts):
                self._found.append(Difference(", ".join(names), "its classes"))
                continue
            pairs = zip(mine.parts, theirs.parts, names, strict=True)
            self._todo.extend((a, b, (None, name), False) for a, b, name in pairs)

    def _differ(self, path: Path, what: str) -> None:
        self._found.append(Difference(text_of(path), what, in_library(path)))

    def _differ_in_sharing(self, one: Node, other: Node, path: Path) -> None:
        """Note that an object is shared otherwise: whoever loaded one of the places may have done that."""
        places = [path, *(self._places.get(id(node)) for node in (one, other))]
        self._found.append(Difference(text_of(path), "what shares it", any(map(in_library, places))))

    def _nodes(self, one: Node, other: Node, path: Path, attributes: bool) -> None:
        if one.kind != other.kind:
            self._differ(path, "its type")
            return
        if _has_identity(one):
            twin, back = self._twins.get(id(one)), self._back.get(id(other))
            if twin is not None or back is not None:
                if twin is not other or back is not one:
                    self._differ_in_sharing(one, other, path)
                return
            self._twins[id(one)] = other
            self._back[id(other)] = one
            self._places[id(one)] = self._places[id(other)] = path
        elif (id(one), id(other)) in self._met:
            return
        else:
            self._met.add((id(one), id(other)))
        path = self._owned(one, path)
        if one.kind in UNORDERED:
            self._sets.append((one.parts, other.parts, path))
        elif one.kind == "dict":
            self._items(one, other, path, attributes)
        elif one.kind == "unordered dict":
            self._attributes(one, other, path)
        elif one.kind == "elements":
            self._elements(one, other, path)
        elif one.kind == "masked" and one.parts[-1:] == [NONE]:
            # A masked array's own loader puts the default fill value in place of none.
            shorter = Node("tuple", one.parts[:-1]), Node("tuple", other.parts[:-1])
            self._parts(*shorter, path, attributes)
        else:
            self._parts(one, other, path, attributes)
        self._effects(one, other, path)

    def _owned(self, node: Node, path: Path) -> Path:
        """Return the path into a node, marked with who answers for how it is loaded."""
        if not node.kind.startswith(("call", "new")):
            return path
        name = class_name(node.parts[0])
        if name is None:
            return path
        if name[0] == "class" or name[1].startswith("replkernel."):
            return (path, OURS)
        return (path, LIBRARYS) if self._classes.has_loader(name) else path

    def _parts(self, one: Node, other: Node, path: Path, attributes: bool) -> None:
        if len(one.parts) != len(other.parts):
            self._differ(path, "its length")
            return
        made = one.kind not in ("list", "tuple", "masked")
        for index in range(len(one.parts) - 1, -1, -1):
            step = path if made or attributes else (path, f"[{index}]")
            self._todo.append((one.parts[index], other.parts[index], step, attributes))

    def _items(self, one: Node, other: Node, path: Path, attributes: bool) -> None:
        if len(one.parts) != len(other.parts):
            self._differ(path, "its attributes" if attributes else "its keys")
            return
        for index in range(len(one.parts) - 2, -1, -2):
            key = one.parts[index]
            self._todo.append(
                (one.parts[index + 1], other.parts[index + 1], at_key(path, key, attributes), False)
            )
            self._todo.append((key, other.parts[index], (path, " (a key)"), False))

    def _attributes(self, one: Node, other: Node, path: Path) -> None:
        """Compare dictionaries of which the order says nothing: their keys are text."""
        mine = dict(zip(one.parts[::2], one.parts[1::2], strict=True))
        theirs = dict(zip(other.parts[::2], other.parts[1::2], strict=True))
        for key in sorted(mine.keys() ^ theirs.keys(), key=repr):
            self._differ(at_key(path, key, True), "missing or added")
        for key in [key for key in reversed(mine) if key in theirs]:
            self._todo.append((mine[key], theirs[key], at_key(path, key, True), False))

    def _effects(self, one: Node, other: Node, path: Path) -> None:
        if [effect[0] for effect in one.effects] != [effect[0] for effect in other.effects]:
            self._differ(path, "its attributes or members")
            return
        for index in range(len(one.effects) - 1, -1, -1):
            mine, theirs = one.effects[index], other.effects[index]
            step = (path, f"[{index}]") if mine[0] == "append" else path
            if mine[0] == "set":
                self._todo.append((mine[2], theirs[2], at_key(path, mine[1], False), False))
                self._todo.append((mine[1], theirs[1], (path, " (a key)"), False))
                continue
            for a, b in zip(reversed(mine[1:]), reversed(theirs[1:]), strict=True):
                self._todo.append((a, b, step, mine[0] in ("state", "call")))

    def _elements(self, one: Node, other: Node, path: Path) -> None:
        """Compare the making of arrays: their bytes first, without what is between fields."""
        if one.parts[0] != other.parts[0]:
            mine = element_bytes(one, self._sources[0])
            theirs = element_bytes(other, self._sources[1])
            if mine is None or mine != theirs:
                self._differ(path, "its elements")
        for index in range(len(one.parts) - 1, 0, -1):
            self._todo.append((one.parts[index], other.parts[index], path, False))

    # -- members without an order --

    def _members(self, one: list[Value], other: list[Value], path: Path) -> None:
        if len(one) != len(other):
            self._differ(path, "its length")
            return
        mine = [member for member in one if type(member) is tuple]
        theirs = [member for member in other if type(member) is tuple]
        if Counter(mine) != Counter(theirs):
            self._differ(path, "its members")
            return
        nodes = [member for member in one if isinstance(member, Node)]
        others = [member for member in other if isinstance(member, Node)]
        if not nodes:
            return
        for a, b in self._paired(nodes, others, path):
            self._todo.append((a, b, (path, " (a member)"), False))

    def _paired(self, one: list[Node], other: list[Node], path: Path) -> list[tuple[Node, Node]]:
        """Return which member belongs to which: the twin of old, else one that looks the same."""
        pairs = []
        left = {id(node): node for node in other}
        mine = []
        for node in one:
            twin = self._twins.get(id(node))
            if twin is not None and id(twin) in left:
                pairs.append((node, left.pop(id(twin))))
            else:
                mine.append(node)
        if len(mine) == 1:
            return [*pairs, (mine[0], next(iter(left.values())))]
        colours = colours_of([*mine, *left.values()])
        groups: dict[int, list[Node]] = defaultdict(list)
        for node in left.values():
            groups[colours[id(node)]].append(node)
        for node in mine:
            group = groups[colours[id(node)]]
            if not group:
                self._differ(path, "its members")
                return pairs
            self._guessed |= len(group) > 1
            pairs.append((node, group.pop()))
        return pairs


def _has_identity(node: Node) -> bool:
    """Tell whether a user can tell this object from an equal one."""
    if node.kind in _IMMUTABLE or node.kind == "bag":
        return False
    if node.kind not in ("call", "new"):
        return True
    made = global_of(node.parts[0])
    return made is None or not (made in VALUE_CALLS or made[0].partition(".")[0] in VALUE_PACKAGES)


def _atoms_differ(one: Any, other: Any) -> str:
    both_atoms = type(one) is tuple and type(other) is tuple
    return "its value" if both_atoms and one[0] == other[0] else "its type"


# Paths into the values of a dump, as a user would write them, marked with who answers for what lies below.
#
# Pure. Law: a path costs one step to extend, however deep it is; its text is made when somebody asks.


Path: TypeAlias = "tuple[Any, str] | None"

KEY_CHARS_MAX = 60

OURS, LIBRARYS = "\0ours", "\0library's"
"""Marks in a path: what lies below was loaded by our code or the notebook's, or in a library's own way."""


def at_key(path: Path, key: Value, attributes: bool) -> Path:
    if isinstance(key, Node):
        return (path, "[…]")
    value = key[1] if len(key) > 1 else None
    text = value.decode("utf-8", "replace") if key[0] == "t" and isinstance(value, bytes) else None
    if attributes and text is not None:
        return (path, text if path is None else f".{text}")
    shown = repr(text if text is not None else value)
    return (path, f"[{shown}]" if len(shown) <= KEY_CHARS_MAX else f"[{shown[:KEY_CHARS_MAX]}…]")


def text_of(path: Path) -> str:
    steps: list[str] = []
    while path is not None:
        path, step = path
        if step not in (OURS, LIBRARYS):
            steps.append(step)
    return "".join(reversed(steps))


def in_library(path: Path) -> bool:
    while path is not None:
        path, step = path
        if step in (OURS, LIBRARYS):
            return step == LIBRARYS
    return False


# Which members of two sets without an order may belong together: those that look the same from within.
#
# Pure. Law: a colour depends on what an object holds, never on where it lies or in which order it was met.

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
