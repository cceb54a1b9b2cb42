"""The names of a namespace: whatever is done to it, a look finds what asking of each name would."""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replkernel.kernel.own_names import OwnNames
from replkernel.state.names import MANY, OF_COMPILERS, Names, UserNames, entries, identities

NAMES = ["a", "b", "_i1", "_i2", "_i3", "_i4", "__compiled_fn_1", "c"]
STEPS = st.lists(
    st.tuples(st.sampled_from(["bind", "delete", "clear", "source", "turn"]), st.sampled_from(NAMES))
)


class OddText(str):
    """A child of text, as a key of the namespace."""

    __slots__ = ()


def test_identities_are_those_of_the_objects() -> None:
    things = (object(), "text", 5)
    assert identities(things) == b"".join(identities((thing,)) for thing in things)
    assert identities((object(), *things[1:])) != identities(things)


def test_an_epoch_lasts_as_long_as_names_only_come() -> None:
    space: dict[Any, Any] = {"a": 1}
    names = Names(space)
    assert names.look() == ["a"]
    space["b"] = 2
    space["a"] = 3
    assert names.look() == ["a", "b"]
    assert names.epoch == 0
    del space["a"]
    space["a"] = 1
    assert names.look() == ["b", "a"]
    assert names.epoch == 1


def test_a_key_that_is_no_plain_text_is_noticed_and_forgotten() -> None:
    space: dict[Any, Any] = {"a": 1}
    names = Names(space)
    names.look()
    assert names.plain
    space[OddText("b")] = 2
    names.look()
    assert not names.plain
    del space["b"]
    names.look()
    assert names.plain


def test_a_table_has_what_the_dictionary_has() -> None:
    space: dict[Any, Any] = {f"name {number}": object() for number in range(1_000)}
    for name in ("name 0", "name 500", "name 999"):
        del space[name]
    space["name 500"] = object()
    assert entries(space) == b"".join(identities(item) for item in space.items())


@pytest.mark.parametrize("count", [3, 2 * MANY])
@pytest.mark.parametrize("ask", [Names.look, Names.glance])
def test_names_that_come_while_they_are_looked_at_disturb_nobody(
    ask: Callable[[Names], list[Any]], count: int
) -> None:
    space: dict[Any, Any] = {f"name {number}": number for number in range(count)}
    names = Names(space)
    names.look()
    threshold = gc.get_threshold()

    def come(phase: str, _: dict[str, int]) -> None:
        space[f"late {len(space)}"] = space.pop("late", None)

    gc.callbacks.append(come)
    gc.set_threshold(1)
    try:
        for number in range(20):
            space[f"new {number}"] = space["late"] = number
            ask(names)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(come)
    assert names.look() == list(space)


def test_a_dictionary_that_cannot_be_read_has_no_table() -> None:
    assert entries({"a": 1, 2: 3}) is None
    assert entries(OrderedDict(a=1)) is None
    assert entries(SimpleNamespace(a=1).__dict__) in (None, identities(("a", 1)))


def test_many_names_are_read_only_where_they_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    space: dict[Any, Any] = {f"name {number}": number for number in range(2 * MANY)}
    names = Names(space)
    names.look(), names.look(), names.rebound()
    looked_at_each: list[int] = []
    monkeypatch.setattr(Names, "_look_at_each", lambda self: looked_at_each.append(1))
    space["name 7"] = space["new"] = object()
    assert names.look() == list(space)
    assert names.rebound() == {7}
    assert not looked_at_each


@pytest.fixture(params=[MANY, 0], ids=["each", "the table"])
def _few_are_many(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replkernel.state.names.MANY", request.param)


@pytest.mark.usefixtures("_few_are_many")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_the_users_names_are_those_of_asking_each_anew(steps: list[tuple[str, str]]) -> None:
    space: dict[Any, Any] = {}
    inputs: dict[str, str] = {}
    history: Any = SimpleNamespace(
        input_names=inputs, recent_inputs=lambda: {"_i": "", "_ii": "", "_iii": ""}
    )
    names = Names(space)
    own = OwnNames(names, history)
    user = UserNames(names, own)
    for step, name in steps:
        if step == "bind":
            space[name] = object()
        elif step == "delete":
            space.pop(name, None)
        elif step == "clear":
            space.clear()
        elif step == "source" and name.startswith("_i"):
            space[name] = inputs[name] = f"source {len(space)}"
        elif step == "turn":
            items = list(space.items())
            space.clear()
            space.update(reversed(items))
        own.refresh()
        ours = {key for key, value in inputs.items() if space.get(key) is value}
        assert {key for key in own if key in space} == ours
        expected = [key for key in space if key not in ours and not key.startswith(OF_COMPILERS)]
        assert user.now() == expected
