"""Cases that repeat for breadth: some are played every time, all of them by `make nightly`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

SHORT_EVERY = 20
"""One of so many notebooks that bare processes play every time is played in kernels as well."""


def each_fifth(cases: Iterable[Any]) -> list[Any]:
    """Return the cases as parameters, all but each fifth marked as slow."""
    return each_nth(cases, 5)


def each_nth(cases: Iterable[Any], every: int, first: int = 0) -> list[Any]:
    """Return the cases as parameters, all but each one of `every`, beginning with `first`, marked as slow."""
    return [case if number % every == first else _rarely(case) for number, case in enumerate(cases)]


def some_of_each(
    cases: Iterable[Any], area: Callable[[Any], str], every: int, always: Callable[[Any], bool]
) -> list[Any]:
    """Return the cases as parameters, all as slow but the first of each area, each one of `every`, and some.

    `always` tells which are played every time, wherever they stand.
    """
    known: Counter[str] = Counter()
    marked = []
    for case in cases:
        marked.append(_rarely(case) if known[area(case)] % every and not always(case) else case)
        known[area(case)] += 1
    return marked


def first_of(*cases: Any) -> list[Any]:
    """Return the cases as parameters, all but the first marked as slow: they take the same way."""
    return [case if not number else _rarely(case) for number, case in enumerate(cases)]


def _rarely(case: Any) -> Any:
    return pytest.param(*case if type(case) is tuple else (case,), marks=pytest.mark.slow)
