"""`python -m tests.bench.heavy [--long] [--kills N]`: heavy and long notebooks in one run; a table of goals.

Beside the stock kernel, and beside `torch.save` in each cell. The samples are written as by `make bench`.
"""

from __future__ import annotations

import argparse
import statistics
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from tests.bench import drift, interrupts, kills, many_objects, training_disk
from tests.bench.report import BUILD, Result, write

GIB_MIB = 1024


class Row(NamedTuple):
    """One goal: what was asked for, what was seen, and whether that is enough."""

    what: str
    goal: str
    seen: str
    met: bool


def training_rows(result: Result) -> Iterator[Row]:
    """Say what training took of the disk, the processor and the cells' time."""
    sides = result.details
    stock, save = sides["stock"], sides["torch_save"]
    for key in ("replicas_3", "replicas_1"):
        ours = sides[key]
        limit = 2 * ours["live_mib"] + GIB_MIB
        cpu = ours["cpu_s"] / stock["cpu_s"]
        latency = statistics.median(ours["took_s"]) / statistics.median(stock["took_s"])
        written, saved = ours["written_mib_per_cell"], save["written_mib_per_cell"]
        yield Row(
            f"{key}: written a cell",
            "beside torch.save",
            f"{written:.0f} MiB ({saved:.0f})",
            written <= saved,
        )
        most, left = ours["disk_max_mib"], ours["disk_left_mib"]
        yield Row(f"{key}: disk at most", f"{limit:.0f} MiB", f"{most:.0f} MiB", most <= limit)
        yield Row(f"{key}: left 3 s after the end", "0", f"{left:.1f} MiB", left < 1)
        yield Row(f"{key}: cell", "1.05 x stock", f"{latency:.2f} x", latency <= 1.05)
        yield Row(f"{key}: CPU", "1.3 x stock", f"{cpu:.2f} x", cpu <= 1.3)


def drift_rows(result: Result) -> Iterator[Row]:
    """Say how the reply changed with the notebook's age."""
    ours, stock = result.details["ours"], result.details["stock"]
    grew, theirs = ours["last_ms"] / ours["first_ms"], stock["last_ms"] / stock["first_ms"]
    seen = f"{grew:.2f} x (stock's own {theirs:.2f} x)"
    yield Row(f"{result.name}: last replies by first", "1.1 x", seen, grew <= 1.1)


def object_rows(result: Result) -> Iterator[Row]:
    """Say what a million objects cost."""
    ratio, share, total = result.document()["ratio"], result.details["cpu"][0], result.details["sum_ratio"]
    yield Row(f"{result.name}: reply", "1.5 x stock", f"{ratio:.2f} x", ratio <= 1.5)
    yield Row(f"{result.name}: sum over them", "1.5 x stock", f"{total:.2f} x", total <= 1.5)
    yield Row(f"{result.name}: a core's share", "0.20", f"{share:.2f}", share <= 0.2)


def element_rows(result: Result) -> Iterator[Row]:
    """Say what one element of something large costs."""
    for name, seen in result.details.items():
        yield Row(f"{result.name}: {name}", "1.5 x stock", f"{seen['ratio']:.2f} x", seen["ratio"] <= 1.5)


def interrupt_rows(result: Result) -> Iterator[Row]:
    """Say how long an interrupted cell goes on, where stock's ends within 0.3 s."""
    seconds: dict[str, Any] = result.details["seconds"]
    counted = {name: both["ours"] for name, both in seconds.items() if both["stock"] <= 0.3}
    longest = max(counted, key=lambda name: counted[name])
    seen = f"{counted[longest]:.2f} s ({longest}; {len(counted)} of {len(seconds)} cells counted)"
    yield Row("interrupts: longest", "0.3 s where stock's is", seen, counted[longest] <= 0.3)


def kill_rows(result: Result) -> Iterator[Row]:
    """Say what random kills left."""
    whole, struck = result.details["a_state_that_existed"], result.details["kills"]
    lost = result.details["cells_lost"]
    seen = f"{whole} of {struck}; cells lost at most {lost['max']}, all told"
    yield Row("kills: a state that existed", "all", seen, whole == struck)


def parts(given: argparse.Namespace) -> dict[Callable[[], Result], Callable[[Result], Iterator[Row]]]:
    """Return what is measured, each with the reading of its figures."""
    mib, cells, cell_s = (200, 60, 1.0) if given.long else (20, 60, 0.3)
    return {
        interrupts.measure: interrupt_rows,
        partial(training_disk.measure, mib, cells, cell_s): training_rows,
        drift.measure_long if given.long else drift.measure: drift_rows,
        many_objects.measure_long if given.long else many_objects.measure: object_rows,
        many_objects.measure_large_long if given.long else many_objects.measure_large: element_rows,
        partial(kills.measure, given.kills): kill_rows,
    }


def main() -> int:
    """Measure all, print the table; return how many parts failed. A goal that is missed is no failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.heavy", description=__doc__)
    parser.add_argument("--long", action="store_true", help="the full sizes: an hour, and 10 GiB of memory")
    parser.add_argument("--kills", type=int, default=50, help="how many random kills (50)")
    rows: list[Row] = []
    failed = 0
    for measure, read in parts(parser.parse_args()).items():
        try:
            result = measure()
            print(write(result), flush=True)
            rows += read(result)
        except Exception:  # The other figures are worth having; what broke this one is printed.
            traceback.print_exc()
            failed += 1
    lines = ["| what | goal | seen | met |", "| --- | --- | --- | --- |"]
    lines += [f"| {row.what} | {row.goal} | {row.seen} | {'yes' if row.met else 'no'} |" for row in rows]
    table = "\n".join(lines)
    (BUILD / "heavy.md").write_text(table + "\n")
    print(table)
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
