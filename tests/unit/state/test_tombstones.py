"""What cannot travel: the smallest node is replaced, loudly, and the pin stays with whoever holds the object."""

# ruff: noqa: E501 (a cell is one string)

from __future__ import annotations

import operator
import subprocess
import sys
from typing import Any

import pytest

from replkernel.errors import StateLostError
from replkernel.state.tombstone import is_tombstone, lost
from tests.support.notebook import Notebook, pair

GENERATOR = "def gen():\n    yield 1\n    yield 2\ng=gen(); next(g)\n"


def pins(delta: Any) -> list[Any]:
    return [pin for component in delta.components for pin in component.pins]


def test_the_neighbours_of_a_stuck_object_travel() -> None:
    one, two = pair()
    delta = one.run(GENERATOR + "class M: pass\nm=M(); m.w=[1]; m.hooks=[1, 2, g]; del g", 1)
    (pin,) = pins(delta)
    assert (pin.name, pin.path, pin.type_name, pin.replica, pin.seq) == (
        "m",
        "m.hooks[2]",
        "generator",
        "r1",
        1,
    )
    assert pin.reason.endswith(".")
    two.take(delta)
    assert two["m"].w == [1]
    assert two["m"].hooks[:2] == [1, 2]
    with pytest.raises(StateLostError, match=r"m\.hooks\[2\].*generator.*cell \[1\] on replica r1"):
        next(two["m"].hooks[2])


@pytest.mark.parametrize(
    "touch",
    [
        next, iter, len, bool, str, int, float, list, dir, hash, format, abs, operator.index, operator.neg,
        lambda t: t.x, lambda t: t(), lambda t: t[0], lambda t: t + 1, lambda t: 1 + t, lambda t: t == 1,
        lambda t: t != 1, lambda t: t < 1, lambda t: f"{t}", lambda t: "%s" % t,  # noqa: UP031
        lambda t: 1 in t,
        lambda t: isinstance(t, int), lambda t: setattr(t, "a", 1), lambda t: t.__class__, lambda t: t.__dict__,
        lambda t: [][t], lambda t: t @ 1, lambda t: t.__enter__(), lambda t: delattr(t, "a"), lambda t: t.__iadd__(1),
        lambda t: __import__("copy").copy(t), lambda t: __import__("pickle").dumps(t), lambda t: {t: 1}, lambda t: {*t},
        lambda t: operator.setitem(t, 0, 1), lambda t: round(t), lambda t: bytes(t), lambda t: complex(t),
    ],
)  # fmt: skip
def test_every_touch_raises(touch: Any) -> None:
    tombstone = lost("g", "generator", "r1", 3, 7)
    with pytest.raises(StateLostError) as caught:
        touch(tombstone)
    assert (caught.value.name, caught.value.type_name, caught.value.replica, caught.value.cell) == (
        "g",
        "generator",
        "r1",
        7,
    )


