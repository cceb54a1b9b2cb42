"""`make chaos`: play many seeds and judge each; `python -m tests.e2e.faults.chaos SEED …` plays those again.

Each seed and its outcome is printed as it ends; one that failed is printed with all that its clients saw and
leaves its logs in build/chaos. Law: the exit code tells whether every promise was kept.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path

import msgspec

from tests.e2e.faults.history import Operation
from tests.e2e.faults.play import Played, may_separate, play

SEEDS = 200
CELLS = 30
BUILD = Path(__file__).parents[3] / "build" / "chaos"
SAID_CHARACTERS = 160


def transcript(played: Played) -> Iterator[str]:
    """Yield a run's story in order of time: what went wrong by plan, and what the clients saw."""
    operations = played.history.operations
    start = min((operation.began for operation in operations), default=0.0)
    rows = [(operation.began, _line(operation, start)) for operation in operations]
    for note in played.notes:
        at, _, text = note.partition(" ")
        rows.append((float(at), f"    {float(at) - start:7.2f}          !! {text}"))
    yield from (text for _, text in sorted(rows))
    for replica, names in sorted(played.history.audited.items()):
        yield f"    {replica} holds {len(names)}: {' '.join(names)}"


def _line(operation: Operation, start: float) -> str:
    seen = "-" if operation.seen is None else str(len(operation.seen))
    durable = "durable" if operation.durable else ""
    span = f"{operation.began - start:7.2f} {operation.ended - start:7.2f}"
    what = (
        f"{operation.name:4} {operation.kind:6} {operation.outcome:8} [{operation.count}] {operation.replica}"
    )
    return f"    {span}  {what:36} saw {seen:3} {durable:8}{operation.said[:SAID_CHARACTERS]}"


def run(seeds: Iterable[int], cells: int, jobs: int) -> int:
    """Play the seeds; return how many broke a promise."""
    todo = list(seeds)
    began = time.monotonic()
    failed: list[int] = []
    if not may_separate():
        print(
            "No right to make namespaces: hosts are processes on loopback; kills, stops, broken stores only."
        )
    with ThreadPoolExecutor(jobs) as pool:
        playing: dict[Future[Played], int] = {
            pool.submit(play, seed, cells, str(BUILD)): seed for seed in todo
        }
        for number, ended in enumerate(as_completed(playing), 1):
            seed = playing[ended]
            spent_s = time.monotonic() - began
            left_s = spent_s / number * (len(todo) - number)
            progress = f"{number}/{len(todo)}, {left_s / 60:.0f} min left"
            if not _tell(seed, ended, progress, alone=len(todo) == 1):
                failed.append(seed)
    print(
        f"{len(todo)} seeds x {cells} cells, {(time.monotonic() - began) / 60:.1f} min: {len(failed)} failed."
    )
    if failed:
        print(f"Again with: make chaos SEED={failed[0]}   (failed: {' '.join(map(str, sorted(failed)))})")
    return len(failed)


def _tell(seed: int, ended: Future[Played], progress: str, *, alone: bool) -> bool:
    """Print how a seed went; return whether all is well."""
    try:
        played = ended.result()
    except Exception as error:
        print(f"seed {seed}: broke off ({progress}): {type(error).__name__}: {error}", flush=True)
        return False
    plan = played.plan
    kinds = ", ".join(fault.kind for fault in plan.faults)
    outcome = "ok" if not played.broken else "FAILED"
    print(f"seed {seed}: {outcome} ({progress}) {plan.executor} {plan.durable}: {kinds}", flush=True)
    for sentence in played.broken:
        print(f"  {sentence}")
    if played.broken or alone:
        print("\n".join(transcript(played)), flush=True)
    if played.broken:
        BUILD.mkdir(parents=True, exist_ok=True)
        (BUILD / f"{seed}.json").write_bytes(msgspec.json.format(msgspec.json.encode(played)))
    return not played.broken


def main() -> int:
    """Read the arguments and play."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("seed", type=int, nargs="*", help="play these seeds; else --seeds from --first on")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many seeds ({SEEDS})")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--cells", type=int, default=CELLS, help=f"cells of each run ({CELLS})")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (1)")
    given = parser.parse_args()
    seeds = given.seed or range(given.first, given.first + given.seeds)
    return int(run(seeds, given.cells, given.jobs) > 0)


if __name__ == "__main__":
    sys.exit(main())
