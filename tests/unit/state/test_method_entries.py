"""Bound methods that somebody keeps stay those of their class when something else of it changes."""

from __future__ import annotations

import pytest

from replkernel.state.python.functions import _readable
from tests.support.notebook import moved, pair

KEPT = (
    "import functools, weakref\n"
    "def counted(f):\n"
    "  @functools.wraps(f)\n"
    "  def inner(*a): inner.calls += 1; return f(*a)\n"
    "  inner.calls = 0\n"
    "  return inner\n"
    "class A:\n"
    "  def plain(self): return 'plain'\n"
    "  @classmethod\n"
    "  def of_class(cls): return cls.__name__\n"
    "  def above(self): return __class__\n"
    "  @counted\n"
    "  def wrapped(self): return 'wrapped'\n"
    "class B(A):\n"
    "  def plain(self): return super().plain() + '!'\n"
    "a, b = A(), B()\n"
    "kept = [a.plain, B.of_class, a.above, b.wrapped, b.plain, b.above]\n"
    "table = {method: place for place, method in enumerate(kept)}\n"
    "dying = weakref.WeakMethod(b.plain); function = A.plain\n"
)
NOW = "[a.plain, B.of_class, a.above, b.wrapped, b.plain, b.above]"


@pytest.mark.parametrize(
    "changes",
    [("A.more = 1", "B.more = [2]", "A.third = 3"), ("A.again = A.plain", "A.later = B.again", "B.x = 1")],
)
def test_a_kept_method_is_that_of_its_class(changes: tuple[str, ...]) -> None:
    space = moved(KEPT, *changes)
    assert eval(f"kept == {NOW}, [table[method] for method in {NOW}] == [*range(6)]", space) == (True, True)
    assert eval("dying() == b.plain, kept[0].__func__ is function is A.plain", space) == (True, True)
    assert eval("[method() for method in kept]", space) == [
        *("plain", "B", space["A"], "wrapped", "plain!", space["A"]),
    ]


def test_one_that_was_kept_before_its_function_was_replaced_stays_the_old_one() -> None:
    space = moved(
        KEPT,
        "A.extra = 1",
        "A.plain = lambda self: 'new'",
        "A.extra = 2",
        "A.before = function",
        "A.extra = 3",
    )
    assert eval("kept[0](), a.plain(), kept[0] == a.plain, kept[4](), a.before()", space) == (
        *("plain", "new", False, "new!", "plain"),
    )
    assert eval("kept[0].__func__ is function is A.before", space)


def test_a_function_that_changes_in_place_does_so_for_who_keeps_its_method() -> None:
    one, two = pair()
    two.take(one.run(KEPT, 1))
    held = two["kept"][0]
    two.take(one.run("A.plain.mark = [1]", 2))
    two.take(
        one.run("b.wrapped(); A.wrapped.mark = 1; A.plain.__code__ = (lambda self: 'other').__code__", 3)
    )
    assert held is two["kept"][0] or held == two["kept"][0]
    assert eval("kept[0](), kept[0].mark, kept[3].calls, kept[3].mark", two.namespace) == ("other", [1], 1, 1)


def test_this_python_is_understood() -> None:
    assert _readable()
