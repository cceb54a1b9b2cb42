"""Variables looked at together are told apart as soon as one of them changes, or shares something."""

from __future__ import annotations

import gc
import sys

import pytest

from replkernel.state.capture import bundles
from tests.support.notebook import Notebook, changed, pair

MANY = """
class Thing:
    asked = 0
    def __getstate__(self): Thing.asked += 1; return vars(self)
    def __repr__(self): return "a thing"
for n in range(80):
    globals()[f"l{n}"] = [n, str(n), [n]]
    globals()[f"d{n}"] = {"number": n, "pair": (n, "x y"), "list": []}
    globals()[f"s{n}"] = {n, n + 1}
del n
"""
REST = bundles.CALM_CAPTURES + 3


def _at_rest(*more: str) -> tuple[Notebook, Notebook, int]:
    """Return a notebook whose variables have been as they are for a while, its twin, and the next number."""
    one, two = pair()
    two.take(one.run("\n".join([MANY, *more]), 1))
    for seq in range(2, 2 + REST):
        assert one.capture(seq).components == ()
    return one, two, 2 + REST


def _bundles(notebook: Notebook) -> set[int]:
    known = notebook.state._replica_state.baseline.by_root.values()
    return {id(one.bundle) for one in known if one.bundle is not None and one.bundle.whole}


def test_variables_at_rest_are_looked_at_together() -> None:
    one, _, _ = _at_rest()
    assert len(_bundles(one)) >= 240 // bundles.MEMBERS_MAX


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("l7.append(1)", ["l7"]),
        ("l7[2].append(1)", ["l7"]),
        ("l7[1] = l7[1] + '!'; d9['new'] = 1", ["d9", "l7"]),
        ("d7['number'] = 7.0", ["d7"]),
        ("d7['number'] = True; d7['number'] = 7", []),
        ("d7['list'] = l7[2]", ["d7", "l7"]),
        ("d7['list'], d8['list'] = [], []", []),
        ("s7.add(1000)", ["s7"]),
        ("l7 = [7, '7', [7]]", []),
        ("l7 = 'text'", ["l7"]),
        ("l7, l8 = l8, l7", ["l7", "l8"]),
        ("d7['list'].append(d8['list'])", ["d7", "d8"]),
        ("d7['list'].append(d7)", ["d7"]),
        ("d7['list'].append(globals())", ["d7"]),
        ("l7.append(float('nan'))", ["l7"]),
        ("l7.append(len)", ["l7"]),
        ("t = Thing(); l7.append(t)", ["l7", "t"]),
    ],
)
def test_a_change_is_told_and_nothing_else_is(cell: str, names: list[str]) -> None:
    one, two, seq = _at_rest()
    delta = one.run(cell, seq)
    assert changed(delta) == names
    two.take(delta)
    assert [repr(two[name]) for name in names] == [repr(one[name]) for name in names]
    assert one.capture(seq + 1).components == ()


def test_a_deleted_member_is_gone_and_the_others_are_there() -> None:
    one, two, seq = _at_rest()
    delta = one.run("del l7", seq)
    assert changed(delta) == []
    two.take(delta)
    assert "l7" not in two
    assert two["l8"] == [8, "8", [8]]
    assert changed(one.run("l8.append(1)", seq + 1)) == ["l8"]


@pytest.mark.parametrize("other", ["b1", "b2", "c70"])
def test_a_list_put_in_the_place_of_an_equal_one_is_shared(other: str) -> None:
    setup = "b1, b2 = [[5]], [[5]]\nfor n in range(80): globals()[f'c{n}'] = [5]"
    one, two, seq = _at_rest(setup)
    cell = "c70 = c3" if other == "c70" else f"{other}[0] = c3"
    two.take(one.run(cell, seq))
    there = two[other] if other == "c70" else two[other][0]
    assert there is two["c3"]


@pytest.mark.parametrize(("first", "second"), [("d3", "d4"), ("d3", "d79"), ("d79", "d3")])
def test_a_tuple_put_in_the_place_of_an_equal_one_is_one_object(first: str, second: str) -> None:
    setup = "for n in range(80): globals()[f'd{n}'] = {'pair': ('x y', len(str(n)) * 0 + 1)}"
    one, two, seq = _at_rest(setup)
    two.take(one.run(f"{first}['pair'] = {second}['pair']; new = 1", seq))
    assert two[first]["pair"] is two[second]["pair"]
    assert two["d5"]["pair"] is not two["d6"]["pair"]


def test_a_text_of_members_that_gets_a_variable_is_one_object() -> None:
    one, two, seq = _at_rest("text = 'some text'; m1 = [text]; m2 = {'k': text}; del text")
    two.take(one.run("mark = m1[0]", seq))
    assert two["mark"] is two["m1"][0] is two["m2"]["k"]


def test_a_list_that_a_running_generator_holds_belongs_to_it() -> None:
    one, _, seq = _at_rest()
    delta = one.run("def give(x):\n    yield 1\n    yield x\ng = give(l7); first = next(g)", seq)
    assert changed(delta) == ["first", "g", "give", "l7"]
    (record,) = [record for record in delta.components if "g" in record.names]
    assert set(record.names) == {"g", "l7"}


def test_code_of_classes_runs_as_often_as_it_does_without() -> None:
    one, _, seq = _at_rest("held = Thing(); box = [held]")
    alone = Notebook("r3")
    alone.run(MANY + "held = Thing(); box = [held]", 1)
    one.namespace["Thing"].asked = alone.namespace["Thing"].asked = 0
    one.run("l7.append(held)", seq)
    alone.run("l7.append(held)", 2)
    assert one.namespace["Thing"].asked == alone.namespace["Thing"].asked


def test_no_value_is_held_between_captures() -> None:
    one, _, seq = _at_rest()
    fresh = Notebook("r3")
    fresh.run(MANY, 1)
    for name in ("l7", "d7", "s7"):
        assert sys.getrefcount(one[name]) == sys.getrefcount(fresh[name])
    one.run("l7.append(len); d7['number'] = range(3)", seq)
    gc.collect()
    assert sys.getrefcount(one["l7"]) == sys.getrefcount(fresh["l7"])


def test_a_variable_from_another_replica_leaves_its_bundle() -> None:
    one, two, seq = _at_rest()
    for number in range(seq, seq + REST):
        assert two.capture(number).components == ()
    one.take(two.run("l7.append('there')", seq + REST))
    assert one["l7"] == [7, "7", [7], "there"]
    assert one.capture(seq + REST + 1).components == ()
    assert changed(one.run("l7.pop(); l8.append(1)", seq + REST + 2)) == ["l7", "l8"]