def test_a_line_that_gives_a_lost_name_a_new_value_runs() -> None:
    """IPython looks at what a one-line cell begins with before the cell runs; that is no touch of the user's."""
    script = (
        "import sys; from IPython.core.interactiveshell import InteractiveShell\n"
        "from replkernel.state.tombstone import lost\n"
        "shell = InteractiveShell.instance()\n"
        "shell.user_ns['s'] = lost('s', 'socket.socket', 'r1', 1, 1)\n"
        "assert not shell.run_cell('s.fileno()').success\n"
        "assert shell.run_cell('s = 2').success and shell.user_ns['s'] == 2\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, timeout=60)


def test_repr_tells_the_story() -> None:
    text = repr([lost("g", "generator", "r1", 3, 7, "m.g", "It is in flight.")])
    assert "'m.g' is a generator" in text
    assert "cell [7] on replica r1" in text


def test_the_reason_comes_with_the_error() -> None:
    with pytest.raises(StateLostError) as caught:
        len(lost("g", "generator", "r1", 3, 7, "", "It is in flight."))
    assert caught.value.__notes__ == ["It is in flight."]


def test_stuck_objects_do_not_travel_twice() -> None:
    one = Notebook("r1")
    one.run(GENERATOR, 1)
    assert one.run("next(g)", 2).components == ()


def test_a_tombstone_keeps_its_first_pin() -> None:
    one, two = pair()
    three = Notebook("r3", one.cache.chunks)
    two.take(one.run(GENERATOR + "l=[g, 1]; del g", 1))
    delta = two.run("l.append(2)", 2)
    (pin,) = pins(delta)
    assert (pin.replica, pin.seq, pin.path) == ("r1", 1, "l[0]")
    three.take(delta)
    assert is_tombstone(three["l"][0])
    assert three["l"][1:] == [1, 2]


def test_the_holder_keeps_the_real_object_while_others_leave_it_alone() -> None:
    one, two = pair()
    two.take(one.run(GENERATOR + "x=[1]", 1))
    one.take(two.run("x.append(2)", 2))
    assert next(one["g"]) == 2
    delta = one.run("x.append(3)", 3)
    assert pins(delta) == []


def test_the_pin_goes_with_the_variable() -> None:
    one = Notebook("r1")
    assert pins(one.run(GENERATOR + "l=[g]", 1))
    assert pins(one.run("l=[]", 2))
    delta = one.run("del g", 3)
    assert delta.dropped == ("g",)
    assert pins(delta) == []


def test_a_new_object_gets_a_new_pin() -> None:
    one = Notebook("r1")
    one.run(GENERATOR, 1)
    (pin,) = pins(one.run("g=gen(); next(g)", 2))
    assert pin.seq == 2


def shown(delta: Any) -> list[tuple[str, int]]:
    return sorted((pin.path or pin.name, pin.seq) for pin in pins(delta))


def test_a_stuck_object_is_told_where_it_is_now_and_by_the_cell_that_made_it() -> None:
    one = Notebook("r1")
    assert shown(one.run(GENERATOR + "kept=[1, gen()]; next(kept[1])", 1)) == [("g", 1), ("kept[1]", 1)]
    assert shown(one.run("kept.reverse()", 2)) == [("kept[0]", 1)]
    assert shown(one.run("kept.insert(0, 5)", 3)) == [("kept[1]", 1)]
    assert shown(one.run("table={'k': kept[1]}", 4)) == [("kept[1]", 1)]
    assert shown(one.run("del kept", 5)) == [("table['k']", 1)]
    assert shown(one.run("h=table.pop('k')", 6)) == [("h", 1)]
    assert one.run("other=1", 7).components[0].names == ("other",)


def test_a_stuck_object_without_weak_references_keeps_its_cell_and_place() -> None:
    one = Notebook("r1")
    stuck = "import ctypes\ndef pointer(): return ctypes.cast(b'a', ctypes.c_void_p), zip([1], (n for n in 'ab'))\n"
    one.run(stuck, 1)
    assert shown(one.run("kept=[1, pointer()[1]]; next(kept[1])", 2)) == [("kept[1]", 2)]
    assert shown(one.run("kept.reverse()", 3)) == [("kept[0]", 2)]


def test_an_alias_made_later_does_not_take_the_cell_of_a_stuck_object() -> None:
    one = Notebook("r1")
    one.run("import threading; e=threading.Event()", 1)
    one.run("ths=[1, threading.Thread(target=e.wait, daemon=True)]; ths[1].start()", 2)
    try:
        assert shown(one.run("nested={'t': ths[1]}", 3)) == [("ths[1]", 2)]
        assert shown(one.run("t=ths[1]; ths.append(t)", 4)) == [("ths[1]", 2)]
    finally:
        one["e"].set()


@pytest.mark.parametrize(
    ("made", "path"),
    [
        ("def mk():\n  q=gen(); next(q)\n  return lambda: q\nv=mk()", "v.__closure__['q']"),
        ("class S:\n  __slots__=('q',)\nv=S(); v.q=gen(); next(v.q)", "v.q"),
        ("import functools\nq=gen(); next(q)\nv=functools.partial(print, q); del q", "v.args[0]"),
    ],
)
def test_the_holder_of_a_stuck_object_is_not_taken_for_it(made: str, path: str) -> None:
    one = Notebook("r1")
    assert [pin.path for pin in pins(one.run(GENERATOR + "del g\n" + made, 1))] == [path]


def test_a_file_that_a_reader_reads_is_not_the_reader() -> None:
    one, two = pair()
    two.take(
        one.run("import csv, os\nr, w=os.pipe(); os.write(w, b'a,b'); os.close(w); file=os.fdopen(r)", 1)
    )
    with one["file"]:
        delta = one.run("rd=csv.reader(file); row=next(rd); del file", 2)
        (pin,) = pins(delta)
        assert (pin.name, pin.path, pin.type_name) == ("rd", "rd.…", "_io.TextIOWrapper")
        assert pins(one.run("row.append('c')", 3)) == []
    two.take(delta)
    with pytest.raises(StateLostError, match=r"^Something that 'rd' holds is a _io.TextIOWrapper"):
        next(two["rd"])


def test_the_data_of_a_generator_is_in_its_component() -> None:
    one = Notebook("r1")
    delta = one.run("data=[1,2,3]\ng=(i for i in data); next(g)", 1)
    joined = next(component for component in delta.components if "g" in component.names)
    assert set(joined.names) == {"data", "g"}


def test_a_generator_whose_data_was_changed_elsewhere_is_lost() -> None:
    one, two = pair()
    two.take(one.run("data=[1,2,3]\ng=(i for i in data); next(g)", 1))
    one.take(two.run("data.append(4)", 2))
    assert one["data"] == [1, 2, 3, 4]
    with pytest.raises(StateLostError):
        next(one["g"])


def test_an_object_that_raises_while_it_is_copied_is_stuck() -> None:
    one, two = pair()
    delta = one.run(
        "class Bad:\n    def __replkernel_dump__(self): raise ValueError('not me')\n"
        "    __replkernel_load__ = None\n"
        "class Odd:\n    def __getstate__(self): return 1/0\n"
        "    def __init__(self): self.g = (i for i in 'ab'); next(self.g)\n"
        "l=[1, Bad(), {'k': Odd()}]",
        1,
    )
    assert [pin.path for pin in pins(delta)] == ["l[1]", "l[2]['k']"]
    assert "not me" in pins(delta)[0].reason
    two.take(delta)
    assert two["l"][0] == 1


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("import socket\nv=socket.socket()", "socket.socket"),
        ("import sqlite3\nv=sqlite3.connect(':memory:'); v.execute('create table t (a)'); v.execute('insert into t values (1)')", "sqlite3.Connection"),
        ("import threading\ne=threading.Event(); v=threading.Thread(target=e.wait, daemon=True); v.start()", "threading.Thread"),
        ("class A:\n  def __await__(s): yield\nasync def co(): await A()\nv=co(); v.send(None)", "coroutine"),
        ("import ctypes\nv=ctypes.cast(ctypes.create_string_buffer(b'a'), ctypes.POINTER(ctypes.c_int))", "LP_c_int"),
        (
            "import mmap,sys\nwith open(sys.executable,'rb') as f: v=mmap.mmap(f.fileno(),9,access=mmap.ACCESS_COPY)",
            "mmap.mmap",
        ),
        ("import hashlib\nv=hashlib.blake2b()", "_blake2.blake2b"),
        ("import sys\nv=sys._getframe()", "frame"),
        ("import subprocess,sys\nv=subprocess.Popen([sys.executable,'-c','input()'],stdin=subprocess.PIPE)", "subprocess.Popen"),
        ("import tempfile\nv=tempfile.TemporaryFile('w')", "TextIOWrapper"),
        ("import concurrent.futures as c\nv=c.ThreadPoolExecutor(1); v.submit(int).result()", "ThreadPoolExecutor"),
        ("import asyncio\nv=asyncio.new_event_loop()", "EventLoop"),
        ("def g():\n  i=(n for n in [1, 2]); next(i); return i\nv=zip([1],g())", "zip"),
    ],
)  # fmt: skip
def test_kinds_that_are_stuck(source: str, kind: str) -> None:
    one, two = pair()
    delta = one.run(source + "\nbeside=[v, 'fine']", 1)
    assert {pin.type_name.rpartition(kind)[1] for pin in pins(delta)} == {kind}
    report = two.take(delta)
    assert report.failed == ()
    assert two["beside"][1] == "fine"
    with pytest.raises(StateLostError):
        two["v"].anything
    close = "v.close()" if "close" in dir(one["v"]) else "e.set()" if "e" in one else "pass"
    close = (
        "v.stdin.close(); v.wait()" if "Popen" in source else "v.shutdown()" if "Executor" in kind else close
    )
    exec(close, one.namespace)


