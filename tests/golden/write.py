"""Writes the golden payloads of the present format for this Python: `python -m tests.golden.write`.

Notebooks of the other tests are played between two processes; of those that show what they show at rest,
as few are kept as name every global that any of them names.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from replkernel.state.format.stream import FORMAT_VERSION
from tests.e2e.state.sequence import collect
from tests.golden.payloads import FOLDER, INLINE_BYTES_MAX, Golden, read, save, version_here
from tests.support import move_cases, move_library_cases
from tests.support.move import Answer, Ask, Mover

BYTES_MAX = 64 * 1024
"""Larger notebooks are left out."""
LIBRARIES = ("numpy", "pandas", "torch", "matplotlib", "sklearn")


def candidates() -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Yield the notebooks: name, cells, and the packages that they need."""
    for name, cells in move_cases.CASES.items():
        yield name, tuple(cells), ()
    for name, cells in move_library_cases.CASES.items():
        yield name, tuple(cells), LIBRARIES
    for sequence in collect():
        if not (sequence.refuses or sequence.pinned) and all(map(_is_plain, sequence.cells)):
            yield f"{sequence.area}: {sequence.name}", sequence.cells, sequence.needs


def _is_plain(cell: str) -> bool:
    if "get_ipython" in cell:
        return False
    try:
        ast.parse(cell)
    except SyntaxError:
        return False
    return True


class Players:
    """Two processes that move the state between them, one at rest, one that reads elsewhere.

    What the others have written is out of the reader's reach, as on another machine.
    """

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="rk-golden-"))
        self._place = self._directory / "played"
        self._movers = [self._begun(self._place, number) for number in range(3)]
        self._reader = self._begun(self._directory / "read", 3)

    def _begun(self, place: Path, number: int) -> Mover:
        place.mkdir(exist_ok=True)
        os.chdir(place)
        os.environ["TMPDIR"] = str(place)
        return Mover(self._directory, number)

    def close(self) -> None:
        """End them."""
        for mover in [*self._movers, self._reader]:
            mover.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def play(self, name: str, cells: Sequence[str], needs: Sequence[str]) -> Golden | None:
        """Return the payloads; None if they are large, or do not show what the cells show at rest."""
        stayer = self._movers[2]
        stayer.ask(Ask("reset", "stock", stayer.cache))
        at_rest = [stayer.ask(Ask("run", source=cell)).output for cell in cells]
        deltas = self._move(cells[:-1])
        if sum(map(len, deltas)) > BYTES_MAX or not at_rest[-1]:
            return None
        away = self._place.rename(self._directory / "away")
        try:
            answer = read(self._reader, deltas, cells[-1])
        finally:
            away.rename(self._place)
        if answer.failed or answer.output != at_rest[-1]:
            return None
        versions = {package: version_here(package) for package in needs}
        return Golden(name, tuple(deltas), cells[-1], answer.output, answer.named, versions)

    def _move(self, cells: Sequence[str]) -> list[bytes]:
        movers, deltas = self._movers[:2], []
        for number, mover in enumerate(movers):
            mover.ask(Ask("reset", f"r{number + 1}", mover.cache, inline=INLINE_BYTES_MAX))
        for number, cell in enumerate(cells):
            executor, other = movers[number % 2], movers[1 - number % 2]
            executor.ask(Ask("materialise", source=cell, caches=(other.cache,)))
            answer: Answer = executor.ask(Ask("run", source=cell, seq=number + 1))
            deltas.append(answer.delta)
            other.ask(Ask("receive", delta=answer.delta))
        return deltas


def fewest(played: Sequence[Golden]) -> list[Golden]:
    """Return notebooks, few and small, that together name all that any of them names."""
    left = set().union(*(golden.named for golden in played))
    found: list[Golden] = []
    while left:
        best = max(played, key=lambda golden: len(left.intersection(golden.named)) / (400 + _size(golden)))
        found.append(best)
        left.difference_update(best.named)
    return found


def _size(golden: Golden) -> int:
    return sum(map(len, golden.deltas)) + len(golden.last) + len(golden.output)


def main() -> None:
    """Play, choose, write."""
    players, played = Players(), []
    for name, cells, needs in candidates():
        if any(importlib.util.find_spec(package.partition(".")[0]) is None for package in needs):
            continue
        try:
            golden = players.play(name, cells, needs)
        except Exception as error:
            print(f"left out: {name} ({str(error).splitlines()[-1] if str(error) else type(error).__name__})")
            players.close()
            players = Players()
            continue
        if golden is None:
            print(f"left out: {name}")
        else:
            played.append(golden)
    players.close()
    chosen = fewest(played)
    path = FOLDER / f"{FORMAT_VERSION}-python{sys.version_info.major}.{sys.version_info.minor}.xz"
    save(path, chosen)
    named = set().union(*(golden.named for golden in chosen))
    print(f"{path.name}: {len(chosen)} notebooks of {len(played)}, {len(named)} globals")


if __name__ == "__main__":
    main()
