"""What a cell reaches is rebuilt before it runs; what it does not reach waits, and is nobody's loss."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replkernel.records import ComponentId, Fence, Seq
from replkernel.state.capture.budget import Terms
from tests.support.examples import examples
from tests.support.notebook import changed
from tests.support.order import OrderedNotebook, any_amount, three

SETUP = """
class Box:
    def __init__(self): self.items = []
    def total(self): return sum(weights)
class Held(Box): pass
weights = [1, 2]; other = [3]; third = [4]
box = Box(); boxes = [Held()]; table = {"act": lambda: other}
def direct(): return weights
def nested():
    def inner(): return direct()
    return inner
def late(): return table["act"]()
made = nested(); bound = box.total
text = "other and third"; link = other
"""

pytestmark = pytest.mark.usefixtures(any_amount.__name__)


def moved(*cells: str) -> OrderedNotebook:
    """Return a replica that has received these cells' changes and rebuilt none."""
    one, two, _ = three()
    for number, cell in enumerate(cells, 1):
        two.state.receive(one.play(cell, number))
    return two


@pytest.mark.parametrize(
    ("cell", "needed"),
    [
        ("direct()", {"direct", "weights"}),
        ("made()", {"made", "direct", "weights"}),
        ("bound()", {"bound", "box", "weights"}),
        ("box", {"box", "weights"}),
        ("boxes[0]", {"boxes", "weights"}),
        ("late()", {"late", "table", "other", "link"}),
        ("print(text)", {"text", "other", "third", "link"}),
        ("'the third'", {"third"}),
        ("del weights", {"weights"}),
        ("weights += [1]", {"weights"}),
        ("[w for w in weights]", {"weights"}),
        ("def f(): return weights\nf()", {"weights"}),
        ("class C:\n    size = len(weights)", {"weights"}),
        ("f'{weights}'", {"weights"}),
        ("frame.query('a > @third')", {"third"}),
        ("import os as weights", {"weights"}),
    ],
)
def test_variables_that_a_cell_reaches_are_there_before_it_runs(cell: str, needed: set[str]) -> None:
    two = moved(SETUP)
    left = two.prepare(cell)
    assert two.wholes == 0
    if not cell.startswith("import"):
        assert not needed & left
        assert needed <= two.namespace.keys()


@pytest.mark.parametrize(
    ("cell", "unneeded"),
    [
        ("x = 1", {"weights", "other", "third", "box", "boxes", "table", "made", "text", "link"}),
        ("third.append(1)", {"weights", "other", "box", "boxes", "table", "made", "bound"}),
        ("def f(): return weights", {"weights", "other", "third"}),
        ("weights = 3", {"weights", "other"}),
        ("direct()", {"other", "third", "box", "boxes", "table"}),
    ],
)
def test_variables_that_a_cell_does_not_reach_wait(cell: str, unneeded: set[str]) -> None:
    two = moved(SETUP)
    assert unneeded <= two.prepare(cell)
    assert not unneeded & two.namespace.keys()


@pytest.mark.parametrize(
    "cell",
    [
"globals()['weights']", "eval('wei' + 'ghts')", "exec(code)", "locals()", "vars()", "dir()",
        "compile(c, '', 'exec')", "from os.path import *", "import __main__",
        "import sys; sys.modules['__main__']", "!ls", "%time x", "weights?", "who", "import inspect",
        "import pickle", "from dill import loads", "get_ipython().user_ns", "f.__globals__",
        "sys._getframe().f_locals", "frame.query(q + 'x')", "duck.sql(f'select {x}')", "breakpoint()",
        "help()", "g = globals", "f(vars)", "getattr(m, 'f_globals')", "import gc",
        "def f(): return globals()\nf()", "lambda: eval(s)", "class C:\n    x = locals()",
        "not python at all (",
    ],
)  # fmt: skip
def test_a_cell_that_may_reach_anything_finds_everything(cell: str) -> None:
    two = moved(SETUP)
    assert two.prepare(cell) == set()
    assert two.wholes == 1


@pytest.mark.parametrize(
    ("earlier", "cell"),
    [
        ("look = globals", "look()"),
        ("from builtins import eval as run", "run(x)"),
        ("import pickle as p", "p.loads(b'')"),
        ("from inspect import currentframe as here", "here()"),
        ("def peek(): return globals()", "peek()"),
        ("def peek(): return vars()", "[peek]"),
        ("acts = {'run': exec}", "acts"),
        ("class C:\n    def m(self): return eval('x')", "C()"),
        ("class C:\n    def m(self): return eval('x')\nc = [C()]", "c[0].m()"),
        ("import functools\npart = functools.partial(eval, 'x')", "part()"),
        ("import builtins as b", "b.globals()"),
        ("def ask(frame, q): return frame.query(q)", "ask(1, 2)"),
    ],
)
def test_code_from_earlier_cells_that_may_reach_anything_finds_everything(earlier: str, cell: str) -> None:
    two = moved(SETUP, earlier)
    assert two.prepare(cell) == set()
    assert two.wholes == 1


