"""Laws of moving state: any graph of containers and instances arrives with its values, sharing and cycles."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.notebook import Notebook, pair

KINDS = ("list", "dict", "set", "tuple", "object", "slots", "closure", "bytearray")
CLASSES = """
class Plain: pass
class Slotted:
    __slots__ = ('one', 'two')
def cell_over(value):
    def get(): return value
    def put(new):
        nonlocal value
        value = new
    get.put = put
    return get
"""


class Plan:
    """A random graph: nodes by kind, edges between them, names bound to some."""

    def __init__(self, kinds: list[str], edges: list[tuple[int, int]], names: list[int]) -> None:
        self.kinds, self.edges, self.names = kinds, edges, names

    def build(self, space: dict[str, Any]) -> None:
        """Bind the names in `space` to the graph's nodes."""
        nodes: list[Any] = []
        for index, kind in enumerate(self.kinds):
            targets = [to for start, to in self.edges if start == index]
            held = tuple(nodes[to] for to in targets if to < index)
            made: dict[str, Any] = {
                "list": list,
                "dict": dict,
                "set": lambda index=index: {index, f"s{index}"},
                "tuple": lambda held=held, index=index: (index, *held),
                "object": space["Plain"],
                "slots": space["Slotted"],
                "closure": lambda index=index: space["cell_over"](index),
                "bytearray": lambda index=index: bytearray([index]),
            }
            nodes.append(made[kind]())
        for start, to in self.edges:
            connect(nodes[start], self.kinds[start], nodes[to])
        for number, index in enumerate(self.names):
            space[f"n{number}"] = nodes[index]


def connect(node: Any, kind: str, target: Any) -> None:
    """Add an edge where the kind of node can take one later."""
    if kind == "list":
        node.append(target)
    elif kind == "dict":
        node[len(node)] = target
    elif kind == "object":
        setattr(node, f"a{len(vars(node))}", target)
    elif kind == "slots":
        node.two = target
    elif kind == "closure":
        node.put(target)


def shape(values: list[Any]) -> list[Any]:
    """Return a description of a graph that is equal exactly for equal graphs with equal sharing."""
    numbers: dict[int, int] = {}
    kept: list[Any] = []
    rows: list[Any] = []

    def see(value: Any) -> Any:
        if value is None or isinstance(value, (int, str, float, bool)):
            return value
        if type(value) is tuple:
            return ("tuple", *[see(item) for item in value])
        if id(value) in numbers:
            return ("ref", numbers[id(value)])
        number = numbers[id(value)] = len(numbers)
        kept.append(value)
        rows.append(None)
        if isinstance(value, list):
            parts: Any = [see(item) for item in value]
        elif isinstance(value, dict):
            parts = [(key, see(item)) for key, item in value.items()]
        elif isinstance(value, set):
            parts = sorted(map(str, value))
        elif isinstance(value, bytearray):
            parts = bytes(value)
        elif callable(value):
            parts = see(value())
        elif hasattr(type(value), "__slots__"):
            parts = [see(getattr(value, name, None)) for name in ("one", "two")]
        else:
            parts = [(key, see(item)) for key, item in vars(value).items()]
        rows[number] = (type(value).__name__, parts)
        return ("ref", number)

    return [[see(value) for value in values], rows]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    count = draw(st.integers(1, 9))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=count, max_size=count))
    node = st.integers(0, count - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=14))
    names = draw(st.lists(node, min_size=1, max_size=5))
    return Plan(kinds, edges, names)


def variables(notebook: Notebook) -> list[Any]:
    return [
        notebook.namespace[name]
        for name in sorted(notebook.namespace)
        if name[0] == "n" and name[1:].isdigit()
    ]


@settings(max_examples=examples(150), deadline=None)
@given(plans())
def test_a_graph_arrives_as_it_was(plan: Plan) -> None:
    one, two = pair()
    two.take(one.run(CLASSES, 1))
    plan.build(one.namespace)
    expected = shape(variables(one))
    delta = one.capture(2)
    assert shape(variables(one)) == expected
    assert one.capture(3).components == ()
    two.take(delta)
    assert shape(variables(two)) == expected
    assert two.capture(4).components == ()


@settings(max_examples=examples(100), deadline=None)
@given(plans(), st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans()), max_size=6))
def test_changes_on_alternating_replicas_are_as_in_one_process(
    plan: Plan, steps: list[tuple[int, int, bool]]
) -> None:
    chunks: dict[str, bytes] = {}
    replicas = [Notebook("r1", chunks), Notebook("r2", chunks)]
    alone = Notebook("r3")
    exec(CLASSES, alone.namespace)
    plan.build(alone.namespace)
    replicas[1].take(replicas[0].run(CLASSES, 1))
    plan.build(replicas[0].namespace)
    replicas[1].take(replicas[0].capture(2))
    for seq, (source, target, rebind) in enumerate(steps, start=3):
        executor, other = replicas[seq % 2], replicas[(seq + 1) % 2]
        for notebook in (executor, alone):
            change(notebook, source, target, rebind=rebind)
        other.take(executor.capture(seq))
        assert shape(variables(other)) == shape(variables(alone))
        assert shape(variables(executor)) == shape(variables(alone))


def change(notebook: Notebook, source: int, target: int, *, rebind: bool) -> None:
    """Connect two variables, or bind one to the other's value."""
    names = [name for name in sorted(notebook.namespace) if name[0] == "n" and name[1:].isdigit()]
    first, second = names[source % len(names)], names[target % len(names)]
    value = notebook.namespace[first]
    if rebind:
        notebook.namespace[second] = value
        return
    kind = {list: "list", dict: "dict"}.get(type(value)) or {
        "Plain": "object",
        "Slotted": "slots",
        "function": "closure",
    }.get(type(value).__name__, "")
    connect(value, kind, notebook.namespace[second])
