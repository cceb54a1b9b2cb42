"""Two dumps are found equal where no user could tell their values apart, and different where one could."""

from __future__ import annotations

import builtins
import random
import struct
import weakref
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replkernel.records import ReplicaId
from replkernel.state.capture.pickling import CapturePickler
from replkernel.state.format.dump_graph import Source, Unreadable, read_graph
from replkernel.state.verify.canonical import Difference, compare
from replkernel.state.verify.proof import ClassFacts, source_of
from replkernel.state.world import World
from tests.support.examples import examples

NAN = struct.unpack(">d", bytes.fromhex("7ff8000000000001"))[0]
RELAXED = settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])


WORLD = World({"__name__": "__main__", "__builtins__": builtins}, ReplicaId("r1"))


def dumped(*values: Any) -> Source:
    """Return the dump of variables x, y, …, as one component."""
    return source_of(CapturePickler(WORLD).dump_unit(dict(zip("xyz", values, strict=False))))


def differences(one: Any, other: Any) -> list[Difference]:
    """Return where the dumps of two values of x differ."""
    return compare(dumped(one), dumped(other), ClassFacts(WORLD))


atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.just(NAN),
    st.text(max_size=12),
    st.binary(max_size=12),
    st.complex_numbers(allow_nan=False),
)
keys = st.one_of(st.integers(), st.text(max_size=5), st.tuples(st.integers(), st.text(max_size=3)))


def _containers(inner: Any) -> Any:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(keys, inner, max_size=4),
        st.sets(keys, max_size=5),
        st.frozensets(st.one_of(keys, st.frozensets(keys, max_size=3)), max_size=4),
        st.binary(max_size=8).map(bytearray),
        st.builds(lambda value: [value, value], inner),
    )


graphs = st.recursive(atoms, _containers, max_leaves=25)


def twin(value: Any, known: dict[int, Any], rng: random.Random) -> Any:
    """Return an equal graph: mutables are shared as before, immutables anew, sets filled in another order."""
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, str):
        return "".join(list(value))
    if isinstance(value, bytes):
        return bytes(bytearray(value))
    if isinstance(value, float):
        return struct.unpack(">d", struct.pack(">d", value))[0]
    if isinstance(value, tuple):
        return tuple([twin(item, known, rng) for item in value])
    if isinstance(value, (set, frozenset)):
        members = [twin(item, known, rng) for item in value]
        rng.shuffle(members)
        made: Any = set(range(100))
        made.clear()
        made.update(members)
        return _remember(value, made if isinstance(value, set) else frozenset(made), known)
    if isinstance(value, list):
        made = _remember(value, [], known)
        made.extend(twin(item, known, rng) for item in value)
        return made
    if isinstance(value, dict):
        made = _remember(value, {}, known)
        made.update((twin(key, known, rng), twin(item, known, rng)) for key, item in value.items())
        return made
    if isinstance(value, bytearray):
        return _remember(value, bytearray(value), known)
    return value


def _remember(value: Any, made: Any, known: dict[int, Any]) -> Any:
    if not isinstance(value, frozenset):
        known[id(value)] = made
    return made


@RELAXED
@given(graphs, st.randoms(use_true_random=False))
def test_dumps_that_only_memory_tells_apart_are_equal(graph: Any, rng: random.Random) -> None:
    assert differences(graph, twin(graph, {}, rng)) == []


def _places(value: Any, found: list[tuple[Any, Any]], seen: set[int]) -> list[tuple[Any, Any]]:
    """Collect the places of mutable containers at which something can be put."""
    if id(value) in seen or not isinstance(value, (list, dict, tuple)):
        return found
    seen.add(id(value))
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(items):
        if not isinstance(value, tuple):
            found.append((value, key))
        _places(item, found, seen)
    return found


@RELAXED
@given(st.lists(graphs, min_size=1, max_size=4), st.data())
def test_one_changed_value_is_found(graph: Any, data: Any) -> None:
    other = twin(graph, {}, random.Random(0))
    container, key = data.draw(st.sampled_from(_places(other, [], set())))
    container[key] = ["changed", container[key]]
    assert differences(graph, other)


