"""Which cases are played every time."""

from __future__ import annotations

from tests.support.breadth import some_of_each


def test_the_first_of_an_area_each_nth_and_what_says_so_are_played_every_time() -> None:
    cases = [f"a{number}" for number in range(6)] + ["b0", "b1"]
    marked = some_of_each(cases, lambda case: case[0], 3, lambda case: case == "a4")
    assert [case for case in marked if isinstance(case, str)] == ["a0", "a3", "a4", "b0"]
    assert len(marked) == len(cases)
