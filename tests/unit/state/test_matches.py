"""Patterns, matches and scanners after a move."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replkernel.state.capture.contexts import UnitNotes
from replkernel.state.python.regex import find, reduce_match
from replkernel.state.restore.loading import Load, active
from tests.support.examples import examples
from tests.support.notebook import moved, pair


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


class Counted:
    """A pattern that says what it was asked, and how many matches its searches have found."""

    def __init__(self, text: str) -> None:
        self.pattern = re.compile(text)
        self.asked: list[str] = []
        self.found = 0

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self.pattern, name)

    def finditer(self, *place: Any) -> Iterator[re.Match[str]]:
        self.asked.append("finditer")
        for match in self.pattern.finditer(*place):
            self.found += 1
            yield match

    def as_its_own(self, match: re.Match[str]) -> Any:
        """Return what looks like a match of this pattern."""
        return SimpleNamespace(
            re=self, string=match.string, pos=match.pos, endpos=match.endpos, regs=match.regs
        )


@pytest.mark.parametrize("order", [1, -1])
def test_all_matches_of_a_text_are_found_again_by_one_search(order: int) -> None:
    counted, text = Counted(r"\w+"), ". " + "word " * 200
    matches = list(re.finditer(r"\w+", text))[::order]
    context: Any = SimpleNamespace(notes=UnitNotes())
    told: list[Any] = [reduce_match(context, counted.as_its_own(match)) for match in matches]
    assert counted.found <= 200
    assert [arguments[4:] for _, arguments in told][::order] == [
        ("search", 0),
        *(("finditer", index) for index in range(1, 200)),
    ]
    counted.found = 0
    with active(Load(*[None] * 4)):  # type: ignore[arg-type]
        made = [find(*arguments) for _, arguments in told]
        twice = find(*told[5][1])
    assert [match.span() for match in made] == [match.span() for match in matches]
    assert counted.found <= 400
    assert twice.span() == made[5].span() and twice is not made[5]


@pytest.mark.parametrize(
    ("call", "tried"),
    [
        ("list(pattern.finditer('aa, b!'))[-1]", ["finditer"]),
        ("pattern.search('?aa,')", ["finditer"]),
        ("pattern.search('aa, b')", ["match"]),
        ("pattern.match('aa, b')", ["match"]),
        ("pattern.fullmatch('aa,!')", ["match", "fullmatch"]),
    ],
)
def test_no_call_is_tried_that_goes_back_where_the_notebooks_did_not(call: str, tried: list[str]) -> None:
    text = r"(\w+\s?)+?[.,!]+?"
    counted = Counted(text)
    match = eval(call, {"pattern": re.compile(text)})
    context: Any = SimpleNamespace(notes=UnitNotes())
    reduced: Any = reduce_match(context, counted.as_its_own(match))
    assert counted.asked == tried
    with active(Load(*[None] * 4)):  # type: ignore[arg-type]
        assert find(*reduced[1]).regs == match.regs


def test_a_match_whose_pattern_would_try_every_split_of_the_text_arrives() -> None:
    space = moved(
        "import re\nfor m in re.finditer(r'(\\w+\\s?)+[.,!]+', 'a' * 60 + ', bb!.'): pass",
        "again = 1",
        "more = 2",
    )
    assert eval("m.span(), m.group(1)", space) == ((62, 66), "bb")


def test_matches_of_several_texts_and_searches_arrive_as_they_were() -> None:
    space = moved(
        "import re\ntexts = ['a b', 'b a', 'a b']; rows = [list(re.finditer(r'\\w|', t)) for t in texts]\n"
        "back = list(re.finditer('b|', 'abab'))[::-1]; p = re.compile('b')\n"
        "part = list(p.finditer('abbb', 2, 3)); same = rows[0][1]\n"
        "other = list(re.finditer(r'\\w|', texts[0]))",
        "again = 1",
        "more = 2",
    )
    spans = [[match.span() for match in re.finditer(r"\w|", text)] for text in ("a b", "b a", "a b")]
    assert eval("[[m.span() for m in row] for row in rows]", space) == spans
    assert eval("[m.span() for m in back]", space) == [m.span() for m in re.finditer("b|", "abab")][::-1]
    assert eval("[(m.span(), m.pos, m.endpos) for m in part]", space) == [((2, 3), 2, 3)]
    assert space["same"] is eval("rows[0][1]", space)
    assert not {*map(id, eval("rows[0]", space))} & {*map(id, eval("other", space))}
