"""What the scheduler's REST takes: ids that can be shown in a line of a terminal or a table."""

from __future__ import annotations

import pytest
from replkernel_server.errors import BadRequest
from replkernel_server.scheduling.documents import check_id


@pytest.mark.parametrize("text", ["", "a\n", "\na", "a\tb", "a\x1b[2J", "a\x9b2J", "\x7f", "x" * 201])
def test_an_id_with_a_control_character_or_of_no_sensible_length_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="kernel's id must have 1 to 200 characters"):
        check_id(text, "kernel's id")


@pytest.mark.parametrize("text", ["k", "h-1.example", "Ünïcode id", "x" * 200])
def test_any_other_id_is_taken(text: str) -> None:
    assert check_id(text, "kernel's id") == text
