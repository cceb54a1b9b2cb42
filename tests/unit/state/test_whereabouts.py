"""Where an object sits is told as a user would write it, and whether it is still there."""

from __future__ import annotations

import csv
import functools
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from replkernel.state.capture.whereabouts import VISITED_MAX, Whereabouts


class Thing:
    """Has attributes."""


class Slotted:
    """Has slots."""

    __slots__ = ("empty", "held")

    def __init__(self, held: object) -> None:
        self.held = held


def closure(held: object) -> Callable[[], object]:
    """Return a function whose closure holds something."""
    if held is None:
        unset = held
    return lambda: (held, unset)


def thing(**attributes: object) -> Thing:
    """Return an instance with attributes."""
    made = Thing()
    vars(made).update(attributes)
    return made


WANTED = object()
HOLDERS: dict[str, Any] = {
    "h": WANTED,
    "h.parts['k'][1][0]": thing(parts={"k": [1, (WANTED,)]}),
    "h[2]": deque([1, 2, WANTED]),
    "h.held[0]": Slotted([WANTED]),
    "h.__closure__['held']": closure(WANTED),
    "h.__closure__['held'][1]": closure([1, WANTED]),
    "h.args[0]": functools.partial(print, WANTED),
    "h.keywords['end']": functools.partial(print, end=WANTED),
    'h["it\'s"]': {"it's": WANTED},
    "h[-3]": {-3: WANTED},
    "h{…}": {1, WANTED},
    "h[…]": {(1, 2): WANTED},
}


@pytest.mark.parametrize("path", HOLDERS)
def test_the_way_to_an_object_is_named(path: str) -> None:
    places = Whereabouts({"a": [1], "h": HOLDERS[path]})
    name, found = places.of(WANTED) or ("", "")
    assert name == "h"
    assert found == ("" if path == "h" else path)
    assert places.still(name, found, WANTED)
    assert not Whereabouts({"a": [1]}).still(name, found, WANTED)


HIDDEN: dict[str, Any] = {
    "h.…": csv.reader(LINES := iter(["a,b"])),
    "h.reader.…": csv.DictReader(LINES, ["a", "b"]),
    "h['k'][1].…": {"k": [0, csv.reader(LINES)]},
}


@pytest.mark.parametrize("path", HIDDEN)
def test_an_object_that_no_walk_reaches_is_told_as_within_its_holder(path: str) -> None:
    places = Whereabouts({"a": [1], "h": HIDDEN[path]})
    assert places.of(LINES) is None
    assert places.within(LINES) == ("h", path)
    assert places.within(WANTED) is None
    assert places.still("h", path, LINES)
    assert not places.still("h", path, WANTED)
    assert not Whereabouts({"h": [1], "a": HIDDEN[path]}).still("h", path, LINES)


def test_defaults_are_ways_too() -> None:
    def function(one: object = WANTED, *, two: object = ()) -> tuple[object, object]:
        return one, two

    assert Whereabouts({"f": function}).of(WANTED) == ("f", "f.__defaults__[0]")


def test_members_of_an_array_of_objects_are_named_by_their_place() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.full((2, 3), None, dtype=object)
    array[1, 2] = WANTED
    places = Whereabouts({"a": array})
    assert places.of(WANTED) == ("a", "a[1, 2]")
    assert places.still("a", "a[1, 2]", WANTED)
    array[1, 2] = None
    assert not places.still("a", "a[1, 2]", WANTED)


def test_an_object_that_moved_is_not_where_it_was() -> None:
    moved = [0, WANTED]
    places = Whereabouts({"l": moved})
    assert places.still("l", "l[1]", WANTED)
    moved.reverse()
    assert not places.still("l", "l[1]", WANTED)
    moved.clear()
    assert not places.still("l", "l[1]", WANTED)


def test_a_definition_is_looked_into() -> None:
    assert Whereabouts({"C": type("C", (), {"held": [WANTED]})}).of(WANTED) == ("C", "C.held[0]")


def test_cycles_and_large_holders_end() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    assert Whereabouts({"c": cycle}).of(WANTED) is None
    assert Whereabouts({"c": [[] for _ in range(VISITED_MAX)] + [WANTED]}).of(WANTED) is None


def test_looking_asks_no_class_of_the_users() -> None:
    class Asked:
        def __getattr__(self, name: str) -> object:
            raise AssertionError(name)

        def __iter__(self) -> object:
            raise AssertionError

    held = Asked()
    vars(held)["x"] = WANTED
    assert Whereabouts({"a": held}).of(WANTED) == ("a", "a.x")
