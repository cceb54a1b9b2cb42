"""Tests' directories lie in memory only where there is much of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.in_memory import roomy_memory

GIB = 1 << 20
"""As /proc/meminfo counts."""


@pytest.mark.parametrize(
    ("available", "wanted_bytes", "taken"),
    [
        (f"MemTotal: {9 * GIB} kB\nMemAvailable:   {2 * GIB} kB\n", 1 << 20, True),
        (f"MemTotal: {9 * GIB} kB\nMemAvailable:   {2 * GIB} kB\n", 3 << 30, False),
        (f"MemTotal: {9 * GIB} kB\n", 1 << 20, False),
    ],
)
def test_a_place_in_memory_is_taken_while_so_much_memory_is_left(
    tmp_path: Path, available: str, wanted_bytes: int, taken: bool
) -> None:
    memory = tmp_path / "meminfo"
    memory.write_text(available)
    assert roomy_memory(str(tmp_path), wanted_bytes, memory) == (str(tmp_path) if taken else None)


def test_where_there_is_no_such_place_the_disk_is_taken(tmp_path: Path) -> None:
    assert roomy_memory(str(tmp_path / "none")) is None
    assert roomy_memory(str(tmp_path), memory=tmp_path / "none") is None


def test_a_place_that_is_too_small_is_not_taken(tmp_path: Path) -> None:
    memory = tmp_path / "meminfo"
    memory.write_text(f"MemAvailable: {1 << 50} kB\n")
    assert roomy_memory(str(tmp_path), 1 << 60, memory) is None
