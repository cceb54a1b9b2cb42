"""Patterns, matches and scanners after a move."""

from __future__ import annotations

import gc
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.notebook import pair


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


PATTERNS = ["a*", "a+", "(?<=b)a|c", "^a|b", "x*?", r"\b", "(a)(b)?", ".", "$", "a|(?=b)", ""]


@settings(max_examples=examples(150), deadline=None)
@given(
    st.sampled_from(PATTERNS),
    st.text("abc é\U0001f600", max_size=12),
    st.booleans(),
    st.integers(0, 5),
    st.integers(0, 14),
    st.integers(0, 8),
)
def test_a_search_part_way_goes_on_where_it_stood(
    pattern: str, text: str, in_bytes: bool, begin: int, end: int, taken: int
) -> None:
    found: list[object] = [pattern.encode(), text.encode()] if in_bytes else [pattern, text]
    one, two = pair()
    one.namespace.update(found=found, begin=begin, end=end, taken=taken)
    two.take(
        one.run(
            "import re\n"
            "it = re.compile(found[0]).finditer(found[1], begin, end)\n"
            "for _ in range(taken): next(it, None)",
            1,
        )
    )
    assert two.capture(2).components == ()
    assert [match.regs for match in two["it"]] == [match.regs for match in one["it"]]


def test_a_search_is_not_advanced_by_being_looked_at() -> None:
    one, _ = pair()
    one.run("import re\ntext = 'a b c'; it = re.finditer('[a-z]', text); m = next(it)", 1)
    for seq in range(2, 5):
        assert one.capture(seq).components == ()
    assert [match.group() for match in one["it"]] == ["b", "c"]


def test_a_search_in_memory_that_may_change_is_pinned() -> None:
    one, _ = pair()
    delta = one.run("import re\nheld = bytearray(b'a b'); it = re.finditer(b'[a-z]', held); m = next(it)", 1)
    assert [pin for component in delta.components for pin in component.pins] != []
