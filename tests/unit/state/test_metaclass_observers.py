"""A metaclass of the notebook's that says how its classes are hashed and compared is not asked for that."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import pytest

from replkernel.state import hooks
from replkernel.state.patches.looks import look_at
from replkernel.state.patches.places import ENTRY, Place, class_label, read
from replkernel.state.python.kinds import (
    Classes,
    Odd,
    as_key,
    derives,
    entry_of,
    key_of,
    kind_of,
    lineage,
    of_key,
)
from tests.support.notebook import moved, pair

RAISING = (
    "class Meta(type):\n"
    + "".join(
        f"  def __{name}__(cls, *_): raise RuntimeError('{name}')\n"
        for name in ("hash", "eq", "ne", "lt", "bool", "len", "iter", "contains", "dir")
    )
    + "  def __subclasscheck__(cls, other): raise RuntimeError('subclasscheck')\n"
)

KINDS = {
    "plain": "class A(metaclass=Meta): pass\na = A()",
    "slots": "class A(metaclass=Meta): pass\nclass B(A):\n  __slots__ = ('w',)\na = B(); a.w = [a]",
    "method": "class A(metaclass=Meta):\n  def f(self): return 1\na = A(); m = a.f; k = [A, (A,), {'c': A}]",
    "class": "class A(metaclass=Meta): pass\nclass B(A): pass\nB.other = A; a = B(); A.b = a",
    "function": "class A(metaclass=Meta): pass\ndef f(x=A): return A\na = A(); a.f = f; f.a = a",
    "list": "class A(list, metaclass=Meta): pass\na = A([1]); a.append(a)",
    "dict": "class A(dict, metaclass=Meta): pass\na = A(x=1); a['y'] = a",
    "set": "class A(set, metaclass=Meta): pass\na = A([1])",
    "frozenset": "class A(frozenset, metaclass=Meta): pass\na = A([1]); b = [a, a]",
    "tuple": "class A(tuple, metaclass=Meta): pass\na = A([1]); b = [a]",
    "text": "class A(str, metaclass=Meta): pass\na = A('x'); b = {a: [a]}",
    "number": "class A(float, metaclass=Meta): pass\na = A('nan'); b = [a]",
    "error": "class A(ValueError, metaclass=Meta): pass\na = A('x'); a.same = a",
    "collections": "import collections as c\nclass A(c.deque, metaclass=Meta): pass\na = A([1])\n"
    "class B(c.OrderedDict, metaclass=Meta): pass\nb = B(x=a)\n"
    "class C(c.Counter, metaclass=Meta): pass\nd = C('xy')",
    "values": "import datetime, types, random\nclass A(datetime.date, metaclass=Meta): pass\n"
    "class R(random.Random, metaclass=Meta): pass\nclass S(types.SimpleNamespace, metaclass=Meta): pass\n"
    "a = A(2020, 1, 1); r = R(1); s = S(a=a, r=r)",
    "states": "class A(metaclass=Meta):\n  def __getstate__(self): return self.__dict__\na = A()\n"
    "class B(metaclass=Meta):\n  def __reduce__(self): return B, ()\nb = B(); a.b = b",
    "hooks": "class A(metaclass=Meta):\n  def __replkernel_dump__(self): return vars(self)\n  @staticmethod\n"
    "  def __replkernel_load__(state):\n    made = A(); vars(made).update(state); return made\na = A()",
    "keys": "class F(metaclass=Meta):\n  def __hash__(self): return 1\n"
    "class A(metaclass=Meta): pass\na = A(); a.d = {F(): 1, a: 2}; s = {a, F()}",
    "weak": "import weakref\nclass A(metaclass=Meta):\n  def __del__(self): pass\n"
    "a = A(); r = weakref.ref(a); w = weakref.WeakSet([a]); f = weakref.finalize(a, print, 'x')",
    "threads": "import threading, logging\nclass L(threading.local, metaclass=Meta): pass\n"
    "a = L(); a.v = [1]\nclass H(logging.Handler, metaclass=Meta): pass\nh = H()",
    "wrappers": "class P(property, metaclass=Meta): pass\nclass C(classmethod, metaclass=Meta): pass\n"
    "class A(metaclass=Meta):\n  p = P(lambda self: 1)\n  c = C(lambda cls: 1)\na = A()",
    "module": "import types\nclass M(types.ModuleType, metaclass=Meta): pass\na = M('m'); a.v = [1]",
    "iterators": "class A(metaclass=Meta):\n  def __iter__(self): return self\n"
    "  def __next__(self): return 1\na = A(); e = enumerate(a); z = zip(a, [1])",
    "array": "import numpy as np\nclass A(np.ndarray, metaclass=Meta): pass\na = np.arange(4).view(A)\n"
    "v = a[1:]; o = np.array([a, A, None], dtype=object)",
    "library": "import json\nclass A(metaclass=Meta): pass\na = json.JSONEncoder.extra = A(); json.mine = A",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_metaclass_that_raises_on_everything_is_not_met(kind: str) -> None:
    if kind == "array" and sys.version_info >= (3, 13):
        pytest.skip("what makes an array asks for its class's hash, since 3.13")
    try:
        space = moved(f"{RAISING}{KINDS[kind]}", "a.x = [1]", "a.x.append(2); again = [a]", "last = a.x")
    finally:
        json.__dict__.pop("mine", None)
        if hasattr(json.JSONEncoder, "extra"):
            del json.JSONEncoder.extra
    assert space["last"] == [1, 2]
    assert space["again"][0] is space["a"]  # type: ignore[index]


COUNTING = (
    "log = []\nclass Meta(type):\n"
    "  def __hash__(cls): log.append('hash'); return 7\n"
    "  def __eq__(cls, other): log.append('eq'); return cls is other\n"
    "  def __call__(cls, *args): log.append('call'); return super().__call__(*args)\n"
)


def test_no_call_of_a_metaclass_is_seen_by_the_notebook() -> None:
    space = moved(
        f"{COUNTING}class A(metaclass=Meta): pass\nclass B(A, list): pass\na = A(); b = B([a]); log.clear()",
        "a.x = [b]",
        "class C(B): pass\nc = C(); a.c = c; log.clear()",
        "del c, b.__class__.__doc__",
        "seen = list(log)",
    )
    assert space["seen"] == []


def test_classes_that_cannot_be_hashed_travel() -> None:
    space = moved(
        "class Meta(type):\n  def __eq__(cls, other): return True\nclass A(metaclass=Meta): pass\na = A()",
        "a.x = [A]",
        "class B(metaclass=Meta): pass\na.b = B()",
        "a.x.append(B)",
    )
    assert eval("type(a) is A and a.x[0] is A and a.x[1] is B and type(a.b) is B", space)


@pytest.mark.parametrize("order", ["a.v = 1; b.v = 2", "b.v = 2; a.v = 1"])
def test_classes_that_are_equal_by_name_stay_two(order: str) -> None:
    space = moved(
        "class Meta(type):\n  def __eq__(cls, other): return cls.__name__ == other.__name__\n"
        "  def __hash__(cls): return hash(cls.__name__)\n"
        "class A(metaclass=Meta):\n  def f(self): return 1\na = A(); Old = A",
        "class A(metaclass=Meta):\n  __slots__ = ('v',)\n  def f(self): return 2\nb = A()",
        order,
        "both = [a, b]; d = {A: 'new'}",
        "found = [one.f() for one in both], Old is A, type(a) is Old, type(b) is A, d[Old], a.v, b.v",
    )
    assert space["found"] == ([1, 2], False, True, True, "new", 1, 2)


def test_registrations_for_classes_of_one_name_are_told_apart() -> None:
    metaclass = (
        "from replkernel.state.hooks import register\nclass Meta(type):\n"
        "  def __eq__(cls, other): return True\n  def __hash__(cls): return 1\n"
    )
    one, other = (
        f"class {name}(metaclass=Meta): pass\n"
        f"def make{name}(v):\n  made = {name}(); made.v = v; return made\n"
        f"register({name}, lambda one: one.v, make{name})\n{name.lower()} = make{name}({value})\n"
        for name, value in (("A", 1), ("B", 2))
    )
    try:
        space = moved(metaclass + one + other, "a.v = 3", "b.v = 4", "done = 1")
        assert eval("(type(a) is A, type(b) is B, a.v, b.v)", space) == (True, True, 3, 4)
        assert [cls for cls, *_ in hooks.registered] == [space["A"], space["B"]]
    finally:
        hooks.registered.clear()


def test_a_copyreg_entry_of_a_class_with_an_odd_metaclass_is_used() -> None:
    space = moved(
        "import copyreg\nclass Meta(type):\n  def __hash__(cls): return 7\n"
        "class A(metaclass=Meta): pass\ncopyreg.pickle(A, lambda one: (A, ()))\na = A()",
        "a.x = [1]",
        "a.x.append(2)",
    )
    assert space["a"].x == [1, 2]  # type: ignore[attr-defined]


def test_a_part_that_a_class_with_an_odd_metaclass_cannot_keep_is_lost_by_name() -> None:
    executor, standby = pair()
    delta = executor.run(
        f"{RAISING}class A(metaclass=Meta): pass\na = A(); a.g = (i for i in 'xy'); next(a.g); b = A()", 1
    )
    assert {pin.type_name for component in delta.components for pin in component.pins} == {"generator"}
    assert standby.take(delta).failed == ()
    assert type(standby.namespace["b"]) is standby.namespace["A"]


class _Meta(type):
    def __hash__(cls) -> int:
        raise RuntimeError("hash")

    def __eq__(cls, other: object) -> bool:
        raise RuntimeError("eq")


class _Asked(metaclass=_Meta):
    pass


class _Below(_Asked, dict):  # type: ignore[type-arg]
    pass


def test_a_class_that_would_be_asked_is_in_no_table() -> None:
    assert kind_of(_Asked()) is key_of(_Asked) is Odd
    assert (kind_of({}), kind_of(_Asked), key_of(Path)) == (dict, _Meta, Path)
    assert lineage(_Below) == (Odd, Odd, dict, object)
    assert derives(_Below, _Asked) and not derives(dict, _Asked)


def test_notes_of_a_class_with_an_odd_metaclass_are_found_by_its_identity() -> None:
    kept = Classes()
    kept.add(_Asked)
    kept.add(dict)
    kept.add(dict)
    assert _Asked in kept and dict in kept and _Below not in kept
    assert [id(cls) for cls in kept] == [id(_Asked), id(dict)]
    assert entry_of({dict: 1}, dict) == 1
    assert entry_of({dict: 1}, _Asked) is entry_of({}, dict) is None


def test_entries_of_a_librarys_tables_for_such_a_class_are_seen_and_read_without_asking() -> None:
    log: list[str] = []

    class Meta(type):
        def __hash__(cls) -> int:
            log.append("hash")
            return 7

        def __eq__(cls, other: object) -> bool:
            log.append("eq")
            return cls is other

    class Made(metaclass=Meta):
        pass

    json.made = {Made: 1, "x": 2}  # type: ignore[attr-defined]
    try:
        log.clear()
        assert of_key(next(iter(look_at(json.made)))) is Made  # type: ignore[attr-defined]
        assert read(Place(ENTRY, "json", "made", class_label(Made)))[1] == 1
        assert (
            {as_key(Made): 1}[as_key(Made)] == 1 and as_key(Made) != as_key(_Asked) and as_key(dict) is dict
        )
        assert log == []
    finally:
        del json.made  # type: ignore[attr-defined]


def test_a_class_that_is_gone_is_kept_no_longer() -> None:
    kept = Classes()
    kept.add(type("Gone", (), {"__slots__": ()}))
    gc.collect()
    assert list(kept) == []


def test_a_metaclass_that_sees_every_attribute_sees_none_of_a_capture() -> None:
    executor, _ = pair()
    executor.run(
        "seen = []\nclass Meta(type):\n"
        "  def __getattribute__(cls, name): seen.append(name); return type.__getattribute__(cls, name)\n"
        "class A(metaclass=Meta): pass\na = A(); seen.clear()",
        1,
    )
    assert executor["seen"] == []