@RELAXED
@given(st.lists(graphs, min_size=1, max_size=4), st.data())
def test_an_alias_undone_is_found(graph: Any, data: Any) -> None:
    shared = ["shared"]
    container, key = data.draw(st.sampled_from(_places(graph, [], set())))
    container[key] = [shared, shared]
    other = twin(graph, {}, random.Random(0))
    assert differences(graph, other) == []
    # Where the container is met twice, both of its places hold the new list.
    container[key][1] = ["shared"]
    assert differences(graph, other)


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        (1, True, "its type"),
        (1, 1.0, "its type"),
        ("1", b"1", "its type"),
        (0.0, -0.0, "its value"),
        (float("nan"), NAN, "its type"),
        ([1, 2], [2, 1], "its value"),
        ([1], (1,), "its type"),
        ({1, 2}, {1, 3}, "its members"),
        ({1}, frozenset({1}), "its type"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "its value"),
        (bytearray(b"a"), bytearray(b"b"), "its value"),
        ([1], [1, 2], "its length"),
        ("x" * 100_000, "x" * 99_999 + "y", "its value"),
        (10**30, 10**30 + 1, "its value"),
        (len, max, "its value"),
        ({(1, "a"), (2, "b")}, {(1, "a"), (2, "c")}, "its members"),
    ],
)
def test_values_a_user_tells_apart_differ(one: Any, other: Any, what: str) -> None:
    assert differences(one, other)[0].what == what
    assert differences(one, one) == []


def test_the_path_of_a_difference_is_what_a_user_would_write() -> None:
    class Model:
        def __init__(self, weights: Any) -> None:
            self.weights = weights

    found = differences([{"k": Model([1, 2])}], [{"k": Model([1, 3])}])
    assert [(difference.path, difference.what) for difference in found] == [
        ("x[0]['k'].weights[1]", "its value")
    ]


def test_variables_of_one_component_are_named() -> None:
    shared = [1]
    one = dumped({"a": shared}, shared)
    assert [item.path for item in compare(one, dumped({"a": [2]}, [1]), ClassFacts(WORLD))] == [
        "x['a'][0]",
        "y",
    ]


def test_sharing_across_containers_counts() -> None:
    a, b = [1], [1]
    assert differences([a, a, b], [a, b, b])
    assert differences([a, b], [a, a])[0].what == "what shares it"


def test_cycles_end() -> None:
    one: list[Any] = []
    one.append(one)
    other: list[Any] = []
    other.append([other])
    assert differences(one, one) == []
    assert differences(one, other)


def test_a_chain_of_objects_does_not_recurse() -> None:
    chain: Any = None
    for _ in range(300):
        chain = [chain]
    longer = [chain]
    assert differences(chain, chain) == []
    assert differences(chain, longer)


def test_objects_in_sets_are_matched_by_what_they_hold() -> None:
    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    points = [Point(number) for number in range(20)]
    same = [Point(number) for number in range(19, -1, -1)]
    assert differences([set(points), points[3]], [set(same), same[-4]]) == []
    assert differences([set(points), points[3]], [set(same), same[4]])


def test_a_weak_reference_met_before_its_object_is_the_one_met_after_it() -> None:
    class Node:
        pass

    node: Any = Node()
    node.me = weakref.ref(node)
    assert list({node, node.me}) != list({node.me, node})
    assert differences({node, node.me}, {node.me, node}) == []


def test_a_set_subclass_has_no_order() -> None:
    class Tags(set[str]):
        pass

    one = Tags(["a", "b", "c", "d"])
    other = Tags()
    for member in ("d", "c", "b", "a"):
        other.add(member)
    assert differences(one, other) == []
    assert differences(one, Tags(["a", "b", "c", "e"]))


def test_padding_between_fields_says_nothing() -> None:
    np = pytest.importorskip("numpy")
    kind = np.dtype([("a", "i1"), ("b", "f8")], align=True)
    one, other = np.zeros(3, kind), np.zeros(3, kind)
    one.view(np.uint8)[1::16] = 7
    assert one.tobytes() != other.tobytes()
    assert differences(one, other) == []
    other["a"][1] = 1
    assert [found.what for found in differences(one, other)] == ["its elements"]


def test_large_buffers_count_by_their_content() -> None:
    np = pytest.importorskip("numpy")
    one, other = np.zeros(100_000), np.zeros(100_000)
    assert differences([one, {"b", "a"}], [other, {"a", "b"}]) == []
    other[5] = 1
    assert differences(one, other)


def test_bytes_that_are_no_dump_are_said_to_be_none() -> None:
    source = dumped([1])
    for stream in (b"", b"\x80\x05", b"\x80\x05h\xff.", b"\x80\x05]\x94(K\x01K"):
        with pytest.raises(Unreadable):
            read_graph(Source(source.head, stream, source.buffers))
