"""Tests' directories lie in memory only where there is much of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.in_memory import roomy_memory


@pytest.mark.parametrize(
    ("available", "wanted_bytes", "taken"),
    [(2 << 30, 1 << 20, True), (2 << 30, 3 << 30, False), (None, 1 << 20, False)],
)
def test_a_place_in_memory_is_taken_while_so_much_memory_is_left(
    tmp_path: Path, available: int | None, wanted_bytes: int, taken: bool
) -> None:
    found = roomy_memory(str(tmp_path), wanted_bytes, lambda: available)
    assert found == (str(tmp_path) if taken else None)


def test_where_there_is_no_such_place_the_disk_is_taken(tmp_path: Path) -> None:
    assert roomy_memory(str(tmp_path / "none")) is None


def test_a_place_that_is_too_small_is_not_taken(tmp_path: Path) -> None:
    assert roomy_memory(str(tmp_path), 1 << 60, lambda: 1 << 62) is None
