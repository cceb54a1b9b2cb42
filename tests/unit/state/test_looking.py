"""Cells that only look at variables are told by their text."""

from __future__ import annotations

import pytest

from replkernel.state.analysis.looking import only_looks


@pytest.mark.parametrize(
    "source",
    [
        "df",
        "df.head()",
        "df[df.x > 3].describe();",
        "print(len(rows), type(model))",
        "rows[-1], total / 2\n",
        "# a look\nframe['a'].value_counts().head(3)",
        "f'{mean:.2f}'",
    ],
)
def test_naming_reading_and_showing_is_looking(source: str) -> None:
    assert only_looks(source)


@pytest.mark.parametrize(
    "source",
    [
        "",
        "x = df",
        "df.pop('a')",
        "rows.append(1)",
        "next(lines)",
        "%time df",
        "df?",
        "(y := 1)",
        "import os",
        "[n for n in lines]",
        "df.head(); rows.clear()",
        "print(next(lines))",
        "await wait",
        "(" * 5_000,
    ],
)
def test_whatever_may_change_something_is_not(source: str) -> None:
    assert not only_looks(source)
