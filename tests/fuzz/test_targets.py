"""What `make fuzz` does for minutes, in a moment: each target reads seeds, what was found, and others.

No coverage guides it, and the same dice each time: it needs no fuzzer.
"""

from __future__ import annotations

import logging
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.mutation import mutated
from tests.fuzz.pieces import cut, joined
from tests.fuzz.targets import NAMES, target

FOUND = Path(__file__).parent / "found"
OTHERS = 300
SIZE_MAX = 16 * 1024

targets = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(autouse=True, scope="module")
def _own_place() -> Iterator[None]:
    """Have targets keep their files in one directory, which goes with the tests; close what they keep."""
    from tests.fuzz.targets import agent

    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="rk-") as place:
        tempfile.tempdir = place
        yield
        agent.end()
        tempfile.tempdir = before


@pytest.fixture(autouse=True)
def _logs_again() -> Iterator[None]:
    """Targets switch logging off in their process, which here has other tests."""
    yield
    logging.disable(logging.NOTSET)


@targets
def test_real_messages_are_read(name: str) -> None:
    chosen = target(name)
    for seed in chosen.seeds():
        chosen.fuzz(seed)


@targets
def test_an_input_that_fuzzing_found_is_refused(name: str) -> None:
    chosen = target(name)
    for path in sorted((FOUND / name).glob("*")):
        chosen.fuzz(path.read_bytes())


@targets
def test_others_are_read_or_refused(name: str) -> None:
    chosen, dice = target(name), random.Random(name)
    inputs = [*chosen.seeds()]
    for _ in range(OTHERS):
        data = mutated(dice.choice(inputs), SIZE_MAX, dice)
        chosen.fuzz(data)


def test_an_input_is_cut_into_what_was_joined() -> None:
    pieces = [b"", b"one", b"x" * 300]
    assert cut(joined(7, *pieces)) == (7, pieces)
    assert cut(b"") == (0, [])
    assert cut(b"\x01\x00") == (1, [])


def test_the_same_dice_make_the_same_input() -> None:
    seed = joined(1, b'{"a": [1, 2]}', b"\x81\xa1a\x01")
    made = [mutated(seed, 999, random.Random(number)) for number in range(200)]
    assert made == [mutated(seed, 999, random.Random(number)) for number in range(200)]
    assert all(len(data) <= 999 for data in made)
    assert len(set(made)) > 100