def test_code_that_may_reach_anything_costs_only_the_cells_that_reach_it() -> None:
    two = moved(SETUP, "def peek(): return globals()")
    assert "weights" in two.prepare("x = 1")
    assert two.wholes == 0


def test_a_name_bound_anew_wins_over_the_value_that_waits() -> None:
    one, two, three_ = three()
    first = one.play("pair = [1]; alias = pair; other = [2]", 1)
    two.state.receive(first)
    three_.state.receive(first)
    delta = two.play("pair = 'mine'", 2)
    assert changed(delta) == ["pair"]
    two.state.rebuild(everything=True, fetch=lambda refs: None)
    assert (two["pair"], two["alias"], two["other"]) == ("mine", [1], [2])
    for replica in (one, three_):
        replica.take(delta)
        assert (replica["pair"], replica["alias"], replica["other"]) == ("mine", [1], [2])
    assert two.capture(3).components == ()


def test_a_name_bound_anew_wins_over_a_value_that_arrives_before_its_capture() -> None:
    two = moved("pair = [1]; alias = pair")
    two.prepare("pair = 'mine'")
    two.namespace["pair"] = "mine"
    two.restorer.take_net_down()
    two.state.rebuild(everything=False, fetch=lambda refs: None, wanted={ComponentId("pair")})
    assert (two["pair"], two["alias"]) == ("mine", [1])
    assert changed(two.capture(2)) == ["pair"]


def test_a_variable_that_a_cell_deletes_is_gone_everywhere() -> None:
    one, two, _ = three()
    two.state.receive(one.play("gone = [1]; kept = [2]", 1))
    one.take(two.play("del gone", 2))
    two.state.rebuild(everything=True, fetch=lambda refs: None)
    for replica in (one, two):
        assert "gone" not in replica
        assert replica["kept"] == [2]


def test_a_stale_value_is_not_found_under_a_name_that_waits() -> None:
    one, two, _ = three()
    two.take(one.play("data = [1]", 1))
    assert two["data"] == [1]
    two.state.receive(one.play("data.append(2)", 2))
    assert two.prepare("x = 1") == {"data"}
    assert "data" not in two
    two.play("y = data", 3)
    assert two["y"] == [1, 2]


def test_a_value_bound_elsewhere_over_one_that_waits_here_arrives_each_time() -> None:
    chunks: dict[str, bytes] = {}
    one, two = OrderedNotebook("r1", chunks, 1024), OrderedNotebook("r2", chunks, 1024)
    two.state.receive(one.play("data = list(range(5000))", 1))
    one.take(two.play("x = 1", 2))
    assert "data" in two.state.left_behind
    for number in (3, 4):
        two.take(one.play(f"data = {number}", number), everything=False)
        assert two["data"] == number
    assert two.play("y = data", 5).dropped == ()
    assert two["y"] == 4


def test_two_replicas_in_a_row_leave_the_same_behind() -> None:
    one, two, third = three()
    first = one.play(SETUP, 1)
    two.state.receive(first)
    third.state.receive(first)
    second = two.play("x = len(third)", 2)
    assert changed(second) == ["x"]
    third.state.receive(second)
    last = third.play("weights.append(x)", 3)
    assert changed(last) == ["weights"]
    assert {"other", "boxes"} <= third.state.left_behind
    two.state.receive(last)
    one.take(second, last)
    two.play("z = weights", 4)
    assert two["z"] == one["weights"] == [1, 2, 1]


def test_names_keep_their_order_over_what_waits() -> None:
    one, two, _ = three()
    two.state.receive(one.play("a = [1]; b = [2]; c = [3]", 1))
    delta = two.play("d = 4; b = 5", 2)
    assert delta.order == ("a", "b", "c", "d")
    assert "c" in two.state.left_behind
    one.take(delta)
    two.state.rebuild(everything=True, fetch=lambda refs: None)
    for replica in (one, two):
        assert [name for name in replica.namespace if len(name) == 1] == ["a", "b", "c", "d"]


def test_the_notebooks_module_finds_what_waits_by_name() -> None:
    two = moved(SETUP)
    two.prepare("x = 1")
    assert "weights" in two.state.left_behind
    assert two.namespace["__getattr__"]("weights") == [1, 2]
    assert two["weights"] == [1, 2]
    with pytest.raises(AttributeError):
        two.namespace["__getattr__"]("never_bound")
    two.restorer.take_net_down()
    assert changed(two.capture(2)) == []


