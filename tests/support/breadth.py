"""Cases that repeat for breadth: each fifth is played every time, all of them by `make nightly`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

EVERY = 5


def each_fifth(cases: Iterable[Any]) -> list[Any]:
    """Return the cases as parameters, all but each fifth marked as slow."""
    return [
        pytest.param(case, marks=pytest.mark.slow) if number % EVERY else case
        for number, case in enumerate(cases)
    ]
