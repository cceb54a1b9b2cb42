"""What a delta contains: exactly what changed, joined as it is linked."""

# ruff: noqa: E501 (a cell is one string)

from __future__ import annotations

import pytest

from replkernel.records import Seq
from tests.support.notebook import Notebook, changed, pair


def cids(delta: object) -> dict[str, tuple[str, ...]]:
    return {component.cid: component.names for component in delta.components}  # type: ignore[attr-defined]


def test_nothing_changed_ships_nothing() -> None:
    one = Notebook("r1")
    one.run("x=1; l=[1]; d={'a':(1,[2])}\ndef f(): return x\nclass A: pass\na=A()", 1)
    delta = one.run("y = len(l); del y", 2)
    assert delta.components == ()
    assert delta.dropped == ()
    assert delta.order is None


def test_only_the_changed_component_travels() -> None:
    one = Notebook("r1")
    one.run("a=[1]; b=[2]; c='x'", 1)
    assert changed(one.run("b.append(3)", 2)) == ["b"]
    assert changed(one.run("globals()['c'] = 'y'", 3)) == ["c"]
    assert changed(one.run("exec('a.append(5)')", 4)) == ["a"]


def test_equal_value_again_is_no_change() -> None:
    one = Notebook("r1")
    one.run("a=[1, 'x']; n=10**6; s='ab'*3", 1)
    assert one.run("a=[1, 'x']; n=10**6; s='ab'*3", 2).components == ()


def test_type_changes_among_equal_values_travel() -> None:
    one = Notebook("r1")
    one.run("a=1; b=0.0; c=[True]", 1)
    assert changed(one.run("a=True; b=-0.0; c=[1]", 2)) == ["a", "b", "c"]


def test_a_new_alias_joins_and_a_lost_one_parts() -> None:
    one = Notebook("r1")
    one.run("a=[1]; b=[2]", 1)
    joined = one.run("b=a", 2)
    assert [set(names) for names in cids(joined).values()] == [{"a", "b"}]
    assert len(joined.dropped) == 1
    parted = one.run("b=[1]", 3)
    assert sorted(names for component in cids(parted).values() for names in component) == ["a", "b"]
    assert len(cids(parted)) == 2


def test_a_link_that_changes_no_value_is_seen() -> None:
    one, two = pair()
    first = one.run("a=[1]; b=[[1], [2]]", 1)
    second = one.run("b[0] = a", 2)
    two.take(first, second)
    assert two["b"][0] is two["a"]


def test_components_keep_their_id() -> None:
    one = Notebook("r1")
    first = one.run("a=[1]; b=a", 1)
    second = one.run("a.append(2)", 2)
    assert set(cids(first)) == set(cids(second))


def test_an_id_is_never_used_twice() -> None:
    one = Notebook("r1")
    one.run("b=[1]; c=b", 1)
    one.run("del b", 2)
    delta = one.run("b=[7]", 3)
    assert list(cids(delta)) != ["b"] or "c" not in cids(one.run("c.append(1)", 4))
    assert one.state.components == 2


def test_deleting_drops_the_component_and_the_name_elsewhere() -> None:
    one, two = pair()
    two.take(one.run("a=[1]; b=a; c=5", 1))
    delta = one.run("del c, b", 2)
    assert "c" in delta.dropped
    two.take(delta)
    assert "c" not in two
    assert "b" not in two
    assert two["a"] == [1]


def test_immutables_do_not_join() -> None:
    one = Notebook("r1")
    delta = one.run(
        "import math, re, datetime\nt=(1,2); a=[t]; b=[t]; s='q'*50; c=[s, math.sin, int, None]; d=[s, math.sin, int]\n"
        "p=re.compile('x'); e=[p]; f=[p]; u=datetime.datetime(2020,1,1); g=[u]; h=[u]",
        1,
    )
    assert all(len(component.names) == 1 for component in delta.components)


def test_functions_do_not_join_by_their_globals() -> None:
    one = Notebook("r1")
    delta = one.run("big=[0]*1000\ndef f(): return big\ndef g(): return f()", 1)
    assert {component.names for component in delta.components} == {("big",), ("f",), ("g",)}
    assert changed(one.run("big.append(1)", 2)) == ["big"]


def test_instances_do_not_join_by_their_class() -> None:
    one = Notebook("r1")
    one.run("class A:\n    n=0\na=A(); b=A()", 1)
    delta = one.run("A.n=1", 2)
    assert changed(delta) == []
    assert len(delta.components) == 1
    assert changed(one.run("a.x=1", 3)) == ["a"]


def test_an_unused_class_is_dropped() -> None:
    one = Notebook("r1")
    one.run("class A: pass\na=A()", 1)
    before = one.state.components
    delta = one.run("del A, a", 2)
    assert len(delta.dropped) == 3
    assert one.state.components == before - 3


def test_ignored_names_stay() -> None:
    one = Notebook("r1")
    delta = one.run("__name__ = __name__; _mine = [1]; __also = 2", 1)
    assert changed(delta) == ["__also", "_mine"]


