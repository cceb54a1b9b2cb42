"""Patterns, matches and scanners after a move."""

from __future__ import annotations

import sys
from pathlib import Path

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
