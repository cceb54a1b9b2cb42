"""A class that has something of its own under `__dict__`: its instances keep what they hold."""

from __future__ import annotations

import pytest

from tests.support.notebook import moved

SHOWN = (
    "asked = []\nclass Base: pass\n"
    "class Shown{below}:\n  {slots}\n  def __init__(self): self.x = [1]\n"
    "  @property\n  def __dict__(self):\n    asked.append(1)\n    return {{'x': 'shown'}}\n"
)


@pytest.mark.parametrize("below", ["", "(Base)", "(dict)", "(ValueError)"])
def test_attributes_of_an_instance_are_read_past_the_class(below: str) -> None:
    space = moved(
        f"{SHOWN.format(below=below, slots='pass')}one = Shown()",
        "one.x.append(2); kept = one.x; one.y = kept",
        "one.x.append(3)",
    )
    assert space["kept"] == [1, 2, 3]
    assert space["asked"] == []
    assert eval("(one.x is kept, one.y is kept, vars(one), asked)", space) == (
        True,
        True,
        {"x": "shown"},
        [1],
    )


def test_a_property_stands_for_the_dictionary_of_slots() -> None:
    space = moved(
        SHOWN.format(below="", slots="__slots__ = ('x', 'y')") + "one = Shown()",
        "kept = one.x",
        "kept.append(2)",
    )
    assert eval("(one.x is kept, kept, vars(one), hasattr(one, 'z'))", space) == (
        True,
        [1, 2],
        {"x": "shown"},
        False,
    )


def test_the_property_may_come_and_go_later() -> None:
    space = moved(
        "class Plain: pass\none = Plain(); one.x = [1]",
        "class Other(Plain):\n  __dict__ = {'of': 'the class'}\none.__class__ = Other",
        "one.x.append(2)",
    )
    assert eval("(one.x, one.__dict__, type(one) is Other)", space) == ([1, 2], {"of": "the class"}, True)
