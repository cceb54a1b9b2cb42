"""Which descriptors are the notebook's: those that it has still open a moment after its cell."""

from __future__ import annotations

import os
from pathlib import Path

from replkernel.state.process.descriptors import Descriptors

NAMING = "number = os.open(path, os.O_RDONLY)"


def test_a_descriptor_that_a_cell_has_opened_is_told(tmp_path: Path) -> None:
    descriptors = Descriptors(lambda: None)
    descriptors.expect(NAMING)
    number = os.open(tmp_path, os.O_RDONLY)
    try:
        (sentence,) = descriptors.ties()
        assert f"os.close({number})" in sentence
    finally:
        os.close(number)
    assert descriptors.ties() == ()


def test_a_descriptor_that_the_kernel_has_open_for_a_moment_is_not_told(tmp_path: Path) -> None:
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


def test_a_number_is_told_that_the_kernel_had_before_the_cell(tmp_path: Path) -> None:
    """The history's thread lets go of one while the cell runs, which gets it."""
    kernels = os.open(tmp_path / "journal", os.O_CREAT | os.O_RDWR)
    descriptors = Descriptors(lambda: None)
    descriptors.expect("r, w = os.pipe()")
    os.close(kernels)
    read, write = os.pipe()
    try:
        assert read == kernels
        (sentence,) = descriptors.ties()
        assert f"os.close() of each of {read}, {write} sets it free" in sentence
        os.close(read)
        (sentence,) = descriptors.ties()
        assert f"os.close({write})" in sentence
    finally:
        os.close(write)


def test_a_file_that_has_another_name_or_none_is_still_the_notebooks(tmp_path: Path) -> None:
    descriptors = Descriptors(lambda: None)
    descriptors.expect("number = os.open(path, os.O_CREAT)")
    number = os.open(tmp_path / "one", os.O_CREAT)
    try:
        told = descriptors.ties()
        os.rename(tmp_path / "one", tmp_path / "two")
        assert descriptors.ties() == told != ()
        os.unlink(tmp_path / "two")
        assert descriptors.ties() == told
    finally:
        os.close(number)
    assert descriptors.ties() == ()


def test_many_numbers_are_counted(tmp_path: Path) -> None:
    descriptors = Descriptors(lambda: None)
    descriptors.expect(NAMING)
    numbers = [os.open(tmp_path, os.O_RDONLY) for _ in range(7)]
    try:
        assert "and 2 more" in descriptors.ties()[0]
    finally:
        for number in numbers:
            os.close(number)
