"""What `make slowest` writes into the tests' README."""

from __future__ import annotations

import json

import pytest

from tests.slowest import BEGIN, END, README, between, read, short

TESTS = [
    {"test": "tests/unit/a/test_b.py::test_c", "setup": 1, "call": 2, "teardown": 1, "cpu": 3, "slept": 0.6},
    {"test": "tests/unit/test_d.py::test_e", "call": 4, "cpu": 0.4, "processes": 2},
    {"test": "tests/e2e/test_f.py::test_g", "call": 1, "cpu": 1234.5, "processes": 1},
]
RUN = json.dumps({"date": "2026-11-30", "commit": "0123abcd", "cores": 2, "tests": TESTS})
WRITTEN = """\
`make slowest` of 2026-11-30 at `0123abcd`, on 2 cores:

| folder | tests | CPU s | processes started | slept s | set-up and tear-down, of the wall |
| --- | ---: | ---: | ---: | ---: | ---: |
| `e2e` | 1 | 1,234 | 1 | 0 | 0 % |
| `unit` | 2 | 3 | 2 | 1 | 25 % |
| all | 3 | 1,238 | 3 | 1 | 22 % |"""


def test_the_table_adds_up_folders_and_names_its_run() -> None:
    assert short(read(RUN)) == WRITTEN


def test_what_is_between_the_markers_is_replaced_and_nothing_else() -> None:
    once = between(f"# Tests\n\n{BEGIN}\n\nolder\n\n{END}\n\nmore\n", WRITTEN)
    assert once == f"# Tests\n\n{BEGIN}\n\n{WRITTEN}\n\n{END}\n\nmore\n"
    assert between(once, WRITTEN) == once


@pytest.mark.parametrize("document", ["", BEGIN, END, f"{END}\n{BEGIN}"])
def test_a_document_without_the_markers_is_refused(document: str) -> None:
    with pytest.raises(ValueError, match="markers"):
        between(document, WRITTEN)


def test_the_readme_has_the_markers() -> None:
    assert WRITTEN in between(README.read_text(), WRITTEN)
