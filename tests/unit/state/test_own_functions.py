"""What calls leave in the functions of the user's modules is a place: attributes, defaults, closures."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from replkernel.state.patches.book import Book
from replkernel.state.patches.module_places import enter_places
from replkernel.state.patches.places import place_of, put

SOURCE = """
def collect(x, acc=[], *, seen={}): acc.append(x); seen[x] = 1
def plain(x, y=1, *, z='a', f=len): return x
def count(): count.n += 1
count.n = 0
def make():
    total, log = 0, []
    def add(k):
        nonlocal total
        total += k
        log.append(k)
    return add
add = make()
class A:
    def method(self, held=[]): held.append(1)
    @staticmethod
    def static(held=[]): held.append(2)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return a module that the user wrote."""
    (tmp_path / "users_own.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import users_own  # type: ignore[import-not-found]

    yield users_own
    sys.modules.pop("users_own", None)


def entered() -> dict[str, object]:
    """Return the values of the places of the user's modules by their end."""
    book = Book()
    enter_places(book, lambda module: False)
    mine = "library users_own:"
    return {root[len(mine) :]: value for root, value in book.present().items() if root.startswith(mine)}


def test_the_places_are_where_calls_can_leave_something(module: ModuleType) -> None:
    assert entered() == {
        "collect.__defaults__": ([],),
        "collect.__kwdefaults__": {"seen": {}},
        "count.n": 0,
        "add.__closure__": {"log": [], "total": 0},
        "A.method.__defaults__": ([],),
        "A.static.__defaults__": ([],),
    }


def test_attributes_that_calls_left_are_put_into_another_import(module: ModuleType) -> None:
    module.collect("a"), module.count(), module.add(5), module.A().method(), module.A.static()
    left = entered()
    del sys.modules["users_own"]
    import users_own

    for end, value in left.items():
        put(place_of(f"library users_own:{end}"), value)
    users_own.count(), users_own.add(2), users_own.A.static()
    assert entered() == {
        "collect.__defaults__": (["a"],),
        "collect.__kwdefaults__": {"seen": {"a": 1}},
        "count.n": 2,
        "add.__closure__": {"log": [5, 2], "total": 7},
        "A.method.__defaults__": ([1],),
        "A.static.__defaults__": ([2, 2],),
    }


def test_a_private_class_attribute_left_by_a_call_is_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "from collections import namedtuple\nfrom enum import Enum\n"
        "class Plug:\n    _all = {}\n    __made = 0\n    __slots__ = '_x',\n    def _f(self): pass\n"
        "    def __init_subclass__(cls): Plug._all[cls.__name__] = 1; Plug.__made += 1\n"
        "class Kind(Enum):\n    ONE = 1\n"
    )
    (tmp_path / "users_own.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    import users_own

    try:
        type("New", (users_own.Plug,), {})
        assert entered() == {"Plug._all": {"New": 1}, "Plug._Plug__made": 1}
    finally:
        del sys.modules["users_own"]


def test_an_attribute_left_in_a_metaclass_made_class_is_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "import abc, enum\n"
        "class Base(abc.ABC):\n    made = 0\n    kinds = []\n    _own = 1\n    size = property(len)\n"
        "    only = None\n"
        "    def __init__(self, held=[]): Base.made += 1; self.kinds.append(1); held.append(1)\n"
        "class Colour(enum.Enum):\n    RED = 1\n    @classmethod\n    def all(cls): return list(cls)\n"
    )
    (tmp_path / "users_own.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    import users_own

    try:
        users_own.Base.only = users_own.Base()
        assert entered() == {
            "Base.__init__.__defaults__": ([1],),
            "Base.made": 1,
            "Base.kinds": [1],
            "Base._own": 1,
            "Base.only": users_own.Base.only,
        }
        put(place_of("library users_own:Base.made"), 5)
        assert users_own.Base.made == 5
    finally:
        del sys.modules["users_own"]


def test_an_attribute_left_in_nested_classes_or_enum_members_is_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "from enum import Enum\n"
        "class Outer:\n    class Inner:\n        made = []\n    class Deep(Enum):\n        A = 1\n"
        "class State(Enum):\n    NEW = 'n'\n    FRESH = 'n'\n"
        "    def __init__(self, code): self.code, self.visits = code, 0\n"
        "    def visit(self): self.visits += 1\n"
    )
    (tmp_path / "users_own.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    import users_own

    try:
        users_own.State.NEW.visit()
        users_own.Outer.Deep.A.note = "x"
        users_own.Outer.Inner.made.append(1)
        left = entered()
        assert {end: value for end, value in left.items() if "FRESH" not in end} == {
            "Outer.Inner.made": [1],
            "Outer.Deep.A.note": "x",
            "State.NEW.code": "n",
            "State.NEW.visits": 1,
        }
        del sys.modules["users_own"]
        import users_own

        for end, value in left.items():
            put(place_of(f"library users_own:{end}"), value)
        assert users_own.State("n").visits == 1
        assert users_own.Outer.Inner.made == [1]
    finally:
        del sys.modules["users_own"]