def test_an_error_about_a_variable_that_waits_is_recognised() -> None:
    two = moved(SETUP)
    two.prepare("x = 1")
    missed = two.restorer.missed
    waits = "name 'weights' is not defined"
    assert missed({"status": "error", "ename": "NameError", "evalue": waits}) == "weights"
    assert missed({"status": "error", "ename": "NameError", "evalue": "name 'nothing' is not defined"}) == ""
    assert missed({"status": "error", "ename": "ValueError", "evalue": "weights"}) == ""
    assert missed({"status": "ok"}) == ""


def test_a_reached_variable_that_no_capture_saw_may_reach_anything() -> None:
    two = moved(SETUP)
    two.prepare("third.append(direct)")
    two.namespace["third"].append(two.namespace["direct"])
    two.restorer.take_net_down()
    impatient = Terms(stop=lambda: True)
    assert "third" in {left.name for left in two.state.capture(Seq(2), Fence(2), 2, impatient).unaudited}
    assert "boxes" in two.prepare("y = 1")
    assert two.wholes == 0
    assert two.prepare("third[-1]()") == set()
    assert two.wholes == 1


# -- random programs ----------------------------------------------------------------------------------

VALUES = [f"v{number}" for number in range(4)]
FUNCTIONS = [f"f{number}" for number in range(3)]

value = st.sampled_from(VALUES)
number = st.integers(0, 9)


@st.composite
def call(draw: Any, below: int) -> str:
    """Return an expression over variables and over functions of smaller number, reached in many ways."""
    kind = draw(st.integers(0, 7))
    function = FUNCTIONS[draw(st.integers(0, below - 1))] if below else None
    if function is None or kind == 0:
        return f"len({draw(value)})"
    return {
        1: f"{function}()",
        2: f"[{function}][0]()",
        3: f"table['{function}']()",
        4: f"keeper.run_{function}()",
        5: f"eval('{function}()')",
        6: f"(lambda: {function}())()",
        7: f"globals()['{function}']()",
    }[kind]


@st.composite
def cell(draw: Any) -> str:
    """Return one cell of a random program."""
    name, other, count = draw(value), draw(value), draw(number)
    place = draw(st.integers(0, 2))
    function = FUNCTIONS[place]
    return draw(
        st.sampled_from(
            [
                f"{name} = [{count}]",
                f"{name}.append({count})",
                f"{name} = {other}",
                f"{name}.append({other})",
                f"del {name}",
                f"{name} = {{'a': {other}}}; {name} = list({name})",
                f"print({draw(call(3))})",
                f"{function} = lambda: {draw(call(place))}",
                f"def {function}():\n    {name}.append({count})\n    return {draw(call(place))}",
                f"def {function}():\n    global {name}\n    {name} = [{count}]\n    return len({name})",
                f"class Keeper:\n    def run_{function}(self): return {function}()",
                f"keeper = Keeper(); keeper.run_{function} = {function}",
                f"table['{function}'] = {function}",
                f"table['held'] = {name}; print(len(table))",
                f"try:\n    {name}\nexcept NameError:\n    {name} = [{count}]",
            ]
        )
    )


def shown(namespace: dict[str, Any]) -> dict[str, Any]:
    """Return what is to be equal: each value's text, and which lists are one object."""
    found = {name: namespace[name] for name in VALUES if name in namespace}
    same = sorted((a, b) for a in found for b in found if a < b and found[a] is found[b])
    return {"values": {name: repr(held) for name, held in found.items()}, "same": same}


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(cell(), st.integers(0, 2)), min_size=3, max_size=12))
def test_a_program_that_waits_for_what_it_reaches_does_what_it_does_with_everything(
    program: list[tuple[str, int]],
) -> None:
    cells = [("table = {}; keeper = None; v0 = [0]; v1 = [1]; f0 = len", 0), *program]
    plain: dict[str, Any] = {"__name__": "__main__"}
    replicas = three()
    for place, (source, replica) in enumerate(cells, 1):
        wanted, got = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(wanted):
            try:
                exec(source, plain)
            except Exception as error:
                print(f"!{type(error).__name__}: {error}")
        with contextlib.redirect_stdout(got):
            delta = replicas[replica].play(source, place)
        assert got.getvalue() == wanted.getvalue(), (source, cells)
        for other in replicas:
            if other is not replicas[replica]:
                other.state.receive(delta)
    for replica_ in replicas:
        replica_.state.rebuild(everything=True, fetch=lambda refs: None)
        assert shown(replica_.namespace) == shown(plain)
