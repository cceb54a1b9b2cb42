"""`-p tests.support.shuffled`: modules in another order: one that needs what another left behind fails.

ORDER is `reversed`, or a number, which gives the same order each time; a module's own tests keep theirs.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import TypeVar

import pytest

One = TypeVar("One")


def another(order: str, modules: Iterable[One]) -> list[One]:
    """Return the modules in that order; raises ValueError for one that is none."""
    listed = list(modules)
    if order == "reversed":
        return listed[::-1]
    random.Random(int(order)).shuffle(listed)
    return listed


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Play the modules in the order that is asked for."""
    modules: dict[object, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    order = another(os.environ.get("ORDER", "reversed"), modules)
    items[:] = [item for module in order for item in modules[module]]
