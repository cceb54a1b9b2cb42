"""A variable for which the store has no room is held back by name, and nothing else is held back with it."""

from __future__ import annotations

from replkernel.records import Delta, Fence, Seq
from tests.support.notebook import Notebook, changed

BIG = "big = bytearray(300_000)"


class Shelf:
    """A store that takes so many bytes at a time."""

    def __init__(self, free: int) -> None:
        self.free = free

    def refuses(self, size: int) -> str:
        return "" if size <= self.free else "the shelf has no room left for it"

    def promise(self, size: int) -> None:
        """Take note of nothing."""


def pair(free: int) -> tuple[Notebook, Notebook, Shelf]:
    chunks: dict[str, bytes] = {}
    shelf = Shelf(free)
    return Notebook("r1", chunks, room=shelf), Notebook("r2", chunks), shelf


def held(delta: Delta) -> list[str]:
    return [left.name for left in delta.unaudited if left.held]


def test_a_variable_that_does_not_fit_is_held_by_name_and_the_rest_is_told() -> None:
    one, other, _ = pair(200_000)
    delta = one.run(f"{BIG}; fits = bytes(100_000); n = 1", 1)
    assert changed(delta) == ["fits", "n"]
    assert held(delta) == ["big"]
    assert not delta.owing
    assert [(pin.name, pin.replica, pin.reason) for pin in delta.pins] == [
        ("big", "r1", "the shelf has no room left for it.")
    ]
    other.take(delta)
    assert other["n"] == 1
    assert len(other["fits"]) == 100_000
    assert "big" not in other


def test_a_held_variable_is_told_once_and_later_cells_are_whole_without_it() -> None:
    one, _, _ = pair(200_000)
    one.run(BIG, 1)
    assert one.state.unstored.news == {"big"}
    (sentence,) = one.state.unstored.told
    assert sentence.startswith("`big` (0.3 MiB) is on this replica alone for now: the shelf has no room left")
    assert sentence.endswith("everything else is durable without it.")
    later = one.run("n = 2", 2)
    assert changed(later) == ["n"]
    assert held(later) == ["big"]
    assert not later.owing
    assert not one.state.unstored.news
    assert one.state.unstored.told == [sentence]


def test_a_change_of_it_is_news_though_it_is_not_told_again() -> None:
    one, _, _ = pair(200_000)
    one.run(BIG, 1)
    one.run("big[7] = 1", 2)
    assert one.state.unstored.news == {"big"}
    assert len(one.state.unstored.told) == 1


def test_with_room_it_is_stored_and_everybody_has_it() -> None:
    one, other, shelf = pair(200_000)
    first = one.run(f"{BIG}; n = 1", 1)
    assert not one.state.unstored.fits()
    shelf.free = 400_000
    assert one.state.unstored.fits()
    second = one.run("n = 2", 2)
    assert changed(second) == ["big", "n"]
    assert second.unaudited == ()
    assert second.pins == ()
    assert one.state.unstored.told[-1].startswith("There is room for `big`")
    other.take(first, second)
    assert other["big"] == one["big"]


def test_the_value_before_stays_until_then() -> None:
    one, other, _ = pair(200_000)
    first = one.run("big = bytearray(1000); keep = [big]", 1)
    second = one.run("big.extend(bytes(300_000)); n = 1", 2)
    assert changed(second) == ["n"]
    assert sorted((left.name, left.cell) for left in second.unaudited) == [("big", 1), ("keep", 1)]
    other.take(first, second)
    (said,) = one.state.unstored.told[:1]
    assert said.endswith("until then a crash takes the notebook back to cell 1.")
    assert len(other["big"]) == 1000
    assert other["keep"][0] is other["big"]


def test_variables_joined_with_a_held_one_are_held_and_its_class_is_told() -> None:
    one, other, _ = pair(200_000)
    delta = one.run("class A: pass\na = A(); a.big = bytearray(300_000); b = [a]; n = 1", 1)
    assert changed(delta) == ["A", "n"]
    assert {"a", "b"} <= set(held(delta))
    assert [sentence.split()[0] for sentence in one.state.unstored.told] == ["`a`", "`b`"]
    assert set(one.state.unstored.variables()) == {"a", "b"}
    other.take(delta)
    assert other["n"] == 1


def test_deleting_it_ends_the_matter() -> None:
    one, _, _ = pair(200_000)
    one.run(BIG, 1)
    delta = one.run("del big", 2)
    assert delta.unaudited == ()
    assert delta.pins == ()
    assert not one.state.unstored.held
    assert len(one.state.unstored.told) == 1


def test_a_piece_of_a_large_one_needs_room_for_the_piece_alone() -> None:
    one, _, shelf = pair(20 << 20)
    one.run("import random; big = bytearray(random.Random(1).randbytes(12 << 20))", 1)
    shelf.free = 9 << 20  # Bytes are cut by content: a change may move cuts nearby.
    assert changed(one.run("big[5 << 20] = 1", 2)) == ["big"]
    assert held(one.run("big[:] = big[::-1]", 3)) == ["big"]


def test_a_value_that_was_left_behind_stays_until_then_as_well() -> None:
    chunks: dict[str, bytes] = {}
    one, other = Notebook("r1", chunks), Notebook("r2", chunks, room=Shelf(200_000))
    other.state.receive(one.run("big = bytearray(100_000); n = 1", 1))
    other.state.rebuild(everything=False, fetch=lambda refs: None, wanted=frozenset())
    assert "big" in other.state.left_behind
    delta = other.run("big = bytearray(300_000); n = 2", 2)
    assert [(left.name, left.cell, left.held) for left in delta.unaudited] == [("big", 1, True)]
    assert not delta.whole


def test_a_value_that_comes_late_under_the_name_of_one_held_changes_nothing() -> None:
    chunks: dict[str, bytes] = {}
    one, other = Notebook("r1", chunks), Notebook("r2", chunks, room=Shelf(200_000))
    other.state.receive(one.run("big = bytearray(100_000); n = 1", 1))
    other.state.rebuild(everything=False, fetch=lambda refs: None, wanted=frozenset())
    other.namespace["big"] = bytearray(300_000)
    other.take(everything=True)
    assert len(other["big"]) == 300_000
    assert not other.run("n = 2", 2).whole


def test_a_variable_held_before_the_first_cell_stays_as_well() -> None:
    one, _, _ = pair(200_000)
    exec("big = bytearray(1000); n = 1", one.namespace)
    one.state.capture(Seq(1), Fence(1), 0)
    delta = one.run("big.extend(bytes(300_000)); n = 2", 2)
    assert held(delta) == ["big"]
    assert not delta.whole


def test_another_name_for_what_the_store_has_needs_no_room() -> None:
    one, other, shelf = pair(400_000)
    first = one.run("big = bytearray(300_000)", 1)
    shelf.free = 1000
    second = one.run("renamed = big; del big", 2)
    assert changed(second) == ["renamed"]
    other.take(first, second)
    assert len(other["renamed"]) == 300_000
