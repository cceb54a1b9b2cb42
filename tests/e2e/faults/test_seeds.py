"""Seeded runs: whatever goes wrong, nothing acknowledged is lost, nothing runs twice, and replicas agree.

A seed that fails is had again with `make chaos SEED=n`, which also prints what its clients saw.
"""

from __future__ import annotations

import pytest

from tests.e2e.faults.chaos import CELLS, transcript
from tests.e2e.faults.play import play
from tests.support.breadth import first_of

QUICK_CELLS = 8
QUICK = (1001, 7, 11)
SLOW = (*range(100, 120), *range(1100, 1105), *range(2100, 2105))
"""From UNDOING_SEEDS on, cells go back as well; from DORMANT_SEEDS on, standbys go without processes."""

pytestmark = pytest.mark.timeout(450)


def check(seed: int, cells: int) -> None:
    played = play(seed, cells)
    story = "\n".join(transcript(played))
    assert not played.broken, f"seed {seed} (make chaos SEED={seed}): {played.broken}\n{story}"


@pytest.mark.parametrize("seed", first_of(*QUICK))
def test_a_short_run_keeps_every_promise(seed: int) -> None:
    check(seed, QUICK_CELLS)


@pytest.mark.slow
@pytest.mark.usefixtures("zygotes_as_shipped")
@pytest.mark.parametrize("seed", SLOW)
def test_a_whole_run_keeps_every_promise(seed: int) -> None:
    check(seed, CELLS)
