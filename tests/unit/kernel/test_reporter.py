"""A sentence for the user is told now, or with the next cell where no agent would hear it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from replkernel.kernel.reporter import Reporter


@pytest.mark.parametrize(
    ("connected", "congested", "with_a_cell"),
    [(True, False, False), (True, True, True), (False, False, True)],
)
def test_a_sentence_that_no_agent_hears_comes_with_the_next_cell(
    connected: bool, congested: bool, with_a_cell: bool
) -> None:
    nothing: Any = None
    said: list[str] = []
    link: Any = SimpleNamespace(
        connected=lambda: connected, congested=lambda: congested, complain=said.append
    )
    reporter = Reporter(nothing, nothing)
    reporter.link = link
    reporter.complain("once")
    assert (said, reporter.notices) == (([], ["once"]) if with_a_cell else (["once"], []))