def test_order_is_told_when_names_come_and_go() -> None:
    one = Notebook("r1")
    assert one.run("b=1; a=2", 1).order == ("b", "a")
    assert one.run("b=5", 2).order is None
    assert one.run("del b; b=1", 3).order == ("a", "b")


def test_names_get_the_executors_order() -> None:
    one, two = pair()
    two.take(one.run("b=1; a=2; c=[3]", 1))
    two.take(one.run("del b; b=1", 2))
    assert [name for name in two.namespace if name in "abc"] == ["a", "c", "b"]


def test_modules_needed_are_named() -> None:
    one = Notebook("r1")
    delta = one.run("import numpy as np, math\na=np.arange(3); m=math", 1)
    by_name = {component.names[0]: component.modules for component in delta.components}
    assert by_name["a"] == ("numpy",)
    assert by_name["m"] == ()


def test_a_rebuilt_namespace_ships_nothing_back() -> None:
    one, two = pair()
    source = "import math\nx=1; s={'b','a',3}; l=[s]\nclass A:\n    def f(self): return 1\na=A(); f=lambda: a\ng=a.f"
    two.take(one.run(source, 1))
    delta = two.capture(2)
    assert delta.components == ()
    assert delta.dropped == ()
    assert delta.order is None


def test_changes_go_back_and_forth() -> None:
    one, two = pair()
    two.take(one.run("l=[1]; al=l\nclass A: n=0\na=A(); a.l=l", 1))
    one.take(two.run("l.append(2); A.n+=1", 2))
    assert one["al"] == [1, 2]
    assert one["a"].l is one["l"]
    assert one["A"].n == one["a"].n == 1
    two.take(one.run("al.append(3); del l", 3))
    assert two["a"].l is two["al"]
    assert two["al"] == [1, 2, 3]
    assert "l" not in two


def test_deltas_received_twice_or_late_are_taken_once() -> None:
    one, two = pair()
    first, second = one.run("a=[1]", 1), one.run("a.append(2)", 2)
    two.take(first, second, first, second)
    assert two["a"] == [1, 2]
    assert two.state.applied == Seq(2)


def test_several_deltas_are_rebuilt_as_one() -> None:
    one, two = pair()
    deltas = [one.run("a=[]; b=a", 1)] + [one.run("a.append(len(b)); c=[len(a)]", seq) for seq in range(2, 8)]
    report = two.take(*deltas)
    assert two["a"] is two["b"]
    assert two["b"] == [0, 1, 2, 3, 4, 5]
    assert len(report.rebuilt) == 2


def test_a_name_that_moves_between_components_arrives() -> None:
    one, two = pair()
    two.take(one.run("a=[1]; b=a; c=[2]", 1))
    two.take(one.run("b=c", 2))
    assert two["b"] is two["c"]
    assert two["a"] == [1]
    assert two["b"] is not two["a"]


def test_the_table_says_what_there_is() -> None:
    one = Notebook("r1")
    one.run("big='x'*5000; small=1\nclass K: pass\ng=(i for i in [1, 2]); next(g)", 1)
    rows = {row.cid: row for row in one.state.table()}
    assert one.state.table()[0].names == ("big",)
    assert rows["big"].kind == "str"
    assert rows["g"].pins == ("g",)
    assert any((row.names, row.kind) == (("class K",), "class") for row in rows.values())
    assert one.state.state_bytes > 5000


def test_a_lost_value_has_the_type_that_it_had() -> None:
    one, two = pair()
    two.take(one.run("g=(i for i in [1, 2]); next(g)", 1))
    assert [row.kind for row in two.state.table() if row.names == ("g",)] == ["generator, lost"]


def test_pending_components_are_counted_until_rebuilt() -> None:
    one, two = pair()
    delta = one.run("a='x'*100_000; b=1", 1)
    two.take(delta, everything=False)
    assert "b" in two
    assert "a" not in two
    assert two.state.pending_bytes > 100_000
    two.take()
    assert len(two["a"]) == 100_000
    assert two.state.pending_bytes == 0


def test_a_standby_takes_small_things_at_once_and_leaves_unknown_packages() -> None:
    one, two = pair()
    delta = one.run("import colorsys\na=1", 1)
    strange = next(c for c in delta.components if c.names == ("a",))
    import msgspec

    odd = msgspec.structs.replace(
        delta, components=(msgspec.structs.replace(strange, modules=("no_such_package",)),)
    )
    two.take(odd, everything=False)
    assert "a" not in two
    two.take()
    assert two["a"] == 1


def test_a_warning_that_a_cell_shows_is_no_variable_of_its() -> None:
    executor, _ = pair()
    with pytest.warns(UserWarning, match="seen"):
        delta = executor.run("import warnings; warnings.warn('seen'); x = 1", 1)
    assert "__warningregistry__" in executor
    assert sorted(delta.order or ()) == ["warnings", "x"]
