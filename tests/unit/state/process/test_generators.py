"""Random generators: the next draw on another process is the one that this process would have made."""

from __future__ import annotations

import random

import numpy as np
import pytest

from replkernel.state.libraries.numpy.global_generator import NumpyRandomPart
from replkernel.state.process.part import Part
from replkernel.state.process.random import RandomPart


def _told(part: Part[object]) -> bytes:
    data = part.dump()
    assert data is not None
    return data


def test_random_continues_where_it_was() -> None:
    here, there = RandomPart(), RandomPart()
    random.seed(5)
    random.gauss(0, 1)
    data = _told(here)
    expected = [random.gauss(0, 1), random.random(), random.randrange(10**9)]
    there.load(data)
    assert [random.gauss(0, 1), random.random(), random.randrange(10**9)] == expected


def test_looking_draws_nothing() -> None:
    random.seed(1)
    expected = [random.random() for _ in range(3)]
    random.seed(1)
    part = RandomPart()
    seen = []
    for _ in range(3):
        part.dump()
        seen.append(random.random())
    assert seen == expected


def test_an_untouched_generator_is_not_told() -> None:
    part = RandomPart()
    assert part.dump() is None
    random.random()
    data = part.dump()
    assert data is not None
    assert part.dump() is data


def test_numpy_continues_with_its_cached_gaussian() -> None:
    here, there = NumpyRandomPart(), NumpyRandomPart()
    np.random.seed(3)
    np.random.standard_normal()
    data = _told(here)
    expected = np.random.standard_normal(), np.random.rand()
    np.random.seed(99)
    there.load(data)
    assert (np.random.standard_normal(), np.random.rand()) == expected


def test_drawing_only_the_cached_gaussian_is_seen_as_a_change() -> None:
    part = NumpyRandomPart()
    np.random.seed(3)
    np.random.standard_normal()
    before = _told(part)
    np.random.standard_normal()
    assert _told(part) != before


@pytest.mark.parametrize("name", ["PCG64", "Philox", "SFC64"])
def test_another_bit_generator_is_followed(name: str) -> None:
    original = np.random.get_bit_generator()
    try:
        here, there = NumpyRandomPart(), NumpyRandomPart()
        np.random.set_bit_generator(getattr(np.random, name)(7))
        data = _told(here)
        expected = np.random.rand(3).tolist()
        np.random.set_bit_generator(np.random.MT19937(1))
        there.load(data)
        assert np.random.rand(3).tolist() == expected
    finally:
        np.random.set_bit_generator(original)


def test_a_state_that_arrives_before_its_library_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    np.random.seed(11)
    data = NumpyRandomPart()
    np.random.rand()
    told = _told(data)
    expected = np.random.rand()
    there = NumpyRandomPart()
    monkeypatch.setattr(NumpyRandomPart, "library", "a library that is not imported")
    there.load(told)
    np.random.seed(12)
    assert there.settle() is False
    assert there.dump() == told
    monkeypatch.setattr(NumpyRandomPart, "library", "numpy.random")
    assert there.settle() is True
    assert np.random.rand() == expected


def test_every_kind_of_change_is_seen() -> None:
    part = RandomPart()
    random.seed(3)
    told = [_told(part)]
    for change in (random.random, lambda: random.gauss(0, 1), lambda: random.setstate(before)):
        before = random.getstate()
        change()
        told.append(_told(part))
    assert len(set(told)) == 3
    assert told[3] == told[2]
    random.gauss(0, 1)
    assert _told(part) != told[2]
