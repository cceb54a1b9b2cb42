"""A capture is not seen: nothing is consumed, advanced, read through properties, kept alive or run."""

# ruff: noqa: E501 (a cell is one string)

from __future__ import annotations

import gc
import sys
import weakref

import pytest

from tests.support.notebook import Notebook, pair


def twice(one: Notebook) -> None:
    one.capture(2)
    one.capture(3)


def test_iterators_stay_where_they_are() -> None:
    one = Notebook("r1")
    one.run(
        "import itertools\nit=iter([1,2,3]); next(it); z=zip('ab',[1,2]); c=itertools.count(5); next(c); d=iter({'x':1,'y':2}); g=(i for i in 'pq'); next(g)",
        1,
    )
    twice(one)
    assert [next(one["it"]), next(one["z"]), next(one["c"]), next(one["d"]), next(one["g"])] == [
        2,
        ("a", 1),
        6,
        "x",
        "q",
    ]


def test_random_generators_do_not_advance() -> None:
    np = pytest.importorskip("numpy")
    one = Notebook("r1")
    one.run("import random, numpy as np\nr=random.Random(1); g=np.random.default_rng(1)", 1)
    twice(one)
    import random

    assert one["r"].random() == random.Random(1).random()
    assert one["g"].random() == np.random.default_rng(1).random()
    state = random.getstate()
    one.capture(4)
    assert random.getstate() == state


def test_no_property_and_no_getattr_is_run() -> None:
    one = Notebook("r1")
    one.run(
        "seen=[]\n"
        "class P:\n"
        "    @property\n"
        "    def p(self): seen.append('p')\n"
        "    def __len__(self): seen.append('len'); return 0\n"
        "    def __eq__(self, o): seen.append('eq')\n"
        "    def __hash__(self): seen.append('hash'); return 1\n"
        "    def __bool__(self): seen.append('bool')\n"
        "    def __repr__(self): seen.append('repr')\n"
        "    def __iter__(self): seen.append('iter')\n"
        "class M(type):\n"
        "    def __getattribute__(c, n): seen.append(n); return type.__getattribute__(c, n)\n"
        "class C(metaclass=M): pass\n"
        "p=P(); l=[p]; c=C()",
        1,
    )
    one["seen"].clear()
    twice(one)
    assert all(name.startswith("__") for name in one["seen"])


def test_nothing_is_kept_alive() -> None:
    one = Notebook("r1")
    one.run("class A: pass\na=A(); b=[a]; f=lambda: a", 1)
    gone = weakref.ref(one["a"])
    died = weakref.ref(one["f"])
    gc.disable()
    try:
        exec("del b, f, a", one.namespace)
        assert gone() is None
        assert died() is None
    finally:
        gc.enable()


def test_nothing_is_kept_alive_after_a_rebuild() -> None:
    one, two = pair()
    two.take(one.run("class A: pass\na=A(); b=[a]", 1))
    gone = weakref.ref(two["a"])
    exec("del a, b", two.namespace)
    assert gone() is None


def test_reference_counts_are_as_before() -> None:
    one = Notebook("r1")
    one.run("l=[1]; d={'l': l}", 1)
    before = sys.getrefcount(one["l"])
    twice(one)
    after = sys.getrefcount(one["l"])
    assert after == before


def test_destructors_run_when_the_user_says_so_and_only_then() -> None:
    one = Notebook("r1")
    one.run("log=[]\nclass D:\n    def __del__(self): log.append('del')\nd=D(); n=D(); n.me=n", 1)
    exec("del n", one.namespace)
    gc.disable()
    try:
        gc.collect()
        one["log"].clear()
        exec("x=D(); x.me=x; del x", one.namespace)
        gc.enable()
        gc.set_threshold(1)
        twice(one)
    finally:
        gc.set_threshold(700, 10, 10)
        gc.enable()
    one["log"].clear()
    exec("del d", one.namespace)
    assert one["log"] == ["del"]


def test_replaced_objects_die_quietly() -> None:
    one, two = pair()
    two.take(
        one.run(
            "log=[]\nclass D:\n    def __init__(s): s.log=log\n    def __del__(s): s.log.append('del')\nd=D(); l=[D()]",
            1,
        )
    )
    two.take(one.run("d.x=1; l.append(2)", 2))
    gc.collect()
    assert two["log"] == []
    two.take(one.run("del d", 3))
    assert one["log"] == ["del"]
    assert two["log"] == ["del"]


def test_flags_of_arrays_stay() -> None:
    np = pytest.importorskip("numpy")
    one = Notebook("r1")
    one.run("import numpy as np\na=np.zeros(5); v=a[1:]; v.flags.writeable=False; big=np.zeros(50_000)", 1)
    twice(one)
    assert one["a"].flags.writeable
    assert not one["v"].flags.writeable
    assert isinstance(one["big"], np.ndarray)
    one["a"].resize(9, refcheck=False)


def test_thread_names_and_recursion_limit_stay() -> None:
    import threading

    one = Notebook("r1")
    limit, size = sys.getrecursionlimit(), threading.stack_size()
    one.run("d=[]\nfor _ in range(20_000): d=[d]", 1)
    assert sys.getrecursionlimit() == limit
    assert threading.stack_size() == size
    before = threading.Thread().name
    one.capture(2)
    after = threading.Thread().name
    assert int(after.split("-")[1]) == int(before.split("-")[1]) + 1


def test_garbage_collection_stays_as_the_user_set_it() -> None:
    one = Notebook("r1")
    gc.disable()
    try:
        one.capture(1)
        assert not gc.isenabled()
    finally:
        gc.enable()
    one.capture(2)
    assert gc.isenabled()


def test_classes_look_as_the_user_made_them() -> None:
    one, two = pair()
    delta = one.run("class A:\n    x=1\nclass S:\n    __slots__=('y',)\na=A(); s=S(); s.y=1", 1)
    before = [sorted(vars(one[name])) for name in "AS"]
    two.take(delta)
    twice(one)
    assert [sorted(vars(one[name])) for name in "AS"] == before
    assert [sorted(vars(two[name])) for name in "AS"] == before
    assert "__slotnames__" not in vars(one["A"])
