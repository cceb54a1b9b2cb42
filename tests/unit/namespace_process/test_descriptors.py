"""Which descriptors are the notebook's: those that it has still open a moment after its cell."""

from __future__ import annotations

import os
from pathlib import Path

from replkernel.namespace.process_parts.descriptors import Descriptors

NAMING = "number = os.open(path, os.O_RDONLY)"


def test_what_a_cell_has_opened_is_told(tmp_path: Path) -> None:
    descriptors = Descriptors(lambda: None)
    descriptors.expect(NAMING)
    number = os.open(tmp_path, os.O_RDONLY)
    try:
        (sentence,) = descriptors.ties()
        assert f"os.close({number})" in sentence
    finally:
        os.close(number)
    assert descriptors.ties() == ()


def test_what_a_thread_of_the_kernel_has_open_for_a_moment_is_not_told(tmp_path: Path) -> None:
    opened: list[int] = []
    descriptors = Descriptors(lambda: os.close(opened.pop()))
    descriptors.expect(NAMING)
    opened.append(os.open(tmp_path, os.O_RDONLY))
    assert descriptors.ties() == ()
    assert not opened


def test_the_directory_of_the_history_is_not_told_while_it_is_synchronized(tmp_path: Path) -> None:
    (tmp_path / "history.sqlite").touch()
    descriptors = Descriptors(lambda: None)
    descriptors.expect(NAMING)
    number = os.open(tmp_path, os.O_RDONLY)
    try:
        assert descriptors.ties() == ()
    finally:
        os.close(number)


def test_the_first_number_that_is_free_is_told_as_well(tmp_path: Path) -> None:
    """The look before the cell has that number for itself."""
    descriptors = Descriptors(lambda: None)
    free = os.open(tmp_path, os.O_RDONLY)
    os.close(free)
    descriptors.expect(NAMING)
    number = os.open(tmp_path, os.O_RDONLY)
    try:
        assert number == free
        assert descriptors.ties() != ()
    finally:
        os.close(number)
