"""Cases that repeat for breadth: some are played every time, all of them by `make nightly`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

SHORT_EVERY = 20
"""One of so many notebooks that bare processes play every time is played in kernels as well."""


def each_fifth(cases: Iterable[Any]) -> list[Any]:
    """Return the cases as parameters, all but each fifth marked as slow."""
    return each_nth(cases, 5)


def each_nth(cases: Iterable[Any], every: int) -> list[Any]:
    """Return the cases as parameters, all but each one of `every` marked as slow."""
    return [
        pytest.param(case, marks=pytest.mark.slow) if number % every else case
        for number, case in enumerate(cases)
    ]
