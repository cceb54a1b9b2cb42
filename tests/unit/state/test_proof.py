"""What is rebuilt otherwise than it was captured is named and never passed for the value."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replkernel.errors import StateLostError
from replkernel.records import Fence, Seq
from replkernel.state.hooks import registered
from replkernel.state.patches import own_modules
from replkernel.state.restore import loading
from replkernel.state.tombstone import is_tombstone
from tests.support.notebook import Notebook, pair

DROPS = """
class Drops:
    def __init__(self, a, b): self.a, self.b = a, b
    def __replkernel_dump__(self): return dict(vars(self))
    @classmethod
    def __replkernel_load__(cls, state):
        made = cls.__new__(cls)
        made.a = state['a']
        return made
"""
GROWS = """
class Grows:
    def __init__(self, n): self.n = n
    def __replkernel_dump__(self): return self.n + 1
    @classmethod
    def __replkernel_load__(cls, n): return cls(n)
"""


def pins(notebook: Notebook) -> list[tuple[str, str, str]]:
    """Return variable, type and replica of what is unfaithful in a notebook."""
    found = [pin for item in notebook.state.unfaithful for pin in item.pins]
    return [(pin.name, pin.type_name, pin.replica) for pin in found]


def test_a_load_that_drops_a_field_is_named() -> None:
    one, two = pair()
    report = two.take(one.run(DROPS + "x=Drops(1, 2); other=[x.a]", 1))
    assert [failure.names for failure in report.failed] == [("x",)]
    assert pins(two) == [("x", "Drops", "r1")]
    assert two["other"] == [1]
    with pytest.raises(StateLostError) as caught:
        two["x"].a
    assert (caught.value.name, caught.value.replica, caught.value.cell) == ("x", "r1", 1)
    assert "'x' is a Drops that other replicas could not rebuild as it was:" in str(caught.value)
    (note,) = caught.value.__notes__
    assert note == (
        "What was rebuilt is not what was captured: x[1] differs (its keys). "
        "`Drops.__replkernel_dump__` and `__replkernel_load__` do not keep everything."
    )


def test_neighbours_of_an_object_that_is_not_as_it_was_stay() -> None:
    one, two = pair()
    delta = one.run(
        DROPS + "x=Drops(1, 2); deep={'k': [x, [5]]}; near=deep['k'][1]; f=(lambda held: lambda: held)(x)\n"
        "class S: __slots__ = ('held',)\ns=S(); s.held=x; fixed=(1, x)",
        1,
    )
    report = two.take(delta)
    assert [failure.names for failure in report.failed] == [("x", "fixed")]
    assert two["deep"]["k"][1] is two["near"]
    assert two["near"] == [5]
    assert two["deep"]["k"][0] is two["f"]() is two["s"].held is two["x"]
    assert pins(two) == [("x", "Drops", "r1"), ("fixed", "tuple", "r1")]
    for lost in (two["x"], two["fixed"]):
        with pytest.raises(StateLostError):
            len(lost)


@pytest.mark.usefixtures("no_registrations")
def test_a_registered_load_that_fails_takes_nothing_along() -> None:
    one, two = pair()
    delta = one.run(
        "import replkernel\nclass P:\n    def __init__(s, v): s.v = v\nclass V(P): pass\n"
        "def load(state): return [state][1]\n"
        "replkernel.register(P, lambda p: p.v, load); replkernel.register(V, lambda v: v.v, lambda v: v)\n"
        "p=P(3); hold=[p, [7]]; v={'v': V(1), 'ok': [1]}",
        1,
    )
    two.take(delta)
    told = {pin.path or pin.name: pin for item in two.state.unfaithful for pin in item.pins}
    assert {place: pin.type_name for place, pin in told.items()} == {"p": "P", "v['v']": "V"}
    assert "IndexError: list index out of range" in told["p"].reason
    assert "`P` (`replkernel.register`)" in told["p"].reason
    assert "makes a int, no V" in told["v['v']"].reason
    assert two["hold"][1] == [7] and two["v"]["ok"] == [1] and callable(two["load"])


@pytest.mark.usefixtures("no_registrations")
def test_an_object_in_a_container_of_its_own_travels_by_what_is_registered() -> None:
    one, two = pair()
    delta = one.run(
        "import replkernel\nclass Client:\n    def __init__(s, url, cache): s.url, s.cache = url, cache\n"
        "replkernel.register(Client, lambda c: {'url': c.url, 'cache': c.cache}, lambda s: Client(**s))\n"
        "c=Client('u', {}); holder={'c': c}; c.cache['k']=holder",
        1,
    )
    assert [pin for component in delta.components for pin in component.pins] == []
    assert two.take(delta).failed == ()
    assert two["c"].cache["k"] is two["holder"]
    assert two["holder"]["c"] is two["c"]


def test_a_value_that_cannot_be_rebuilt_is_told_before_anybody_needs_it() -> None:
    one, two = pair()
    fails = (
        "class Fails:\n    def __replkernel_dump__(self): return 1\n"
        "    @staticmethod\n    def __replkernel_load__(state): return [helper(state)]\n"
    )
    two.take(one.run(DROPS + fails + "x=[Drops(1, 2)]; y={'k': Fails()}; z=[1]", 1), everything=False)
    told = [(pin.path, pin.type_name) for item in two.state.unfaithful for pin in item.pins]
    assert sorted(told) == [("x[0]", "Drops"), ("y['k']", "Fails")]
    assert two.state.pending_bytes and two["z"] == [1]
    mended = (
        "def helper(state): return state\n"
        "Fails.__replkernel_load__ = staticmethod(lambda state: Fails())\ndel x"
    )
    report = two.take(one.run(mended, 2), everything=False)
    assert (report.failed, two.state.unfaithful, two.state.pending_bytes) == ((), (), 0)
    assert type(two["y"]["k"]).__name__ == "Fails"


def test_a_loss_is_told_by_the_cell_that_made_it_and_not_by_a_later_alias() -> None:
    one, two = pair()
    deltas = [
        one.run(DROPS, 1),
        one.run("x=Drops(1, 2)", 2),
        one.run("kept=[x]", 3),
        one.run("_=x; Out={3: x}", 4),
    ]
    two.take(*deltas)
    (item,) = two.state.unfaithful
    assert [(pin.name, pin.path, pin.cell) for pin in item.pins] == [("x", "", 2)]
    assert two["kept"][0] is two["_"] is two["Out"][3] is two["x"]
    two.run("del x", 5)
    again = Notebook("r3", one.cache.chunks)
    again.take(*deltas, one.run("x=Drops(3, 4)", 5))
    told = [(pin.path or pin.name, pin.cell) for item in again.state.unfaithful for pin in item.pins]
    assert sorted(told) == [("kept[0]", 3), ("x", 5)]


def test_a_load_that_makes_another_value_is_named() -> None:
    one, two = pair()
    two.take(one.run(GROWS + "x={'k': [Grows(1)]}", 1))
    assert pins(two) == [("x", "Grows", "r1")]
    (pin,) = two.state.unfaithful[0].pins
    assert pin.path == "x['k'][0]" and pin.path in pin.reason
    assert list(two["x"]) == ["k"]
    with pytest.raises(StateLostError):
        two["x"]["k"][0].n


def test_a_load_that_makes_something_else_or_fails_takes_nothing_along() -> None:
    one, two = pair()
    delta = one.run(
        "class Gone:\n    def __replkernel_dump__(self): return 1\n"
        "    @staticmethod\n    def __replkernel_load__(state): return None\n"
        "class Fails(Gone):\n    @staticmethod\n    def __replkernel_load__(state): 1 / 0\n"
        "held={'gone': Gone(), 'z': [1]}; z=held['z']; kept=[Fails(), 2]",
        1,
    )
    two.take(delta)
    told = [pin for item in two.state.unfaithful for pin in item.pins]
    assert sorted((pin.path, pin.type_name, pin.reason) for pin in told) == [
        ("held['gone']", "Gone", "`Gone.__replkernel_load__` makes a NoneType, no Gone."),
        (
            "kept[0]",
            "Fails",
            (
                "`Fails.__replkernel_load__` failed: ZeroDivisionError: division by zero. "
                "Mend it and run the cell again."
            ),
        ),
    ]
    assert two["held"]["z"] is two["z"]
    assert two["kept"][1] == 2


def test_the_one_who_made_it_keeps_it() -> None:
    one, two = pair()
    delta = one.run(DROPS + "x=Drops(1, 2)", 1)
    two.take(delta)
    one.take(two.run("y=5", 2))
    assert (one["x"].a, one["x"].b) == (1, 2)
    assert one.state.unfaithful == ()


def test_an_unfaithful_component_is_not_shipped_from_where_it_is_unfaithful() -> None:
    one, two = pair()
    two.take(one.run(DROPS + "x=Drops(1, 2); ok=[1]", 1))
    assert [record.names for record in two.run("ok.append(2)", 2).components] == [("ok",)]


def test_a_component_that_comes_anew_is_judged_anew() -> None:
    one, two = pair()
    two.take(one.run(DROPS + "x=Drops(1, 2)", 1))
    two.take(one.run("x=[1, 2]", 2))
    assert two["x"] == [1, 2]
    assert two.state.unfaithful == ()


def test_a_variable_bound_anew_is_unfaithful_no_more() -> None:
    one, two = pair()
    two.take(one.run(DROPS + "x=Drops(1, 2)", 1))
    delta = two.run("x=7", 2)
    assert two.state.unfaithful == ()
    one.take(delta)
    assert one["x"] == 7


def test_a_damaged_reducer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numpy")
    one, two = pair()
    delta = one.run("import numpy\na=numpy.arange(20_000); b=[1]", 1)

    def damaged(data: Any, target: memoryview, own_map: int | None = None) -> None:
        target[:] = bytes(len(target))

    monkeypatch.setattr(loading, "fill_from", damaged)
    two.take(delta)
    assert pins(two) == [("a", "numpy.ndarray", "r1")]
    assert two["b"] == [1]


def test_an_alias_that_a_load_undoes_is_named() -> None:
    one, two = pair()
    source = (
        "class Apart:\n    def __init__(s): s.a = s.b = [1]\n"
        "    def __replkernel_dump__(s): return [s.a, s.b]\n"
        "    @classmethod\n    def __replkernel_load__(cls, both):\n"
        "        made = cls(); made.a, made.b = both[0], list(both[1]); return made\nx = Apart()"
    )
    two.take(one.run(source, 1))
    assert pins(two) == [("x", "Apart", "r1")]


def test_a_class_rebuilt_otherwise_takes_its_instances_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = pair()
    delta = one.run("class A:\n    limit = 5\na = A(); free = 1", 1)
    from replkernel.state.python import classes

    fill = classes.fill_class

    def fill_class(cls: Any, attributes: Any, virtual: Any) -> Any:
        attributes.pop("limit", None)
        return fill(cls, attributes, virtual)

    fill_class.__module__, fill_class.__qualname__ = fill.__module__, fill.__qualname__
    monkeypatch.setattr(classes, "fill_class", fill_class)
    two.take(delta)
    assert sorted(name for name, _, _ in pins(two)) == ["A", "a"]
    assert is_tombstone(two["a"]) and is_tombstone(two["A"])
    assert two["free"] == 1
    assert two.run("pass", 2).components == ()


HONEST = {
    "functions of a class": "class A:\n    def __new__(cls): return object.__new__(cls)\n"
    "    def __init_subclass__(cls): pass\n    @staticmethod\n    def s(): pass\na = A()",
    "a class changed in place": "class A:\n    x = 1\n    y = 2\ndel A.x\nA.x = 3; a = A()",
    "a thread that has run": "import threading\n"
    "t = threading.Thread(target=print, args=('',)); t.start(); t.join()",
    "iterators": "import itertools\ni = [iter({1: 2}), iter([]), itertools.chain([1], [2]), iter({3, 'a'})]\n"
    "z = itertools.zip_longest([], 'ab'); next(z); c = itertools.chain('a'); list(c)",
    "sets of everything": "class P:\n    def __init__(s, n): s.n = n\n"
    "s = {P(1), P(2), (1, 'a'), frozenset({'b', 'c'}), 'd', 5}",
    "weak sets": "import weakref\nclass P: pass\nl = [P(), P(), P()]; w = weakref.WeakSet(l)",
    "closures": "def make():\n    n = 0\n    def inc():\n        nonlocal n\n        n += 1\n"
    "    return inc\ninc = make()",
    "caches": "import functools\n@functools.lru_cache\ndef f(x): return [x]\nf(1); f('a')",
    "values": "import decimal, datetime, fractions, re, uuid\n"
    "v = [decimal.Decimal(1), datetime.datetime(2020, 1, 2), fractions.Fraction(1, 3), re.compile('a'), "
    "uuid.UUID(int=3), 1j, range(3), slice(1)]",
}
HONEST_ARRAYS = {
    "masked": "import numpy as np\nm = np.ma.array([1, 2], mask=[0, 1])",
    "over a bytearray": "import numpy as np\nb = bytearray(16); a = np.frombuffer(b, np.int64)",
    "records with padding": "import numpy as np\nr = np.zeros(3, np.dtype('i1,f8', align=True))",
    "in sets": "import numpy as np\ns = {('a', 1), ('b', 2)}; l = [s, np.arange(20_000), np.zeros(20_000)]",
    "views": "import numpy as np\na = np.arange(9.); b = a[::2]; c = a.reshape(3, 3).T",
}


@pytest.mark.parametrize("name", list(HONEST))
def test_a_right_load_is_proven(name: str) -> None:
    one, two = pair()
    two.take(one.run(HONEST[name], 1))
    assert (two.state.unfaithful, two.state.unproven) == ((), 0)
    one.take(two.run("pass", 2))
    assert (one.state.unfaithful, one.state.unproven) == ((), 0)


@pytest.mark.parametrize("name", list(HONEST_ARRAYS))
def test_arrays_are_proven(name: str) -> None:
    pytest.importorskip("numpy")
    one, two = pair()
    two.take(one.run(HONEST_ARRAYS[name], 1))
    assert (two.state.unfaithful, two.state.unproven) == ((), 0)


@pytest.mark.parametrize(
    "mode", ["r", "w", "a", "x", "r+", "w+", "a+", "rb", "wb", "ab", "xb", "r+b", "w+b", "x+b"]
)
@pytest.mark.parametrize("closed", [False, True])
def test_an_open_file_keeps_its_mode_and_kind(tmp_path: Path, mode: str, closed: bool) -> None:
    one, two = pair()
    path = tmp_path / "file"
    if "x" not in mode:
        path.write_bytes(b"text")
    end = "f.close()" if closed else ""
    two.take(one.run(f"f = open({str(path)!r}, {mode!r})\n{end}", 1))
    try:
        assert (two.state.unfaithful, two.state.unproven) == ((), 0)
        assert (type(two["f"]), two["f"].mode) == (type(one["f"]), one["f"].mode)
    finally:
        one["f"].close()
        two["f"].close()


def test_a_mapped_file_keeps_its_mode(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    one, two = pair()
    two.take(one.run(f"import numpy as np\nm = np.memmap({str(tmp_path / 'm')!r}, 'f8', 'w+', shape=4)", 1))
    assert two["m"].mode == "w+"
    assert (two.state.unfaithful, two.state.unproven) == ((), 0)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make a library whose objects lose what they call a cache when they are loaded."""
    (tmp_path / "made_library.py").write_text(
        "class Soup:\n    def __init__(s, item): s.item, s.cache = item, object\n"
        "    def __setstate__(s, state): s.item, s.cache = state['item'], None\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(own_modules, "_libraries", (*own_modules._libraries, f"{tmp_path}{os.sep}"))
    yield
    sys.modules.pop("made_library", None)


def test_a_change_by_a_librarys_own_loader_is_not_proven(library: None) -> None:
    one, two = pair()
    two.take(one.run("from made_library import Soup\nx = [Soup(1)]", 1))
    assert two["x"][0].item == 1
    assert (two.state.unfaithful, two.state.unproven) == ((), 1)


def test_a_notebooks_object_held_by_a_library_is_proven_all_the_same(library: None) -> None:
    one, two = pair()
    two.take(one.run(DROPS + "from made_library import Soup\nx = Soup(Drops(1, 2))", 1))
    assert pins(two) == [("x", "Drops", "r1")]
    assert "x.item[1]" in two.state.unfaithful[0].pins[0].reason


# -- dumps that are no function of the value --------------------------------------------------------


def test_a_random_dump_is_no_evidence() -> None:
    one, two = pair()
    source = (
        "import random\nclass Salted:\n    def __init__(s, v): s.v = v\n"
        "    def __replkernel_dump__(s): return {'v': s.v, 'salt': random.random()}\n"
        "    @classmethod\n    def __replkernel_load__(cls, state): return cls(state['v'])\nx = Salted(1)"
    )
    two.take(one.run(source, 1))
    assert two["x"].v == 1
    assert two.state.unfaithful == ()
    assert two.state.unproven == 1


def test_a_random_dump_hides_no_lie_beside_it() -> None:
    one, two = pair()
    source = (
        "import random\nclass Salted:\n    def __init__(s, v): s.v = v\n"
        "    def __replkernel_dump__(s): return {'v': s.v, 'salt': random.random()}\n"
        "    @classmethod\n    def __replkernel_load__(cls, state): return cls(state['v'] + 1)\nx = Salted(1)"
    )
    two.take(one.run(source, 1))
    assert pins(two) == [("x", "Salted", "r1")]
    assert "x[1]['v']" in two.state.unfaithful[0].pins[0].reason


def test_a_counter_in_a_dump_is_no_evidence() -> None:
    one, two = pair()
    source = (
        "import sys\nsys.counted = 0\nclass Counted:\n"
        "    def __replkernel_dump__(s): sys.counted += 1; return {'n': sys.counted}\n"
        "    @classmethod\n    def __replkernel_load__(cls, state): return cls()\nx = Counted()"
    )
    two.take(one.run(source, 1))
    assert two.state.unfaithful == ()
    assert two.state.unproven == 1
    del sys.counted  # type: ignore[attr-defined]


def test_an_honest_object_is_dumped_once_and_loaded_once() -> None:
    one, two = pair()
    source = (
        "import sys\nsys.calls = []\nclass Honest:\n    def __init__(s, v): s.v = v\n"
        "    def __replkernel_dump__(s): sys.calls.append('dump'); return {'v': s.v}\n"
        "    @classmethod\n    def __replkernel_load__(cls, state):\n"
        "        sys.calls.append('load'); return cls(state['v'])\nx = Honest({'b', 'a'})"
    )
    delta = one.run(source, 1)
    calls: list[str] = sys.calls  # type: ignore[attr-defined]
    calls.clear()
    two.take(delta)
    assert calls == ["load", "dump"]
    assert two["x"].v == {"a", "b"}
    assert two.state.unproven == 0
    del sys.calls  # type: ignore[attr-defined]


def test_equal_bytes_are_not_compared_by_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = pair()
    asked: list[Any] = []
    monkeypatch.setattr("replkernel.state.verify.proof.compare", lambda *args: asked.append(args) or [])
    two.take(one.run("x=[{'a': [1.5, 'text']}, b'bytes', (1, 2)]; y={'k': x}", 1))
    assert asked == []
    assert two.state.unproven == 0


# -- what loading one component does to another ------------------------------------------------------

COUNTING = """
class Counting:
    built = 0
    def __init__(self, a): type(self).built += 1; self.a = a
    def __replkernel_dump__(self): return self.a
    @classmethod
    def __replkernel_load__(cls, a): return cls(a)
x = Counting(1); y = Counting(2)
"""


def test_a_component_that_another_load_changed_is_put_right() -> None:
    one, two = pair()
    two.take(one.run(COUNTING, 1))
    assert two["Counting"].built == 2
    assert two.state.unfaithful == ()
    assert two.run("pass", 2).components == ()


def test_a_component_that_needs_others_is_judged_when_all_are_there() -> None:
    one, two = pair()
    source = (
        "class Named:\n    def __init__(s, v): s.v = v\n"
        "    def __replkernel_dump__(s): return make, s.v, big[:1]\n"
        "    @classmethod\n    def __replkernel_load__(cls, state): return state[0](*state[1:])\n"
        "def make(v, _): return Named(v)\nbig = 'x' * 100_000\nx = Named(1)"
    )
    two.take(one.run(source, 1), everything=False)
    two.take()
    assert two["x"].v == 1
    assert two.state.unfaithful == ()


def test_a_cell_that_names_it_has_all_rebuilt_before_it_is_judged() -> None:
    one, two = pair()
    source = (
        "class Named:\n    def __init__(s, v): s.v = v\n"
        "    def __replkernel_dump__(s): return make, s.v, big[:1]\n"
        "    @classmethod\n    def __replkernel_load__(cls, state): return state[0](*state[1:])\n"
        "def make(v, _): return Named(v)\nbig = 'x' * 100_000\nx = Named(1)"
    )
    delta = one.run(source, 1)
    two.state.receive(delta)
    wanted = {record.cid for record in delta.components if record.names in (("x",), ("make",))}
    two.state.rebuild(everything=False, wanted=wanted, fetch=lambda refs: None)
    assert two["x"].v == 1
    assert two.state.unfaithful == ()


def test_a_long_stream_that_differs_is_said_to_be_unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = pair()
    monkeypatch.setattr("replkernel.state.verify.proof.COMPARED_BYTES_MAX", 100)
    two.take(one.run(GROWS + "x=[Grows(1), 'text' * 100]", 1))
    assert two.state.unfaithful == ()
    assert two.state.unproven >= 1


@pytest.fixture
def no_registrations() -> Iterator[None]:
    registered.clear()
    yield
    registered.clear()


REFUSES = """
import replkernel
class C: pass
def load(state): raise ValueError('no way')
replkernel.register(C, lambda c: c.__dict__, load)
c = C(); c.a = 3; ok = [1]
"""


@pytest.mark.usefixtures("no_registrations")
def test_a_registered_load_that_raises_is_named_and_can_be_replaced() -> None:
    one, two = pair()
    report = two.take(one.run(REFUSES, 1))
    (failure,) = report.failed
    assert failure.names == ("c",) and "failed: ValueError: no way" in failure.reason
    assert pins(two) == [("c", "C", "r1")]
    assert two["ok"] == [1] and callable(two["load"])
    mended = "def load(s): c = C(); c.__dict__.update(s); return c\nreplkernel.register(C, vars, load)"
    assert two.take(one.run(mended, 2)).failed == ()
    assert (two["c"].a, two.state.unfaithful) == (3, ())


@pytest.mark.usefixtures("no_registrations")
def test_registrations_that_cannot_be_rebuilt_are_named_though_no_variable_holds_them() -> None:
    one, two = pair()
    source = (
        "import replkernel\nclass C: pass\nclass Bad:\n    def __replkernel_dump__(s): return 1\n"
        "    @staticmethod\n    def __replkernel_load__(state): raise ValueError('never')\n"
        "def around(held): replkernel.register(C, lambda c: (held, 1), lambda state: C())\naround(Bad())"
    )
    two.take(one.run(source, 1))
    assert pins(two) == [("replkernel.register", "object", "r1")]


@pytest.mark.usefixtures("no_registrations")
def test_a_stuck_result_of_a_registered_dump_goes_by_a_variable() -> None:
    one, _ = pair()
    source = (
        "import replkernel, hashlib\nclass C: pass\n"
        "replkernel.register(C, lambda c: hashlib.sha256(b'1'), lambda state: C())"
    )
    one.run(source, 1)
    delta = one.run("c = C()", 2)
    assert [pin.name for record in delta.components for pin in record.pins] == ["c"]


@pytest.mark.usefixtures("no_registrations")
def test_a_child_of_a_registered_class_is_never_rebuilt_as_its_parent() -> None:
    one, two = pair()
    source = (
        "import replkernel\nclass C:\n    def __init__(s, v): s.v = v\n"
        "class Child(C): pass\n"
        "replkernel.register(C, lambda c: c.v, C)\nx = Child([1])"
    )
    two.take(one.run(source, 1))
    (pin,) = [pin for item in two.state.unfaithful for pin in item.pins if pin.name == "x"]
    assert pin.reason.startswith(
        "The load function that `Child` inherits (`replkernel.register`) makes a C, no"
    )
    assert pin.reason.endswith("no Child: register that as well.")
    by_class = "replkernel.register(C, lambda c: (type(c), c.v), lambda state: state[0](state[1]))"
    assert two.take(one.run(by_class, 2)).failed == ()
    assert (type(two["x"]).__name__, two["x"].v, two.state.unfaithful) == ("Child", [1], ())


@pytest.mark.usefixtures("no_registrations")
@pytest.mark.parametrize("ending", ["SystemExit(4)", "KeyboardInterrupt"])
def test_hooks_that_would_end_the_process_are_failures_of_their_object(ending: str) -> None:
    one, two = pair()
    source = (
        f"import replkernel\ndef ends(_=None): raise {ending}\nclass A: pass\nclass B: pass\n"
        "class C:\n    def __replkernel_dump__(s): ends()\n    __replkernel_load__ = ends\n"
        "class D:\n    def __replkernel_dump__(s): return 1\n    __replkernel_load__ = staticmethod(ends)\n"
        "replkernel.register(A, ends, ends)\nreplkernel.register(B, lambda b: 1, ends)\n"
        "a, b, c, d, ok = A(), B(), C(), D(), [1]"
    )
    delta = one.run(source, 1)
    assert {pin.name for record in delta.components for pin in record.pins} >= {"a", "c"}
    two.take(delta)
    assert {name for name, _, _ in pins(two)} >= {"b", "d"}
    assert two["ok"] == [1]


def test_a_loss_is_told_by_the_number_that_its_cell_was_seen_with() -> None:
    one, two = pair()
    exec(DROPS + "import hashlib\nx = Drops(1, 2); y = hashlib.sha256(b'1')", one.namespace)
    delta = one.state.capture(Seq(9), Fence(9), 4)
    assert [pin.shown_cell for record in delta.components for pin in record.pins] == [4]
    two.take(delta)
    assert [pin.shown_cell for item in two.state.unfaithful for pin in item.pins] == [4]
    for name in ("x", "y"):
        with pytest.raises(StateLostError, match=r"made in cell \[4\]"):
            two[name].a


def test_a_class_that_no_variable_holds_is_named() -> None:
    one, two = pair()
    source = DROPS + "def made():\n    class C: held = Drops(1, 2)\n    return [C()]\nx = made(); ok = [1]"
    two.take(one.run(source, 1))
    assert ("class made.<locals>.C", "object", "r1") in pins(two)
