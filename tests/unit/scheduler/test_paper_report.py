"""How far off a figure is, as the paper suite tells it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.paper.bars import bars, courses, curves, spans
from tests.paper.load import most
from tests.paper.pages import PICTURES, PLACE, Kept, filled, pages
from tests.paper.report import Course, Curve, Row, number, table


def test_shares_differ_in_points_and_all_else_in_percent() -> None:
    assert Row("AO", "waits", 6.2, 6.26, "%").difference == "+0.1 pt"
    assert Row("AO", "makespan", 2000.0, 2050.0, "h").difference == "+2.5 %"
    assert Row("AO", "waits", 0.0, 0.25, "s").difference == "+0.25"
    assert Row("AO", "waits", None, 43.3, "%").difference == "-"


def test_the_table_has_a_line_for_each_row_with_its_reason() -> None:
    text = table([Row("AO", "makespan", 2138.0, 2139.5, "h", "a reason")])
    assert text.splitlines()[2] == "| AO | makespan (h) | 2,138 | 2,140 | +0.1 % | a reason |"


def test_the_pages_say_what_the_last_run_has_shown() -> None:
    for path, text in pages(Kept.read()).items():
        assert path.read_text() == text, f"{path.name}: run `make sim`, and look at what has changed"


def test_every_published_figure_stands_on_a_page() -> None:
    written = "".join(path.read_text() for path in PLACE.glob("*.md"))
    for rows in Kept.read().rows.values():
        for row in rows:
            if row.published is not None:
                told = (
                    f"{number(row.published)} {row.unit} | {number(row.ours)} {row.unit} | {row.difference}"
                )
                assert f"| {told.replace('-', '−')} |" in written, row.what


def test_a_mark_chooses_its_rows_and_the_rest_of_a_page_is_left_alone() -> None:
    rows = [
        Row("AO", "set 1, a: makespan", 2.0, 1.0, "h", "x"),
        Row("AO", "set 2, a: makespan", None, 1.0, "h"),
    ]
    page = 'A\n<!-- figures: ao "set 1" "makespan" -->\nold\n<!-- end of figures -->\nB\n'
    made = filled(page, Kept({"ao": rows}, {}))
    assert "| a: makespan | 2 h | 1 h | −50.0 % | x |" in made.replace("set 1", "")
    assert "old" not in made and made.startswith("A\n") and made.endswith("\nB\n")
    assert filled(made, Kept({"ao": rows}, {})) == made
    assert filled(page, Kept({}, {})) == page


def test_kept_figures_are_compared_to_the_digits_that_pages_show() -> None:
    kept = Kept({"ao": [Row("AO", "a", None, 1234.0, "h"), Row("AO", "b", None, 1.0, "h")]}, {})
    assert kept.differing([Row("AO", "a", None, 1234.4, "h")]) == []
    assert len(kept.differing([Row("AO", "b", None, 1.1, "h"), Row("AO", "c", None, 1.0, "h")])) == 2


def test_pictures_are_well_formed_and_say_their_figures_in_words() -> None:
    drawn = bars("A & B", "h", ("published", "ours"), {"<x>": [2.0, 1.0], "y": [None, 3.0]})
    ElementTree.fromstring(drawn)
    assert "published 2 h, ours 1 h" in drawn and drawn.count("<rect") == 1 + 2 + 3
    curve = Curve("N", "x", tuple(float(value + 1) for value in range(201))).kept["quantiles"]
    assert (len(curve), curve[0], curve[50], curve[-1]) == (101, 1.0, 101.0, 201.0)
    drawn = curves("S", "x", {"one & all": curve, "other": [0.0, 1.0, 5.0]}, least_share=50)
    ElementTree.fromstring(drawn)
    assert "one &amp; all: half up to 101 x, all up to 201 x" in drawn and "100 %</text>" in drawn
    line = Course("N", "x", 60.0, tuple(map(float, range(300)))).kept
    assert line["step_s"] == 180.0 and len(line["values"]) == 100
    drawn = courses("G", "GPUs", 180.0, {"x": line["values"]})
    ElementTree.fromstring(drawn)
    assert all(f">{tick}</text>" in drawn for tick in (0, 80, 160, 240, 320)), "up to 298: in round numbers"


def test_spans_are_as_high_as_they_are_long_apart_in_words_and_on_paper() -> None:
    drawn = spans("S", "GPUs", 10.0, 4, {"one: job 1": [0.0, 4.0, 4.0, 0.0, 2.0], "one: job 2": [0.0] * 5})
    ElementTree.fromstring(drawn)
    assert "one: job 1: 4 GPUs from 10 to 30 s, 2 GPUs from 40 to 50 s; one: job 2: </desc>" in drawn
    assert 'height="30.0"' in drawn and 'height="15.0"' in drawn


SERIES = {
    "notebookos-gpus": ("Reservation", "NotebookOS", "cells that run"),
    "notebookos-june-gpus": ("Reservation", "NotebookOS", "cells that run"),
    "notebookos-june-money": tuple(
        f"{policy}: {what}" for policy in ("Reservation", "NotebookOS") for what in ("cost", "revenue")
    ),
    "quarter-load": ("sessions open", "cells that run"),
    "quarter-gpus": ("Reservation", "NotebookOS", "cells that run"),
    "quarter-money": tuple(
        f"{policy}: {what}" for policy in ("Reservation", "NotebookOS") for what in ("cost", "revenue")
    ),
    "load-sessions": ("sessions open", "cells that run"),
    "load-june": ("sessions open", "cells that run"),
    "load-times": ("run times", "from a cell to the next", "thinking", "run times, Philly"),
    "load-duty": ("share of its life that a session computes",),
    "load-saved": ("ours, June",),
    "sidecar-case-gpus": tuple(
        f"{way}: job {job}" for way in ("default", "termination", "SideCar") for job in (1, 2)
    ),
    "sidecar-less": ("published, mean of four workloads", "ours, mean of ten seeds"),
    "sidecar-pending": ("default", "termination", "SideCar"),
    "sidecar-stopped": ("published, mean of four workloads", "ours, mean of ten seeds"),
    "oversubscription-slowdowns": ("SQ, M = 1", "SQ, M = 2", "SQ, M = 4", "MQ, R = 2 %"),
}
"""What each figure of a paper shows: the lines, bars or rows that must stand in it by name."""


@pytest.mark.parametrize("name", SERIES)
def test_a_figure_of_a_paper_has_its_series(name: str) -> None:
    drawn = PICTURES[name](Kept.read())
    words = [element.text for element in ElementTree.fromstring(drawn).iter() if element.tag.endswith("text")]
    assert not set(SERIES[name]) - set(words)


def test_most_at_a_time_worked_by_hand() -> None:
    assert most([(0.0, 10.0), (5.0, 20.0), (10.0, 15.0), (12.0, 13.0)]) == 3, "who ends at 10 is not there"
