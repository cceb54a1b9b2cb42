"""Which variables are one and the same immutable object, there as here."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from replkernel.state.process.same_values import SameValuesPart

TEXT = "some text of the notebook"


def _copied(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def _moved(here: dict[str, Any], there: dict[str, Any]) -> SameValuesPart:
    """Tell what is shared `here` to a process that has the same values, each for itself."""
    part = SameValuesPart(notebook := {})
    notebook.update(here)
    data = part.dump()
    assert data is not None
    other = SameValuesPart(there)
    other.load(data)
    assert other.dump() == data
    other.settle()
    return other


@pytest.mark.parametrize("value", [TEXT, b"bytes", 10**20, 2.5, -0.0, 1j, (1, (TEXT, 2.5))])
def test_two_names_of_one_object_stay_so(value: Any) -> None:
    there = {name: _copied(value) for name in ("a", "b", "c")}
    part = _moved({"a": value, "b": value, "c": _copied(value)}, there)
    assert there["a"] is there["b"]
    assert there["a"] is not there["c"]
    assert repr(there["c"]) == repr(value)
    assert part.dump() is not None


def test_values_shared_no_more_are_parted() -> None:
    there = dict.fromkeys(("a", "b"), TEXT)
    number = 2.5
    _moved({"a": TEXT, "b": _copied(TEXT), "c": number, "d": number}, there)
    assert there["a"] == there["b"]
    assert there["a"] is not there["b"]


def test_names_that_get_another_object_together_stay_one() -> None:
    there = {"a": _copied(TEXT), "b": _copied(TEXT)}
    part = _moved({"a": TEXT, "b": TEXT}, there)
    there.update(a=_copied("another text"), b=_copied("another text"))
    part.settle()
    assert there["a"] is there["b"]


def test_other_values_are_left_alone() -> None:
    there: dict[str, Any] = {"a": 1.0, "b": 1, "c": (1, 2), "d": (1.0, 2)}
    before = dict(there)
    number, pair = 1000.5, (7, 8)
    _moved({"a": number, "b": number, "c": pair, "d": pair}, there)
    assert all(there[name] is value for name, value in before.items())


def test_a_name_that_is_not_bound_yet_stays_in_its_group() -> None:
    there = {"a": _copied(TEXT), "b": _copied(TEXT)}
    part = _moved({"a": TEXT, "b": TEXT, "c": TEXT}, there)
    told = part.dump()
    there["c"] = _copied(TEXT)
    assert part.dump() == told
    assert there["c"] is there["a"]


def test_nothing_is_said_of_what_python_has_once() -> None:
    part = SameValuesPart(names := {})
    names.update({"i": 0, "j": 0, "s": "", "t": "", "u": (), "v": (), "n": None, "m": None})
    assert part.dump() is None


def test_objects_that_the_notebook_made_are_not_compared() -> None:
    class Loud:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        __hash__ = None  # type: ignore[assignment]

    held = (Loud(), 1)
    part = SameValuesPart(names := {})
    names.update({"a": held, "b": held})
    assert part.dump() is None
    there: dict[str, Any] = {"a": (Loud(), 1), "b": (Loud(), 1)}
    other = SameValuesPart(there)
    shared = SameValuesPart(texts := {})
    texts.update({"a": TEXT, "b": TEXT})
    other.load(shared.dump() or b"")
    other.settle()
    assert not other.trouble
    assert there["a"] is not there["b"]


def test_bytes_that_are_no_groups_of_names_are_refused() -> None:
    part = SameValuesPart({})
    part.load(b"\x05")
    part.settle()
    assert "groups of names" in part.trouble


def test_names_that_came_unseen_in_place_of_others_are_parted_too() -> None:
    part = SameValuesPart(there := {})
    there.update(old=1.5, last=2.5)
    part.dump()
    there.clear()
    there.update(new=TEXT, last=TEXT)
    here = SameValuesPart(notebook := {})
    notebook.update(dict.fromkeys(("a", "b"), 2.5), new=TEXT, last=_copied(TEXT))
    data = here.dump()
    assert data is not None
    part.load(data)
    part.settle()
    assert there["new"] is not there["last"]
