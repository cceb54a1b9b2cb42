"""The tests' own files: their names say what is tested, and nothing of their support is left over."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
SUBJECT = re.compile(r"test_(?!(?:it|they|works)_)[a-z0-9]+_\w+")
"""Somebody or something, and what is expected of it."""
BY_NAME = ("standin/", "faulty/", "lighter/")
"""Where what stands in for a program or a library has the names by which that is called."""


def test_a_test_says_its_subject_and_what_is_expected_of_it() -> None:
    unclear = [
        f"tests/{path.relative_to(TESTS)}:{line}: {name}"
        for path in sorted(TESTS.rglob("test_*.py"))
        for line, name in _tests(path.read_text())
        if not SUBJECT.fullmatch(name)
    ]
    assert not unclear, "name it for its subject and what it does, as in tests/README.md:\n" + "\n".join(
        unclear
    )


@pytest.mark.parametrize("name", ["test_it_waits", "test_they_take_turns", "test_works_well", "test_locks"])
def test_names_that_say_no_subject_are_found(name: str) -> None:
    assert not SUBJECT.fullmatch(name)
    assert SUBJECT.fullmatch("test_items_arrive")


def test_helpers_of_the_support_are_used_somewhere() -> None:
    words: Counter[str] = Counter()
    for path in TESTS.rglob("*.py"):
        words.update(re.findall(r"\w+", path.read_text()))
    left = [
        f"tests/support/{path.relative_to(TESTS / 'support')}:{node.lineno}: {node.name}"
        for path in sorted((TESTS / "support").rglob("*.py"))
        if not str(path.relative_to(TESTS / "support")).startswith(BY_NAME)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and words[node.name] < 2
        and not node.name.startswith("pytest_")
    ]
    assert not left, "nobody uses it any more:\n" + "\n".join(left)


def _tests(text: str) -> Iterator[tuple[int, str]]:
    """Yield the names of a file's tests, with their lines; those of texts in it are passed over."""
    if all(SUBJECT.fullmatch(name) for name in re.findall(r"def (test_\w*)", text)):
        return  # To parse all files takes seconds.
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.lineno, node.name