def test_sets_and_keys_may_hold_what_is_stuck() -> None:
    one, two = pair()
    two.take(one.run(GENERATOR + "s={g, 1}; d={g: 'v', 'k': 2}", 1))
    assert 1 in two["s"]
    assert two["d"]["k"] == 2
    assert len(two["s"]) == 2


def test_a_graph_of_autograd_is_stuck_and_its_values_travel() -> None:
    torch = pytest.importorskip("torch")
    one, two = pair()
    delta = one.run("import torch\nw=torch.ones(2, requires_grad=True); y=(w*w).sum()", 1)
    assert [pin.type_name for pin in pins(delta)] == ["tensor with an autograd graph"]
    two.take(delta)
    assert two["y"].item() == 2.0
    assert two["y"].requires_grad
    assert not two["y"].is_leaf
    with pytest.raises(StateLostError):
        two["y"].backward()
    assert pins(one.run("y.backward()", 2)) == []
    assert torch.equal(one["w"].grad, torch.full((2,), 2.0))


def test_a_freed_graph_is_no_loss_and_its_result_is_shown_as_before() -> None:
    torch = pytest.importorskip("torch")
    one, two = pair()
    made = "w=torch.ones(2, requires_grad=True); h=w*w; h.retain_grad(); h.sum().backward()"
    delta = one.run("import torch\n" + made, 1)
    shown = one["h"].grad_fn.name()
    assert pins(delta) == []
    with torch.set_grad_enabled(False):
        two.take(delta)
    assert repr(two["h"]) == repr(one["h"])
    assert two["h"].grad_fn.name() == shown == "MulBackward0"
    assert torch.equal(two["h"].grad, one["h"].grad)
    with pytest.raises(RuntimeError, match="a second time"):
        two["h"].backward(torch.ones(2))


