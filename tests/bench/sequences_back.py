"""Which sequences of `tests/e2e/state` come back right after all of their cells are undone and redone.

Ours plays them as `test_going_back.py` does, then Kishu checks the same states out. Right is what shows, in
its last cell, what a kernel without either shows.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence as Many
from unittest import mock

from tests.bench.going_back import kishu
from tests.bench.kernels import place
from tests.bench.report import Result
from tests.e2e.state.forks import Forks
from tests.e2e.state.going_back import there_and_back
from tests.e2e.state.play import Players
from tests.e2e.state.sequence import Sequence, collect

SAMPLE = 10
"""One of so many sequences is played, unless all are."""
KISHU_AT_ONCE = 60
"""So many are played by one process of Kishu's, which has a time limit."""
QUIET = {"MPLBACKEND": "agg", "OMP_NUM_THREADS": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}

Outcomes = dict[str, str]


def measure() -> Result:
    """Play a tenth."""
    return _measure("sequences_back", _travelling()[::SAMPLE])


def measure_all() -> Result:
    """Play all."""
    return _measure("sequences_back_all", _travelling())


def _travelling() -> list[Sequence]:
    """Return the sequences whose objects can be copied, and whose packages are there."""
    return [one for one in collect() if not one.refuses and not one.missing()]


def _measure(name: str, sequences: Many[Sequence]) -> Result:
    found = {"replkernel": ours(sequences), "kishu": theirs(sequences)}
    counts = {who: dict(Counter(outcomes.values())) for who, outcomes in found.items()}
    for who, counted in counts.items():
        print(f"{who}, of {len(sequences)} sequences: {counted}")
    not_right = {who: {n: o for n, o in all_.items() if o != "right"} for who, all_ in found.items()}
    details = {"of": len(sequences), "outcomes": counts, "not_right": not_right}
    right, theirs_right = ([float(counted.get("right", 0))] for counted in counts.values())
    goal = "all but those that are refused by name; stock: Kishu"
    return Result(name, "right", right, theirs_right, goal, details)


def ours(sequences: Many[Sequence]) -> Outcomes:
    """Return `right`, `refused` or `other` for each sequence with us."""
    found: Outcomes = {}
    with place(**QUIET) as here, mock.patch.dict("os.environ", here.env):
        forks = Forks(here.env, {"IPYTHONDIR": str(here.root / "stock_ipython")})
        players = Players(here.root, forks, {"REPLKERNEL_REPLICAS": "1"})
        try:
            for one, then in itertools.pairwise([*sequences, None]):
                assert one is not None
                returned = players.play_as(there_and_back, one, then)
                stock, shown = returned.forth
                right = "right" if shown.text() == stock.text() else "other"
                found[one.name] = "refused" if returned.refused and right == "right" else right
        finally:
            players.close()
            forks.close()
    return found


def theirs(sequences: Many[Sequence]) -> Outcomes:
    """Return `right`, `other` or `failed` for each sequence with Kishu."""
    found: Outcomes = {}
    for first in range(0, len(sequences), KISHU_AT_ONCE):
        some = sequences[first : first + KISHU_AT_ONCE]
        answer = kishu(["sequences"], [(one.name, list(one.cells)) for one in some])
        if isinstance(answer, str):
            raise RuntimeError(answer)
        found.update(answer)
    return found
