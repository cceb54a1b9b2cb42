"""What is read of a cell shows no warning, and leaves what Python knows of those that were shown."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from replkernel.state.analysis.cell_mentions import cell_mentions
from replkernel.state.analysis.cell_text import read_cell
from replkernel.state.analysis.looking import only_looks

READERS: list[Callable[[str], Any]] = [only_looks, cell_mentions.__wrapped__, read_cell]


@pytest.mark.parametrize("read", READERS)
def test_a_warning_that_is_shown_once_is_not_shown_again_after_a_cell_was_read(
    read: Callable[[str], Any],
) -> None:
    registry: dict[Any, Any] = {}
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        before = list(warnings.filters)
        for _ in range(2):
            warnings.warn_explicit("careful", UserWarning, "a.py", 1, registry=registry)
            read("x = '\\d'; 1 is 1")
        assert warnings.filters == before
    assert [str(one.message) for one in shown] == ["careful"]
