"""Which sequences of `tests/e2e/state` come back right after all of their cells are undone and redone.

Ours plays them as `test_going_back.py` does, and Kishu checks the same states out in the same run. Right is
what shows, in its last cell, what a kernel without either shows. A run that is stopped goes on where it was.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence as Many
from pathlib import Path
from unittest import mock

import msgspec

from replkernel.protocol.points import REQUEST, HistoryDocument
from tests.bench.going_back import kishu
from tests.bench.kernels import place
from tests.bench.report import BUILD, Result, quantile
from tests.e2e.state.forks import Forks
from tests.e2e.state.going_back import go_forth
from tests.e2e.state.play import Pair, Players
from tests.e2e.state.sequence import Sequence, collect

SAMPLE = 10
"""One of so many sequences is played, unless all are."""
AT_ONCE = 6
"""So many are played by us, then by Kishu, and written down."""
QUIET = {"MPLBACKEND": "agg", "OMP_NUM_THREADS": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
ANSWER_S = 30.0
OURS, THEIRS = "replkernel", "kishu"
MS, KIB = 1000.0, 1024
OUTCOMES = ("right", "refused", "other", "failed", "without")


class Row(msgspec.Struct, frozen=True):
    """How one sequence came back, the seconds of each of both checkouts, and the bytes that were kept.

    `refused` names what cannot be copied; `failed` is an error or took too long; `without`: so did the kernel
    without either, and there is nothing to compare.
    """

    outcome: str
    checkouts_s: list[float] = []
    kept: int = 0


class Rows(msgspec.Struct, frozen=True):
    """Both rows of one sequence."""

    name: str
    ours: Row
    theirs: Row


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
    book = BUILD / f"{name}.jsonl"
    BUILD.mkdir(parents=True, exist_ok=True)
    done = _read(book)
    left = [one for one in sequences if one.name not in done]
    for first in range(0, len(left), AT_ONCE):
        some = left[first : first + AT_ONCE]
        mine, peers = ours(some), theirs(some)
        rows = {one.name: Rows(one.name, mine[one.name], peers[one.name]) for one in some}
        with book.open("ab") as file:
            file.writelines(msgspec.json.encode(both) + b"\n" for both in rows.values())
        done |= rows
        print(f"{len(left) - first - len(some)} of {len(sequences)} sequences are left", flush=True)
    found = [done[one.name] for one in sequences]
    by = {OURS: [both.ours for both in found], THEIRS: [both.theirs for both in found]}
    both_right = [both.ours.outcome == both.theirs.outcome == "right" for both in found]
    table = {who: _summary(rows, both_right) for who, rows in by.items()}
    _print(table)
    not_right = {
        who: {both.name: row.outcome for both, row in zip(found, rows, strict=True) if row.outcome != "right"}
        for who, rows in by.items()
    }
    book.unlink()
    right, theirs_right = ([float(one["right"])] for one in table.values())
    goal = "all but those that are refused by name; stock: Kishu"
    details = {"of": len(sequences), "table": table, "not_right": not_right}
    return Result(name, "right", right, theirs_right, goal, details)


def _read(book: Path) -> dict[str, Rows]:
    """Return what a run that was stopped has written down."""
    lines = book.read_bytes().splitlines() if book.exists() else []
    return {rows.name: rows for rows in (msgspec.json.decode(line, type=Rows) for line in lines)}


def _summary(rows: Many[Row], both_right: Many[bool]) -> dict[str, float]:
    """Return how many came back in which way; what checkouts took and what was kept, where both are right."""
    counts = Counter(row.outcome for row in rows)
    compared = [row for row, is_right in zip(rows, both_right, strict=True) if is_right]
    times = [seconds for row in compared for seconds in row.checkouts_s]
    return {
        **{outcome: counts[outcome] for outcome in OUTCOMES},
        "compared": len(compared),
        "checkout_ms": round(statistics.median(times) * MS, 1),
        "checkout_p95_ms": round((quantile(times, 95) or 0.0) * MS, 1),
        "kept_kib": round(statistics.median(row.kept for row in compared) / KIB, 1),
        "kept_all_kib": round(sum(row.kept for row in compared) / KIB, 1),
    }


def _print(table: Mapping[str, Mapping[str, float]]) -> None:
    print(f"{'':<20}" + "".join(f"{who:>14}" for who in table))
    for what in next(iter(table.values())):
        print(f"{what:<20}" + "".join(f"{table[who][what]:>14,.10g}" for who in table))


def ours(sequences: Many[Sequence]) -> dict[str, Row]:
    """Return how each sequence comes back with us."""
    found: dict[str, Row] = {}
    with place(**QUIET) as here, mock.patch.dict("os.environ", here.env):
        forks = Forks(here.env, {"IPYTHONDIR": str(here.root / "stock_ipython")})
        players = Players(here.root, forks, {"REPLKERNEL_REPLICAS": "1"})
        try:
            for one, then in itertools.pairwise([*sequences, None]):
                assert one is not None
                found[one.name] = players.play_as(_back, one, then)
        finally:
            players.close()
            forks.close()
    return found


def _back(pair: Pair) -> Row:
    went = go_forth(pair)
    right = went.last[1].text() == went.last[0].text()
    outcome = "other" if not right else "refused" if went.refused else "right"
    return Row(outcome, [] if went.refused else went.took_s, _kept(pair))


def _kept(pair: Pair) -> int:
    """Return the bytes of what each cell but the last one changed, which can all be gone back to."""
    client = pair.ours.client
    client.control_channel.send(client.session.msg(REQUEST, {}))
    told = msgspec.convert(client.get_control_msg(timeout=ANSWER_S)["content"], HistoryDocument)
    cells = len(pair.sequence.cells)
    return sum(point.bytes for point in told.points if point.to is None and point.cell < cells)


def theirs(sequences: Many[Sequence]) -> dict[str, Row]:
    """Return how each sequence comes back with Kishu."""
    answer = kishu(["sequences"], [(one.name, list(one.cells)) for one in sequences])
    if isinstance(answer, str):
        raise RuntimeError(answer)
    return msgspec.convert(answer, dict[str, Row])
