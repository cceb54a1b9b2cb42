"""How far off a figure is, as the paper suite tells it."""

from __future__ import annotations

from tests.paper.report import Row, table


def test_shares_differ_in_points_and_all_else_in_percent() -> None:
    assert Row("AO", "waits", 6.2, 6.26, "%").difference == "+0.1 pt"
    assert Row("AO", "makespan", 2000.0, 2050.0, "h").difference == "+2.5 %"
    assert Row("AO", "waits", 0.0, 0.25, "s").difference == "+0.25"
    assert Row("AO", "waits", None, 43.3, "%").difference == "-"


def test_the_table_has_a_line_for_each_row_with_its_reason() -> None:
    text = table([Row("AO", "makespan", 2138.0, 2139.5, "h", "a reason")])
    assert text.splitlines()[2] == "| AO | makespan (h) | 2,138 | 2,140 | +0.1 % | a reason |"
