"""Patterns, matches and scanners after a move."""

from __future__ import annotations

import gc
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from notebook import pair


def test_a_scanner_goes_on_with_the_functions_of_the_notebook() -> None:
    one, two = pair()
    two.take(
        one.run(
            "import re\nseen = []\ndef number(s, t): seen.append(t); return int(t)\n"
            "rules = [('[0-9]+', number), ('A', lambda s, t: t), (' ', None)]; s = re.Scanner(rules, re.I)",
            1,
        )
    )
    one.take(two.run("first = s.scan('12 a')", 2))
    one.run("second = s.scan('3!')", 3)
    assert one["first"] == ([12, "a"], "")
    assert one["second"] == ([3], "!")
    assert one["seen"] == ["12", "3"]
    assert one["s"].lexicon is one["rules"]


def test_a_pattern_of_several_components_is_one_object() -> None:
    one, two = pair()
    two.take(one.run("import re\np = re.compile('[ab]+', re.I); q = re.compile('(?i)c')", 1))
    one.take(two.run("held = [p, q]; found = p.match('ab'); again = re.compile('[ab]+', re.I)", 2))
    for here in (one, two):
        assert here["held"][0] is here["p"] is here["found"].re is here["again"]
        assert here["held"][1] is here["q"] is re.compile("(?i)c")


def test_a_pattern_that_was_compiled_to_be_debugged_prints_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, two = pair()
    delta = one.run("import re\np = re.compile('only for debugging', re.DEBUG)", 1)
    del one
    gc.collect()
    capsys.readouterr()
    two.take(delta)
    assert two["p"].flags & 128
    assert capsys.readouterr().out == ""