def test_the_shell_displays_a_tombstone_once_by_its_repr(capsys: pytest.CaptureFixture[str]) -> None:
    from IPython.core.formatters import DisplayFormatter

    tombstone = lost("g", "generator", "r1", 1, 1)
    formats, _ = DisplayFormatter().format(tombstone)
    assert list(formats) == ["text/plain"]
    assert formats["text/plain"].startswith("<lost: 'g' is a generator")
    assert capsys.readouterr() == ("", "")
    with pytest.raises(StateLostError):
        tombstone._repr_html_()


def test_an_object_stuck_in_a_class_goes_by_the_classs_name() -> None:
    one, two = pair()
    delta = one.run(
        GENERATOR + "class C:\n    kept = [1]\n    held = g\n    deep = [0, g]\ndel g; c = C()", 1
    )
    assert {(pin.name, pin.path) for pin in pins(delta)} == {("C", "C.held")}
    two.take(delta)
    assert two["C"].kept == [1]
    with pytest.raises(StateLostError, match=r"C\.held.*generator"):
        next(two["C"].held)
    assert [component.cid for component in one.run("again = 1", 2).components] == ["again"]


def test_a_class_of_which_nothing_can_be_copied_is_told_and_all_else_travels() -> None:
    one, two = pair()
    changing = (
        "class Changing:\n"
        "    def __replkernel_dump__(self): Table.rows[len(Table.rows)] = 1; return 1\n"
        "    @classmethod\n"
        "    def __replkernel_load__(cls, state): return cls()\n"
        "class Table: rows = {}\n"
        "Table.rows[0] = Changing(); Table.rows[1] = 1; table = Table(); kept = [1]"
    )
    delta = one.run(changing, 1)
    (pin,) = pins(delta)
    assert (pin.name, pin.type_name) == ("Table", "type")
    assert "changed size" in pin.reason
    two.take(delta)
    assert two["kept"] == [1]
    with pytest.raises(StateLostError, match="table"):
        two["table"].rows
    delta = one.run("kept.append(2)", 2)
    two.take(delta)
    assert two["kept"] == [1, 2]


def test_wrapped_functions_and_proxies_travel() -> None:
    one, two = pair()
    delta = one.run(
        "import wrapt\n"
        "@wrapt.decorator\n"
        "def twice(wrapped, instance, args, kwargs): return 2 * wrapped(*args, **kwargs)\n"
        "class A:\n"
        "    @twice\n"
        "    def m(self, x): return x\n"
        "@twice\n"
        "def f(x): return x\n"
        "held = {'a': 1}; proxy = wrapt.ObjectProxy(held); proxy._self_note = [held]; bound = A().m",
        1,
    )
    assert pins(delta) == []
    two.take(delta)
    assert (two["f"](2), two["A"]().m(3), two["bound"](4)) == (4, 6, 8)
    assert two["proxy"].__wrapped__ is two["held"] is two["proxy"]._self_note[0]
    two.run("proxy['b'] = 2", 2)
    assert two["held"] == {"a": 1, "b": 2}


def test_an_object_stuck_later_is_told_by_the_cell_that_made_it() -> None:
    one, two = pair()
    for seq, source in enumerate(
        ["import sqlite3\nc = sqlite3.connect(':memory:'); d = [c]", "pass"], start=1
    ):
        two.take(one.run(source, seq))
    two.take(two_delta := one.run("c.execute('create table t(x)'); c.execute('insert into t values(1)')", 3))
    (pin,) = (pin for component in two_delta.components for pin in component.pins)
    assert (pin.name, pin.cell) == ("c", 1)
