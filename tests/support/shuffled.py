"""`-p tests.support.shuffled`: tests in another order: one that needs what another left behind fails.

ORDER is `reversed`, which plays the last test first, or a number, which gives modules the same order each
time and leaves their own tests in theirs.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

One = TypeVar("One")


def another(order: str, tests: Iterable[One], module_of: Callable[[One], object]) -> list[One]:
    """Return the tests in that order; raises ValueError for one that is none."""
    modules: dict[object, list[One]] = {}
    for test in tests:
        modules.setdefault(module_of(test), []).append(test)
    listed = list(modules.values())
    if order == "reversed":
        return [test for module in listed[::-1] for test in module[::-1]]
    random.Random(int(order)).shuffle(listed)
    return [test for module in listed for test in module]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Play the tests in the order that is asked for."""
    items[:] = another(os.environ.get("ORDER", "reversed"), items, lambda item: item.path)
